//! What rules know of other objects: pools, subnets, and for Pods networks and namespaces. Followed by
//! watches, read once per change.
//!
//! A pool's status changes with every Pod and can be half a megabyte; rules do not look at it. So pools
//! are watched by their metadata and read when it says that something else changed.

use std::collections::{BTreeMap, HashMap};
use std::pin::pin;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::ListParams;
use kube::core::{DynamicObject, PartialObjectMeta};
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::Value;
use spiderpool_api::ippool::SpiderIPPool;
use spiderpool_ipam::admission::Kind;
use spiderpool_ipam::admission::pod::NetworkView;
use spiderpool_ipam::admission::view::{PoolView, SubnetView};
use tokio::sync::watch;
use tokio::time::timeout;

use super::kinds;
use crate::chain::full;
use crate::followed::{follow as watch, has_no_kind};

/// Objects of one page.
const PAGE: u32 = 500;
/// How long a request waits for the first list: a replica that has just started is asked at once.
const PATIENCE: Duration = Duration::from_secs(5);

/// The first list is not there yet.
#[derive(Debug, thiserror::Error)]
#[error("this replica has not read all {0} yet; try again")]
pub struct NotReady(&'static str);

/// Views by name, `namespace/name` for namespaced kinds.
#[derive(Debug)]
pub struct Cache<V> {
    what: &'static str,
    views: RwLock<BTreeMap<String, Arc<V>>>,
    ready: watch::Sender<bool>,
}

impl<V> Cache<V> {
    fn new(what: &'static str) -> Self {
        Self {
            what,
            views: RwLock::default(),
            ready: watch::Sender::new(false),
        }
    }

    /// All, once they are known.
    ///
    /// # Errors
    /// [`NotReady`].
    pub async fn all(&self) -> Result<Vec<Arc<V>>, NotReady> {
        self.wait().await?;
        Ok(self.read(|views| views.values().cloned().collect()))
    }

    /// One, once all are known.
    ///
    /// # Errors
    /// [`NotReady`].
    pub async fn get(&self, name: &str) -> Result<Option<Arc<V>>, NotReady> {
        self.wait().await?;
        Ok(self.read(|views| views.get(name).cloned()))
    }

    /// Whether all are known.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        *self.ready.borrow()
    }

    async fn wait(&self) -> Result<(), NotReady> {
        if self.is_ready() {
            return Ok(());
        }
        let mut ready = self.ready.subscribe();
        match timeout(PATIENCE, ready.wait_for(|ready| *ready)).await {
            Ok(Ok(_)) => Ok(()),
            _ => Err(NotReady(self.what)),
        }
    }

    fn read<T>(&self, look: impl FnOnce(&BTreeMap<String, Arc<V>>) -> T) -> T {
        look(&self.views.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn change(&self, change: impl FnOnce(&mut BTreeMap<String, Arc<V>>)) {
        change(&mut self.views.write().unwrap_or_else(PoisonError::into_inner));
    }

    fn put(&self, name: String, view: Option<V>) {
        self.change(|views| match view {
            Some(view) => drop(views.insert(name, Arc::new(view))),
            None => drop(views.remove(&name)),
        });
    }

    fn replace(&self, all: BTreeMap<String, Arc<V>>) {
        self.change(|views| *views = all);
        self.ready.send_replace(true);
    }
}

/// All of them.
#[derive(Debug)]
pub struct Facts {
    /// Pools.
    pub pools: Cache<PoolView>,
    /// Subnets.
    pub subnets: Cache<SubnetView>,
    /// SpiderMultusConfigs; followed for Pods alone.
    pub networks: Cache<NetworkView>,
    /// Annotations of namespaces; followed for Pods alone.
    pub namespaces: Cache<BTreeMap<String, String>>,
}

impl Default for Facts {
    fn default() -> Self {
        Self {
            pools: Cache::new("SpiderIPPools"),
            subnets: Cache::new("SpiderSubnets"),
            networks: Cache::new("SpiderMultusConfigs"),
            namespaces: Cache::new("namespaces"),
        }
    }
}

/// Which of them are needed.
#[derive(Debug, Clone, Copy)]
pub struct Needed {
    /// Pools belong to subnets.
    pub subnets: bool,
    /// Pods are asked about.
    pub pods: bool,
}

impl Facts {
    /// Follows what is needed; never ends.
    pub async fn follow(&self, client: &Client, needed: Needed) {
        let pools = follow_pools(
            kinds::objects(client, Kind::IpPool),
            kinds::pools_metadata(client),
            &self.pools,
        );
        let subnets = async {
            if needed.subnets {
                let subnets = kinds::objects(client, Kind::Subnet);
                follow(subnets, &self.subnets, |object| {
                    SubnetView::read(object).ok()
                })
                .await;
            } else {
                self.subnets.replace(BTreeMap::new());
            }
        };
        let pods = async {
            if needed.pods {
                let networks = kinds::objects(client, Kind::MultusConfig);
                let namespaces = kinds::namespaces(client);
                tokio::join!(
                    follow(networks, &self.networks, |object| NetworkView::read(object)
                        .ok()),
                    follow_namespaces(namespaces, &self.namespaces),
                );
            }
        };
        tokio::join!(pools, subnets, pods);
    }
}

fn config() -> watcher::Config {
    watcher::Config::default().page_size(PAGE)
}

fn key(meta: &ObjectMeta) -> String {
    let name = meta.name.as_deref().unwrap_or_default();
    match meta.namespace.as_deref() {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.to_owned(),
    }
}

fn raw(object: &DynamicObject) -> Value {
    serde_json::to_value(object).unwrap_or_default()
}

/// Small objects, watched with everything in them. One that cannot be read is in nobody's way.
async fn follow<V>(api: Api<DynamicObject>, cache: &Cache<V>, read: impl Fn(&Value) -> Option<V>) {
    let events = watch(api, config(), cache.what);
    keep(events, cache, |object: &DynamicObject| read(&raw(object))).await;
}

async fn follow_namespaces(
    api: Api<PartialObjectMeta<Namespace>>,
    cache: &Cache<BTreeMap<String, String>>,
) {
    let events = watch(api, config(), cache.what);
    keep(events, cache, |object: &PartialObjectMeta<Namespace>| {
        Some(object.annotations().clone())
    })
    .await;
}

/// Every event into the cache; never ends.
async fn keep<K, V>(
    events: impl Stream<Item = watcher::Result<Event<K>>>,
    cache: &Cache<V>,
    read: impl Fn(&K) -> Option<V>,
) where
    K: Resource + Clone,
{
    let mut events = pin!(events);
    let mut listed = BTreeMap::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => listed.clear(),
            Ok(Event::InitApply(object)) => {
                if let Some(view) = read(&object) {
                    listed.insert(key(object.meta()), Arc::new(view));
                }
            }
            Ok(Event::InitDone) => cache.replace(std::mem::take(&mut listed)),
            Ok(Event::Apply(object)) => cache.put(key(object.meta()), read(&object)),
            Ok(Event::Delete(object)) => cache.put(key(object.meta()), None),
            Err(error) => failed(cache, &error),
        }
    }
}

/// A kind that the cluster does not have has no objects.
fn failed<V>(cache: &Cache<V>, error: &watcher::Error) {
    if let watcher::Error::InitialListFailed(cause) | watcher::Error::WatchStartFailed(cause) =
        error
        && has_no_kind(cause)
    {
        cache.replace(BTreeMap::new());
    }
}

/// What of a pool's metadata changes with what rules look at.
#[derive(PartialEq, Eq)]
struct Seen {
    uid: Option<String>,
    generation: Option<i64>,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
}

impl Seen {
    fn of(meta: &ObjectMeta) -> Self {
        Self {
            uid: meta.uid.clone(),
            generation: meta.generation,
            labels: meta.labels.clone().unwrap_or_default(),
            annotations: meta.annotations.clone().unwrap_or_default(),
        }
    }
}

/// Pools: listed in full once, then by their metadata.
struct Pools<'a> {
    api: Api<DynamicObject>,
    cache: &'a Cache<PoolView>,
    seen: HashMap<String, Seen>,
    /// While a list is under way.
    listed: BTreeMap<String, Arc<PoolView>>,
}

async fn follow_pools(
    api: Api<DynamicObject>,
    watched: Api<PartialObjectMeta<SpiderIPPool>>,
    cache: &Cache<PoolView>,
) {
    let mut pools = Pools {
        api,
        cache,
        seen: HashMap::new(),
        listed: BTreeMap::new(),
    };
    if let Err(error) = pools.list().await {
        // The watch reads them one by one instead.
        tracing::debug!("cannot list pools at once: {}", full(&error));
    }
    let mut events = pin!(watch(watched, config(), cache.what));
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => pools.listed.clear(),
            Ok(Event::InitApply(pool)) => {
                let name = pool.name_any();
                if let Some(view) = pools.view(&pool.metadata).await {
                    pools.listed.insert(name, view);
                }
            }
            Ok(Event::InitDone) => {
                let listed = std::mem::take(&mut pools.listed);
                pools.seen.retain(|name, _| listed.contains_key(name));
                cache.replace(listed);
            }
            Ok(Event::Apply(pool)) => {
                let view = pools.view(&pool.metadata).await;
                let name = pool.name_any();
                cache.change(|views| match view {
                    Some(view) => drop(views.insert(name, view)),
                    None => drop(views.remove(&name)),
                });
            }
            Ok(Event::Delete(pool)) => {
                pools.seen.remove(&pool.name_any());
                cache.put(pool.name_any(), None);
            }
            Err(error) => failed(cache, &error),
        }
    }
}

impl Pools<'_> {
    async fn list(&mut self) -> kube::Result<()> {
        let mut params = ListParams::default().limit(PAGE);
        loop {
            let page = self.api.list(&params).await?;
            let next = page.metadata.continue_.filter(|token| !token.is_empty());
            for pool in page.items {
                if let Ok(view) = PoolView::read(&raw(&pool)) {
                    let name = pool.name_any();
                    self.seen.insert(name.clone(), Seen::of(&pool.metadata));
                    self.cache.put(name, Some(view));
                }
            }
            match next {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(()),
            }
        }
    }

    /// The pool as rules look at it, read again if what they look at changed.
    async fn view(&mut self, meta: &ObjectMeta) -> Option<Arc<PoolView>> {
        let name = meta.name.clone()?;
        let known = self.cache.read(|views| views.get(&name).cloned());
        if known.is_some() && self.seen.get(&name) == Some(&Seen::of(meta)) {
            return known;
        }
        match self.api.get_opt(&name).await {
            Ok(Some(pool)) => {
                let view = PoolView::read(&raw(&pool)).ok()?;
                self.seen.insert(name, Seen::of(&pool.metadata));
                Some(Arc::new(view))
            }
            Ok(None) => None,
            Err(error) => {
                // What was known is nearer to the truth than nothing; the next event reads again.
                tracing::warn!("cannot read SpiderIPPool {name}: {}", full(&error));
                self.seen.remove(&name);
                known
            }
        }
    }
}
