//! An address for a NIC: the one it has, the one its endpoint names, or a fresh one; recorded in
//! the endpoint before the answer (spec ipam 1.3, 1.5).

use std::time::Duration;

use spiderpool_api::cni_conf::Plugin;
use spiderpool_api::endpoint::{EndpointNic, SpiderEndpoint};
use spiderpool_api::value::Mac;
use spiderpool_ipam::annotation;
use spiderpool_ipam::batch::Op;
use spiderpool_ipam::candidates::{
    self, EVENT_CANDIDATE_IGNORED, NicCandidates, Request, Selection,
};
use spiderpool_ipam::facts::{Master, Snapshot};
use spiderpool_ipam::plan::{self, Adoption, Allocation, Held, Intent};
use spiderpool_ipam::range::Family;

use super::adopt::Adopted;
use super::ahead::promises_for;
use super::allocation::{AllocationError, FamilyFailure};
use super::call::NicCall;
use super::claim::{Claimer, Given};
use super::error::full;
use super::record::endpoint_key;
use crate::agent::Agent;
use crate::events::{Notice, PodUid};
use crate::nic::HostNic;
use crate::store::{Freshness, ObjectKey, PodObject};
use crate::writer::WriteError;

/// Why there is no allocation.
pub(super) enum AllocateError {
    /// The Pod has ended.
    Dead,
    /// Anything else.
    Failed(AllocationError),
}

impl From<AllocationError> for AllocateError {
    fn from(error: AllocationError) -> Self {
        Self::Failed(error)
    }
}

type Allocated = (Allocation, Option<Mac>);

impl Agent {
    /// What the NIC has already, else fresh claims; the endpoint tells of it afterwards. With the
    /// MAC of the parent NIC, where a pool publishes it.
    pub(super) async fn allocate(
        &self,
        call: &NicCall,
        pod: &PodObject,
    ) -> Result<Allocated, AllocateError> {
        loop {
            let endpoint = self.endpoint_of(pod).await?;
            let mut snapshot = self.snapshot(pod, endpoint.as_ref()).await?;
            if call.call.conf.match_master_subnet {
                snapshot.master = self.master_of(call).await;
            }
            if self.is_first_generation() {
                let master = self.sub_eni_master(&call.call.conf);
                snapshot.sub_eni = master.map(|_| call.key.ifname().to_string());
            }
            if let Some((allocation, told)) = self.attempt(call, pod, &snapshot, endpoint).await? {
                let published = || {
                    let mut ips = allocation.ips.iter();
                    ips.find_map(|ip| snapshot.pool(&ip.pool)?.parent_mac)
                };
                let parent_mac = told.or_else(published);
                return Ok((allocation, parent_mac));
            }
            let limits = &call.call.limits;
            let again = limits.allow("the Pod's earlier addresses were given up", Duration::ZERO);
            again.map_err(AllocationError::Ended)?;
        }
    }

    /// The host NIC behind the NIC being added.
    async fn master_of(&self, call: &NicCall) -> Master {
        let Some(netns) = &call.netns else {
            return Master::Unknown("the call names no network namespace".to_owned());
        };
        match self.nic.host_nic(netns, call.key.ifname()).await {
            Ok(HostNic { name, addresses }) => Master::Known { name, addresses },
            Err(error) => Master::Unknown(full(&error)),
        }
    }

    /// The Pod's endpoint. That of an identity may have been written on another node, which this one
    /// does not watch.
    async fn endpoint_of(
        &self,
        pod: &PodObject,
    ) -> Result<Option<SpiderEndpoint>, AllocationError> {
        let switches = self.settings.switches;
        let freshness = match pod.identity(switches) {
            Some(_) => Freshness::Fresh,
            None => Freshness::Cached,
        };
        let key = pod.endpoint_key(switches);
        let read = self.store.endpoint(&key, freshness).await;
        read.map_err(AllocationError::store("read the SpiderEndpoint"))
    }

    /// Does what the plan says; `None`: the facts have changed, and it has to be made anew.
    async fn attempt(
        &self,
        call: &NicCall,
        pod: &PodObject,
        snapshot: &Snapshot,
        endpoint: Option<SpiderEndpoint>,
    ) -> Result<Option<Allocated>, AllocateError> {
        let ifname = call.key.ifname().as_str();
        let plan = plan::plan_add(snapshot, ifname).map_err(|_| AllocateError::Dead)?;
        let changed = plan::pool_change(snapshot, &self.request(call));
        let intent = match changed.map_err(AllocationError::Select)? {
            Some(exchange) => Intent::Exchange(exchange),
            None => plan.intent,
        };
        let kept = match (intent, &endpoint) {
            (Intent::Retrieve(nic), _) => plan::from_endpoint(&nic).ok(),
            (Intent::Reclaim { nic, lost }, _) => {
                let regained = self.reclaim(call, snapshot, &nic, &lost).await?;
                plan::from_endpoint(&nic).ok().filter(|_| regained)
            }
            (Intent::Exchange(exchange), Some(endpoint)) => {
                let limits = &call.call.limits;
                self.exchange(snapshot, endpoint.clone(), exchange, limits)
                    .await?;
                return Ok(None);
            }
            (Intent::Adopt(adoption), Some(endpoint)) => {
                let endpoint = endpoint.clone();
                return self.adopt(call, pod, snapshot, endpoint, &adoption).await;
            }
            // There is no other without an endpoint.
            (Intent::Fresh(_) | Intent::Adopt(_) | Intent::Exchange(_), _) => None,
        };
        match kept {
            Some(allocation) => Ok(Some((allocation, None))),
            None => Ok(Some(self.fresh(call, snapshot.clone(), endpoint).await?)),
        }
    }

    /// Takes an identity's addresses over; what is not to be had is given up.
    async fn adopt(
        &self,
        call: &NicCall,
        pod: &PodObject,
        snapshot: &Snapshot,
        endpoint: SpiderEndpoint,
        adoption: &Adoption,
    ) -> Result<Option<Allocated>, AllocateError> {
        self.is_still_there(pod).await?;
        let limits = &call.call.limits;
        let claimer = Claimer {
            agent: self,
            snapshot,
            rules: self.rules(snapshot),
            call,
        };
        match claimer.adopt(endpoint.clone(), adoption).await? {
            Adopted::Done(allocation, told) => {
                let tried = self.tried(snapshot);
                let given = std::slice::from_ref(allocation.as_ref());
                self.free_leftovers(&tried, given, limits.deadline).await;
                Ok(Some((*allocation, told)))
            }
            Adopted::Again => Ok(None),
            Adopted::Lost => {
                // The records that did move carry another UID by now.
                let now = self.snapshot(pod, Some(&endpoint)).await?;
                let exchange = plan::give_up(&now, &adoption.nic.interface);
                self.exchange(&now, endpoint, exchange, limits).await?;
                Ok(None)
            }
        }
    }

    /// Asks the API itself: a Pod of the same name that came later has its addresses by right, and this
    /// node may not have been told. The snapshot is older than the answer, and what a later Pod takes
    /// after it shows in the record.
    async fn is_still_there(&self, pod: &PodObject) -> Result<(), AllocateError> {
        let key = pod.key();
        let found = self.store.pod(&key, Freshness::Fresh).await;
        let found = found.map_err(AllocationError::store("read the Pod"))?;
        match found.is_some_and(|found| found.uid() == pod.uid()) {
            true => Ok(()),
            false => Err(AllocateError::Dead),
        }
    }

    /// Claims exactly these addresses again; `false` when one is not to be had or its sub-ENI is no
    /// longer the one that the endpoint names.
    async fn reclaim(
        &self,
        call: &NicCall,
        snapshot: &Snapshot,
        nic: &EndpointNic,
        lost: &[Held],
    ) -> Result<bool, AllocationError> {
        let claimer = Claimer {
            agent: self,
            snapshot,
            rules: self.rules(snapshot),
            call,
        };
        let known = plan::from_endpoint(nic).ok();
        let who = plan::claimant(snapshot, &nic.interface);
        for held in lost {
            let who = who.clone();
            let op = if held.half {
                Op::ClaimHalf {
                    who,
                    address: held.address,
                }
            } else {
                Op::Claim {
                    who,
                    pin: Some(held.address),
                }
            };
            match claimer.commit(&held.pool, None, op).await {
                Ok((_, pick)) => {
                    let same = pick.binding.is_none_or(|binding| {
                        known.as_ref().is_some_and(|known| {
                            known.vlan == Some(binding.vlan) && known.mac == Some(binding.mac)
                        })
                    });
                    if pick.path.is_cold() || !same {
                        return Ok(false);
                    }
                }
                Err(error) if error.is_this_pool_only() => {
                    // Nothing answers for what the endpoint says, and it may stay that way.
                    let key = endpoint_key(snapshot);
                    self.unrecord(&key, &snapshot.pod.uid, &nic.interface).await;
                    return Ok(false);
                }
                Err(error) => return Err(claim_failed(&nic.interface, held, error)),
            }
        }
        Ok(true)
    }

    /// Selects, claims, records.
    async fn fresh(
        &self,
        call: &NicCall,
        mut snapshot: Snapshot,
        mut endpoint: Option<SpiderEndpoint>,
    ) -> Result<Allocated, AllocationError> {
        let limits = &call.call.limits;
        let ifname = call.key.ifname().as_str();
        let routes = annotation::routes_of(&snapshot.pod).map_err(AllocationError::Annotation)?;
        self.drop_foreign(&snapshot, &mut endpoint).await?;
        snapshot.endpoint = endpoint.as_ref().map(|object| object.status.clone());
        let request = self.request(call);
        let selected = candidates::select(&snapshot, &request);
        let selected = selected.map_err(|error| {
            self.count_refused(&snapshot, &error);
            AllocationError::Select(error)
        })?;
        self.tell_dropped(&snapshot, &selected);
        let claimer = Claimer {
            agent: self,
            snapshot: &snapshot,
            rules: self.rules(&snapshot),
            call,
        };
        let nics = plan::to_claim(&snapshot, ifname, &selected.nics);
        let nics: Vec<NicCandidates> = nics.into_iter().cloned().collect();
        let (promises, told) = promises_for(&nics, endpoint.is_none());
        let (given, written) = tokio::join!(
            claimer.claim_all(&nics, promises),
            self.record_ahead(&snapshot, &nics, &routes, told)
        );
        let Given {
            mut allocations,
            parents,
        } = match given {
            Ok(given) => given,
            Err(error) => {
                self.take_back(written).await;
                return Err(error);
            }
        };
        let endpoint = written.or(endpoint);
        for route in plan::attach_routes(&mut allocations, &routes) {
            let (pod, dst, gw) = (snapshot.pod.key(), route.dst, route.gw);
            tracing::warn!(pod, %dst, %gw, "no address of the Pod reaches this route's gateway; it is left out");
        }
        let given = allocations.iter().cloned().zip(parents);
        let own = given.into_iter().find(|(nic, _)| nic.nic == ifname);
        let tried = self.tried(&snapshot);
        self.record(snapshot, endpoint, &allocations, limits)
            .await?;
        self.free_leftovers(&tried, &allocations, limits.deadline)
            .await;
        // `select` lists the NIC that is asked for, else it fails.
        own.ok_or_else(|| AllocationError::Families(Vec::new()))
    }

    /// What the call asks of the pools.
    pub(crate) fn request(&self, call: &NicCall) -> Request {
        let conf = &call.call.conf;
        Request {
            // Of pools of a provider the kind of the NIC counts, not who was called for it.
            plugin: match self.sub_eni_master(conf) {
                Some(_) => Plugin::EniVlan,
                None => call.call.plugin,
            },
            ifname: call.key.ifname().to_string(),
            ipv4_pools: conf.ipv4_pools.clone(),
            ipv6_pools: conf.ipv6_pools.clone(),
            clean_gateway: conf.clean_gateway,
            match_master_subnet: conf.match_master_subnet,
            agent_namespace: self.settings.agent_namespace.clone(),
            cluster_network: self.settings.cluster_network.clone(),
        }
    }

    fn tell_dropped(&self, snapshot: &Snapshot, selected: &Selection) {
        let pod = &snapshot.pod;
        for dropped in &selected.dropped {
            tracing::warn!(pod = pod.key(), "{dropped}");
            if dropped.event {
                let message = dropped.to_string();
                self.events.tell(Notice {
                    pod: ObjectKey::new(&pod.namespace, &pod.name),
                    uid: PodUid::Known(pod.uid.clone()),
                    reason: EVENT_CANDIDATE_IGNORED,
                    about: message.clone(),
                    message,
                });
            }
        }
    }
}

/// An address that the endpoint names could not be claimed.
pub(super) fn claim_failed(nic: &str, held: &Held, error: WriteError) -> AllocationError {
    AllocationError::Families(vec![FamilyFailure {
        nic: nic.to_owned(),
        family: Family::of(held.address),
        tried: vec![(held.pool.clone(), error)],
        refusals: Vec::new(),
    }])
}
