//! What the agent counts of itself, under the names of upstream's dashboards (spec ipam 8, iaas 14,
//! dataplane 5.6), as OpenMetrics text.
//!
//! Owns registry, names, labels and bounds. Counts what it is told; the observer's counters are
//! read at each scrape and live in the kernel. Label values are bounded: pools, NICs of this node,
//! sub-ENIs that exist, and fixed words.

mod durations;
mod flow;
mod iaas;
mod preflight;
mod sub_eni;

use std::fmt;

use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::registry::Registry;
use spiderpool_api::observer_v1::ObserverReport;
use spiderpool_controller::metrics::{self as shared, BOUNDS, Labels, registered};

pub(crate) use flow::FlowMetrics;
pub(crate) use iaas::IaasMetrics;
pub(crate) use preflight::PreflightMetrics;
pub(crate) use spiderpool_controller::metrics::MeteredProvider;

/// Label `otel_scope_name`: upstream's meter, which dashboards may select by.
const SCOPE: &str = "spiderpool-agent";

/// All of an agent's metrics.
#[derive(Debug)]
pub struct Metrics {
    target: Registry,
    registry: Registry,
    pub(crate) allocation: FlowMetrics,
    pub(crate) release: FlowMetrics,
    pub(crate) iaas: IaasMetrics,
    pub(crate) preflight: PreflightMetrics,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Nothing counted yet.
    #[must_use]
    pub fn new() -> Self {
        let mut registry = scoped();
        Self {
            allocation: FlowMetrics::allocation(&mut registry),
            release: FlowMetrics::release(&mut registry),
            iaas: IaasMetrics::new(&mut registry),
            preflight: PreflightMetrics::new(&mut registry),
            target: shared::target(),
            registry,
        }
    }

    /// Everything, with what the observer counts, in the OpenMetrics text format.
    ///
    /// # Errors
    /// None that a value can cause; the encoder's type says so.
    pub fn text(&self, observed: &ObserverReport) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode_registry(&mut text, &self.target)?;
        encode_registry(&mut text, &self.registry)?;
        encode_registry(&mut text, &sub_eni::registry(observed))?;
        encode_eof(&mut text)?;
        Ok(text)
    }
}

/// A registry whose series carry prefix and our scope.
fn scoped() -> Registry {
    shared::scoped(SCOPE)
}

#[cfg(test)]
mod tests;
