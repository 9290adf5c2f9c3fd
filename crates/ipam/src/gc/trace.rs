//! Pods that end, between two scans (spec ipam 6.2): when their addresses are due, and what is
//! released then.

use jiff::{SignedDuration, Timestamp};
use spiderpool_api::endpoint::EndpointStatus;

use super::record::{due, patience};
use super::{Deletion, Knobs, NodeState, PodState, Static};
use crate::plan::{Held, held_by};

/// A Pod event that may start a trace.
#[derive(Debug, Clone, Copy)]
pub enum Ending<'a> {
    /// The object is gone.
    Deleted,
    /// The object as it is now.
    Changed {
        /// The Pod.
        pod: &'a PodState,
        /// Latest `finishedAt` of its containers; `None` when none says.
        finished: Option<Timestamp>,
        /// `spec.terminationGracePeriodSeconds`.
        grace: i64,
    },
}

/// What becomes of the trace of a Pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trace {
    /// There is none, and one that was there ends.
    None,
    /// Its addresses are released when both are over. New ones replace older ones.
    Due {
        /// By wall time, as the Pod's own times say.
        at: Timestamp,
        /// What must have passed since its end was seen first, by a clock that nobody sets.
        watched: SignedDuration,
    },
}

/// Traces a Pod. `host_network` Pods have no addresses of ours; those of a valid identity keep them.
#[must_use]
pub fn trace(
    knobs: &Knobs,
    ending: Ending<'_>,
    host_network: bool,
    identity: Option<Static>,
    node: NodeState,
    now: Timestamp,
) -> Trace {
    if !knobs.enabled || host_network || identity.is_some_and(|identity| identity.valid) {
        return Trace::None;
    }
    let after = |start: Timestamp, grace: i64| Trace::Due {
        at: due(Deletion { at: start, grace }, knobs),
        watched: patience(grace, knobs),
    };
    match ending {
        Ending::Deleted => after(now, 0),
        Ending::Changed { .. } if !knobs.collects_on(node) => Trace::None,
        Ending::Changed {
            pod:
                PodState {
                    deletion: Some(deletion),
                    ..
                },
            ..
        } => after(deletion.at, deletion.grace),
        Ending::Changed {
            pod,
            finished,
            grace,
        } if pod.phase.ended() => after(finished.unwrap_or(now), grace),
        Ending::Changed { .. } => Trace::None,
    }
}

/// What is released when a trace is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TraceRelease {
    /// Nothing is left.
    Done,
    /// The endpoint is another Pod's by now: the scan sorts it out.
    LeftToScan,
    /// Frees these, the provider of a prewarm pool first; then the endpoint goes.
    Release {
        /// UID that each record must carry.
        uid: String,
        /// The addresses.
        held: Vec<Held>,
        /// Whether the endpoint object is deleted by us: nothing owns one of an identity.
        delete_endpoint: bool,
    },
}

/// Decides what a due trace of `uid` releases. `endpoint` is that of the Pod's own name.
#[must_use]
pub fn plan_trace_release(
    uid: &str,
    endpoint: Option<&EndpointStatus>,
    identity: Option<Static>,
) -> TraceRelease {
    match endpoint {
        None => TraceRelease::Done,
        Some(endpoint) if uid.is_empty() || endpoint.current.uid != uid => TraceRelease::LeftToScan,
        Some(endpoint) => TraceRelease::Release {
            uid: uid.to_owned(),
            held: held_by(&endpoint.current),
            delete_endpoint: identity.is_some(),
        },
    }
}
