//! The agent socket: HTTP/1.1 over a Unix socket (design section 3, spec dataplane 0.1).
//!
//! Owns decoding, deadlines, the isolation of one request from the others and the answer's shape.
//! Decides nothing: every call goes to `flow`.

mod cni;
pub mod socket;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post};
use spiderpool_api::names;
use tokio_util::sync::CancellationToken;

use crate::agent::Agent;
use socket::{Socket, SocketError};

/// Largest request body: a GC of a full node with its `valid-attachments` is far below.
const MAX_BODY: usize = 4 << 20;

/// The routes.
pub fn router(agent: Arc<Agent>) -> Router {
    Router::new()
        .route(names::ROUTE_CNI, post(cni::call))
        .route(names::ROUTE_HEALTHY, get(healthy))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(agent)
}

/// Serves until `stop`, then answers what is under way and takes the socket away.
///
/// # Errors
/// [`SocketError`] when accepting fails for good.
pub async fn serve(
    agent: Arc<Agent>,
    socket: Socket,
    stop: CancellationToken,
) -> Result<(), SocketError> {
    let (listener, claim) = socket.into_parts();
    let result = axum::serve(listener, router(agent))
        .with_graceful_shutdown(stop.cancelled_owned())
        .await;
    claim.release();
    result.map_err(|source| SocketError::Serve { source })
}

/// Listening is being healthy; whether ADD can be served is STATUS's question.
async fn healthy() -> &'static str {
    ""
}
