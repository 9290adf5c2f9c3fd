//! Pools: listed in full once, then watched as metadata. Every full pool event at 5,000 records
//! would be half a megabyte to every node; a metadata event is about one kilobyte.
//!
//! A changed generation is read at once (candidates need the specification); a changed status is
//! read when somebody is about to claim. Own writes refresh the copy.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use futures::{Stream, TryStreamExt};
use kube::core::{ObjectMeta, PartialObjectMeta};
use kube::runtime::watcher::{self, Event};
use kube::{Client, ResourceExt};
use spiderpool_api::allocation::Records;
use spiderpool_api::ippool::{ParentNic, SpiderIPPool};
use spiderpool_controller::objects::pool_api::PoolApi;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::cache::{Health, version_number};
use super::{Freshness, Marks, PoolObject, StoreError};
use crate::flow::error::full;

/// The copies and their watch, which ends when this is dropped.
pub(super) struct PoolCache {
    shared: Arc<Shared>,
    task: AbortHandle,
}

struct Shared {
    api: PoolApi,
    entries: RwLock<HashMap<String, Entry>>,
    /// Pools the watch has told of and the last read has failed for.
    unread: Mutex<BTreeMap<String, Unread>>,
    filled: AtomicBool,
    changes: Arc<Notify>,
}

/// A pool that could not be read. One that cannot be understood is not read again before it changes:
/// every call would ask for it, and say so.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Unread {
    /// Newest version the watch had shown.
    version: u64,
    /// Whether an answer came, and not of a pool.
    malformed: bool,
}

#[derive(Clone)]
struct Entry {
    object: Arc<PoolObject>,
    /// Newest version the metadata watch has shown.
    seen: u64,
    /// Own writes without an answer: they may be stored.
    doubts: u64,
    /// How many of them a later read has settled.
    settled: u64,
}

impl Entry {
    fn new(object: Arc<PoolObject>) -> Self {
        Self {
            seen: version_number(Some(object.resource_version())),
            object,
            doubts: 0,
            settled: 0,
        }
    }

    fn version(&self) -> u64 {
        version_number(Some(self.object.resource_version()))
    }

    fn is_outdated(&self) -> bool {
        self.seen > self.version() || self.settled < self.doubts
    }
}

impl PoolCache {
    /// Lists all pools, then follows them.
    pub(super) async fn start<S>(client: Client, marks: Marks, watch: S) -> Result<Self, StoreError>
    where
        S: Stream<Item = Result<Event<PartialObjectMeta<SpiderIPPool>>, watcher::Error>>
            + Send
            + 'static,
    {
        let shared = Arc::new(Shared {
            api: PoolApi::new(client).with_marks(marks).memoising(),
            entries: RwLock::new(HashMap::new()),
            unread: Mutex::default(),
            filled: AtomicBool::new(false),
            changes: Arc::new(Notify::new()),
        });
        let put = |object| shared.put(Arc::new(object));
        shared.api.list(put).await?;
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
        for (name, version) in self.shared.worth_a_read() {
            self.shared.try_read(&name, version).await;
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
        let written = self.shared.api.put_status(read, records).await;
        if written.is_err() {
            self.shared.doubt(read.name());
        }
        let written = written?;
        self.put(Arc::clone(&written));
        Ok(written)
    }

    /// Merge patch of `status.parentNic`.
    pub(super) async fn publish_parent_nic(
        &self,
        pool: &str,
        nic: &ParentNic,
    ) -> Result<Arc<PoolObject>, StoreError> {
        self.shared.api.publish_parent_nic(pool, nic).await
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

impl Shared {
    fn entry(&self, name: &str) -> Option<Entry> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        entries.get(name).cloned()
    }

    fn write<T>(&self, change: impl FnOnce(&mut HashMap<String, Entry>) -> T) -> T {
        change(&mut self.entries.write().unwrap_or_else(PoisonError::into_inner))
    }

    fn unread(&self) -> MutexGuard<'_, BTreeMap<String, Unread>> {
        self.unread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Pools with the version to be read, in the order of their names: what is asked shall repeat.
    fn worth_a_read(&self) -> BTreeMap<String, u64> {
        let unread = self.unread().clone();
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let unusable = entries
            .iter()
            .filter(|(_, entry)| entry.is_outdated() && entry.object.pool().is_err())
            .map(|(name, entry)| (name.clone(), entry.seen));
        let failed = unread
            .iter()
            .map(|(name, failed)| (name.clone(), failed.version));
        let mut wanted: BTreeMap<String, u64> = failed.chain(unusable).collect();
        wanted.retain(|name, version| {
            let known = unread.get(name);
            known.is_none_or(|failed| !failed.malformed || failed.version != *version)
        });
        wanted
    }

    /// Reads a pool of which the watch has shown this version. The log learns once of each version why
    /// it cannot be read.
    async fn try_read(&self, name: &str, version: u64) {
        let Err(error) = self.fetch(name).await else {
            return;
        };
        let malformed = matches!(error, StoreError::Malformed { .. });
        let failed = Unread { version, malformed };
        if self.unread().insert(name.to_owned(), failed) == Some(failed) {
            return;
        }
        let error = full(&error);
        match malformed {
            true => tracing::warn!(
                pool = name,
                %error,
                "no address of the pool is given before somebody corrects it, as with kubectl edit spiderippool {name}"
            ),
            false => {
                tracing::warn!(pool = name, %error, "cannot read the changed pool; the next claim tries again")
            }
        }
    }

    fn put(&self, object: Arc<PoolObject>) {
        self.unread().remove(object.name());
        let version = version_number(Some(object.resource_version()));
        self.write(|entries| match entries.get_mut(object.name()) {
            Some(entry) if entry.version() > version => {}
            Some(entry) => entry.object = object,
            None => {
                entries.insert(object.name().to_owned(), Entry::new(object));
            }
        });
    }

    /// A write of ours has failed, and perhaps only its answer was lost: the copy may be outdated
    /// without the watch having shown it.
    fn doubt(&self, name: &str) {
        self.write(|entries| {
            if let Some(entry) = entries.get_mut(name) {
                entry.doubts += 1;
            }
        });
    }

    async fn fetch(&self, name: &str) -> Result<Option<Arc<PoolObject>>, StoreError> {
        // A write that fails during the read is not settled by it.
        let doubts = self.entry(name).map_or(0, |entry| entry.doubts);
        match self.api.get(name).await {
            Ok(object) => {
                self.put(Arc::clone(&object));
                self.write(|entries| {
                    if let Some(entry) = entries.get_mut(name) {
                        entry.settled = entry.settled.max(doubts);
                    }
                });
                Ok(Some(object))
            }
            Err(StoreError::NotFound(_)) => {
                self.unread().remove(name);
                self.api.forget(name);
                self.write(|entries| entries.remove(name));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// A pool of a list. One older than the copy is of a server that lags; or versions went back, since
    /// the server's data were restored from a copy. A read, which never lags, tells which.
    async fn listed(&self, meta: &ObjectMeta) {
        let name = meta.name.as_deref().unwrap_or_default();
        let listed = version_number(meta.resource_version.as_deref());
        let known = self.entry(name).map_or(0, |entry| entry.version());
        if known > listed
            && let Ok(object) = self.api.get(name).await
            && version_number(Some(object.resource_version())) < known
        {
            tracing::warn!(
                pool = name,
                "the Kubernetes API has an older version of the pool than it had before, as after a restore of its data; it is what counts from now on"
            );
            let entry = Entry::new(object);
            self.write(|entries| entries.insert(name.to_owned(), entry));
            self.changes.notify_waiters();
        }
        self.seen(meta).await;
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
        let known = self.unread().get(name).copied();
        if known.is_some_and(|failed| failed.malformed && failed.version == version) {
            return;
        }
        self.try_read(name, version).await;
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
        self.unread().retain(|name, _| listed.contains(name));
        self.filled.store(true, Ordering::Release);
        self.changes.notify_waiters();
    }
}

async fn follow<S>(shared: Arc<Shared>, watch: S)
where
    S: Stream<Item = Result<Event<PartialObjectMeta<SpiderIPPool>>, watcher::Error>> + Send,
{
    let mut watch = pin!(watch);
    let mut listed = HashSet::new();
    let mut health = Health::new("SpiderIPPool");
    loop {
        match watch.try_next().await {
            Ok(None) => return,
            Err(error) => health.failed(&error),
            Ok(Some(event)) => {
                health.heard(&event);
                match event {
                    Event::Init => listed.clear(),
                    Event::InitApply(object) => {
                        listed.insert(object.name_any());
                        shared.listed(&object.metadata).await;
                    }
                    Event::InitDone => shared.keep_only(&std::mem::take(&mut listed)),
                    Event::Apply(object) => shared.seen(&object.metadata).await,
                    Event::Delete(object) => shared.forget(&object.metadata),
                }
            }
        }
    }
}
