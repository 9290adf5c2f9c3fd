//! ADD: what the endpoint and the records mean for this call (spec ipam 1.3), and the steps.

use std::net::IpAddr;

use ipnet::IpNet;
use spiderpool_api::endpoint::{EndpointAllocation, EndpointNic, EndpointStatus};
use spiderpool_api::ip_meta::EntryState;

use super::allocation::{Allocation, to_endpoint};
use super::steps::{PlannedStep, Step};
use super::sticky::{self, Adoption, Exchange};
use crate::candidates::NicCandidates;
use crate::facts::{Snapshot, pod_alive};
use crate::overlap::pool_loses_to;
use crate::pick::{Claimant, owns};
use crate::pool::{Mode, Pool};

/// An address the endpoint names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// Pool name.
    pub pool: String,
    /// The address.
    pub address: IpAddr,
    /// The IPv6 side of a pair: claimed with [`crate::batch::Op::ClaimHalf`], after the other.
    pub half: bool,
}

/// How the endpoint is written in the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndpointWrite {
    /// There is none.
    Create,
    /// Delete one of an earlier Pod of this name first. Its records stay until they are collected.
    Recreate,
    /// Add details.
    Append,
    /// The NIC's detail is no longer true: replace it.
    Replace,
}

/// What an ADD is about.
#[derive(Debug, Clone, PartialEq)]
pub enum Intent {
    /// Select and claim.
    Fresh(EndpointWrite),
    /// All records are there: answer from the endpoint, no write.
    Retrieve(EndpointNic),
    /// Claim exactly these addresses again, then answer from the endpoint; if one is not to be
    /// had, the same as `Fresh(Replace)`.
    Reclaim {
        /// The endpoint's detail.
        nic: EndpointNic,
        /// Addresses without a record.
        lost: Vec<Held>,
    },
    /// An identity that outlives its Pods: its addresses move to this one, then the answer comes
    /// from the endpoint. When one of this NIC is not to be had, [`sticky::give_up`] and plan anew.
    Adopt(Adoption),
    /// Addresses of such an identity that cannot come along: they are given up, then plan anew.
    Exchange(Exchange),
}

/// An ADD as data. The NIC steps follow for the calling plugin alone.
#[derive(Debug, Clone, PartialEq)]
pub struct AddPlan {
    /// What it is about.
    pub intent: Intent,
    /// Steps in order.
    pub steps: Vec<PlannedStep>,
}

/// Why an ADD cannot even start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddError {
    /// It is gone or going.
    #[error(
        "dead Pod {pod} (UID {uid}): phase {phase}, terminating {terminating}; no address is given to it"
    )]
    DeadPod {
        /// `namespace/name`.
        pod: String,
        /// Its UID.
        uid: String,
        /// `status.phase`.
        phase: String,
        /// Whether it is being deleted.
        terminating: bool,
    },
}

/// Decides an ADD of `ifname`.
///
/// # Errors
/// [`AddError::DeadPod`].
pub fn plan_add(snapshot: &Snapshot, ifname: &str) -> Result<AddPlan, AddError> {
    let pod = &snapshot.pod;
    if !pod_alive(pod) {
        return Err(AddError::DeadPod {
            pod: pod.key(),
            uid: pod.uid.clone(),
            phase: pod.phase.clone(),
            terminating: pod.terminating,
        });
    }
    let intent = intent(snapshot, ifname, Unpublished::Moved);
    let skipped = |step: Step| skips(&intent, step);
    let steps = Step::ALL
        .into_iter()
        .filter(|step| !skipped(*step))
        .map(|step| PlannedStep {
            step,
            undo: step.undo(),
        })
        .collect();
    Ok(AddPlan { intent, steps })
}

/// Whether a plan of this intent leaves the step out.
fn skips(intent: &Intent, step: Step) -> bool {
    let claims = matches!(step, Step::Claim | Step::ClaimHalf);
    match intent {
        Intent::Fresh(EndpointWrite::Recreate) => false,
        Intent::Fresh(_) | Intent::Adopt(_) => step == Step::DropEndpoint,
        Intent::Reclaim { .. } => {
            matches!(step, Step::DropEndpoint | Step::Bind | Step::Record)
        }
        Intent::Retrieve(_) => {
            claims || matches!(step, Step::DropEndpoint | Step::Bind | Step::Record)
        }
        Intent::Exchange(exchange) => {
            let writes = if exchange.keep.is_empty() {
                Step::DropEndpoint
            } else {
                Step::Record
            };
            step != writes
        }
    }
}

/// What an ADD would find, for CHECK: a binding that the provider has not published yet counts, as
/// it does so a moment after its answer (spec iaas 7.4).
#[must_use]
pub fn plan_check(snapshot: &Snapshot, ifname: &str) -> Intent {
    intent(snapshot, ifname, Unpublished::Bound)
}

/// What it means that a global pool's metadata has no entry of a bound address.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Unpublished {
    /// The sub-ENI may be gone.
    Moved,
    /// It will be published.
    Bound,
}

fn intent(snapshot: &Snapshot, ifname: &str, unpublished: Unpublished) -> Intent {
    let Some(endpoint) = &snapshot.endpoint else {
        return Intent::Fresh(EndpointWrite::Create);
    };
    if snapshot.identity().is_some() && unpublished == Unpublished::Moved {
        return sticky::intent(snapshot, ifname, endpoint);
    }
    let current = &endpoint.current;
    if current.uid != snapshot.pod.uid {
        return Intent::Fresh(EndpointWrite::Recreate);
    }
    let found = sticky::position(&current.ips, ifname);
    let Some(nic) = found.and_then(|index| current.ips.get(index)) else {
        return Intent::Fresh(EndpointWrite::Append);
    };
    let who = claimant(snapshot, ifname);
    if is_unbound(&who, nic) {
        return Intent::Fresh(EndpointWrite::Replace);
    }
    let mut lost = Vec::new();
    let held = held(nic);
    for item in &held {
        match standing(snapshot, &who, nic, item, unpublished) {
            Standing::Good => {}
            Standing::Lost => lost.push(item.clone()),
            Standing::Untrue => return Intent::Fresh(EndpointWrite::Replace),
        }
    }
    if held.is_empty() {
        return Intent::Fresh(EndpointWrite::Replace);
    }
    let nic = EndpointNic {
        interface: ifname.to_owned(),
        ..nic.clone()
    };
    if lost.is_empty() {
        Intent::Retrieve(nic)
    } else {
        Intent::Reclaim { nic, lost }
    }
}

/// Whether the NIC waits for its provider: it was claimed along with another one.
pub(super) const fn is_unbound(who: &Claimant, nic: &EndpointNic) -> bool {
    who.sub_eni && nic.vlan == 0
}

/// How true one address of the endpoint is.
enum Standing {
    /// The record is the NIC's.
    Good,
    /// Nobody has a record.
    Lost,
    /// Somebody else's, unreadable, or of a sub-ENI that changed.
    Untrue,
}

fn standing(
    snapshot: &Snapshot,
    who: &Claimant,
    nic: &EndpointNic,
    item: &Held,
    unpublished: Unpublished,
) -> Standing {
    let Some(pool) = snapshot.pool(&item.pool) else {
        return Standing::Untrue;
    };
    match pool.records.get(item.address) {
        // Another pool owns that address now, or will.
        None if pool_loses_to(pool, &snapshot.pools).is_some() => Standing::Untrue,
        None => Standing::Lost,
        Some(record) if !owns(who, item.address, record) => Standing::Untrue,
        Some(_) if moved(pool, who, nic, item, unpublished) => Standing::Untrue,
        Some(_) => Standing::Good,
    }
}

/// Whether readable metadata says that the sub-ENI is gone, elsewhere or has another VLAN or MAC.
/// Metadata that is not ready says nothing: an attached Pod outlives a provider's pause.
pub(super) fn moved(
    pool: &Pool,
    who: &Claimant,
    nic: &EndpointNic,
    item: &Held,
    unpublished: Unpublished,
) -> bool {
    let Some(Ok(metadata)) = &pool.metadata else {
        return false;
    };
    // The IPv6 side of a pair has no entries of its own.
    if item.half {
        return false;
    }
    match metadata
        .entries
        .get(&item.address)
        .map(|entry| &entry.state)
    {
        Some(EntryState::Attached { node, vlan, mac }) => {
            node.as_ref().is_some_and(|node| *node != who.node)
                || i64::from(vlan.get()) != nic.vlan
                || nic.mac.as_deref() != Some(&mac.to_string())
        }
        None if pool.mode == Mode::Global => unpublished == Unpublished::Moved,
        _ => true,
    }
}

pub(super) fn held(nic: &EndpointNic) -> Vec<Held> {
    [(&nic.ipv4, &nic.ipv4_pool), (&nic.ipv6, &nic.ipv6_pool)]
        .into_iter()
        .filter_map(|(address, pool)| {
            let net: IpNet = address.as_deref()?.parse().ok()?;
            Some(Held {
                pool: pool.clone()?,
                address: net.addr(),
                // Two families on one sub-ENI are a pair.
                half: net.addr().is_ipv6() && nic.ipv4.is_some() && nic.vlan != 0,
            })
        })
        .collect()
}

/// Addresses of all NICs of an endpoint.
#[must_use]
pub fn held_by(current: &EndpointAllocation) -> Vec<Held> {
    current.ips.iter().flat_map(held).collect()
}

/// Sub-ENIs of an endpoint, each with the pool of the address that the provider is told of (spec iaas 8:
/// the IPv4 one, or that of IPv6 alone) and that address in its subnet.
#[must_use]
pub fn sub_enis_of(current: &EndpointAllocation) -> Vec<(String, IpNet)> {
    let of = |net: &Option<String>, pool: &Option<String>| {
        Some((pool.clone()?, net.as_ref()?.parse().ok()?))
    };
    let bound = current.ips.iter().filter(|nic| nic.vlan != 0);
    bound
        .filter_map(|nic| of(&nic.ipv4, &nic.ipv4_pool).or_else(|| of(&nic.ipv6, &nic.ipv6_pool)))
        .collect()
}

/// Who asks, for claims of one NIC of the Pod.
#[must_use]
pub fn claimant(snapshot: &Snapshot, nic: &str) -> Claimant {
    let pod = &snapshot.pod;
    let others = details(snapshot).iter();
    Claimant {
        pod: snapshot.record_key(),
        uid: pod.uid.clone(),
        nic: nic.to_owned(),
        node: snapshot.node.name.clone(),
        elsewhere: others
            .filter(|other| !other.interface.is_empty() && other.interface != nic)
            .flat_map(held)
            .map(|held| held.address)
            .collect(),
        sub_eni: snapshot.sub_eni.as_deref() == Some(nic),
    }
}

/// The details that count for this Pod: its own, and any that its identity keeps.
fn details(snapshot: &Snapshot) -> &[EndpointNic] {
    let current = snapshot.endpoint.as_ref().map(|endpoint| &endpoint.current);
    let sticky = snapshot.identity().is_some();
    let own = current.filter(|current| sticky || current.uid == snapshot.pod.uid);
    own.map_or(&[], |current| &current.ips)
}

/// The NICs of a selection that a fresh ADD of `ifname` claims for. Others that the endpoint lists
/// have addresses; whether those are still true is for their own ADDs.
#[must_use]
pub fn to_claim<'a>(
    snapshot: &Snapshot,
    ifname: &str,
    nics: &'a [NicCandidates],
) -> Vec<&'a NicCandidates> {
    let listed = |nic: &str| details(snapshot).iter().any(|known| known.interface == nic);
    nics.iter()
        .filter(|nic| nic.nic == ifname || !listed(&nic.nic))
        .collect()
}

/// The endpoint's status once `allocations` are recorded: details of NICs already listed are
/// replaced, others of this Pod stay, an earlier Pod's go unless both are of one identity.
#[must_use]
pub fn endpoint_after(snapshot: &Snapshot, allocations: &[Allocation]) -> EndpointStatus {
    let pod = &snapshot.pod;
    let mut ips = details(snapshot).to_vec();
    for allocation in allocations {
        let detail = to_endpoint(allocation);
        match ips
            .iter_mut()
            .find(|known| known.interface == detail.interface)
        {
            Some(known) => *known = detail,
            None => ips.push(detail),
        }
    }
    if allocations.len() > 1 {
        // Items of `ippools` without names count by their order.
        let named = |nic: &EndpointNic| allocations.iter().position(|own| own.nic == nic.interface);
        ips.sort_by_key(|nic| named(nic).unwrap_or(usize::MAX));
    }
    EndpointStatus {
        current: EndpointAllocation {
            uid: pod.uid.clone(),
            node: snapshot.node.name.clone(),
            ips,
        },
        owner_controller_type: pod.owner.kind.clone(),
        owner_controller_name: pod.owner.name.clone(),
    }
}
