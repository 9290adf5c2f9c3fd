//! Pre-flights of sub-ENIs (spec dataplane 5.6).

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use spiderpool_api::value::IfName;

use super::{Labels, registered};
use crate::nic::{Family as IpFamily, NicError, PreflightReport, PreflightResult};

/// An answer within a millisecond is usual; one attempt waits half a second.
const BOUNDS: [f64; 9] = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 0.5, 1.0, 2.0];

/// The metrics of pre-flights.
#[derive(Debug)]
pub(crate) struct PreflightMetrics {
    results: Family<Labels, Counter>,
    took: Family<Labels, Histogram, fn() -> Histogram>,
}

impl PreflightMetrics {
    pub(super) fn new(registry: &mut Registry) -> Self {
        Self {
            results: registered(
                registry,
                "subeni_preflight",
                "Questions to a gateway before a sub-ENI is used, by result",
                Family::default(),
            ),
            took: registered(
                registry,
                "subeni_preflight_duration_seconds",
                "Time until the gateway answered",
                Family::new_with_constructor(|| Histogram::new(BOUNDS)),
            ),
        }
    }

    /// A NIC was attached through this master.
    pub(crate) fn passed(&self, master: &IfName, reports: &[PreflightReport]) {
        for report in reports {
            self.count(master, report.family, report.result.as_str());
            if report.result == PreflightResult::Ok {
                let series = self
                    .took
                    .get_or_create_owned(&labels(master, report.family));
                series.observe(report.duration.as_secs_f64());
            }
        }
    }

    /// An attach failed, perhaps in its pre-flight.
    pub(crate) fn failed(&self, error: &NicError) {
        match error {
            NicError::PreflightFailed { master, ip, .. } => {
                self.count(master, IpFamily::of(*ip), "timeout");
            }
            NicError::PreflightBroken { master, ip, .. } => {
                self.count(master, IpFamily::of(*ip), "error");
            }
            NicError::UndoFailed { first, .. } => self.failed(first),
            _ => {}
        }
    }

    fn count(&self, master: &IfName, family: IpFamily, result: &str) {
        let mut labels = labels(master, family);
        labels.push(("result", result.to_owned()));
        self.results.get_or_create(&labels).inc();
    }
}

fn labels(master: &IfName, family: IpFamily) -> Labels {
    vec![
        ("nic", master.to_string()),
        ("family", family.as_str().to_owned()),
    ]
}
