//! The verdict about one record (spec ipam 6.3). The table is written out row by row; a record that
//! cannot be proven garbage stays.

use jiff::{SignedDuration, Timestamp};
use spiderpool_api::allocation::Record;

use super::release::{Marked, marked};
use super::{Deletion, Knobs, NodeState, Phase, PodState, Static};
use crate::sticky::Sticky;

/// What is known of the record's Pod, and how. A read that failed is no fact: the record is left
/// alone then.
#[derive(Debug, Clone)]
pub struct Facts<'a> {
    /// The record, read before the Pod.
    pub record: &'a Record,
    /// The Pod with the record's UID if there is one, else another of the record's key; `None`
    /// when there is none. Of a machine: any Pod of it.
    pub pod: Option<&'a PodState>,
    /// Whether the Pod was read past the caches, after the record.
    pub direct: bool,
    /// `current.uid` of the endpoint under the record's key, if that exists.
    pub endpoint_uid: Option<&'a str>,
    /// Whether the endpoint names this very address.
    pub listed: bool,
    /// Whether the Pod is a static one and shows this very address. The object of a static Pod can be
    /// deleted and comes back with another UID, while its containers run on.
    pub reported: bool,
    /// What outlives the Pod, by the endpoint's owner or the Pod's; `None` for a stateless one.
    pub identity: Option<Static>,
    /// Node of the Pod.
    pub node: NodeState,
    /// Name of the process that judges, as it marks records.
    pub actor: &'a str,
    /// Now.
    pub now: Timestamp,
    /// How long whoever judges has seen the Pod end, by a clock that nobody sets. Times of other
    /// machines alone make no Pod overdue: a step of the own wall clock would make all of them so.
    /// [`SignedDuration::MAX`] where nobody has watched and nothing is freed.
    pub ending_for: SignedDuration,
}

/// What becomes of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It stays. `stale_endpoint`: the endpoint is of another UID than the living Pod and goes.
    Keep {
        /// Why.
        why: Keep,
        /// Whether the endpoint goes all the same.
        stale_endpoint: bool,
    },
    /// It stays for now: the Pod is traced ([`super::trace`]) and released when due.
    Trace(Keep),
    /// It is garbage if a Pod read past the caches says so too: read it and judge again.
    Confirm(Free),
    /// It is garbage.
    Free {
        /// Why.
        why: Free,
        /// Whether the endpoint goes too.
        endpoint: bool,
    },
}

/// Why a record stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Keep {
    /// Collection is switched off.
    Off,
    /// Somebody else is giving it back.
    BeingReleased,
    /// StatefulSet or machine still exists.
    IdentityValid,
    /// The Pod has not started yet.
    Pending,
    /// The Pod runs and has addresses.
    Alive,
    /// The Pod has ended and is not deleted: due times are the trace's.
    Ended,
    /// The Pod runs without addresses; the switch for that is off.
    RunningWithoutIps,
    /// The Pod is being deleted and its time has not come.
    InGrace,
    /// The Pod should be gone; the switch for its node is off, or its identity outlives it.
    OverdueKept,
}

impl Keep {
    /// For logs.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Off => "garbage collection is switched off",
            Self::BeingReleased => "somebody else is giving the address back",
            Self::IdentityValid => "its StatefulSet or virtual machine still exists",
            Self::Pending => "its Pod has not started yet",
            Self::Alive => "its Pod is alive",
            Self::Ended => "its Pod has ended and is traced",
            Self::RunningWithoutIps => "its Pod runs without addresses",
            Self::InGrace => "its Pod is being deleted and still has time",
            Self::OverdueKept => "its Pod should be gone, and the switch for that is off",
        }
    }
}

/// Why a record is garbage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Free {
    /// There is no Pod.
    PodMissing,
    /// The Pod of that name is another one.
    OtherPod,
    /// The Pod has ended and its identity is gone.
    EndedInvalid,
    /// The identity is gone and the Pod has no addresses.
    Invalid,
    /// The Pod should be gone for long.
    Overdue,
    /// The Pod is being deleted and has no addresses any more.
    DeletedWithoutIps,
    /// The Pod runs without addresses.
    RunningWithoutIps,
    /// The Pod's node does not report and it has no addresses.
    UnknownWithoutIps,
}

impl Free {
    /// For logs.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::PodMissing => "its Pod does not exist",
            Self::OtherPod => "the Pod of that name has another UID",
            Self::EndedInvalid => "its Pod has ended, its StatefulSet or virtual machine is gone",
            Self::Invalid => "its StatefulSet or virtual machine is gone",
            Self::Overdue => "its Pod should have ended long ago",
            Self::DeletedWithoutIps => "its Pod is being deleted and has no addresses",
            Self::RunningWithoutIps => "its Pod runs without addresses",
            Self::UnknownWithoutIps => "its Pod's node does not report, and it has no addresses",
        }
    }
}

/// Judges one record.
#[must_use]
pub fn judge(knobs: &Knobs, facts: &Facts<'_>) -> Verdict {
    if !knobs.enabled {
        return keep(Keep::Off);
    }
    if marked(facts.record, facts.actor, facts.now) == Marked::Foreign {
        return keep(Keep::BeingReleased);
    }
    let verdict = match facts.pod {
        None => missing(facts),
        Some(pod) if pod.uid != facts.record.pod_uid => other_uid(knobs, facts, pod),
        Some(pod) => same_uid(knobs, facts, pod),
    };
    match verdict {
        Verdict::Free { why, .. } if !facts.direct => Verdict::Confirm(why),
        // A Pod of the cache may be older than the endpoint.
        Verdict::Keep { why, .. } if !facts.direct => keep(why),
        other => other,
    }
}

const fn keep(why: Keep) -> Verdict {
    Verdict::Keep {
        why,
        stale_endpoint: false,
    }
}

const fn free(why: Free) -> Verdict {
    Verdict::Free {
        why,
        endpoint: true,
    }
}

fn missing(facts: &Facts<'_>) -> Verdict {
    // Without an endpoint there is nothing to come back to.
    match (facts.endpoint_uid, facts.identity) {
        (Some(_), Some(identity)) if identity.valid => keep(Keep::IdentityValid),
        (endpoint, _) => Verdict::Free {
            why: Free::PodMissing,
            endpoint: endpoint.is_some(),
        },
    }
}

/// The Pod is of the record's key, the record is of an earlier one.
fn other_uid(knobs: &Knobs, facts: &Facts<'_>, pod: &PodState) -> Verdict {
    if facts.reported && !pod.phase.ended() {
        return keep(Keep::Alive);
    }
    let stale = facts.endpoint_uid.is_some_and(|uid| uid != pod.uid);
    match facts.identity {
        None => Verdict::Free {
            why: Free::OtherPod,
            endpoint: stale,
        },
        // Of a machine in migration either Pod may run on it, whichever the record was written for: it is
        // this one's as long as the machine or the Pod is there.
        Some(identity) if identity.kind == Sticky::VirtualMachine && facts.listed => {
            if identity.valid {
                keep(Keep::IdentityValid)
            } else {
                same_uid(knobs, facts, pod)
            }
        }
        // It came up with other addresses.
        Some(_) if pod.has_ips => Verdict::Free {
            why: Free::OtherPod,
            endpoint: false,
        },
        // It has not called yet, and will want exactly these (case B10).
        Some(identity) if identity.valid => keep(Keep::IdentityValid),
        Some(_) => free(Free::Invalid),
    }
}

fn same_uid(knobs: &Knobs, facts: &Facts<'_>, pod: &PodState) -> Verdict {
    if pod.phase.ended() {
        return ended(knobs, facts, pod);
    }
    if pod.phase == Phase::Pending {
        return living(facts, pod, Keep::Pending);
    }
    if let Some(deletion) = pod.deletion {
        return terminating(knobs, facts, pod, deletion);
    }
    if pod.has_ips {
        return living(facts, pod, Keep::Alive);
    }
    match (facts.identity, pod.phase) {
        (Some(identity), _) if identity.valid => keep(Keep::IdentityValid),
        (Some(_), _) => free(Free::Invalid),
        (None, Phase::Running) if knobs.empty_ips => free(Free::RunningWithoutIps),
        (None, Phase::Running) => keep(Keep::RunningWithoutIps),
        (None, _) => free(Free::UnknownWithoutIps),
    }
}

/// The record is right; an endpoint of another UID is a leftover.
fn living(facts: &Facts<'_>, pod: &PodState, why: Keep) -> Verdict {
    let other = facts.endpoint_uid.is_some_and(|uid| uid != pod.uid);
    Verdict::Keep {
        why,
        stale_endpoint: other && facts.identity.is_none(),
    }
}

fn ended(knobs: &Knobs, facts: &Facts<'_>, pod: &PodState) -> Verdict {
    match (facts.identity, pod.deletion) {
        (Some(identity), _) if identity.valid => Verdict::Trace(Keep::IdentityValid),
        (Some(_), _) => free(Free::EndedInvalid),
        (None, None) => keep(Keep::Ended),
        (None, Some(deletion)) => terminating(knobs, facts, pod, deletion),
    }
}

/// Rule T.
fn terminating(knobs: &Knobs, facts: &Facts<'_>, pod: &PodState, deletion: Deletion) -> Verdict {
    if facts.now > due(deletion, knobs) {
        if facts.ending_for < patience(deletion.grace, knobs) {
            return Verdict::Trace(Keep::InGrace);
        }
        let may = facts.identity.is_none() && knobs.collects_on(facts.node);
        return if may {
            free(Free::Overdue)
        } else {
            keep(Keep::OverdueKept)
        };
    }
    if pod.has_ips {
        return Verdict::Trace(Keep::InGrace);
    }
    match facts.identity {
        Some(identity) if identity.valid => keep(Keep::IdentityValid),
        _ => free(Free::DeletedWithoutIps),
    }
}

/// When a Pod that is being deleted is overdue.
pub(super) fn due(deletion: Deletion, knobs: &Knobs) -> Timestamp {
    let wait = patience(deletion.grace, knobs);
    deletion.at.checked_add(wait).unwrap_or(Timestamp::MAX)
}

/// What a Pod with this grace has before its addresses are taken away.
pub(super) fn patience(grace: i64, knobs: &Knobs) -> SignedDuration {
    SignedDuration::from_secs(grace.max(0)).saturating_add(knobs.delay)
}
