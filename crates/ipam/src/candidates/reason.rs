//! Why one pool may not serve one NIC, as data, and the words for it.

use std::fmt;

use ipnet::IpNet;

use super::Class;
use crate::overlap::Overlap;
use crate::range::Family;

/// A pool that may not be tried, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Pool name.
    pub pool: String,
    /// Why.
    pub reason: Reason,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IPPool {} {}", self.pool, self.reason)
    }
}

/// The first thing that speaks against a pool; its text reads on after the pool's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// `terminating` or `disabled`.
    Closed(&'static str),
    /// Of the other family.
    Family {
        /// The pool's.
        pool: Family,
        /// Asked for.
        wanted: Family,
    },
    /// A reservation cannot be read, and may be of any address.
    Withheld(String),
    /// Loses to an older pool.
    Overlap(Overlap),
    /// `spec.nodeName`.
    NodeName {
        /// Listed.
        names: Vec<String>,
        /// The Pod's node.
        node: String,
    },
    /// `spec.nodeAffinity`.
    NodeAffinity {
        /// The Pod's node.
        node: String,
    },
    /// `spec.namespaceName`.
    NamespaceName {
        /// Listed.
        names: Vec<String>,
        /// The Pod's namespace.
        namespace: String,
    },
    /// `spec.namespaceAffinity`.
    NamespaceAffinity {
        /// The Pod's namespace.
        namespace: String,
    },
    /// A provider's pool, asked for by another plugin.
    NeedsEniVlan,
    /// `spec.podAffinity`.
    PodAffinity {
        /// `namespace/name`.
        pod: String,
    },
    /// Automatic pool of another application.
    OtherApplication,
    /// `spec.multusName`, and the NIC's network is not known.
    NetworkUnknown {
        /// Listed.
        names: Vec<String>,
        /// The NIC.
        nic: String,
    },
    /// `spec.multusName`.
    Network {
        /// Listed.
        names: Vec<String>,
        /// `namespace/name` of the NIC's.
        network: String,
        /// The NIC.
        nic: String,
    },
    /// `match_master_subnet`: the host NIC has no address in the subnet.
    MasterSubnet {
        /// The host NIC.
        master: String,
        /// The pool's.
        subnet: IpNet,
    },
    /// `match_master_subnet`, and the host NIC is not known.
    MasterUnknown(String),
    /// `pair-pool` names no pool.
    PairMissing(String),
    /// The pool of the other family is refused.
    Pair {
        /// Its name.
        sibling: String,
        /// Why.
        reason: Box<Reason>,
    },
    /// The IPv6 side of a pair is not used alone.
    PairHalf {
        /// What to name instead.
        primary: String,
    },
    /// Pools of a higher class are named as well.
    Class(Class),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NodeName { .. }
            | Self::NodeAffinity { .. }
            | Self::NamespaceName { .. }
            | Self::NamespaceAffinity { .. }
            | Self::PodAffinity { .. }
            | Self::NetworkUnknown { .. }
            | Self::Network { .. }
            | Self::MasterSubnet { .. }
            | Self::MasterUnknown(_)
            | Self::OtherApplication
            | Self::NeedsEniVlan => self.constraint(f),
            Self::Closed(word) => write!(f, "is {word}"),
            Self::Withheld(why) => write!(f, "gives out nothing new: {why}"),
            Self::Family { pool, wanted } => write!(f, "is an {pool} pool, not {wanted}"),
            Self::Overlap(Overlap { winner, shared }) => write!(
                f,
                "overlaps the older IPPool {winner} in {shared} and gives out nothing until one of them is changed"
            ),
            Self::PairMissing(sibling) => {
                write!(f, "has the pair pool {sibling}, which does not exist")
            }
            Self::Pair { sibling, reason } => {
                write!(f, "has the pair pool {sibling}, which {reason}")
            }
            Self::PairHalf { primary } => write!(
                f,
                "is the IPv6 side of a pair and is not used alone: name {primary}"
            ),
            Self::Class(kept) => {
                write!(f, "is ignored: pools of class {kept} are named as well")
            }
        }
    }
}

impl Reason {
    /// What the pool asks of node, namespace, Pod or NIC.
    fn constraint(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NodeName { names, node } => {
                write!(f, "is for node {}, not {node}", names.join(", "))
            }
            Self::NodeAffinity { node } => {
                write!(f, "has a nodeAffinity that node {node} does not match")
            }
            Self::NamespaceName { names, namespace } => {
                write!(f, "is for namespace {}, not {namespace}", names.join(", "))
            }
            Self::NamespaceAffinity { namespace } => write!(
                f,
                "has a namespaceAffinity that namespace {namespace} does not match"
            ),
            Self::PodAffinity { pod } => {
                write!(f, "has a podAffinity that Pod {pod} does not match")
            }
            Self::NetworkUnknown { names, nic } => write!(
                f,
                "is for network {}, and nothing says which network NIC {nic} is of",
                names.join(", ")
            ),
            Self::Network {
                names,
                network,
                nic,
            } => write!(
                f,
                "is for network {}, not {network} of NIC {nic}",
                names.join(", ")
            ),
            Self::MasterSubnet { master, subnet } => write!(
                f,
                "has subnet {subnet}, in which the master {master} has no address"
            ),
            Self::MasterUnknown(why) => write!(
                f,
                "cannot be compared with the master's subnet: the master's addresses are not known: {why}"
            ),
            Self::OtherApplication => f.write_str("is the automatic pool of another application"),
            _ => f.write_str(
                "is a pool of an IaaS provider, which requires an eni-vlan SpiderMultusConfig",
            ),
        }
    }
}
