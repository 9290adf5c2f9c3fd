//! From caches to the facts that `ipam` decides on.

use std::sync::Arc;

use spiderpool_api::endpoint::SpiderEndpoint;
use spiderpool_ipam::facts::{NamespaceFacts, NodeFacts, Owner, Snapshot};
use spiderpool_ipam::pick::Rules;
use spiderpool_ipam::range::Family;
use spiderpool_ipam::range_set::RangeSet;

use super::allocation::AllocationError;
use crate::agent::Agent;
use crate::store::{Caches, Freshness, PodObject, Reservation};

impl Agent {
    /// Everything an ADD of this Pod is decided from. Pools that the endpoint names are as new as
    /// the store knows them, because their records answer for it.
    pub(super) async fn snapshot(
        &self,
        pod: &PodObject,
        endpoint: Option<&SpiderEndpoint>,
    ) -> Result<Snapshot, AllocationError> {
        let owner = self.store.top_owner(pod).await;
        let owner = owner.map_err(AllocationError::store("read the Pod's controller"))?;
        let caches = self.store.caches(&pod.facts.namespace).await;
        let mut caches = caches.map_err(AllocationError::store("read the pools"))?;
        for name in endpoint.into_iter().flat_map(pools_of) {
            let read = self.store.pool(&name, Freshness::Cached).await;
            let read = read.map_err(AllocationError::store("read a pool of the endpoint"))?;
            caches.pools.retain(|pool| pool.name() != name);
            caches.pools.extend(read);
        }
        let mut facts = pod.facts.clone();
        facts.owner = owner.map_or_else(
            || Owner {
                api_version: "v1".into(),
                kind: "Pod".into(),
                name: pod.facts.name.clone(),
            },
            |owner| Owner {
                api_version: owner.api_version,
                kind: owner.kind,
                name: owner.name,
            },
        );
        let mut snapshot = from_caches(&caches);
        snapshot.pod = facts;
        snapshot.switches = self.settings.switches;
        snapshot.node.name.clone_from(&self.settings.node);
        snapshot.endpoint = endpoint.map(|endpoint| endpoint.status.clone());
        snapshot.enable_ipv4 = self.settings.enable_ipv4;
        snapshot.enable_ipv6 = self.settings.enable_ipv6;
        Ok(snapshot)
    }

    /// What no pick may give out now.
    pub(super) fn rules(&self, snapshot: &Snapshot) -> Arc<Rules> {
        Arc::new(Rules {
            reserved: snapshot.reserved().union(&self.memory.shunned()),
            record_cap: self.settings.record_cap,
            provider: self.provider.is_some(),
        })
    }
}

/// Pools that an endpoint names, each once.
pub(super) fn pools_of(endpoint: &SpiderEndpoint) -> Vec<String> {
    let details = &endpoint.status.current.ips;
    let mut names: Vec<String> = details
        .iter()
        .flat_map(|nic| [nic.ipv4_pool.clone(), nic.ipv6_pool.clone()])
        .flatten()
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

fn from_caches(caches: &Caches) -> Snapshot {
    let mut snapshot = Snapshot {
        node: NodeFacts {
            name: caches.node.name.clone(),
            labels: caches.node.labels.clone(),
        },
        namespace: NamespaceFacts {
            labels: caches.namespace.labels.clone(),
            annotations: caches.namespace.annotations.clone(),
        },
        ..Snapshot::default()
    };
    for object in &caches.pools {
        match object.pool() {
            Ok(pool) => snapshot.pools.push(Arc::clone(pool)),
            Err(error) => {
                let reason = error.to_string();
                snapshot.unreadable.insert(object.name().to_owned(), reason);
            }
        }
    }
    // The order of caches is no order; picks and messages shall repeat.
    snapshot.pools.sort_by(|a, b| a.name.cmp(&b.name));
    let known = caches.reserved.iter().map(|one| &one.addresses);
    let reserved = known.fold(RangeSet::empty(), |all, one| all.union(one));
    snapshot.reserved_v4 = of_family(&reserved, Family::V4);
    snapshot.reserved_v6 = of_family(&reserved, Family::V6);
    for family in Family::BOTH {
        let of_it = |one: &&Arc<Reservation>| one.unknown.is_some_and(|of| of.has(family));
        let complaints = caches.reserved.iter().filter(of_it);
        let mut complaints: Vec<&str> = complaints
            .filter_map(|one| one.complaint.as_deref())
            .collect();
        complaints.sort_unstable();
        if !complaints.is_empty() {
            snapshot.withheld.insert(family, complaints.join(", "));
        }
    }
    snapshot
}

fn of_family(set: &RangeSet, family: Family) -> RangeSet {
    let ranges = set.ranges().iter().copied();
    ranges
        .filter(|range| Family::of(range.first()) == family)
        .collect()
}
