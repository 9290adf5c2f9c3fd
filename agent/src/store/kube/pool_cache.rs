//! Pools: listed in full once, then watched as metadata. Every full pool event at 5,000 records
//! would be half a megabyte to every node; a metadata event is about one kilobyte.
//!
//! A changed generation is read at once (candidates need the specification); a changed status is
//! read when somebody is about to claim. Own writes refresh the copy.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use futures::{Stream, TryStreamExt};
use kube::api::{GetParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ObjectMeta, PartialObjectMeta, Request};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event};
use kube::{Client, Resource, ResourceExt};
use serde_json::{Value, json};
use spiderpool_api::allocation::Records;
use spiderpool_api::ippool::{ParentNic, SpiderIPPool};
use spiderpool_api::names;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::cache::{report, version_number};
use super::error::store_error;
use super::{Freshness, PoolObject, StoreError};

/// Objects in one page of the first list.
const PAGE: u32 = 100;

/// The copies and their watch, which ends when this is dropped.
pub(super) struct PoolCache {
    shared: Arc<Shared>,
    task: AbortHandle,
}

struct Shared {
    client: Client,
    entries: RwLock<HashMap<String, Entry>>,
    /// Pools the watch has told of and a read has failed for; there is no copy of them.
    unread: Mutex<BTreeSet<String>>,
    filled: AtomicBool,
    changes: Arc<Notify>,
}

#[derive(Clone)]
struct Entry {
    object: Arc<PoolObject>,
    /// Newest version the metadata watch has shown.
    seen: u64,
}

impl Entry {
    fn version(&self) -> u64 {
        version_number(Some(self.object.resource_version()))
    }

    fn is_outdated(&self) -> bool {
        self.seen > self.version()
    }
}

impl PoolCache {
    /// Lists all pools, then follows them.
    pub(super) async fn start<S>(client: Client, watch: S) -> Result<Self, StoreError>
    where
        S: Stream<Item = Result<Event<PartialObjectMeta<SpiderIPPool>>, watcher::Error>>
            + Send
            + 'static,
    {
        let shared = Arc::new(Shared {
            client,
            entries: RwLock::new(HashMap::new()),
            unread: Mutex::default(),
            filled: AtomicBool::new(false),
            changes: Arc::new(Notify::new()),
        });
        shared.list().await?;
        let task = tokio::spawn(follow(Arc::clone(&shared), watch));
        Ok(Self {
            shared,
            task: task.abort_handle(),
        })
    }

    pub(super) fn changes(&self) -> Arc<Notify> {
        Arc::clone(&self.shared.changes)
    }

    pub(super) fn is_filled(&self) -> bool {
        self.shared.filled.load(Ordering::Acquire)
    }

    pub(super) fn all(&self) -> Vec<Arc<PoolObject>> {
        let entries = self
            .shared
            .entries
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        entries
            .values()
            .map(|entry| Arc::clone(&entry.object))
            .collect()
    }

    /// All pools, for a choice among them. A copy of a pool that cannot be used is never claimed
    /// from, so no claim would read it anew: it is read here once the watch has shown a newer
    /// version. So is a pool whose first read failed.
    pub(super) async fn all_readable(&self) -> Vec<Arc<PoolObject>> {
        for name in self.shared.worth_a_read() {
            if let Err(error) = self.shared.fetch(&name).await {
                tracing::warn!(pool = name, error = %error, "the pool cannot be read");
            }
        }
        self.all()
    }

    /// One pool; the copy, unless it is known to be outdated or `Fresh` was asked for.
    pub(super) async fn read(
        &self,
        name: &str,
        freshness: Freshness,
    ) -> Result<Option<Arc<PoolObject>>, StoreError> {
        if freshness == Freshness::Cached {
            match self.shared.entry(name) {
                Some(entry) if !entry.is_outdated() => return Ok(Some(entry.object)),
                // The watch tells of every pool: what it has not told of is not there yet.
                None => return Ok(None),
                Some(_) => {}
            }
        }
        self.shared.fetch(name).await
    }

    /// Conditional PUT of the status subresource.
    pub(super) async fn put_status(
        &self,
        read: &PoolObject,
        records: &Records,
    ) -> Result<Arc<PoolObject>, StoreError> {
        let (verb, what) = (
            "write the status of",
            format!("SpiderIPPool {}", read.name()),
        );
        let sent = read.with_records(records);
        let body = serde_json::to_vec(&sent).map_err(kube::Error::SerdeError);
        let body = body.map_err(|error| store_error(error, verb, &what))?;
        let request =
            requests().replace_subresource("status", read.name(), &PostParams::default(), body);
        let answer = self.shared.exchange(request, verb, &what).await?;
        let written = Arc::new(PoolObject::from_answer(answer, &sent, records)?);
        self.put(Arc::clone(&written));
        Ok(written)
    }

    /// Merge patch of `status.parentNic`.
    pub(super) async fn publish_parent_nic(
        &self,
        pool: &str,
        nic: &ParentNic,
    ) -> Result<Arc<PoolObject>, StoreError> {
        let patch = Patch::Merge(json!({"status": {"parentNic": nic}}));
        let request = requests().patch_subresource("status", pool, &PatchParams::default(), &patch);
        self.shared
            .send(
                request,
                "write status.parentNic of",
                &format!("SpiderIPPool {pool}"),
            )
            .await
    }

    /// Takes over what we have written or read.
    pub(super) fn put(&self, object: Arc<PoolObject>) {
        self.shared.put(object);
    }
}

impl Drop for PoolCache {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn requests() -> Request {
    Request::new(SpiderIPPool::url_path(&(), None))
}

type Built = Result<http::Request<Vec<u8>>, kube::core::request::Error>;

impl Shared {
    fn entry(&self, name: &str) -> Option<Entry> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        entries.get(name).cloned()
    }

    fn write<T>(&self, change: impl FnOnce(&mut HashMap<String, Entry>) -> T) -> T {
        change(&mut self.entries.write().unwrap_or_else(PoisonError::into_inner))
    }

    fn unread(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.unread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn worth_a_read(&self) -> Vec<String> {
        let mut names: Vec<String> = self.unread().iter().cloned().collect();
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let unusable = entries
            .iter()
            .filter(|(_, entry)| entry.is_outdated() && entry.object.pool().is_err());
        names.extend(unusable.map(|(name, _)| name.clone()));
        // The order of a map is no order; what is asked shall repeat.
        names.sort_unstable();
        names
    }

    fn put(&self, object: Arc<PoolObject>) {
        self.unread().remove(object.name());
        let version = version_number(Some(object.resource_version()));
        self.write(|entries| match entries.get_mut(object.name()) {
            Some(entry) if entry.version() > version => {}
            Some(entry) => entry.object = object,
            None => {
                let name = object.name().to_owned();
                entries.insert(
                    name,
                    Entry {
                        object,
                        seen: version,
                    },
                );
            }
        });
    }

    async fn send(
        &self,
        built: Built,
        verb: &str,
        what: &str,
    ) -> Result<Arc<PoolObject>, StoreError> {
        let raw = self.exchange(built, verb, what).await?;
        Ok(Arc::new(PoolObject::from_raw(raw)?))
    }

    async fn exchange(&self, built: Built, verb: &str, what: &str) -> Result<Value, StoreError> {
        let request = built.map_err(kube::Error::BuildRequest);
        let request = request.map_err(|error| store_error(error, verb, what))?;
        let answer = self.client.request::<Value>(request).await;
        answer.map_err(|error| store_error(error, verb, what))
    }

    async fn fetch(&self, name: &str) -> Result<Option<Arc<PoolObject>>, StoreError> {
        let request = requests().get(name, &GetParams::default());
        match self
            .send(request, "read", &format!("SpiderIPPool {name}"))
            .await
        {
            Ok(object) => {
                self.put(Arc::clone(&object));
                Ok(Some(object))
            }
            Err(StoreError::NotFound(_)) => {
                self.unread().remove(name);
                self.write(|entries| entries.remove(name));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    async fn list(&self) -> Result<(), StoreError> {
        let what = "all SpiderIPPools";
        let mut params = ListParams::default().limit(PAGE);
        loop {
            let request = requests().list(&params).map_err(kube::Error::BuildRequest);
            let request = request.map_err(|error| store_error(error, "list", what))?;
            let answer = self.client.request::<Value>(request).await;
            let mut page = answer.map_err(|error| store_error(error, "list", what))?;
            let items = page.get_mut("items").map(Value::take);
            for item in items
                .as_ref()
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
            {
                self.put_listed(item.clone());
            }
            match page.pointer("/metadata/continue").and_then(Value::as_str) {
                Some(token) if !token.is_empty() => params.continue_token = Some(token.to_owned()),
                _ => return Ok(()),
            }
        }
    }

    /// Items of a list carry neither apiVersion nor kind. One that cannot be understood is left
    /// out with a warning: the others go on.
    fn put_listed(&self, mut item: Value) {
        if let Some(object) = item.as_object_mut() {
            object
                .entry("apiVersion")
                .or_insert_with(|| format!("{}/{}", names::GROUP, names::VERSION).into());
            object
                .entry("kind")
                .or_insert_with(|| "SpiderIPPool".into());
        }
        match PoolObject::from_raw(item) {
            Ok(object) => self.put(Arc::new(object)),
            Err(error) => tracing::warn!(error = %error, "the pool is left out"),
        }
    }

    /// A metadata event: read now what candidates need, note the rest.
    async fn seen(&self, meta: &ObjectMeta) {
        let name = meta.name.as_deref().unwrap_or_default();
        let version = version_number(meta.resource_version.as_deref());
        let changed = self.write(|entries| match entries.get_mut(name) {
            None => true,
            Some(entry) => {
                entry.seen = entry.seen.max(version);
                let known = &entry.object.typed().metadata;
                let differs = known.generation != meta.generation
                    || known.uid != meta.uid
                    || known.deletion_timestamp != meta.deletion_timestamp
                    || known.annotations != meta.annotations
                    || known.labels != meta.labels;
                entry.is_outdated() && differs
            }
        });
        if !changed {
            return;
        }
        if let Err(error) = self.fetch(name).await {
            tracing::warn!(pool = name, error = %error, "cannot read the changed pool; the next claim tries again");
            if self.entry(name).is_none() {
                self.unread().insert(name.to_owned());
            }
        }
        self.changes.notify_waiters();
    }

    fn forget(&self, meta: &ObjectMeta) {
        let name = meta.name.as_deref().unwrap_or_default();
        self.unread().remove(name);
        self.write(|entries| {
            if entries
                .get(name)
                .is_some_and(|entry| entry.object.typed().metadata.uid == meta.uid)
            {
                entries.remove(name);
            }
        });
        self.changes.notify_waiters();
    }

    fn keep_only(&self, listed: &HashSet<String>) {
        self.write(|entries| entries.retain(|name, _| listed.contains(name)));
        self.filled.store(true, Ordering::Release);
        self.changes.notify_waiters();
    }
}

async fn follow<S>(shared: Arc<Shared>, watch: S)
where
    S: Stream<Item = Result<Event<PartialObjectMeta<SpiderIPPool>>, watcher::Error>> + Send,
{
    let mut watch = pin!(watch.default_backoff());
    let mut listed = HashSet::new();
    let mut failing = false;
    loop {
        match watch.try_next().await {
            Ok(None) => return,
            Err(error) => report("SpiderIPPool", &mut failing, &error),
            Ok(Some(event)) => {
                if std::mem::take(&mut failing) {
                    tracing::info!(kind = "SpiderIPPool", "the watch works again");
                }
                match event {
                    Event::Init => listed.clear(),
                    Event::InitApply(object) => {
                        listed.insert(object.name_any());
                        shared.seen(&object.metadata).await;
                    }
                    Event::InitDone => shared.keep_only(&std::mem::take(&mut listed)),
                    Event::Apply(object) => shared.seen(&object.metadata).await,
                    Event::Delete(object) => shared.forget(&object.metadata),
                }
            }
        }
    }
}
