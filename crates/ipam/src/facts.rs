//! What a decision is made from, as plain data: Pod, Node, Namespace, pools, reservations,
//! endpoint. Callers fill it from their caches.

use std::collections::BTreeMap;
use std::sync::Arc;

use spiderpool_api::endpoint::EndpointStatus;

use crate::pool::Pool;
use crate::range::Family;
use crate::range_set::RangeSet;
use crate::sticky::{Sticky, Switches};

/// Labels or annotations.
pub type Texts = BTreeMap<String, String>;

/// A Pod, as far as addresses depend on it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodFacts {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID of the object.
    pub uid: String,
    /// Labels.
    pub labels: Texts,
    /// Annotations.
    pub annotations: Texts,
    /// `spec.nodeName`.
    pub node: String,
    /// Whether `metadata.deletionTimestamp` is set.
    pub terminating: bool,
    /// `status.phase`.
    pub phase: String,
    /// `status.reason`.
    pub reason: String,
    /// `spec.restartPolicy`; empty means `Always`, the API server's default.
    pub restart_policy: String,
    /// Top controller.
    pub owner: Owner,
}

/// Top controller of a Pod, or the Pod itself (spec ipam 1.2).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Owner {
    /// For example `apps/v1`.
    pub api_version: String,
    /// For example `Deployment`.
    pub kind: String,
    /// Object name.
    pub name: String,
}

impl PodFacts {
    /// `namespace/name` of the object; records of a machine have another key
    /// ([`Snapshot::record_key`]).
    #[must_use]
    pub fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// Whether a Pod may hold addresses (spec ipam 1.2).
#[must_use]
pub fn pod_alive(pod: &PodFacts) -> bool {
    let restart = match pod.restart_policy.as_str() {
        "" => "Always",
        other => other,
    };
    match pod.phase.as_str() {
        _ if pod.terminating => false,
        "Succeeded" => restart == "Always",
        "Failed" => restart != "Never" && pod.reason != "Evicted",
        _ => true,
    }
}

/// The node a Pod runs on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeFacts {
    /// Name.
    pub name: String,
    /// Labels.
    pub labels: Texts,
}

/// The namespace of a Pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NamespaceFacts {
    /// Labels.
    pub labels: Texts,
    /// Annotations.
    pub annotations: Texts,
}

/// Addresses of the host NIC behind the NIC being added: of the physical function, where it is a
/// virtual function. Read in the Pod's namespace and on the host; asked only by `match_master_subnet`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Master {
    /// Not found out, and why; reads on after "the master's addresses are not known: ".
    Unknown(String),
    /// The host NIC with all its addresses.
    Known {
        /// Its name.
        name: String,
        /// Its addresses, without prefixes.
        addresses: Vec<std::net::IpAddr>,
    },
}

impl Default for Master {
    fn default() -> Self {
        Self::Unknown("nobody looked them up".to_owned())
    }
}

/// Everything an ADD is decided from.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// The Pod.
    pub pod: PodFacts,
    /// Its node.
    pub node: NodeFacts,
    /// Its namespace.
    pub namespace: NamespaceFacts,
    /// All pools that can be read.
    pub pools: Vec<Arc<Pool>>,
    /// Pools that cannot be read, by name, with the reason: naming one is an error that says why.
    pub unreadable: Texts,
    /// Reserved IPv4 addresses of all reservations that are not terminating.
    pub reserved_v4: RangeSet,
    /// The same for IPv6.
    pub reserved_v6: RangeSet,
    /// Families of which a reservation cannot be read, with what is wrong: any address may be reserved, so
    /// their pools give out nothing new.
    pub withheld: BTreeMap<Family, String>,
    /// The endpoint of [`Snapshot::endpoint_name`], if any.
    pub endpoint: Option<EndpointStatus>,
    /// Which identities outlive their Pods.
    pub switches: Switches,
    /// Host NIC behind the NIC being added.
    pub master: Master,
    /// The NIC being added, if it is a sub-ENI under the first generation of the contract
    /// ([`crate::first_generation`]). Of other NICs only their own ADDs know.
    pub sub_eni: Option<String>,
    /// IPv4 is in use in this cluster.
    pub enable_ipv4: bool,
    /// IPv6 is in use in this cluster.
    pub enable_ipv6: bool,
}

impl Snapshot {
    /// The pool of that name.
    #[must_use]
    pub fn pool(&self, name: &str) -> Option<&Arc<Pool>> {
        self.pools.iter().find(|pool| pool.name == name)
    }

    /// The identity that keeps the Pod's addresses beyond its life.
    #[must_use]
    pub fn identity(&self) -> Option<Sticky> {
        self.switches.of_owner(&self.pod.owner)
    }

    /// Name of the Pod's endpoint: its own, or its machine's.
    #[must_use]
    pub fn endpoint_name(&self) -> &str {
        self.switches.name_of(&self.pod)
    }

    /// Key of the Pod's records: `namespace/name` of its endpoint.
    #[must_use]
    pub fn record_key(&self) -> String {
        format!("{}/{}", self.pod.namespace, self.endpoint_name())
    }

    /// All reserved addresses.
    #[must_use]
    pub fn reserved(&self) -> RangeSet {
        self.reserved_v4.union(&self.reserved_v6)
    }

    /// Whether pairs are in use: both families are on.
    #[must_use]
    pub const fn dual_stack(&self) -> bool {
        self.enable_ipv4 && self.enable_ipv6
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_alive_by_the_table() {
        for (terminating, phase, restart, reason, want) in [
            (false, "Running", "Always", "", true),
            (false, "Pending", "Never", "", true),
            (false, "", "", "", true),
            (true, "Running", "Always", "", false),
            (false, "Succeeded", "Always", "", true),
            (false, "Succeeded", "", "", true),
            (false, "Succeeded", "OnFailure", "", false),
            (false, "Succeeded", "Never", "", false),
            (false, "Failed", "Never", "", false),
            (false, "Failed", "OnFailure", "", true),
            (false, "Failed", "Always", "", true),
            (false, "Failed", "Always", "Evicted", false),
        ] {
            let pod = PodFacts {
                terminating,
                phase: phase.into(),
                restart_policy: restart.into(),
                reason: reason.into(),
                ..PodFacts::default()
            };
            assert_eq!(pod_alive(&pod), want, "{phase} {restart} {reason}");
        }
    }
}
