//! What the controller counts, under the names of upstream's dashboards (spec ipam 8), as OpenMetrics
//! text; and the form that all our registries share.
//!
//! Owns registries, names and labels. Counts what it is told.

mod provider;

use std::borrow::Cow;
use std::fmt;

use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Metric, Registry};

/// Of every name.
const PREFIX: &str = "spiderpool";
/// Label `service_name` of `target_info`.
const SERVICE: &str = "spiderpool.spidernet.io";
/// Label `otel_scope_name`: upstream's meters, which dashboards may select by.
const SCOPE: &str = "spiderpool-controller";
const DEBUG_SCOPE: &str = "spiderpool-controller-debug-metrics";

pub use provider::{CallMetrics, Histograms, MeteredProvider, histograms};

/// Bounds of all histograms of whole calls, seconds.
pub const BOUNDS: [f64; 9] = [0.1, 0.3, 0.5, 1.0, 3.0, 5.0, 7.0, 10.0, 15.0];

/// Names and values of a series' labels, always in one order.
pub type Labels = Vec<(&'static str, String)>;

/// Who is scraped.
#[must_use]
pub fn target() -> Registry {
    let mut target = Registry::default();
    let service = Info::new(vec![("service_name", SERVICE)]);
    target.register("target", "Who is scraped", service);
    target
}

/// A registry whose series carry prefix and scope.
#[must_use]
pub fn scoped(scope: &'static str) -> Registry {
    let label = |name, value| (Cow::Borrowed(name), Cow::Borrowed(value));
    let labels = [
        label("otel_scope_name", scope),
        label("otel_scope_version", env!("CARGO_PKG_VERSION")),
    ];
    Registry::with_prefix_and_labels(PREFIX, labels.into_iter())
}

/// Puts a metric into a registry; what comes back is counted with.
pub fn registered<M: Metric + Clone>(
    registry: &mut Registry,
    name: impl Into<String>,
    help: impl Into<String>,
    metric: M,
) -> M {
    registry.register(name, help, metric.clone());
    metric
}

/// All of a controller's metrics.
#[derive(Debug)]
pub struct Metrics {
    target: Registry,
    registry: Registry,
    debug: Registry,
    /// Records that a due trace has freed, by pool release.
    pub freed: Counter,
    /// Those that failed.
    pub not_freed: Counter,
    /// Calls to the provider.
    pub calls: CallMetrics,
    /// Pools there are.
    pub pools: Gauge,
    /// Addresses of a pool.
    pub pool_total: Family<Labels, Gauge>,
    /// Those that are free.
    pub pool_available: Family<Labels, Gauge>,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = scoped(SCOPE);
        let mut debug = scoped(DEBUG_SCOPE);
        let counter = |registry: &mut Registry, name, help| {
            registered(registry, name, help, Counter::default())
        };
        Self {
            freed: counter(
                &mut registry,
                "ip_gc_counts",
                "Addresses that the trace of ended Pods freed",
            ),
            not_freed: counter(
                &mut registry,
                "ip_gc_failure_counts",
                "Addresses that the trace of ended Pods could not free",
            ),
            calls: CallMetrics::new(&mut registry),
            pools: registered(
                &mut registry,
                "total_ippool_counts",
                "Pools",
                Gauge::default(),
            ),
            pool_total: registered(
                &mut debug,
                "debug_ippool_total_ip_counts",
                "Addresses of a pool",
                Family::default(),
            ),
            pool_available: registered(
                &mut debug,
                "debug_ippool_available_ip_counts",
                "Free addresses of a pool",
                Family::default(),
            ),
            target: target(),
            registry,
            debug,
        }
    }
}

/// Which metrics are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// Those for everybody.
    Usual,
    /// Those for debugging too.
    WithDebug,
}

impl Metrics {
    /// Everything in the OpenMetrics text format.
    ///
    /// # Errors
    /// None that a value can cause; the encoder's type says so.
    pub fn text(&self, shown: Shown) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode_registry(&mut text, &self.target)?;
        encode_registry(&mut text, &self.registry)?;
        if shown == Shown::WithDebug {
            encode_registry(&mut text, &self.debug)?;
        }
        encode_eof(&mut text)?;
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_labels_are_those_of_the_dashboards() {
        let metrics = Metrics::default();
        metrics.freed.inc_by(3);
        metrics.pools.set(2);
        let pool = vec![("SpiderIPPool", "v4".to_owned())];
        metrics.pool_total.get_or_create(&pool).set(254);
        metrics.pool_available.get_or_create(&pool).set(250);
        let scope = |scope: &str| {
            let version = env!("CARGO_PKG_VERSION");
            format!("otel_scope_name=\"{scope}\",otel_scope_version=\"{version}\"")
        };
        let text = metrics.text(Shown::WithDebug).unwrap();
        let (usual, debug) = (scope(SCOPE), scope(DEBUG_SCOPE));
        for line in [
            "target_info{service_name=\"spiderpool.spidernet.io\"} 1".to_owned(),
            format!("spiderpool_ip_gc_counts_total{{{usual}}} 3"),
            format!("spiderpool_ip_gc_failure_counts_total{{{usual}}} 0"),
            format!("spiderpool_total_ippool_counts{{{usual}}} 2"),
            format!("spiderpool_debug_ippool_total_ip_counts{{{debug},SpiderIPPool=\"v4\"}} 254"),
            format!(
                "spiderpool_debug_ippool_available_ip_counts{{{debug},SpiderIPPool=\"v4\"}} 250"
            ),
        ] {
            assert!(
                text.lines().any(|found| found == line),
                "{line} is not in\n{text}"
            );
        }
        assert!(!metrics.text(Shown::Usual).unwrap().contains("debug_ippool"));
    }
}
