//! The store in memory, for tests and simulation: conditional writes, finalizers and object UIDs
//! behave as at an API server, and conflicts, delays, outages and outdated caches come on demand.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use spiderpool_api::allocation::Records;
use spiderpool_api::endpoint::SpiderEndpoint;
use spiderpool_api::names;
use spiderpool_ipam::sticky::{MachineFacts, StatefulSetFacts, Switches};

use super::{
    Caches, Freshness, Marks, MetadataFacts, ObjectKey, OwnerRef, PodEvent, PodObject, PoolObject,
    Reservation, StandalonePod, Store, StoreError, StoreResult, may_hold,
};

mod state;

pub use state::Counts;
use state::{State, key_of};

/// Another writer's change of a pool, made just before ours arrives.
pub type ForeignWrite = Box<dyn FnOnce(&mut Records) + Send>;

/// The store.
#[derive(Default)]
pub struct MemoryStore {
    state: Mutex<State>,
}

impl MemoryStore {
    /// An empty store for one node.
    #[must_use]
    pub fn new(node: &str) -> Self {
        let store = Self::default();
        node.clone_into(&mut store.state().node.name);
        store
    }

    /// Puts a Pod there, or replaces it.
    pub fn set_pod(&self, pod: PodObject) {
        self.state().pods.insert(pod.key(), pod);
    }

    /// Takes a Pod away at once.
    pub fn remove_pod(&self, key: &ObjectKey) {
        self.state().pods.remove(key);
    }

    /// Makes cached reads of a Pod answer this, whatever the API has.
    pub fn set_cached_pod(&self, key: ObjectKey, pod: Option<PodObject>) {
        self.state().cached_pods.insert(key, pod);
    }

    /// Names the parent of the controller with this UID.
    pub fn set_owner(&self, uid: &str, parent: OwnerRef) {
        self.state().owners.insert(uid.to_owned(), parent);
    }

    /// Scales a StatefulSet, or takes it away.
    pub fn set_stateful_set(&self, key: ObjectKey, set: Option<StatefulSetFacts>) {
        let mut state = self.state();
        match set {
            Some(set) => state.stateful_sets.insert(key, set),
            None => state.stateful_sets.remove(&key),
        };
    }

    /// Says what there is of a virtual machine.
    pub fn set_machine(&self, key: ObjectKey, machine: MachineFacts) {
        self.state().machines.insert(key, machine);
    }

    /// Puts a pool there, or replaces it. The version is ours to give.
    ///
    /// # Errors
    /// [`StoreError::Malformed`].
    pub fn set_pool(&self, mut raw: Value) -> Result<(), StoreError> {
        let mut state = self.state();
        state.stamp_pool(&mut raw);
        let pool = state.typed(raw)?;
        state.pools.insert(pool.name().to_owned(), Arc::new(pool));
        Ok(())
    }

    /// Takes the marks of pools that come from now on as `marks` says.
    pub fn set_marks(&self, marks: Marks) {
        self.state().marks = Some(marks);
    }

    /// Takes a pool away.
    pub fn remove_pool(&self, name: &str) {
        self.state().pools.remove(name);
    }

    /// A pool as it is now.
    #[must_use]
    pub fn current_pool(&self, name: &str) -> Option<Arc<PoolObject>> {
        self.state().pools.get(name).cloned()
    }

    /// Reserves addresses.
    pub fn add_reserved(&self, reserved: Reservation) {
        self.state().reserved.push(Arc::new(reserved));
    }

    /// Describes a namespace.
    pub fn set_namespace(&self, namespace: MetadataFacts) {
        self.state()
            .namespaces
            .insert(namespace.name.clone(), namespace);
    }

    /// Puts an endpoint there, or replaces it.
    pub fn set_endpoint(&self, endpoint: SpiderEndpoint) {
        let mut state = self.state();
        let endpoint = state.stamp(endpoint);
        state.endpoints.insert(key_of(&endpoint), endpoint);
    }

    /// An endpoint as it is now.
    #[must_use]
    pub fn current_endpoint(&self, key: &ObjectKey) -> Option<SpiderEndpoint> {
        self.state().endpoints.get(key).cloned()
    }

    /// Events so far.
    #[must_use]
    pub fn events(&self) -> Vec<PodEvent> {
        self.state().events.clone()
    }

    /// Lets another writer change the pool just before our next write of it arrives.
    pub fn conflict(&self, pool: &str, write: ForeignWrite) {
        let mut state = self.state();
        state
            .foreign
            .entry(pool.to_owned())
            .or_default()
            .push_back(write);
    }

    /// Lets the next writes of endpoints meet a conflict.
    pub fn conflict_endpoints(&self, times: usize) {
        self.state().endpoint_conflicts = times;
    }

    /// Takes the API away, or brings it back.
    pub fn set_outage(&self, away: bool) {
        self.state().outage = away;
    }

    /// Lets every call of the API take this long.
    pub fn set_delay(&self, delay: Duration) {
        self.state().delay = delay;
    }

    /// How often the API was used.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.state().counts
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One call of the API: takes its time, fails during an outage.
    async fn call(&self, what: &str) -> Result<(), StoreError> {
        let delay = self.state().delay;
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        if self.state().outage {
            return Err(StoreError::Unavailable {
                what: what.to_owned(),
                source: "connection refused".into(),
            });
        }
        Ok(())
    }

    async fn fresh_read(&self, what: &str) -> Result<(), StoreError> {
        self.call(what).await?;
        self.state().counts.fresh_reads += 1;
        Ok(())
    }
}

impl Store for MemoryStore {
    fn pod<'a>(
        &'a self,
        key: &'a ObjectKey,
        freshness: Freshness,
    ) -> StoreResult<'a, Option<PodObject>> {
        async move {
            if freshness == Freshness::Cached {
                let state = self.state();
                let copy = state.cached_pods.get(key).cloned();
                if let Some(Some(pod)) = copy.or_else(|| Some(state.pods.get(key).cloned())) {
                    return Ok(Some(pod));
                }
            }
            self.fresh_read(&format!("read Pod {key}")).await?;
            Ok(self.state().pods.get(key).cloned())
        }
        .boxed()
    }

    fn top_owner<'a>(&'a self, pod: &'a PodObject) -> StoreResult<'a, Option<OwnerRef>> {
        async move {
            let Some(owner) = &pod.controller else {
                return Ok(None);
            };
            let parent = self.state().owners.get(&owner.uid).cloned();
            Ok(Some(parent.unwrap_or_else(|| owner.clone())))
        }
        .boxed()
    }

    fn stateful_set<'a>(&'a self, key: &'a ObjectKey) -> StoreResult<'a, Option<StatefulSetFacts>> {
        async move {
            self.fresh_read(&format!("read StatefulSet {key}")).await?;
            Ok(self.state().stateful_sets.get(key).copied())
        }
        .boxed()
    }

    fn machine<'a>(&'a self, key: &'a ObjectKey) -> StoreResult<'a, MachineFacts> {
        async move {
            self.fresh_read(&format!("read virtual machine {key}"))
                .await?;
            Ok(self.state().machines.get(key).copied().unwrap_or_default())
        }
        .boxed()
    }

    fn machine_pods<'a>(&'a self, key: &'a ObjectKey) -> StoreResult<'a, Vec<PodObject>> {
        async move {
            self.fresh_read(&format!("list the Pods of virtual machine {key}"))
                .await?;
            let state = self.state();
            let pods = state.pods.values();
            let own = pods.filter(|pod| pod.endpoint_key(Switches::ON) == *key);
            Ok(own.cloned().collect())
        }
        .boxed()
    }

    fn ensure_pod<'a>(&'a self, pod: &'a StandalonePod) -> StoreResult<'a, PodObject> {
        async move {
            self.call(&format!("create Pod {}", pod.key)).await?;
            let mut state = self.state();
            match state.pods.get(&pod.key) {
                Some(object) if object.uid() == pod.uid => Ok(object.clone()),
                _ => {
                    let object = PodObject::from_pod(&pod.to_pod());
                    state.pods.insert(pod.key.clone(), object.clone());
                    Ok(object)
                }
            }
        }
        .boxed()
    }

    fn delete_pod<'a>(&'a self, key: &'a ObjectKey, uid: &'a str) -> StoreResult<'a, ()> {
        async move {
            self.call(&format!("delete Pod {key}")).await?;
            let mut state = self.state();
            if state.pods.get(key).is_some_and(|pod| pod.uid() == uid) {
                state.pods.remove(key);
            }
            Ok(())
        }
        .boxed()
    }

    fn caches<'a>(&'a self, namespace: &'a str) -> StoreResult<'a, Caches> {
        async move {
            let state = self.state();
            Ok(Caches {
                pools: state.pools.values().cloned().collect(),
                reserved: state.reserved.clone(),
                namespace: state.namespaces.get(namespace).cloned().unwrap_or_default(),
                node: state.node.clone(),
            })
        }
        .boxed()
    }

    fn pool<'a>(
        &'a self,
        name: &'a str,
        freshness: Freshness,
    ) -> StoreResult<'a, Option<Arc<PoolObject>>> {
        async move {
            if freshness == Freshness::Fresh {
                self.fresh_read(&format!("read SpiderIPPool {name}"))
                    .await?;
            }
            Ok(self.state().pools.get(name).cloned())
        }
        .boxed()
    }

    fn holder_of(&self, address: IpAddr) -> StoreResult<'_, Option<String>> {
        async move {
            self.fresh_read("list all SpiderIPPools").await?;
            let state = self.state();
            let mut pools = state.pools.values();
            let holder = pools.find(|pool| may_hold(pool, address));
            Ok(holder.map(|pool| pool.name().to_owned()))
        }
        .boxed()
    }

    fn put_pool_status<'a>(
        &'a self,
        read: &'a PoolObject,
        records: &'a Records,
    ) -> StoreResult<'a, Arc<PoolObject>> {
        async move {
            self.call(&format!("write SpiderIPPool {}", read.name()))
                .await?;
            self.state().put_pool_status(read, records)
        }
        .boxed()
    }

    fn endpoint<'a>(
        &'a self,
        key: &'a ObjectKey,
        freshness: Freshness,
    ) -> StoreResult<'a, Option<SpiderEndpoint>> {
        async move {
            if freshness == Freshness::Fresh {
                self.fresh_read(&format!("read SpiderEndpoint {key}"))
                    .await?;
            }
            Ok(self.state().endpoints.get(key).cloned())
        }
        .boxed()
    }

    fn put_endpoint(&self, endpoint: SpiderEndpoint) -> StoreResult<'_, SpiderEndpoint> {
        async move {
            self.call(&format!("write SpiderEndpoint {}", key_of(&endpoint)))
                .await?;
            self.state().put_endpoint(endpoint)
        }
        .boxed()
    }

    fn delete_endpoint<'a>(&'a self, endpoint: &'a SpiderEndpoint) -> StoreResult<'a, ()> {
        async move {
            let key = key_of(endpoint);
            self.call(&format!("delete SpiderEndpoint {key}")).await?;
            let mut state = self.state();
            let current = state.endpoints.get(&key);
            let owned = endpoint.metadata.owner_references.is_some();
            let read = &endpoint.metadata.resource_version;
            if current.is_some_and(|object| {
                object.metadata.uid == endpoint.metadata.uid
                    && (owned || object.metadata.resource_version == *read)
            }) {
                state.endpoints.remove(&key);
            }
            Ok(())
        }
        .boxed()
    }

    fn event(&self, event: PodEvent) -> BoxFuture<'_, ()> {
        async move { self.state().events.push(event) }.boxed()
    }

    fn ready(&self) -> Result<(), String> {
        if self.state().outage {
            return Err("the Kubernetes API cannot be reached".to_owned());
        }
        Ok(())
    }
}

/// A pool's JSON with these addresses, for tests and simulation.
#[must_use]
pub fn pool_json(name: &str, subnet: &str, ips: &[&str]) -> Value {
    json!({
        "apiVersion": format!("{}/{}", names::GROUP, names::VERSION),
        "kind": "SpiderIPPool",
        "metadata": {"name": name, "uid": format!("uid-{name}"), "generation": 1},
        "spec": {"subnet": subnet, "ips": ips, "ipVersion": if subnet.contains(':') { 6 } else { 4 }},
    })
}
