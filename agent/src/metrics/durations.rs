//! How long something takes: upstream's four gauges and its histogram.

use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::{BOUNDS, registered};

type Seconds = Gauge<f64, AtomicU64>;

/// One kind of duration.
#[derive(Debug)]
pub(super) struct Durations {
    average: Seconds,
    max: Seconds,
    min: Seconds,
    latest: Seconds,
    histogram: Histogram,
    /// Number and sum so far; the gauges are set under its lock, so that they agree.
    so_far: Mutex<(f64, f64)>,
}

impl Durations {
    /// Registers `<flow>_{average,max,min,latest}_<tail>` and `<flow>_<tail>`.
    pub(super) fn new(registry: &mut Registry, flow: &str, tail: &str, what: &str) -> Self {
        let mut gauge = |word: &str| {
            let help = format!("The {word} {what}, in seconds");
            let name = format!("{flow}_{word}_{tail}");
            registered(registry, name, help, Seconds::default())
        };
        let (average, max) = (gauge("average"), gauge("max"));
        let (min, latest) = (gauge("min"), gauge("latest"));
        let help = format!("The {what}, in seconds");
        let name = format!("{flow}_{tail}");
        let histogram = registered(registry, name, help, Histogram::new(BOUNDS));
        Self {
            average,
            max,
            min,
            latest,
            histogram,
            so_far: Mutex::default(),
        }
    }

    /// It took that long once more.
    pub(super) fn observe(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        let mut so_far = self.so_far.lock().unwrap_or_else(PoisonError::into_inner);
        let is_first = so_far.0 == 0.0;
        so_far.0 += 1.0;
        so_far.1 += seconds;
        self.average.set(so_far.1 / so_far.0);
        self.latest.set(seconds);
        if is_first || seconds > self.max.get() {
            self.max.set(seconds);
        }
        if is_first || seconds < self.min.get() {
            self.min.set(seconds);
        }
        self.histogram.observe(seconds);
    }
}
