//! Calls to the provider, counted alike by agent and controller (spec iaas 14).

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use spiderpool_api::provider::{AllocateRequest, ReleaseRequest};
use spiderpool_iaas::check::Bound;
use spiderpool_iaas::error::{CallError, Op};
use spiderpool_iaas::provider::{Generation, Provider};
use tokio::time::Instant;

use super::{BOUNDS, Labels, registered};

/// Histograms by labels.
pub type Histograms = Family<Labels, Histogram, fn() -> Histogram>;

/// Histograms of whole calls.
#[must_use]
pub fn histograms() -> Histograms {
    Histograms::new_with_constructor(|| Histogram::new(BOUNDS))
}

/// How long calls took, and why they failed. Clones count together.
#[derive(Debug, Clone)]
pub struct CallMetrics {
    took: Histograms,
    failed: Family<Labels, Counter>,
}

impl CallMetrics {
    /// Nothing counted yet.
    pub fn new(registry: &mut Registry) -> Self {
        Self {
            took: registered(
                registry,
                "iaas_rpc_duration_seconds",
                "Time a call to the provider took",
                histograms(),
            ),
            failed: registered(
                registry,
                "iaas_rpc_failure",
                "Calls to the provider that failed",
                Family::default(),
            ),
        }
    }

    /// A call to the provider has ended. One that was never sent does not count.
    pub fn called(&self, op: Op, took: Duration, error: Option<&CallError>) {
        if let Some(error) = error {
            let Some(reason) = error.rpc_reason() else {
                return;
            };
            self.fail(op, reason);
        }
        let labels = vec![("op", op.as_str().to_owned())];
        let series = self.took.get_or_create_owned(&labels);
        series.observe(took.as_secs_f64());
    }

    /// A call went well, and its answer leaves open what nobody else knows.
    pub fn incomplete(&self) {
        self.fail(Op::Allocate, "bad_response");
    }

    fn fail(&self, op: Op, reason: &str) {
        let labels = vec![
            ("op", op.as_str().to_owned()),
            ("reason", reason.to_owned()),
        ];
        self.failed.get_or_create(&labels).inc();
    }
}

/// Passes every call on and counts how it went.
pub struct MeteredProvider {
    inner: Arc<dyn Provider>,
    metrics: CallMetrics,
}

impl MeteredProvider {
    /// Counts the calls of `inner`.
    #[must_use]
    pub fn new(inner: Arc<dyn Provider>, metrics: CallMetrics) -> Self {
        Self { inner, metrics }
    }

    async fn metered<T>(
        &self,
        op: Op,
        call: BoxFuture<'_, Result<T, CallError>>,
    ) -> Result<T, CallError> {
        let begun = Instant::now();
        let result = call.await;
        let error = result.as_ref().err();
        self.metrics.called(op, begun.elapsed(), error);
        result
    }
}

impl Provider for MeteredProvider {
    fn generation(&self) -> Generation {
        self.inner.generation()
    }

    fn allocate<'a>(
        &'a self,
        request: &'a AllocateRequest,
        parent: Option<Instant>,
    ) -> BoxFuture<'a, Result<Vec<Bound>, CallError>> {
        let call = self.inner.allocate(request, parent);
        self.metered(Op::Allocate, call).boxed()
    }

    fn release<'a>(
        &'a self,
        request: &'a ReleaseRequest,
        parent: Option<Instant>,
    ) -> BoxFuture<'a, Result<(), CallError>> {
        let call = self.inner.release(request, parent);
        self.metered(Op::Release, call).boxed()
    }
}
