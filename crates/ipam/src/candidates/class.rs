//! Class exclusivity: of the pools named for a NIC only those of the highest class count, decided
//! before any look at nodes, so that a Pod's kind of address does not depend on where it runs
//! (spec ipam 3.3, iaas 5.2).

use std::fmt;
use std::sync::Arc;

use super::level::Wanted;
use super::{Reason, Refusal};
use crate::facts::Snapshot;
use crate::pool::Pool;
use crate::range::Family;

/// Reason of the Warning Event on the Pod for a pool that is not used because of its class.
pub const EVENT_CANDIDATE_IGNORED: &str = "IPPoolCandidateIgnored";

/// Classes, lowest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// No provider.
    Plain,
    /// Any other pool of a provider.
    Iaas,
    /// IPv4 side of a pair, while both families are on.
    Pair,
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain => "plain",
            Self::Iaas => "IaaS",
            Self::Pair => "paired IaaS",
        })
    }
}

impl Class {
    pub(super) fn of(pool: &Pool, dual_stack: bool) -> Self {
        match (pool.is_iaas(), pool.family) {
            (false, _) => Self::Plain,
            (true, Family::V4) if dual_stack && pool.pair.is_some() => Self::Pair,
            (true, _) => Self::Iaas,
        }
    }
}

/// A pool that is not used because of its class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dropped {
    /// Interface name.
    pub nic: String,
    /// Family of the pool.
    pub family: Family,
    /// Pool name.
    pub pool: String,
    /// Class that is used.
    pub kept: Class,
    /// Whether the Pod should see an Event: not for the other half of the pair it gets.
    pub event: bool,
}

impl fmt::Display for Dropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} IPPool {} is ignored for NIC {}: pools of class {} are named as well and are used alone",
            self.family, self.pool, self.nic, self.kept
        )
    }
}

/// The pools of one NIC after the decision.
pub(super) struct Classed {
    pub(super) nic: String,
    pub(super) clean_gateway: bool,
    pub(super) families: Vec<(Family, Vec<Arc<Pool>>, Vec<Refusal>)>,
    pub(super) dropped: Vec<Dropped>,
}

pub(super) fn exclusive(snapshot: &Snapshot, wanted: Wanted) -> Classed {
    let dual = snapshot.dual_stack();
    let all = || wanted.families.iter().flat_map(|(_, pools)| pools);
    let kept = all()
        .filter(|pool| primary_of(snapshot, pool).is_none())
        .map(|pool| Class::of(pool, dual))
        .max()
        .unwrap_or(Class::Plain);
    let siblings: Vec<String> = all()
        .filter(|pool| Class::of(pool, dual) == Class::Pair)
        .filter_map(|pool| pool.pair.clone())
        .collect();
    let mut classed = Classed {
        nic: wanted.nic,
        clean_gateway: wanted.clean_gateway,
        families: Vec::new(),
        dropped: Vec::new(),
    };
    for (family, pools) in wanted.families {
        let (mut used, mut refusals) = (Vec::new(), Vec::new());
        for pool in pools {
            let half = primary_of(snapshot, &pool);
            let reason = match half {
                None if Class::of(&pool, dual) == kept => {
                    used.push(pool);
                    continue;
                }
                Some(primary) if kept != Class::Pair => Reason::PairHalf { primary },
                _ => {
                    let event = !siblings.contains(&pool.name);
                    classed.drop_pool(&pool, kept, event);
                    Reason::Class(kept)
                }
            };
            refusals.push(Refusal {
                pool: pool.name.clone(),
                reason,
            });
        }
        // A pair serves IPv6 from its IPv4 side.
        if kept != Class::Pair || family == Family::V4 {
            classed.families.push((family, used, refusals));
        }
    }
    classed
}

impl Classed {
    fn drop_pool(&mut self, pool: &Pool, kept: Class, event: bool) {
        self.dropped.push(Dropped {
            nic: self.nic.clone(),
            family: pool.family,
            pool: pool.name.clone(),
            kept,
            event,
        });
    }
}

/// For the IPv6 side of a pair, what to name instead.
fn primary_of(snapshot: &Snapshot, pool: &Pool) -> Option<String> {
    if pool.family != Family::V6 || !pool.is_iaas() {
        return None;
    }
    let names_it = |other: &&Arc<Pool>| {
        other.family == Family::V4 && other.is_iaas() && other.pair.as_deref() == Some(&pool.name)
    };
    let primary = snapshot
        .pools
        .iter()
        .find(names_it)
        .map(|other| other.name.clone());
    primary.or_else(|| pool.pair.clone())
}
