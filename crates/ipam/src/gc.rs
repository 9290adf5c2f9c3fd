//! Garbage collection as verdicts (spec ipam section 6): what becomes of a record, of an endpoint, of
//! a Pod that ends. Facts come in as plain data with the time of judgement, nothing is read here.
//!
//! Callers read the records first and the Pods after; a record is freed only on a verdict whose
//! Pod was read past the caches (case B12).

use jiff::Timestamp;

use crate::sticky::Sticky;

mod endpoint;
mod knobs;
mod record;
mod release;
mod trace;

pub use endpoint::{EndpointVerdict, judge_endpoint};
pub use knobs::Knobs;
pub use record::{Facts, Free, Keep, Verdict, judge};
pub use release::{How, Marked, how_to_release};
pub use trace::{Ending, Trace, TraceRelease, plan_trace_release, trace};

/// Phase of a Pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Phase {
    /// Also while the phase is not set.
    #[default]
    Pending,
    /// At least one container runs.
    Running,
    /// All containers ended well.
    Succeeded,
    /// All containers ended, one badly.
    Failed,
    /// The node does not report.
    Unknown,
}

impl Phase {
    /// From `status.phase`.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        match text {
            "Running" => Self::Running,
            "Succeeded" => Self::Succeeded,
            "Failed" => Self::Failed,
            "Unknown" => Self::Unknown,
            _ => Self::Pending,
        }
    }

    /// Whether nothing of it runs any more.
    #[must_use]
    pub const fn ended(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// `metadata.deletionTimestamp` with its grace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deletion {
    /// `deletionTimestamp`: the request plus the grace.
    pub at: Timestamp,
    /// `deletionGracePeriodSeconds`.
    pub grace: i64,
}

/// A Pod as collection sees it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PodState {
    /// UID of the object.
    pub uid: String,
    /// Its phase.
    pub phase: Phase,
    /// Whether `status.podIPs` has an address.
    pub has_ips: bool,
    /// Whether and until when it is being deleted.
    pub deletion: Option<Deletion>,
}

impl PodState {
    /// Whether it is being deleted or has ended: its hold on its addresses is about to end.
    #[must_use]
    pub const fn is_ending(&self) -> bool {
        self.deletion.is_some() || self.phase.ended()
    }
}

/// State of a Pod's node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeState {
    /// Its `Ready` condition is true.
    Ready,
    /// It is not, or not known.
    NotReady,
    /// There is no such node: as not ready, so that Pods of a deleted node do not leak.
    Missing,
}

/// What outlives the Pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Static {
    /// Kind of the identity.
    pub kind: Sticky,
    /// Whether it still exists, read past the caches ([`crate::sticky`]).
    pub valid: bool,
}

#[cfg(test)]
mod tests;
