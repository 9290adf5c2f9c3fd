//! Which pools an ADD may draw from, in which order, and why the others may not (spec ipam
//! section 3): level, class, filters, order. Owns no address; [`crate::pick`] does that.

use std::fmt;
use std::sync::Arc;

use spiderpool_api::cni::CniCode;
use spiderpool_api::cni_conf::Plugin;

use crate::annotation::AnnotationError;
use crate::facts::Snapshot;
use crate::pattern::PatternError;
use crate::pool::Pool;
use crate::range::Family;

mod class;
mod explain;
mod filter;
mod level;
mod order;
mod reason;

pub use class::{Class, Dropped, EVENT_CANDIDATE_IGNORED};
pub use explain::{ExplainedFamily, ExplainedNic, Explanation, explain};
pub use level::Level;
pub use reason::{Reason, Refusal};

pub(crate) use level::{PoolNames, pool_names};

/// What the CNI call asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The plugin that was called: pools of a provider need `eni-vlan`.
    pub plugin: Plugin,
    /// `CNI_IFNAME`.
    pub ifname: String,
    /// `default_ipv4_ippool`.
    pub ipv4_pools: Vec<String>,
    /// `default_ipv6_ippool`.
    pub ipv6_pools: Vec<String>,
    /// `clean_gateway`.
    pub clean_gateway: bool,
    /// `match_master_subnet`.
    pub match_master_subnet: bool,
    /// Namespace of the agent: where unqualified names in `multusName` lie.
    pub agent_namespace: String,
    /// `MULTUS_CLUSTER_NETWORK`, the network of `eth0`.
    pub cluster_network: Option<String>,
}

impl Request {
    /// A call that names no pool.
    #[must_use]
    pub fn new(plugin: Plugin, ifname: &str) -> Self {
        Self {
            plugin,
            ifname: ifname.to_owned(),
            ipv4_pools: Vec::new(),
            ipv6_pools: Vec::new(),
            clean_gateway: false,
            match_master_subnet: false,
            agent_namespace: "kube-system".to_owned(),
            cluster_network: None,
        }
    }
}

/// A pool that may be tried.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// The pool.
    pub pool: Arc<Pool>,
    /// The IPv6 side, where `pool` is the IPv4 side of a pair and pairs are in use.
    pub sibling: Option<Arc<Pool>>,
}

/// Pools of one family of one NIC, to be tried in order.
#[derive(Debug, Clone)]
pub struct FamilyCandidates {
    /// The family; of a pair IPv4, which brings IPv6 along.
    pub family: Family,
    /// At least one.
    pub candidates: Vec<Candidate>,
    /// The others that were named.
    pub refusals: Vec<Refusal>,
}

/// What one NIC may get.
#[derive(Debug, Clone)]
pub struct NicCandidates {
    /// Interface name.
    pub nic: String,
    /// No default route through it.
    pub clean_gateway: bool,
    /// At least one; every one must yield an address.
    pub families: Vec<FamilyCandidates>,
}

/// What an ADD may draw from.
#[derive(Debug, Clone)]
pub struct Selection {
    /// What named the pools.
    pub level: Level,
    /// All NICs the ADD allocates for; one, except with annotation `ippools`.
    pub nics: Vec<NicCandidates>,
    /// Pools of lower classes, each worth a warning and an Event on the Pod.
    pub dropped: Vec<Dropped>,
}

/// A family of a NIC that no pool serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unserved {
    /// Interface name.
    pub nic: String,
    /// The family.
    pub family: Family,
    /// One per pool that was named.
    pub refusals: Vec<Refusal>,
}

impl fmt::Display for Unserved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of NIC {}", self.family, self.nic)?;
        for (index, refusal) in self.refusals.iter().enumerate() {
            write!(f, "{} {refusal}", if index == 0 { ":" } else { ";" })?;
        }
        Ok(())
    }
}

/// Why there are no candidates.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectError {
    /// An annotation is wrong.
    #[error(transparent)]
    Annotation(#[from] AnnotationError),
    /// A pattern is malformed.
    #[error("wrong input: {from} has the malformed pattern {:?}", source.0)]
    Pattern {
        /// What named it.
        from: Level,
        /// The pattern.
        source: PatternError,
    },
    /// A pool is named twice for one NIC and family.
    #[error("wrong input: {from} names IPPool {pool} twice for {family} of NIC {nic}")]
    Duplicate {
        /// What named it.
        from: Level,
        /// Pool name.
        pool: String,
        /// The NIC.
        nic: String,
        /// The family.
        family: Family,
    },
    /// A pool that does not exist, or cannot be read.
    #[error("wrong input: {from} names IPPool {pool} for {family} of NIC {nic}: {why}")]
    UnknownPool {
        /// What named it.
        from: Level,
        /// Pool name.
        pool: String,
        /// The NIC.
        nic: String,
        /// The family.
        family: Family,
        /// Missing, or why it cannot be read.
        why: String,
    },
    /// Annotation `ippools` lists other NICs only.
    #[error("wrong input: {from} does not list NIC {nic}; it lists {listed}")]
    NicNotListed {
        /// The annotation.
        from: Level,
        /// The NIC being added.
        nic: String,
        /// Those listed.
        listed: String,
    },
    /// Nothing names a pool.
    #[error(
        "no IPPool available, no pool selection rules of any type are specified for NIC {nic}: annotate the Pod, or set a default IPPool"
    )]
    NoRules {
        /// The NIC.
        nic: String,
    },
    /// The level named nothing usable at all.
    #[error("no IPPool available: {from} yields no IPPool for NIC {nic}: {why}")]
    Empty {
        /// What named it.
        from: Level,
        /// The NIC.
        nic: String,
        /// The patterns without a match, or the families that are off.
        why: String,
    },
    /// Every pool of at least one family was refused.
    #[error("no IPPool available for {}", join(.0))]
    Refused(Vec<Unserved>),
}

fn join(unserved: &[Unserved]) -> String {
    let texts: Vec<String> = unserved.iter().map(ToString::to_string).collect();
    texts.join(", and for ")
}

impl SelectError {
    /// Code of the CNI answer: 7 for wrong input, else 100.
    #[must_use]
    pub const fn code(&self) -> CniCode {
        match self {
            Self::Annotation(_)
            | Self::Pattern { .. }
            | Self::Duplicate { .. }
            | Self::UnknownPool { .. }
            | Self::NicNotListed { .. } => CniCode::Config,
            Self::NoRules { .. } | Self::Empty { .. } | Self::Refused(_) => CniCode::Refused,
        }
    }
}

/// Selects pools for an ADD.
///
/// # Errors
/// [`SelectError`]; no address was looked at.
pub fn select(snapshot: &Snapshot, request: &Request) -> Result<Selection, SelectError> {
    let selection = survey(snapshot, request)?;
    let unserved = unserved(&selection);
    if unserved.is_empty() {
        Ok(selection)
    } else {
        Err(SelectError::Refused(unserved))
    }
}

/// The same with the families that no pool serves, their candidates empty.
fn survey(snapshot: &Snapshot, request: &Request) -> Result<Selection, SelectError> {
    let named = level::preliminary(snapshot, request)?;
    let mut selection = Selection {
        level: named.level,
        nics: Vec::new(),
        dropped: Vec::new(),
    };
    for wanted in named.nics {
        let classed = class::exclusive(snapshot, wanted);
        selection.dropped.extend(classed.dropped.iter().cloned());
        let mut families = Vec::new();
        for (family, pools, mut refusals) in classed.families {
            let mut candidates = Vec::new();
            for pool in pools {
                match filter::admit(snapshot, request, &classed.nic, family, &pool)? {
                    Ok(candidate) => candidates.push(candidate),
                    Err(reason) => refusals.push(Refusal {
                        pool: pool.name.clone(),
                        reason,
                    }),
                }
            }
            order::sort(&mut candidates);
            families.push(FamilyCandidates {
                family,
                candidates,
                refusals,
            });
        }
        selection.nics.push(NicCandidates {
            nic: classed.nic,
            clean_gateway: classed.clean_gateway,
            families,
        });
    }
    Ok(selection)
}

fn unserved(selection: &Selection) -> Vec<Unserved> {
    let of_nic = |nic: &NicCandidates| {
        let empty = nic.families.iter();
        let empty = empty.filter(|family| family.candidates.is_empty());
        empty
            .map(|family| Unserved {
                nic: nic.nic.clone(),
                family: family.family,
                refusals: family.refusals.clone(),
            })
            .collect::<Vec<_>>()
    };
    selection.nics.iter().flat_map(of_nic).collect()
}

#[cfg(test)]
mod tests;
