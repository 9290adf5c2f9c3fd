//! The switches and times of collection (spec ipam 6.1), read from named texts.

use jiff::SignedDuration;

use super::NodeState;
use crate::environment::{Environment, EnvironmentError};

/// All knobs. The names below are those of the environment, without `SPIDERPOOL_`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Knobs {
    /// `GC_IP_ENABLED`: collection at all.
    pub enabled: bool,
    /// `GC_STATELESS_TERMINATING_POD_ON_READY_NODE_ENABLED`.
    pub ready_node: bool,
    /// `GC_STATELESS_TERMINATING_POD_ON_NOT_READY_NODE_ENABLED`.
    pub not_ready_node: bool,
    /// `GC_ENABLE_STATELESS_RUNNING_POD_ON_EMPTY_POD_STATUS_IPS`.
    pub empty_ips: bool,
    /// `GC_ADDITIONAL_GRACE_DELAY`, seconds.
    pub delay: SignedDuration,
    /// `GC_DEFAULT_INTERVAL_DURATION`, seconds: period of the scan.
    pub interval: SignedDuration,
    /// `GC_TRACE_POD_GAP_DURATION`, seconds: period of the trace.
    pub trace_gap: SignedDuration,
    /// `GC_SIGNAL_TIMEOUT_DURATION`, seconds: a trace signal is dropped after.
    pub signal_timeout: SignedDuration,
    /// `GC_HTTP_REQUEST_TIME_GAP`, seconds: pause after a requested scan.
    pub request_gap: SignedDuration,
    /// `GC_IP_WORKER_NUM`.
    pub workers: u32,
    /// `GC_CHANNEL_BUFFER`.
    pub buffer: u32,
    /// `GC_MAX_PODENTRY_DB_CAP`: Pods traced at most; more are dropped.
    pub traced_pods: u32,
    /// `GC_PODENTRY_MAX_RETRIES`: per traced Pod.
    pub retries: u32,
    /// ConfigMap `enableCleanOutdatedEndpoint`; not of the environment.
    pub clean_outdated_endpoints: bool,
}

impl Default for Knobs {
    fn default() -> Self {
        let seconds = SignedDuration::from_secs;
        Self {
            enabled: true,
            ready_node: true,
            not_ready_node: true,
            empty_ips: false,
            delay: seconds(5),
            interval: seconds(600),
            trace_gap: seconds(5),
            signal_timeout: seconds(3),
            request_gap: seconds(1),
            workers: 3,
            buffer: 5000,
            traced_pods: 100_000,
            retries: 5,
            clean_outdated_endpoints: false,
        }
    }
}

impl Knobs {
    /// From the environment, which `lookup` reads by the whole name; unset and empty ones keep
    /// their defaults. The older `GC_TERMINATING_POD_IP_ENABLED` counts for both nodes' switches
    /// that are not set themselves.
    ///
    /// # Errors
    /// [`EnvironmentError`] of the first malformed one.
    pub fn read(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, EnvironmentError> {
        let read = Environment::new(lookup);
        let base = Self::default();
        let terminating = read.flag("GC_TERMINATING_POD_IP_ENABLED", true)?;
        Ok(Self {
            enabled: read.flag("GC_IP_ENABLED", base.enabled)?,
            ready_node: read.flag(
                "GC_STATELESS_TERMINATING_POD_ON_READY_NODE_ENABLED",
                terminating,
            )?,
            not_ready_node: read.flag(
                "GC_STATELESS_TERMINATING_POD_ON_NOT_READY_NODE_ENABLED",
                terminating,
            )?,
            empty_ips: read.flag(
                "GC_ENABLE_STATELESS_RUNNING_POD_ON_EMPTY_POD_STATUS_IPS",
                base.empty_ips,
            )?,
            delay: read.seconds("GC_ADDITIONAL_GRACE_DELAY", base.delay)?,
            interval: read.seconds("GC_DEFAULT_INTERVAL_DURATION", base.interval)?,
            trace_gap: read.seconds("GC_TRACE_POD_GAP_DURATION", base.trace_gap)?,
            signal_timeout: read.seconds("GC_SIGNAL_TIMEOUT_DURATION", base.signal_timeout)?,
            request_gap: read.seconds("GC_HTTP_REQUEST_TIME_GAP", base.request_gap)?,
            workers: read.number("GC_IP_WORKER_NUM", base.workers)?,
            buffer: read.number("GC_CHANNEL_BUFFER", base.buffer)?,
            traced_pods: read.number("GC_MAX_PODENTRY_DB_CAP", base.traced_pods)?,
            retries: read.number("GC_PODENTRY_MAX_RETRIES", base.retries)?,
            clean_outdated_endpoints: base.clean_outdated_endpoints,
        })
    }

    /// Whether an overdue Pod on such a node loses its addresses.
    #[must_use]
    pub const fn collects_on(&self, node: NodeState) -> bool {
        match node {
            NodeState::Ready => self.ready_node,
            NodeState::NotReady | NodeState::Missing => self.not_ready_node,
        }
    }
}
