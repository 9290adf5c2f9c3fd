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
mod provider;
mod sub_eni;

use std::borrow::Cow;
use std::fmt;

use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Metric, Registry};
use spiderpool_api::observer_v1::ObserverReport;

pub(crate) use flow::FlowMetrics;
pub(crate) use iaas::IaasMetrics;
pub(crate) use preflight::PreflightMetrics;
pub(crate) use provider::MeteredProvider;

/// Of every name.
const PREFIX: &str = "spiderpool";
/// Label `otel_scope_name`: upstream's meter, which dashboards may select by.
const SCOPE: &str = "spiderpool-agent";
/// Label `service_name` of `target_info`.
const SERVICE: &str = "spiderpool.spidernet.io";
/// Bounds of all histograms of whole calls, seconds.
const BOUNDS: [f64; 9] = [0.1, 0.3, 0.5, 1.0, 3.0, 5.0, 7.0, 10.0, 15.0];

/// Names and values of a series' labels, always in one order.
type Labels = Vec<(&'static str, String)>;

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
        let mut target = Registry::default();
        let service = Info::new(vec![("service_name", SERVICE)]);
        target.register("target", "Who is scraped", service);
        let mut registry = scoped();
        Self {
            allocation: FlowMetrics::allocation(&mut registry),
            release: FlowMetrics::release(&mut registry),
            iaas: IaasMetrics::new(&mut registry),
            preflight: PreflightMetrics::new(&mut registry),
            target,
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

/// Puts a metric into a registry; what comes back is counted with.
fn registered<M: Metric + Clone>(
    registry: &mut Registry,
    name: impl Into<String>,
    help: impl Into<String>,
    metric: M,
) -> M {
    registry.register(name, help, metric.clone());
    metric
}

/// A registry whose series carry prefix and scope.
fn scoped() -> Registry {
    let label = |name, value| (Cow::Borrowed(name), Cow::Borrowed(value));
    let labels = [
        label("otel_scope_name", SCOPE),
        label("otel_scope_version", env!("CARGO_PKG_VERSION")),
    ];
    Registry::with_prefix_and_labels(PREFIX, labels.into_iter())
}

#[cfg(test)]
mod tests;
