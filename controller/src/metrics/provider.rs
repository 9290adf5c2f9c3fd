//! A provider whose calls are counted.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use spiderpool_api::provider::{AllocateRequest, ReleaseRequest};
use spiderpool_iaas::check::Bound;
use spiderpool_iaas::error::{CallError, Op};
use spiderpool_iaas::provider::{Generation, Provider};
use tokio::time::Instant;

use super::Metrics;

/// Passes every call on and tells the metrics how it went.
pub(crate) struct MeteredProvider {
    inner: Arc<dyn Provider>,
    metrics: Arc<Metrics>,
}

impl MeteredProvider {
    pub(crate) fn new(inner: Arc<dyn Provider>, metrics: Arc<Metrics>) -> Self {
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
        self.metrics.iaas.called(op, begun.elapsed(), error);
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
