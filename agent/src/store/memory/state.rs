//! What the store in memory holds, and its conditional writes. No waiting, no outage: those are
//! the calls' business.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use spiderpool_api::allocation::Records;
use spiderpool_api::endpoint::SpiderEndpoint;
use spiderpool_ipam::sticky::{MachineFacts, StatefulSetFacts};

use super::super::{
    Marks, MetadataFacts, ObjectKey, OwnerRef, PodEvent, PodObject, PoolObject, Reservation,
    StoreError,
};
use super::ForeignWrite;

/// How often the API was used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Pool writes that were accepted.
    pub pool_writes: usize,
    /// Pool writes that met a conflict.
    pub pool_conflicts: usize,
    /// Endpoint writes that were accepted.
    pub endpoint_writes: usize,
    /// Reads past the cache.
    pub fresh_reads: usize,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) version: u64,
    pub(super) pods: BTreeMap<ObjectKey, PodObject>,
    pub(super) cached_pods: HashMap<ObjectKey, Option<PodObject>>,
    pub(super) owners: HashMap<String, OwnerRef>,
    pub(super) stateful_sets: BTreeMap<ObjectKey, StatefulSetFacts>,
    pub(super) machines: BTreeMap<ObjectKey, MachineFacts>,
    pub(super) pools: BTreeMap<String, Arc<PoolObject>>,
    pub(super) reserved: Vec<Arc<Reservation>>,
    pub(super) namespaces: BTreeMap<String, MetadataFacts>,
    pub(super) node: MetadataFacts,
    pub(super) endpoints: BTreeMap<ObjectKey, SpiderEndpoint>,
    pub(super) events: Vec<PodEvent>,
    pub(super) foreign: HashMap<String, VecDeque<ForeignWrite>>,
    pub(super) endpoint_conflicts: usize,
    pub(super) outage: bool,
    pub(super) delay: Duration,
    pub(super) counts: Counts,
    pub(super) marks: Option<Marks>,
}

impl State {
    pub(super) fn next_version(&mut self) -> String {
        self.version += 1;
        self.version.to_string()
    }

    pub(super) fn stamp_pool(&mut self, raw: &mut Value) {
        if let Some(meta) = raw.get_mut("metadata").and_then(Value::as_object_mut) {
            meta.insert("resourceVersion".into(), self.next_version().into());
        }
    }

    pub(super) fn stamp(&mut self, mut endpoint: SpiderEndpoint) -> SpiderEndpoint {
        let version = self.next_version();
        endpoint
            .metadata
            .uid
            .get_or_insert(format!("uid-{version}"));
        endpoint.metadata.resource_version = Some(version);
        endpoint
    }

    pub(super) fn typed(&self, raw: Value) -> Result<PoolObject, StoreError> {
        let marks = self.marks.unwrap_or(Marks::Count);
        Ok(PoolObject::from_raw(raw)?.with_marks(marks))
    }

    pub(super) fn write_pool(
        &mut self,
        pool: &PoolObject,
        records: &Records,
    ) -> Result<Arc<PoolObject>, StoreError> {
        let mut raw = pool.with_records(records);
        self.stamp_pool(&mut raw);
        let written = Arc::new(self.typed(raw)?);
        self.pools
            .insert(written.name().to_owned(), Arc::clone(&written));
        Ok(written)
    }

    pub(super) fn put_pool_status(
        &mut self,
        read: &PoolObject,
        records: &Records,
    ) -> Result<Arc<PoolObject>, StoreError> {
        let name = format!("SpiderIPPool {}", read.name());
        if let Some(foreign) = self
            .foreign
            .get_mut(read.name())
            .and_then(VecDeque::pop_front)
            && let Some(current) = self.pools.get(read.name()).cloned()
        {
            let mut records = current
                .pool()
                .map(|pool| pool.records.clone())
                .unwrap_or_default();
            foreign(&mut records);
            self.write_pool(&current, &records)?;
        }
        let Some(current) = self.pools.get(read.name()) else {
            return Err(StoreError::NotFound(name));
        };
        if current.resource_version() != read.resource_version() {
            self.counts.pool_conflicts += 1;
            return Err(StoreError::Conflict(name));
        }
        self.counts.pool_writes += 1;
        self.write_pool(read, records)
    }

    pub(super) fn put_endpoint(
        &mut self,
        endpoint: SpiderEndpoint,
    ) -> Result<SpiderEndpoint, StoreError> {
        let key = key_of(&endpoint);
        let conflict = || StoreError::Conflict(format!("SpiderEndpoint {key}"));
        if self.endpoint_conflicts > 0 {
            self.endpoint_conflicts -= 1;
            return Err(conflict());
        }
        let current = self.endpoints.get(&key);
        let same = current.map(|object| object.metadata.resource_version.clone());
        if same.flatten() != endpoint.metadata.resource_version {
            return Err(conflict());
        }
        self.counts.endpoint_writes += 1;
        let endpoint = self.stamp(endpoint);
        self.endpoints.insert(key, endpoint.clone());
        Ok(endpoint)
    }
}

pub(super) fn key_of(endpoint: &SpiderEndpoint) -> ObjectKey {
    let meta = &endpoint.metadata;
    ObjectKey::new(
        meta.namespace.clone().unwrap_or_default(),
        meta.name.clone().unwrap_or_default(),
    )
}
