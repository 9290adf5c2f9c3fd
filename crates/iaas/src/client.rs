//! Calls a provider over HTTP/1.1, plain or TLS (spec iaas section 6).
//!
//! A connection of its own for each call: nothing can be resent on a stale one, and a renewed CA
//! counts from the next call on. No redirects, no proxy, no retry. Owns the limit of calls in
//! flight; keeps nothing else.

mod connection;
mod endpoint;
pub mod raw;
mod tls;

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::StatusCode;
use serde::Serialize;
use serde::de::DeserializeOwned;
use spiderpool_api::provider::{
    ALLOCATE_PATH, AllocateRequest, AllocateResponse, RELEASE_PATH, ReleaseRequest,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};
use tracing::warn;

pub use self::endpoint::{ClientError, Endpoint};

use self::connection::{Body, Reply};
use crate::budget::{Budget, shortfall};
use crate::check::{self, Bound};
use crate::error::{BodyError, CallError, Op, TransportError};
use crate::provider::{Generation, Provider};
use crate::wire_v1::{AllocateRequestV1, AllocateResponseV1, NotInVersion1, ReleaseRequestV1};

/// Calls in flight at a time, per process.
pub const MAX_IN_FLIGHT: usize = 16;
/// Longest answer that is read, bytes.
pub const MAX_BODY_LEN: usize = 1 << 20;
/// Longest part of an error answer in a text, bytes.
pub const MAX_ERROR_LEN: usize = 1 << 10;

/// The client. Clones share the limit of calls in flight.
#[derive(Debug, Clone)]
pub struct Client {
    generation: Generation,
    endpoint: Arc<Endpoint>,
    timeout: Duration,
    in_flight: Arc<Semaphore>,
}

impl Client {
    /// A client that gives each call `timeout` at most. Reads the CA file once to see whether it
    /// can be used; blocks on the disk for that.
    ///
    /// # Errors
    /// [`ClientError`] for a name or a CA file that can't be used.
    pub fn new(endpoint: Endpoint, timeout: Duration) -> Result<Self, ClientError> {
        endpoint.probe()?;
        if endpoint.is_unverified() {
            warn!(provider = %endpoint, "no CA file: the provider's certificate is not verified");
        }
        Ok(Self {
            generation: Generation::Second,
            endpoint: Arc::new(endpoint),
            timeout,
            in_flight: Arc::new(Semaphore::new(MAX_IN_FLIGHT)),
        })
    }

    /// The same for a provider that speaks this contract.
    #[must_use]
    pub fn of_generation(self, generation: Generation) -> Self {
        Self { generation, ..self }
    }

    /// Sends one request and takes the answer, whatever its status, within the budget.
    async fn call<T: Serialize>(
        &self,
        op: Op,
        path: &'static str,
        body: &T,
        parent: Option<Instant>,
    ) -> Result<Reply, CallError> {
        let failed = |source| CallError::Transport { op, source };
        let body = serde_json::to_vec(body).map_err(|error| self.unwritable(op, &error))?;
        let expired = |sent| CallError::ParentExpired { op, sent };
        let _permit = self.permit(parent).await.ok_or(expired(false))?;
        // The configured timeout is the provider's; waiting for a free place costs the parent.
        let now = Instant::now();
        let budget = Budget::new(now, self.timeout, parent).ok_or(expired(false))?;
        if let (Generation::First, Some(remaining)) = (self.generation, shortfall(now, parent)) {
            return Err(CallError::Insufficient { remaining });
        }
        let mut sent = false;
        let exchange = connection::exchange(&self.endpoint, path, body, budget, &mut sent);
        match timeout_at(budget.at, exchange).await {
            Ok(replied) => replied.map_err(failed),
            Err(_) if budget.by_parent => Err(expired(sent)),
            Err(_) => Err(CallError::TooSlow {
                op,
                timeout: self.timeout.into(),
            }),
        }
    }

    /// A place among the calls in flight; `None` when the parent's time is over first.
    async fn permit(&self, parent: Option<Instant>) -> Option<OwnedSemaphorePermit> {
        let place = Arc::clone(&self.in_flight).acquire_owned();
        match parent {
            Some(parent) if parent <= Instant::now() => None,
            Some(parent) => timeout_at(parent, place).await.ok()?.ok(),
            None => place.await.ok(),
        }
    }

    fn unwritable(&self, op: Op, error: &dyn std::error::Error) -> CallError {
        let source = TransportError::Request {
            provider: self.endpoint.to_string(),
            reason: error.to_string(),
        };
        CallError::Transport { op, source }
    }

    async fn allocate_now(
        &self,
        request: &AllocateRequest,
        parent: Option<Instant>,
    ) -> Result<Vec<Bound>, CallError> {
        let op = Op::Allocate;
        let response: AllocateResponse = match self.generation {
            Generation::Second => {
                let reply = self.call(op, ALLOCATE_PATH, request, parent).await?;
                read(op, reply)?
            }
            Generation::First => {
                let first = AllocateRequestV1::try_from(request);
                let first = first.map_err(|error: NotInVersion1| self.unwritable(op, &error))?;
                let reply = self.call(op, ALLOCATE_PATH, &first, parent).await?;
                read::<AllocateResponseV1>(op, reply)?.into()
            }
        };
        let bound = check::accept(request, &response)?;
        for odd in check::oddities(request, &response) {
            warn!(provider = %self.endpoint, odd, "the provider's answer differs from the request");
        }
        Ok(bound)
    }

    async fn release_now(
        &self,
        request: &ReleaseRequest,
        parent: Option<Instant>,
    ) -> Result<(), CallError> {
        let op = Op::Release;
        let reply = match self.generation {
            Generation::Second => self.call(op, RELEASE_PATH, request, parent).await?,
            Generation::First => {
                let first = ReleaseRequestV1::try_from(request);
                let first = first.map_err(|error: NotInVersion1| self.unwritable(op, &error))?;
                self.call(op, RELEASE_PATH, &first, parent).await?
            }
        };
        accepted(op, reply).map(|_body| ())
    }
}

/// The JSON of a 2xx answer.
fn read<T: DeserializeOwned>(op: Op, reply: Reply) -> Result<T, CallError> {
    let unreadable = |source| CallError::Unreadable { op, source };
    match accepted(op, reply)? {
        Body::Whole(body) => {
            serde_json::from_slice(&body).map_err(|error| unreadable(error.into()))
        }
        Body::Cut(_) => Err(unreadable(BodyError::TooLong(MAX_BODY_LEN))),
    }
}

/// The body of a 2xx answer.
fn accepted(op: Op, reply: Reply) -> Result<Body, CallError> {
    if reply.status.is_success() {
        return Ok(reply.body);
    }
    Err(CallError::Status {
        op,
        status: reply.status.as_u16(),
        body: shown(reply.status, reply.body),
    })
}

/// The first KiB of an error's body as text; what is no UTF-8 is replaced.
fn shown(status: StatusCode, body: Body) -> String {
    let (Body::Whole(bytes) | Body::Cut(bytes)) = body;
    let text = String::from_utf8_lossy(&bytes);
    let text = text.trim();
    let text = text.get(..text.floor_char_boundary(MAX_ERROR_LEN));
    match text {
        None | Some("") => status.canonical_reason().unwrap_or("(no body)").to_owned(),
        Some(text) => text.to_owned(),
    }
}

impl Provider for Client {
    fn generation(&self) -> Generation {
        self.generation
    }

    fn allocate<'a>(
        &'a self,
        request: &'a AllocateRequest,
        parent: Option<Instant>,
    ) -> BoxFuture<'a, Result<Vec<Bound>, CallError>> {
        self.allocate_now(request, parent).boxed()
    }

    fn release<'a>(
        &'a self,
        request: &'a ReleaseRequest,
        parent: Option<Instant>,
    ) -> BoxFuture<'a, Result<(), CallError>> {
        self.release_now(request, parent).boxed()
    }
}

#[cfg(test)]
mod tests;
