//! The provider's part of an ADD (spec iaas 7.4): one call for all NICs of the request whose
//! addresses are not ready here, after their claims are stored and outside the writers. Decides
//! nothing about addresses; the caller undoes the claims when it fails.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use spiderpool_api::provider::{AllocateRequest, SubEniRequest};
use spiderpool_api::value::{IfName, Mac};
use spiderpool_iaas::check::Bound;
use spiderpool_iaas::error::CallError;
use spiderpool_ipam::candidates::NicCandidates;
use spiderpool_ipam::pick::{Binding, Path, Pick};
use spiderpool_ipam::plan::ResultError;

use super::allocation::AllocationError;
use super::call::Ended;
use super::claim::{Claimed, Claimer};
use super::error::full;
use crate::failpoint::add_step;
use crate::store::Freshness;

/// Why sub-ENIs are not bound.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The call, or what it was answered with.
    #[error("iaas allocate failed")]
    Call(#[source] CallError),
    /// An answer that leaves open what nobody else knows.
    #[error(
        "iaas allocate failed: the answer for {address} has no {what} and none is known; the provider has to be asked why"
    )]
    Incomplete {
        /// As requested.
        address: IpAddr,
        /// `VLAN id` or `MAC address`.
        what: &'static str,
    },
    /// The record went while the provider was asked: the pool was replaced, or its status edited.
    #[error(
        "iaas allocate failed: IPPool {pool} has no record of the Pod for {address} any more, it was removed during the call; the next ADD takes another one"
    )]
    RecordGone {
        /// The pool.
        pool: String,
        /// As requested.
        address: IpAddr,
    },
    /// Nobody says on which NIC the sub-ENI shall hang.
    #[error("the parent NIC of NIC {nic} cannot be resolved: {why}")]
    Parent {
        /// NIC of the Pod.
        nic: String,
        /// What was tried.
        why: String,
    },
    /// No provider to call, although the address was picked for one.
    #[error("no IaaS Network Provider is configured on this node")]
    NoProvider,
    /// The caller left.
    #[error(transparent)]
    Ended(Ended),
}

impl Claimer<'_> {
    /// Has the provider bind what is not ready here, all or nothing.
    pub(super) async fn bind(
        &self,
        nics: &[NicCandidates],
        claimed: &mut [Claimed],
    ) -> Result<(), AllocationError> {
        let cold: Vec<usize> = claimed
            .iter()
            .enumerate()
            .filter(|(_, claim)| claim.pick.path.is_cold() && !claim.half)
            .map(|(index, _)| index)
            .collect();
        if cold.is_empty() {
            if claimed
                .iter()
                .any(|claim| claim.pick.path == Path::CacheHit)
            {
                tracing::info!(
                    pod = self.snapshot.pod.key(),
                    "Skipping IaaS provider allocation call: all results are sourced from prewarm ipMetaData"
                );
            }
            return Ok(());
        }
        one_sub_eni_each(nics, claimed, &cold)?;
        let addresses = addresses(claimed, &cold);
        match self.bind_cold(nics, claimed, &cold).await {
            Ok(()) => {
                tracing::info!(
                    pod = self.snapshot.pod.key(),
                    addresses,
                    "IaaS allocate API succeeded"
                );
                Ok(())
            }
            Err(source) => {
                let iaas = &self.agent.metrics.iaas;
                for claim in cold.iter().filter_map(|index| claimed.get(*index)) {
                    iaas.unbound(&claim.pool, &source);
                }
                if matches!(source, BindError::Incomplete { .. }) {
                    iaas.calls.incomplete();
                }
                let error = AllocationError::Provider {
                    addresses,
                    source: Box::new(source),
                };
                self.log_failure(&error);
                Err(error)
            }
        }
    }

    async fn bind_cold(
        &self,
        nics: &[NicCandidates],
        claimed: &mut [Claimed],
        cold: &[usize],
    ) -> Result<(), BindError> {
        let provider = self.agent.provider.as_ref();
        let provider = provider.ok_or(BindError::NoProvider)?;
        let mut items = Vec::with_capacity(cold.len());
        for claim in cold.iter().filter_map(|index| claimed.get(*index)) {
            let nic = nics.get(claim.nic).map_or("", |nic| nic.nic.as_str());
            let parent = self.parent_of(claim, nic).await?;
            items.push(item(claim, half_of(claimed, claim.nic), parent));
        }
        let pod = &self.snapshot.pod;
        let request = AllocateRequest {
            pod_name: pod.name.clone(),
            pod_namespace: pod.namespace.clone(),
            pod_uid: pod.uid.clone(),
            node_name: self.snapshot.node.name.clone(),
            sub_eni_requests: items,
        };
        let limits = &self.call.call.limits;
        let call = provider.allocate(&request, Some(limits.deadline));
        let answered = limits.unless_gone("waiting for the IaaS Network Provider", call);
        let bound = add_step!(Bind, answered).map_err(BindError::Ended)?;
        let bound = bound.map_err(BindError::Call)?;
        self.check_records(claimed).await?;
        for ((index, told), item) in cold.iter().zip(&bound).zip(&request.sub_eni_requests) {
            if let Some(claim) = claimed.get_mut(*index) {
                claim.pick.binding = Some(merged(&claim.pick, told)?);
                claim.parent = Some(item.parent_nic_mac);
            }
        }
        Ok(())
    }

    /// A call may take a minute; what became of the claims meanwhile is told by the pools' watch.
    async fn check_records(&self, claimed: &[Claimed]) -> Result<(), BindError> {
        let uid = &self.snapshot.pod.uid;
        for claim in claimed {
            let (name, address) = (&claim.pool.name, claim.pick.address);
            // What cannot be read now had the claim when it could; the endpoint's write needs the API too.
            let Ok(read) = self.agent.store.pool(name, Freshness::Cached).await else {
                continue;
            };
            let kept = read.is_some_and(|read| {
                let record = read.pool().ok().and_then(|pool| pool.records.get(address));
                record.is_some_and(|record| record.pod_uid == *uid)
            });
            if !kept {
                let pool = name.clone();
                return Err(BindError::RecordGone { pool, address });
            }
        }
        Ok(())
    }

    /// MAC of the NIC on this node that the sub-ENI shall hang on (spec iaas 3.4).
    async fn parent_of(&self, claim: &Claimed, nic: &str) -> Result<Mac, BindError> {
        if let Some(mac) = claim.pool.parent_mac {
            return Ok(mac);
        }
        let failed = |why| BindError::Parent {
            nic: nic.to_owned(),
            why,
        };
        let current = self.call.key.ifname().as_str() == nic;
        let conf = &self.call.call.conf;
        let master = self.agent.sub_eni_master(conf).filter(|_| current);
        let name: IfName = match (&claim.pool.parent_nic, master) {
            (Some(name), _) => name.parse().map_err(|error| {
                failed(format!(
                    "annotation parent-nic of IPPool {}: {error}",
                    claim.pool.name
                ))
            })?,
            (None, Some(master)) => master.clone(),
            (None, None) => {
                return Err(failed(format!(
                    "IPPool {} has no annotation ipam.spidernet.io/parent-nic, and only the NIC being added has a known master",
                    claim.pool.name
                )));
            }
        };
        let master = self.agent.nic.check_master(&name, None, None).await;
        master
            .map(|master| master.mac)
            .map_err(|error| failed(full(&error)))
    }

    fn log_failure(&self, error: &AllocationError) {
        let pod = &self.snapshot.pod;
        let text = full(error);
        tracing::error!(pod = pod.key(), error = text, "IaaS allocate API failed");
        tracing::error!(
            pod = pod.key(),
            "IaaS allocate failed, aborting IPAM allocation"
        );
    }
}

/// A NIC is one sub-ENI: what else it was given must not be of another.
fn one_sub_eni_each(
    nics: &[NicCandidates],
    claimed: &[Claimed],
    cold: &[usize],
) -> Result<(), AllocationError> {
    for claim in cold.iter().filter_map(|index| claimed.get(*index)) {
        let other = claimed.iter().find(|other| {
            other.nic == claim.nic
                && !other.half
                && other.pool.is_iaas()
                && other.pool.name != claim.pool.name
        });
        if let Some(other) = other {
            return Err(AllocationError::Result(ResultError::TwoBindings {
                nic: nics
                    .get(claim.nic)
                    .map(|nic| nic.nic.clone())
                    .unwrap_or_default(),
                first: claim.pool.name.clone(),
                second: other.pool.name.clone(),
            }));
        }
    }
    Ok(())
}

fn half_of(claimed: &[Claimed], nic: usize) -> Option<&Claimed> {
    claimed.iter().find(|claim| claim.half && claim.nic == nic)
}

fn addresses(claimed: &[Claimed], cold: &[usize]) -> String {
    let claims = cold.iter().filter_map(|index| claimed.get(*index));
    let texts: Vec<String> = claims
        .map(|claim| format!("{} of IPPool {}", claim.pick.address, claim.pool.name))
        .collect();
    texts.join(", ")
}

fn item(claim: &Claimed, half: Option<&Claimed>, parent_nic_mac: Mac) -> SubEniRequest {
    let both = || std::iter::once(claim).chain(half);
    let of = |v4: bool| both().find(|claim| claim.pick.address.is_ipv4() == v4);
    let pool = |claim: &Claimed| claim.pool.name.clone();
    let v4 = |claim: &Claimed| -> Option<Ipv4Addr> {
        match claim.pick.address {
            IpAddr::V4(ip) => Some(ip),
            IpAddr::V6(_) => None,
        }
    };
    let v6 = |claim: &Claimed| -> Option<Ipv6Addr> {
        match claim.pick.address {
            IpAddr::V4(_) => None,
            IpAddr::V6(ip) => Some(ip),
        }
    };
    SubEniRequest {
        parent_nic_mac,
        subnet: claim.pool.subnet.trunc(),
        ipv4_address: of(true).and_then(v4),
        ipv6_address: of(false).and_then(v6),
        ipv4_pool_name: of(true).map(pool),
        ipv6_pool_name: of(false).map(pool),
    }
}

/// What the answer leaves open stays as it was: a MAC does for a sub-ENI's life, a VLAN is new on
/// each attach.
fn merged(pick: &Pick, told: &Bound) -> Result<Binding, BindError> {
    let missing = |what| BindError::Incomplete {
        address: pick.address,
        what,
    };
    Ok(Binding {
        vlan: told.vlan.ok_or_else(|| missing("VLAN id"))?,
        mac: told
            .mac
            .or(pick.known_mac)
            .ok_or_else(|| missing("MAC address"))?,
    })
}
