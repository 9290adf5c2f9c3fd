//! Whole ADDs and DELs: how many, how many in vain and why, how long, and what the pool writers
//! met for them.

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use tokio::time::Instant;

use super::durations::Durations;
use super::registered;
use crate::flow::category::Category;

/// The metrics of one verb.
#[derive(Debug)]
pub(crate) struct FlowMetrics {
    counts: Counter,
    failures: Counter,
    conflicts: Counter,
    errors: Errors,
    whole: Durations,
    waiting: Durations,
}

/// Failures by category. DEL knows two.
#[derive(Debug)]
struct Errors {
    internal: Counter,
    retries_exhausted: Counter,
    no_available_pool: Counter,
    ip_used_out: Counter,
    wrong_input: Counter,
}

impl FlowMetrics {
    /// Of ADD.
    pub(super) fn allocation(registry: &mut Registry) -> Self {
        let flow = "ipam_allocation";
        let errors = Errors {
            internal: error(registry, flow, "internal"),
            retries_exhausted: error(registry, flow, "retries_exhausted"),
            no_available_pool: error(registry, flow, "no_available_pool"),
            ip_used_out: error(registry, flow, "ip_used_out"),
            wrong_input: error(registry, flow, "wrong_input"),
        };
        Self::new(registry, flow, "ADD", errors)
    }

    /// Of DEL.
    pub(super) fn release(registry: &mut Registry) -> Self {
        let flow = "ipam_release";
        let internal = error(registry, flow, "internal");
        let errors = Errors {
            retries_exhausted: error(registry, flow, "retries_exhausted"),
            no_available_pool: internal.clone(),
            ip_used_out: internal.clone(),
            wrong_input: internal.clone(),
            internal,
        };
        Self::new(registry, flow, "DEL", errors)
    }

    fn new(registry: &mut Registry, flow: &str, verb: &str, errors: Errors) -> Self {
        let mut counter =
            |tail: &str, help: String| counter(registry, &format!("{flow}_{tail}"), help);
        Self {
            counts: counter("counts", format!("Calls of {verb}")),
            failures: counter("failure_counts", format!("Calls of {verb} that failed")),
            conflicts: counter(
                "update_ippool_conflict_counts",
                format!("Pool writes for {verb} that met somebody else's"),
            ),
            errors,
            whole: Durations::new(
                registry,
                flow,
                "duration_seconds",
                &format!("duration of a whole {verb}"),
            ),
            waiting: Durations::new(
                registry,
                flow,
                "limit_duration_seconds",
                &format!("time that a change for {verb} waited for the pool's writer"),
            ),
        }
    }

    /// A call has come.
    pub(crate) fn begin(&self) -> Running<'_> {
        self.counts.inc();
        Running {
            flow: self,
            begun: Instant::now(),
            ended: false,
        }
    }

    /// A pool write met a conflict.
    pub(crate) fn conflict(&self) {
        self.conflicts.inc();
    }

    /// A change was taken into a write after that time.
    pub(crate) fn waited(&self, time: Duration) {
        self.waiting.observe(time);
    }

    fn failed(&self, category: Category) {
        self.failures.inc();
        let errors = &self.errors;
        let counter = match category {
            Category::WrongInput => &errors.wrong_input,
            Category::NoAvailablePool | Category::MetadataNotReady => &errors.no_available_pool,
            Category::UsedOut => &errors.ip_used_out,
            Category::RetriesExhausted => &errors.retries_exhausted,
            Category::Provider | Category::Nic | Category::Internal => &errors.internal,
        };
        counter.inc();
    }
}

/// A call under way. Dropped without an end (a panic in the call), it counts as failed inside.
#[derive(Debug)]
pub(crate) struct Running<'a> {
    flow: &'a FlowMetrics,
    begun: Instant,
    ended: bool,
}

impl Running<'_> {
    /// The call is answered; `failure` says why it came to nothing.
    pub(crate) fn end(mut self, failure: Option<Category>) {
        self.ended = true;
        self.flow.whole.observe(self.begun.elapsed());
        if let Some(category) = failure {
            self.flow.failed(category);
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.flow.whole.observe(self.begun.elapsed());
            self.flow.failed(Category::Internal);
        }
    }
}

fn error(registry: &mut Registry, flow: &str, word: &str) -> Counter {
    let help = format!("Failed calls, category {}", word.replace('_', " "));
    counter(registry, &format!("{flow}_err_{word}_counts"), help)
}

fn counter(registry: &mut Registry, name: &str, help: String) -> Counter {
    registered(registry, name, help, Counter::default())
}
