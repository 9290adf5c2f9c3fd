//! Which address of a pool a NIC gets (spec ipam 4.1, 7.2, 7.4): the one it has, else the lowest
//! that is ready here, else, in a global pool, the lowest that a provider call makes ready at the
//! least cost. Pairs come from one metadata entry. Decides only; [`crate::batch`] writes.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};

use spiderpool_api::allocation::Record;
use spiderpool_api::value::{Mac, VlanId};

use crate::pool::{NotReady, Pool};
use crate::range_set::RangeSet;

mod cold;
mod halves;
mod view;

pub(crate) use view::View;

/// Records a pool may have at most, unless configured otherwise
/// (`SPIDERPOOL_IPPOOL_MAX_ALLOCATED_IPS`).
pub const DEFAULT_RECORD_CAP: i64 = 5000;

/// Who asks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Claimant {
    /// `namespace/name`.
    pub pod: String,
    /// Pod UID.
    pub uid: String,
    /// Interface name in the Pod.
    pub nic: String,
    /// Node of the Pod.
    pub node: String,
    /// Addresses the endpoint gives to other NICs of this Pod: a record of this UID without a
    /// `nic` key belongs to them, else to the asking NIC.
    pub elsewhere: Vec<IpAddr>,
    /// The NIC is a sub-ENI by its own configuration, whatever the pool: a provider of contract
    /// version 1 is called for each of its addresses, and the record says so.
    pub sub_eni: bool,
}

/// What holds for every pick.
#[derive(Debug, Clone)]
pub struct Rules {
    /// Addresses never given out: reservations, and what this node shuns for now.
    pub reserved: RangeSet,
    /// Records a pool may have at most.
    pub record_cap: i64,
    /// A provider can be called: addresses that are not ready here may be picked.
    pub provider: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            reserved: RangeSet::empty(),
            record_cap: DEFAULT_RECORD_CAP,
            provider: false,
        }
    }
}

/// VLAN and MAC of a sub-ENI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Binding {
    /// VLAN id on the parent NIC.
    pub vlan: VlanId,
    /// Its MAC.
    pub mac: Mac,
}

/// Whether a record has to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PickKind {
    /// The NIC owns the address already.
    Existing,
    /// The address is free.
    New,
}

/// How the address came about; the label of the allocation metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Path {
    /// No provider involved.
    Plain,
    /// A ready sub-ENI: no provider call.
    CacheHit,
    /// No sub-ENI yet: the provider makes and attaches one.
    ColdCreate,
    /// A sub-ENI that hangs nowhere: the provider attaches it.
    ColdRebind,
    /// An idle sub-ENI of another node: the provider moves it.
    ColdSteal,
}

impl Path {
    /// The metric's label value.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::CacheHit => "cache_hit",
            Self::ColdCreate => "cold_create",
            Self::ColdRebind => "cold_rebind",
            Self::ColdSteal => "cold_steal",
        }
    }

    /// Whether the provider has to be called before the address works.
    #[must_use]
    pub const fn is_cold(self) -> bool {
        match self {
            Self::Plain | Self::CacheHit => false,
            Self::ColdCreate | Self::ColdRebind | Self::ColdSteal => true,
        }
    }
}

/// An address chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pick {
    /// The address.
    pub address: IpAddr,
    /// Its partner, to be claimed in the sibling pool next.
    pub pair_v6: Option<Ipv6Addr>,
    /// VLAN and MAC of a ready sub-ENI.
    pub binding: Option<Binding>,
    /// MAC of a sub-ENI that has to be attached first. It stays the same, its VLAN does not.
    pub known_mac: Option<Mac>,
    /// Whether a record has to be written.
    pub kind: PickKind,
    /// See [`Path`].
    pub path: Path,
    /// Own records whose sub-ENI is gone: removed by the same write.
    pub stale: Vec<IpAddr>,
}

/// Why a pool gives nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PickError {
    /// No address is free, or free and ready.
    #[error("all IP addresses used out: IPPool {pool} has {why}")]
    UsedOut {
        /// Pool name.
        pool: String,
        /// What exactly ran out, and what was skipped as contradictory.
        why: String,
    },
    /// The record cap is reached.
    #[error("all IP addresses used out: IPPool {pool} has {cap} records, the most a pool may have")]
    RecordCap {
        /// Pool name.
        pool: String,
        /// The cap.
        cap: i64,
    },
    /// Terminating or disabled since it became a candidate.
    #[error("no IPPool available: IPPool {pool} is {word} and gives out nothing new")]
    Closed {
        /// Pool name.
        pool: String,
        /// `terminating` or `disabled`.
        word: &'static str,
    },
    /// Metadata fails the gate; retry.
    #[error(transparent)]
    NotReady(#[from] NotReady),
    /// Only a provider call would make an address usable on this node.
    #[error(
        "IPPool {pool} has no address ready on node {node}: it needs an IaaS Network Provider and none is configured"
    )]
    NeedsProvider {
        /// Pool name.
        pool: String,
        /// The node.
        node: String,
    },
    /// Another Pod of the identity has adopted the address since the caller looked.
    #[error("IPPool {pool}: address {address} has just gone to the Pod with UID {uid}")]
    Moved {
        /// Pool name.
        pool: String,
        /// The address.
        address: IpAddr,
        /// Who has it.
        uid: String,
    },
    /// The exact address wanted is not to be had.
    #[error("IPPool {pool}: address {address} cannot be claimed, it {why}")]
    Pinned {
        /// Pool name.
        pool: String,
        /// The address.
        address: IpAddr,
        /// What is in the way.
        why: String,
    },
}

impl PickError {
    /// Whether it says that addresses ran out, for the metric by category.
    #[must_use]
    pub const fn is_used_out(&self) -> bool {
        matches!(self, Self::UsedOut { .. } | Self::RecordCap { .. })
    }
}

/// Chooses an address of `pool`; for a pair `sibling` is the pool of the other half.
///
/// # Errors
/// [`PickError`] says why the pool gives nothing; nothing is changed then.
pub fn pick(
    pool: &Pool,
    sibling: Option<&Pool>,
    who: &Claimant,
    rules: &Rules,
) -> Result<Pick, PickError> {
    let taken = Taken::of(pool, sibling);
    View {
        pool,
        sibling,
        who,
        rules,
        taken: &taken,
        only: None,
    }
    .pick()
}

/// Addresses with records, read once for many picks.
pub(crate) struct Taken {
    /// In the pool itself.
    pub(crate) own: RangeSet,
    /// In the pool of the other half.
    sibling: RangeSet,
    /// Partners that several entries name: they contradict each other, none is safe to give.
    shared: BTreeSet<Ipv6Addr>,
    /// Partners that any entry names: each is locked to its sub-ENI.
    locked: BTreeSet<Ipv6Addr>,
}

impl Taken {
    pub(crate) fn of(pool: &Pool, sibling: Option<&Pool>) -> Self {
        let (mut seen, mut shared) = (BTreeSet::new(), BTreeSet::new());
        if let (Some(Ok(metadata)), Some(_)) = (&pool.metadata, sibling) {
            let partners = metadata.entries.values().filter_map(|entry| entry.ipv6);
            shared.extend(partners.filter(|v6| !seen.insert(*v6)));
        }
        Self {
            own: pool.taken(),
            sibling: sibling.map(Pool::taken).unwrap_or_default(),
            shared,
            locked: seen,
        }
    }

    /// The partner is promised to a claim whose other half is not written yet.
    pub(crate) fn promise(&mut self, v6: Ipv6Addr) {
        let one = std::iter::once(IpAddr::V6(v6)).collect();
        self.sibling = self.sibling.union(&one);
    }
}

/// How an address comes about where the pool does not decide: under the first generation of the
/// contract nobody tells what is bound already.
pub(crate) const fn path_of(who: &Claimant) -> Path {
    if who.sub_eni {
        Path::ColdCreate
    } else {
        Path::Plain
    }
}

/// Whether a record of the asking UID is the asking NIC's. A record being released is nobody's.
#[must_use]
pub fn owns(who: &Claimant, address: IpAddr, record: &Record) -> bool {
    let nic = match &record.nic {
        Some(nic) => *nic == who.nic,
        None => !who.elsewhere.contains(&address),
    };
    !who.uid.is_empty() && record.pod_uid == who.uid && record.releasing.is_none() && nic
}

/// The records of a pool that are the asking NIC's, lowest first.
pub(crate) fn own_addresses(pool: &Pool, who: &Claimant) -> Vec<IpAddr> {
    pool.records_of(&who.uid)
        .into_iter()
        .filter(|(address, record)| owns(who, *address, record))
        .map(|(address, _)| address)
        .collect()
}

/// Whether an address may get a new record, apart from being taken.
pub(crate) fn may_give(pool: &Pool, rules: &Rules, address: IpAddr) -> bool {
    pool.usable.contains(address)
        && pool.gateway != Some(address)
        && !rules.reserved.contains(address)
}

/// Whether the pool may gain a record once `stale` others are gone.
pub(crate) fn room(pool: &Pool, rules: &Rules, stale: usize) -> Result<(), PickError> {
    if let Some(word) = pool.closed() {
        return Err(PickError::Closed {
            pool: pool.name.clone(),
            word,
        });
    }
    let kept = pool
        .records
        .count()
        .saturating_sub(i64::try_from(stale).unwrap_or(i64::MAX));
    if kept >= rules.record_cap {
        let pool = pool.name.clone();
        return Err(PickError::RecordCap {
            pool,
            cap: rules.record_cap,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
