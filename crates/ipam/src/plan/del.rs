//! DEL: what may be freed (spec ipam 1.7). A DEL of a Pod that lives frees nothing, one that
//! cannot prove whose addresses it means leaves them to collection.

use spiderpool_api::endpoint::EndpointStatus;
use spiderpool_api::names;

use super::add::{Held, held_by};
use crate::facts::{PodFacts, pod_alive};
use crate::sticky::Sticky;

/// Facts of a DEL, read uncached where the API answers.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DelFacts {
    /// `CNI_IFNAME`.
    pub ifname: String,
    /// `K8S_POD_UID`, or the UID of the attachment file.
    pub uid: Option<String>,
    /// The Pod, if it exists.
    pub pod: Option<PodFacts>,
    /// The endpoint, if it exists.
    pub endpoint: Option<EndpointStatus>,
    /// Pools that the attachment file or this agent's own writes name for the UID.
    pub known_pools: Vec<String>,
    /// What outlives the Pod, by the endpoint's owner ([`crate::sticky::Switches::of_endpoint`]).
    pub identity: Option<Identity>,
}

/// An identity that outlives its Pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// Its kind.
    pub kind: Sticky,
    /// Whether it still exists, read past the caches ([`crate::sticky`]).
    pub valid: bool,
    /// Whether another Pod of it lives, or of a machine shuts down yet: a migration has two.
    pub other_alive: bool,
}

/// Why nothing is freed; always a success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NothingToFree {
    /// The Pod lives: its sandbox is replaced, its addresses stay.
    PodAlive,
    /// Nobody says which Pod it was.
    UidUnknown,
    /// Neither endpoint nor known pools: collection frees what is left.
    NoEndpoint,
    /// The endpoint is another Pod's.
    OtherPod,
    /// The endpoint does not list the NIC.
    NicNotRecorded,
    /// The identity keeps its addresses for the next Pod.
    Kept(Sticky),
    /// The machine is gone, and another Pod of it still runs on the addresses.
    Shared,
}

impl NothingToFree {
    /// For the log line.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::PodAlive => "the Pod is alive and keeps its addresses",
            Self::UidUnknown => "the Pod's UID is unknown",
            Self::NoEndpoint => "there is no SpiderEndpoint and no known record",
            Self::OtherPod => "the SpiderEndpoint belongs to another Pod of this name",
            Self::NicNotRecorded => "the SpiderEndpoint does not list this NIC",
            Self::Kept(Sticky::StatefulSet) => {
                "the StatefulSet still has this ordinal, which keeps its addresses"
            }
            Self::Kept(Sticky::VirtualMachine) => {
                "the virtual machine still exists and keeps its addresses"
            }
            Self::Shared => "another Pod of the virtual machine still runs on its addresses",
        }
    }
}

/// Where to look for the records to free.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReleaseFrom {
    /// Exactly these addresses, all NICs at once; then drop the endpoint's finalizer.
    Endpoint(Vec<Held>),
    /// Whatever carries the UID in these pools.
    Pools(Vec<String>),
}

/// What a DEL does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DelPlan {
    /// Nothing to free.
    Nothing(NothingToFree),
    /// Standalone mode made the Pod object and deletes it, then decides anew.
    DeletePodFirst,
    /// Free this UID's records, all NICs.
    Release {
        /// The UID each record must carry.
        uid: String,
        /// Where.
        from: ReleaseFrom,
    },
}

/// Decides a DEL.
#[must_use]
pub fn plan_del(facts: &DelFacts) -> DelPlan {
    let asked = facts.uid.as_deref().filter(|uid| !uid.is_empty());
    let uid = match &facts.pod {
        // A Pod of that name with another UID says nothing about the one asked for.
        Some(pod) if asked.is_none_or(|uid| uid == pod.uid) => {
            if pod_alive(pod) {
                let ours = pod.labels.get(names::LABEL_OWNED_BY);
                return if ours.is_some_and(|by| by == names::OWNED_BY_STANDALONE) {
                    DelPlan::DeletePodFirst
                } else {
                    DelPlan::Nothing(NothingToFree::PodAlive)
                };
            }
            Some(pod.uid.as_str())
        }
        _ => asked,
    };
    let Some(uid) = uid.filter(|uid| !uid.is_empty()) else {
        return DelPlan::Nothing(NothingToFree::UidUnknown);
    };
    match (&facts.endpoint, facts.identity) {
        (Some(_), Some(identity)) if identity.valid => {
            DelPlan::Nothing(NothingToFree::Kept(identity.kind))
        }
        // Both Pods of a migration may run on what the endpoint names, whichever it was written for.
        (Some(_), Some(identity))
            if identity.other_alive && identity.kind == Sticky::VirtualMachine =>
        {
            DelPlan::Nothing(NothingToFree::Shared)
        }
        // Whichever of its Pods the endpoint was written for last: of a failed migration it is the
        // target, and the source is the one that ends.
        (Some(endpoint), Some(identity))
            if !identity.other_alive && !endpoint.current.uid.is_empty() =>
        {
            DelPlan::Release {
                uid: endpoint.current.uid.clone(),
                from: ReleaseFrom::Endpoint(held_by(&endpoint.current)),
            }
        }
        (endpoint, _) => stateless(facts, uid, endpoint.as_ref()),
    }
}

fn stateless(facts: &DelFacts, uid: &str, endpoint: Option<&EndpointStatus>) -> DelPlan {
    let release = |from| DelPlan::Release {
        uid: uid.to_owned(),
        from,
    };
    match endpoint {
        Some(endpoint) if endpoint.current.uid == uid => {
            let current = &endpoint.current;
            let listed = |name: &str| name.is_empty() || name == facts.ifname;
            // One that a batch DEL has emptied has no other NIC whose DEL would end it.
            if current.ips.is_empty() || current.ips.iter().any(|nic| listed(&nic.interface)) {
                release(ReleaseFrom::Endpoint(held_by(current)))
            } else {
                DelPlan::Nothing(NothingToFree::NicNotRecorded)
            }
        }
        // The records are the proof, and they are guarded by UID: a newer Pod's stay.
        _ if !facts.known_pools.is_empty() => {
            release(ReleaseFrom::Pools(facts.known_pools.clone()))
        }
        Some(_) => DelPlan::Nothing(NothingToFree::OtherPod),
        None => DelPlan::Nothing(NothingToFree::NoEndpoint),
    }
}
