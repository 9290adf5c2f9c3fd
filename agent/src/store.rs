//! The API objects as the flows see them: a seam with two implementations, Kubernetes (also the
//! embedded API, by the same client code) and [`memory`].
//!
//! Owns no decision: it reads, writes conditionally and says what went wrong. Retries, batching
//! and undo are the callers'.

pub mod kube;
pub mod memory;
pub mod pod;
pub mod reservation;

use std::net::IpAddr;
use std::sync::Arc;

use futures::future::BoxFuture;
use spiderpool_api::allocation::Records;
use spiderpool_api::endpoint::SpiderEndpoint;
use spiderpool_ipam::sticky::{MachineFacts, StatefulSetFacts};

pub use pod::{OwnerRef, PodObject, StandalonePod};
pub use reservation::Reservation;
pub use spiderpool_controller::objects::pool::{Marks, PoolObject};
pub use spiderpool_controller::objects::{ObjectKey, StoreError};

/// How old an answer may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    /// The cache's copy; what the cache lacks, or knows to be outdated, is read from the API.
    Cached,
    /// Read from the API, whatever the cache has.
    Fresh,
}

/// Labels and annotations of a namespace or node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MetadataFacts {
    /// Name.
    pub name: String,
    /// Labels.
    pub labels: std::collections::BTreeMap<String, String>,
    /// Annotations.
    pub annotations: std::collections::BTreeMap<String, String>,
}

/// What the caches hold that decides where an address comes from. Records in `pools` may be
/// outdated: a claim is decided again on the copy that is written.
#[derive(Debug, Clone, Default)]
pub struct Caches {
    /// All pools.
    pub pools: Vec<Arc<PoolObject>>,
    /// All reservations.
    pub reserved: Vec<Arc<Reservation>>,
    /// The Pod's namespace; empty maps when it is unknown.
    pub namespace: MetadataFacts,
    /// This node.
    pub node: MetadataFacts,
}

/// A Warning event about a Pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodEvent {
    /// The Pod.
    pub pod: ObjectKey,
    /// Its UID.
    pub uid: String,
    /// `reason`, one of the documented words.
    pub reason: &'static str,
    /// `message`, one line.
    pub message: String,
}

/// What a store operation comes to.
pub type StoreResult<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// The API objects. Every operation ends by itself within the client's timeout; callers set
/// their own deadline besides. Dropping a future may leave a write done or not done.
pub trait Store: Send + Sync {
    /// A Pod. `Cached` asks the API for a Pod that the cache lacks.
    fn pod<'a>(
        &'a self,
        key: &'a ObjectKey,
        freshness: Freshness,
    ) -> StoreResult<'a, Option<PodObject>>;

    /// The Pod's top controller (spec ipam 1.2): `None` when nothing controls it. Asks the API
    /// only for the parent of a Job or ReplicaSet, once per UID.
    fn top_owner<'a>(&'a self, pod: &'a PodObject) -> StoreResult<'a, Option<OwnerRef>>;

    /// A StatefulSet, read past every cache; `None` when there is none.
    fn stateful_set<'a>(&'a self, key: &'a ObjectKey) -> StoreResult<'a, Option<StatefulSetFacts>>;

    /// What exists behind the name of a virtual machine, read past every cache.
    fn machine<'a>(&'a self, key: &'a ObjectKey) -> StoreResult<'a, MachineFacts>;

    /// The Pods of a virtual machine, read past every cache.
    fn machine_pods<'a>(&'a self, key: &'a ObjectKey) -> StoreResult<'a, Vec<PodObject>>;

    /// Makes the Pod object of a bare container, or finds it. An object of that name with
    /// another UID is of an older container: it is replaced.
    fn ensure_pod<'a>(&'a self, pod: &'a StandalonePod) -> StoreResult<'a, PodObject>;

    /// Deletes a Pod object that [`Store::ensure_pod`] made; another UID or none is success.
    fn delete_pod<'a>(&'a self, key: &'a ObjectKey, uid: &'a str) -> StoreResult<'a, ()>;

    /// Pools, reservations, the Pod's namespace and this node, from the caches.
    fn caches<'a>(&'a self, namespace: &'a str) -> StoreResult<'a, Caches>;

    /// One pool; `None` when there is none of that name.
    fn pool<'a>(
        &'a self,
        name: &'a str,
        freshness: Freshness,
    ) -> StoreResult<'a, Option<Arc<PoolObject>>>;

    /// A pool that may hold the address, read past the caches; one that cannot be understood may. `None`:
    /// no pool has it.
    fn holder_of(&self, address: IpAddr) -> StoreResult<'_, Option<String>>;

    /// Conditional PUT of the status as read: only `allocatedIPs` and `allocatedIPCount` differ.
    /// The answer is the stored object; later cached reads see it or something newer.
    ///
    /// Errors: [`StoreError::Conflict`] when the pool has changed since `read`.
    fn put_pool_status<'a>(
        &'a self,
        read: &'a PoolObject,
        records: &'a Records,
    ) -> StoreResult<'a, Arc<PoolObject>>;

    /// One endpoint.
    fn endpoint<'a>(
        &'a self,
        key: &'a ObjectKey,
        freshness: Freshness,
    ) -> StoreResult<'a, Option<SpiderEndpoint>>;

    /// Creates the endpoint when it carries no resourceVersion, else replaces what was read.
    ///
    /// Errors: [`StoreError::Conflict`] when it exists already or has changed.
    fn put_endpoint(&self, endpoint: SpiderEndpoint) -> StoreResult<'_, SpiderEndpoint>;

    /// Takes our finalizer off this very endpoint (same object UID) and deletes it; gone or
    /// another object by now is success. So is one without an owner, an identity's, that was
    /// written since: it stays.
    fn delete_endpoint<'a>(&'a self, endpoint: &'a SpiderEndpoint) -> StoreResult<'a, ()>;

    /// Tells the user; a failure is logged by the store.
    fn event(&self, event: PodEvent) -> BoxFuture<'_, ()>;

    /// Whether ADD can be served: caches filled, API reachable. The text says what is missing.
    fn ready(&self) -> Result<(), String>;
}

/// Whether a pool may hold the address, as far as it can be understood.
fn may_hold(pool: &PoolObject, address: IpAddr) -> bool {
    pool.pool().map_or(true, |pool| pool.may_hold(address))
}
