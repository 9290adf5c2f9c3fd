//! ADD of a Pod whose identity outlives it (spec ipam 1.3 rows 5 to 7, 1.4, 7.5): which addresses of
//! the endpoint move to the new Pod, and which are given up first.

use std::net::IpAddr;

use spiderpool_api::endpoint::{EndpointNic, EndpointStatus};

use super::add::{EndpointWrite, Held, Intent, Unpublished, claimant, held, is_unbound, moved};
use crate::candidates::{PoolNames, Request, SelectError, pool_names};
use crate::facts::Snapshot;
use crate::overlap::pool_loses_to;
use crate::pick::{Claimant, owns};
use crate::pool::Mode;
use crate::sticky::{Sticky, migration_job};

/// Addresses that move to this Pod: each by one [`crate::batch::Op::Adopt`], which claims it again
/// where its record is lost.
#[derive(Debug, Clone, PartialEq)]
pub struct Adoption {
    /// The endpoint's detail of the NIC being added. VLAN and MAC are those the claims find.
    pub nic: EndpointNic,
    /// What to adopt, this NIC first, an IPv6 half after its partner.
    pub take: Vec<Take>,
}

/// One address to adopt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Take {
    /// The NIC it is of; empty for a detail that no call has named yet.
    pub nic: String,
    /// The address.
    pub held: Held,
}

/// Addresses that are given up before the ADD is planned anew.
#[derive(Debug, Clone, PartialEq)]
pub struct Exchange {
    /// Records to free, as DEL does: the provider of a prewarm pool first. What fails is GC's, and
    /// does not stop the ADD.
    pub free: Vec<Freed>,
    /// Details that stay in the endpoint; none: the endpoint goes, finalizer included.
    pub keep: Vec<EndpointNic>,
}

/// A record to free.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Freed {
    /// UID it carries.
    pub uid: String,
    /// Pool name.
    pub pool: String,
    /// Its address.
    pub address: IpAddr,
    /// The IPv6 side of a pair: it goes with its partner.
    pub half: bool,
}

/// Row 5: what a StatefulSet Pod holds from pools that its NICs no longer name. `None`: nothing.
/// To be asked before [`super::plan_add`], with the facts read anew after an exchange.
///
/// # Errors
/// [`SelectError`] when the new choice itself is wrong; nothing is given up for that.
pub fn pool_change(
    snapshot: &Snapshot,
    request: &Request,
) -> Result<Option<Exchange>, SelectError> {
    let Some(endpoint) = &snapshot.endpoint else {
        return Ok(None);
    };
    if snapshot.identity() != Some(Sticky::StatefulSet) {
        return Ok(None);
    }
    let names = pool_names(snapshot, request)?;
    let details = &endpoint.current.ips;
    let stale = |(index, nic): (usize, &EndpointNic)| is_stale(&names, index, nic);
    let stale: Vec<bool> = details.iter().enumerate().map(stale).collect();
    // Without names no detail can be told from another once one has changed.
    let all = names.nameless && stale.contains(&true);
    Ok(exchange(snapshot, |index| {
        all || stale.get(index).copied().unwrap_or(false)
    }))
}

/// Whether the pools of a detail are no longer those its NIC may draw from.
fn is_stale(names: &PoolNames, index: usize, nic: &EndpointNic) -> bool {
    let own = if names.nameless {
        names.nics.get(index)
    } else {
        names.nics.iter().find(|own| own.nic == nic.interface)
    };
    match own {
        Some(own) => [&nic.ipv4_pool, &nic.ipv6_pool]
            .into_iter()
            .flatten()
            .any(|pool| !own.pools.contains(pool)),
        // A NIC that the level is not about is not judged.
        None => names.nameless,
    }
}

/// What is given up when the addresses of `ifname` cannot be adopted after all: somebody else has
/// one, or its sub-ENI cannot come here.
#[must_use]
pub fn give_up(snapshot: &Snapshot, ifname: &str) -> Exchange {
    let details = snapshot.endpoint.as_ref();
    let details = details.map_or(&[][..], |endpoint| &endpoint.current.ips);
    let own = position(details, ifname);
    exchange(snapshot, |index| Some(index) == own).unwrap_or_else(|| Exchange {
        free: Vec::new(),
        keep: details.to_vec(),
    })
}

/// The detail of a NIC, else the first that no call has named.
pub(super) fn position(details: &[EndpointNic], ifname: &str) -> Option<usize> {
    let at = |name: &str| details.iter().position(|nic| nic.interface == name);
    at(ifname).or_else(|| at(""))
}

/// Rows 6 and 7.
pub(super) fn intent(snapshot: &Snapshot, ifname: &str, endpoint: &EndpointStatus) -> Intent {
    let current = &endpoint.current;
    let Some(own) = position(&current.ips, ifname) else {
        return Intent::Fresh(EndpointWrite::Append);
    };
    let follows = current.ips.iter().enumerate().map(|(index, nic)| {
        let name = if index == own { ifname } else { &nic.interface };
        follow(snapshot, &claimant(snapshot, name), nic)
    });
    let follows: Vec<Follow> = follows.collect();
    let stays = |index: usize| follows.get(index) == Some(&Follow::Stays);
    if let Some(exchange) = exchange(snapshot, stays) {
        return Intent::Exchange(exchange);
    }
    let Some(detail) = current.ips.get(own) else {
        return Intent::Fresh(EndpointWrite::Append);
    };
    let nic = EndpointNic {
        interface: ifname.to_owned(),
        ..detail.clone()
    };
    let told = current.uid == snapshot.pod.uid && current.node == snapshot.node.name;
    let bound = !is_unbound(&claimant(snapshot, ifname), detail);
    if told && bound && follows.get(own) == Some(&Follow::Here) {
        return Intent::Retrieve(nic);
    }
    let others = current.ips.iter().enumerate();
    let others = others.filter(|(index, _)| *index != own);
    let take = std::iter::once(&nic)
        .chain(others.map(|(_, other)| other))
        .flat_map(|nic| {
            held(nic).into_iter().map(|held| Take {
                nic: nic.interface.clone(),
                held,
            })
        })
        .collect();
    Intent::Adopt(Adoption { nic, take })
}

/// Whether a NIC's addresses go where the Pod goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Follow {
    /// All records are this Pod's already.
    Here,
    /// They can be adopted.
    Comes,
    /// At least one cannot: the NIC needs others.
    Stays,
}

fn follow(snapshot: &Snapshot, who: &Claimant, nic: &EndpointNic) -> Follow {
    let held = held(nic);
    let each = |item: &Held| follow_one(snapshot, who, nic, item);
    let each: Vec<Follow> = held.iter().map(each).collect();
    if each.is_empty() || each.contains(&Follow::Stays) {
        Follow::Stays
    } else if each.contains(&Follow::Comes) {
        Follow::Comes
    } else {
        Follow::Here
    }
}

fn follow_one(snapshot: &Snapshot, who: &Claimant, nic: &EndpointNic, item: &Held) -> Follow {
    let Some(pool) = snapshot.pool(&item.pool) else {
        return Follow::Stays;
    };
    // Its sub-ENIs hang at one node (spec ipam 7.5).
    if matches!(&pool.mode, Mode::Prewarm { node } if *node != who.node) {
        return Follow::Stays;
    }
    let Some(record) = pool.records.get(item.address) else {
        let lost_for_good = pool_loses_to(pool, &snapshot.pools).is_some();
        return if lost_for_good {
            Follow::Stays
        } else {
            Follow::Comes
        };
    };
    if owns(who, item.address, record) {
        return if moved(pool, who, nic, item, Unpublished::Moved) {
            Follow::Comes
        } else {
            Follow::Here
        };
    }
    let other_nic = record.nic.as_ref().is_some_and(|nic| *nic != who.nic);
    if record.releasing.is_some() || record.pod != who.pod || (other_nic && !who.nic.is_empty()) {
        return Follow::Stays;
    }
    Follow::Comes
}

/// Gives up the details that `goes` picks by index; `None` when there are none.
fn exchange(snapshot: &Snapshot, goes: impl Fn(usize) -> bool) -> Option<Exchange> {
    let details = &snapshot.endpoint.as_ref()?.current.ips;
    let indexed = || details.iter().enumerate();
    let leaving: Vec<&EndpointNic> = indexed()
        .filter(|(index, _)| goes(*index))
        .map(|(_, nic)| nic)
        .collect();
    if leaving.is_empty() {
        return None;
    }
    // The source of a migration still runs on its addresses; its own end frees them.
    let freed = match migration_job(&snapshot.pod) {
        Some(_) => Vec::new(),
        None => leaving.iter().flat_map(|nic| held(nic)).collect(),
    };
    let key = snapshot.record_key();
    let record = |item: Held| {
        let record = snapshot.pool(&item.pool)?.records.get(item.address)?;
        (record.pod == key && !record.pod_uid.is_empty()).then(|| Freed {
            uid: record.pod_uid.clone(),
            pool: item.pool,
            address: item.address,
            half: item.half,
        })
    };
    let staying = indexed().filter(|(index, _)| !goes(*index));
    Some(Exchange {
        free: freed.into_iter().filter_map(record).collect(),
        keep: staying.map(|(_, nic)| nic.clone()).collect(),
    })
}

/// The endpoint's status once an adoption is done: this Pod's UID and node, the answered detail,
/// without the details of `lost` NICs, whose addresses somebody else has.
#[must_use]
pub fn endpoint_adopted(
    snapshot: &Snapshot,
    nic: &EndpointNic,
    lost: &[String],
) -> Option<EndpointStatus> {
    let mut status = snapshot.endpoint.clone()?;
    let own = position(&status.current.ips, &nic.interface)?;
    if let Some(detail) = status.current.ips.get_mut(own) {
        detail.clone_from(nic);
    }
    let stays =
        |item: &EndpointNic| item.interface == nic.interface || !lost.contains(&item.interface);
    status.current.ips.retain(stays);
    status.current.uid.clone_from(&snapshot.pod.uid);
    status.current.node.clone_from(&snapshot.node.name);
    status
        .owner_controller_type
        .clone_from(&snapshot.pod.owner.kind);
    status
        .owner_controller_name
        .clone_from(&snapshot.pod.owner.name);
    Some(status)
}
