//! Sub-ENIs of prewarm pools, and all that a provider of contract version 1 has bound, go back: mark,
//! tell the provider, free (spec iaas section 8). Only a provider that has agreed makes an address free
//! for the next Pod.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use spiderpool_api::allocation::Record;
use spiderpool_api::endpoint::{EndpointAllocation, SpiderEndpoint};
use spiderpool_api::provider::ReleaseRequest;
use spiderpool_api::value::Mac;
use spiderpool_iaas::error::CallError;
use spiderpool_iaas::provider::Provider;
use spiderpool_ipam::batch::{Op, Outcome};
use spiderpool_ipam::first_generation::{Unnamed, unnamed};
use spiderpool_ipam::plan;
use spiderpool_ipam::pool::{Mode, Pool};
use spiderpool_ipam::range::Family;
use tokio::time::Instant;

use super::error::full;
use crate::agent::Agent;
use crate::attachment::Attachment;
use crate::failpoint::del_step;
use crate::store::{Freshness, ObjectKey, StoreError};
use crate::writer::{Committed, WriteError};

/// Whose sub-ENIs go, and until when there is time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Owner<'a> {
    pub(super) pod: &'a ObjectKey,
    pub(super) uid: &'a str,
    /// What is written of the Pod's NICs, where it is at hand.
    pub(super) endpoint: Option<&'a SpiderEndpoint>,
    pub(super) deadline: Instant,
}

/// Where to look whether a record without a node is a sub-ENI all the same, under contract version 1.
#[derive(Debug, Clone, Copy)]
pub(super) struct Unwritten<'a> {
    endpoint: Option<&'a EndpointAllocation>,
    /// The node of the Pod.
    node: &'a str,
}

impl Unwritten<'_> {
    fn node_of(&self, pool: &Pool, address: IpAddr, record: &Record) -> Option<String> {
        match unnamed(pool, (address, record), self.endpoint, Some(self.node)) {
            Unnamed::For(node) => Some(node),
            Unnamed::NotBound | Unnamed::Nowhere => None,
        }
    }
}

/// A sub-ENI that a Pod holds and that goes back with it.
#[derive(Debug, Clone)]
pub(super) struct SubEni {
    pub(super) pool: Arc<Pool>,
    pub(super) address: IpAddr,
    /// The other address of a pair, with its pool.
    pub(super) half: Option<(String, IpAddr)>,
    /// Node that a provider of contract version 1 was told.
    node: Option<String>,
}

/// The sub-ENIs of this UID in these pools that go back with it.
pub(super) fn sub_enis(
    uid: &str,
    pools: &BTreeMap<String, Arc<Pool>>,
    unwritten: Option<Unwritten<'_>>,
) -> Vec<SubEni> {
    let half = |pool: &Pool, nic: &Option<String>| {
        let sibling = pools.get(pool.pair.as_ref()?)?;
        let mut own = sibling.records_of(uid).into_iter();
        let (address, _) = own.find(|(_, record)| record.nic == *nic)?;
        Some((sibling.name.clone(), address))
    };
    let mut found = Vec::new();
    for pool in pools.values() {
        let prewarmed = is_primary(pool, pools);
        for (address, record) in pool.records_of(uid) {
            let other = || unwritten?.node_of(pool, address, record);
            let node = record.node.clone().or_else(other);
            if prewarmed || node.is_some() {
                let half = half(pool, &record.nic).filter(|_| prewarmed);
                found.push(SubEni {
                    pool: Arc::clone(pool),
                    address,
                    half,
                    node,
                });
            }
        }
    }
    found
}

/// Whether the pool's records stand for sub-ENIs that go back; the IPv6 pool of a pair has only
/// their other halves. `others` are the pools that the Pod's records are in.
pub(super) fn is_primary(pool: &Pool, others: &BTreeMap<String, Arc<Pool>>) -> bool {
    let named = |other: &Arc<Pool>| {
        other.family == Family::V4 && other.pair.as_deref() == Some(pool.name.as_str())
    };
    let sibling = pool.family == Family::V6 && (pool.pair.is_some() || others.values().any(named));
    matches!(pool.mode, Mode::Prewarm { .. }) && !sibling
}

impl Agent {
    /// `None` where pools or records tell all of it.
    pub(super) fn unwritten<'a>(&'a self, owner: Owner<'a>) -> Option<Unwritten<'a>> {
        let endpoint = owner.endpoint.map(|endpoint| &endpoint.status.current);
        let node = self.settings.node.as_str();
        let unwritten = Unwritten { endpoint, node };
        self.is_first_generation().then_some(unwritten)
    }

    /// Gives one sub-ENI back. `false`: it is not free yet, and its records stay.
    ///
    /// # Errors
    /// [`WriteError`] when not even the mark could be made.
    pub(super) async fn unbind(
        &self,
        provider: &dyn Provider,
        owner: Owner<'_>,
        eni: &SubEni,
    ) -> Result<bool, WriteError> {
        if self.memory.is_unsettled(&eni.pool.name, eni.address) {
            let (pod, ip) = (owner.pod, eni.address);
            tracing::info!(%pod, %ip, "an earlier release of ours has no answer yet and may still take effect");
            return Ok(false);
        }
        match self.mark(owner, eni).await? {
            Mark::Ours => {}
            Mark::Foreign => return Ok(false),
            // Nothing to tell: it was given back, and may be another Pod's by now.
            Mark::Gone => return Ok(self.free_halves(owner, eni).await),
        }
        let request = request(owner, eni, self.parent_told(owner.uid, eni).await);
        let (pod, uid, ip) = (owner.pod, owner.uid, request.ip_address);
        let pool = &eni.pool.name;
        self.memory.calls(pool, eni.address);
        let called = del_step!(Unbind, provider.release(&request, Some(owner.deadline)));
        if !called.as_ref().is_err_and(CallError::is_unsettled) {
            self.memory.settled(pool, eni.address);
        }
        match called {
            Ok(()) => {
                tracing::info!(%pod, uid, %ip, pool, "IaaS release API succeeded");
                Ok(self.free_halves(owner, eni).await)
            }
            Err(error) => {
                tracing::error!(%pod, uid, %ip, pool, error = full(&error), "IaaS release API failed");
                Ok(false)
            }
        }
    }

    /// MAC of the parent NIC: a prewarm pool publishes it; else a link that is still known has one.
    async fn parent_told(&self, uid: &str, eni: &SubEni) -> Option<Mac> {
        if eni.pool.parent_mac.is_some() {
            return eni.pool.parent_mac;
        }
        let has = |file: &Attachment| {
            let mut ips = file.ips.iter();
            file.pod_uid == uid && ips.any(|ip| ip.address.addr() == eni.address)
        };
        let master = self.attachments.select(has).into_iter().next()?.master?;
        let master = self.nic.check_master(&master, None, None).await;
        master.ok().map(|master| master.mac)
    }

    async fn mark(&self, owner: Owner<'_>, eni: &SubEni) -> Result<Mark, WriteError> {
        let op = Op::Mark {
            uid: owner.uid.to_owned(),
            addresses: vec![eni.address],
            by: self.actor.clone(),
            at: self.clock.rfc3339(),
        };
        let deadline = owner.deadline;
        let marked = del_step!(Mark, self.change(&eni.pool.name, op, deadline));
        let Committed { outcome, pool } = marked?;
        if matches!(outcome, Outcome::Marked(marked) if !marked.is_empty()) {
            return Ok(Mark::Ours);
        }
        let record = pool.records.get(eni.address);
        let record = record.filter(|record| record.pod_uid == owner.uid);
        Ok(match record.and_then(|record| record.releasing.as_ref()) {
            Some(mark) => {
                let (ip, by, at) = (eni.address, &mark.by, &mark.at);
                tracing::info!(pod = %owner.pod, %ip, by, at, "somebody else is releasing the sub-ENI");
                Mark::Foreign
            }
            None => Mark::Gone,
        })
    }

    /// The IPv6 half goes first: while the marked IPv4 record is there, nobody gets the pair.
    async fn free_halves(&self, owner: Owner<'_>, eni: &SubEni) -> bool {
        let first = (eni.pool.name.clone(), eni.address);
        for (pool, address) in eni.half.clone().into_iter().chain([first]) {
            let op = Op::Release {
                uid: owner.uid.to_owned(),
                nic: None,
                addresses: Some(vec![address]),
                by: Some(self.actor.clone()),
            };
            if let Err(error) = self.release_in(&pool, op, owner.deadline).await {
                let (pod, error) = (owner.pod, full(&error));
                tracing::warn!(%pod, pool, %address, error, "a released sub-ENI's record stays for now");
                return false;
            }
        }
        true
    }

    /// A pool that is gone has no record to mark: the provider is told once, whatever it says.
    ///
    /// # Errors
    /// [`StoreError`] when that could not be found out: the endpoint has to stay, nothing else knows them.
    pub(super) async fn unbind_orphans(
        &self,
        owner: Owner<'_>,
        endpoint: &SpiderEndpoint,
    ) -> Result<(), StoreError> {
        let Some(provider) = &self.provider else {
            return Ok(());
        };
        let current = &endpoint.status.current;
        // A provider cannot do anything with a call that names no node.
        if current.node.is_empty() {
            return Ok(());
        }
        for (pool, net) in plan::sub_enis_of(current) {
            if !self.is_orphan(owner, &pool, net.addr()).await? {
                continue;
            }
            let request = release_of(owner, &current.node, None, net, pool);
            let (pod, ip) = (owner.pod, request.ip_address);
            match provider.release(&request, Some(owner.deadline)).await {
                Ok(()) => tracing::info!(%pod, %ip, "IaaS release API succeeded"),
                Err(error) => {
                    tracing::error!(%pod, %ip, error = full(&error), "IaaS release API failed");
                }
            }
        }
        Ok(())
    }

    /// Whether the pool is gone, and no other has the address by now: a release would take it from that
    /// one's Pods, wherever they are. A pool that the cache still has is looked at no further; one that it
    /// lacks may just have come back.
    async fn is_orphan(
        &self,
        owner: Owner<'_>,
        pool: &str,
        address: IpAddr,
    ) -> Result<bool, StoreError> {
        for freshness in [Freshness::Cached, Freshness::Fresh] {
            if self.store.pool(pool, freshness).await?.is_some() {
                return Ok(false);
            }
        }
        let holder = self.store.holder_of(address).await?;
        if let Some(holder) = &holder {
            let (pod, ip) = (owner.pod, address);
            tracing::warn!(%pod, %ip, pool, holder, "the pool is gone and another may have the address: the provider is not told");
        }
        Ok(holder.is_none())
    }
}

/// What became of a mark.
enum Mark {
    /// We may call.
    Ours,
    /// Somebody else calls.
    Foreign,
    /// There is no such record.
    Gone,
}

fn request(owner: Owner<'_>, eni: &SubEni, parent: Option<Mac>) -> ReleaseRequest {
    let node = match (&eni.node, &eni.pool.mode) {
        (Some(node), _) | (None, Mode::Prewarm { node }) => node.as_str(),
        (None, Mode::Plain | Mode::Global) => "",
    };
    let net = eni.pool.with_prefix(eni.address);
    release_of(owner, node, parent, net, eni.pool.name.clone())
}

fn release_of(
    owner: Owner<'_>,
    node: &str,
    parent_nic_mac: Option<Mac>,
    net: IpNet,
    pool_name: String,
) -> ReleaseRequest {
    ReleaseRequest {
        pod_name: owner.pod.name.clone(),
        pod_namespace: owner.pod.namespace.clone(),
        pod_uid: owner.uid.to_owned(),
        node_name: node.to_owned(),
        parent_nic_mac,
        subnet: net.trunc(),
        ip_address: net.addr(),
        pool_name,
    }
}
