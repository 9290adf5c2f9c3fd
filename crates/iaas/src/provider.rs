//! The seam between the flows of agent and controller and a provider.

use futures::future::BoxFuture;
use spiderpool_api::provider::{AllocateRequest, ReleaseRequest};
use tokio::time::Instant;

use crate::check::Bound;
use crate::error::CallError;

/// Which contract a provider speaks, and with it who decides what is a sub-ENI (spec iaas Q8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Generation {
    /// Version 1: the NIC's configuration decides, pools have no say.
    First,
    /// Version 2: marks and metadata of the pools decide.
    Second,
}

/// A provider, asked in the words of contract version 2.
///
/// Nothing is ever resent: whoever calls decides about retries. Dropping a future ends the wait;
/// what the provider has begun it may still finish.
pub trait Provider: Send + Sync {
    /// Which contract it speaks.
    fn generation(&self) -> Generation {
        Generation::Second
    }

    /// Binds the sub-ENIs of a request, all or none. Ends at `parent`, the deadline of the calling
    /// operation, if it has one, or at the configured timeout. The answer was checked against the
    /// request: one binding for each of its items, in order.
    ///
    /// # Errors
    /// [`CallError`]; the cloud may have done the work nevertheless.
    fn allocate<'a>(
        &'a self,
        request: &'a AllocateRequest,
        parent: Option<Instant>,
    ) -> BoxFuture<'a, Result<Vec<Bound>, CallError>>;

    /// Tells that a sub-ENI is no longer used. Success means accepted, not finished.
    ///
    /// # Errors
    /// [`CallError`]; the provider may have accepted nevertheless.
    fn release<'a>(
        &'a self,
        request: &'a ReleaseRequest,
        parent: Option<Instant>,
    ) -> BoxFuture<'a, Result<(), CallError>>;
}
