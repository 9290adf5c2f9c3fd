//! The agent socket: HTTP/1.1 over a Unix socket (design section 3, spec dataplane 0.1).
//!
//! Owns decoding, deadlines, the isolation of one request from the others and the answer's shape.
//! Decides nothing: every call goes to `flow`.

mod cni;
mod ipam;
pub(crate) mod listener;
mod observer;
pub mod socket;
mod trace;
mod workload;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{delete, get, post};
use spiderpool_api::{names, observer_v1, trace_v1, workload_v1};
use tokio_util::sync::CancellationToken;

use crate::agent::Agent;
use socket::Socket;

/// Largest request body. The plugin takes 8 MiB of configuration; what it takes must be read here,
/// or its caller hears of a connection cut off instead of the reason.
const MAX_BODY: usize = 16 << 20;

/// The routes.
pub fn router(agent: Arc<Agent>) -> Router {
    Router::new()
        .route(names::ROUTE_CNI, post(cni::call))
        .route(names::ROUTE_HEALTHY, get(healthy))
        .route(names::ROUTE_IPS, delete(ipam::batch_del))
        .route(observer_v1::ROUTE_SUBENI, get(observer::sub_eni))
        .route(observer_v1::ROUTE_VERIFY, get(observer::verify))
        .route(observer_v1::ROUTE_DETACH, post(observer::detach))
        .route(
            workload_v1::ROUTE_WORKLOAD_ENDPOINT,
            get(workload::endpoint),
        )
        .route(trace_v1::ROUTE_TRACE, get(trace::trace))
        .route(trace_v1::ROUTE_ATTACHMENTS, get(trace::attachments))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(agent)
}

/// Serves until `stop`, then answers what is under way and takes the socket away.
pub async fn serve(agent: Arc<Agent>, socket: Socket, stop: CancellationToken) {
    listener::run(socket, router(agent), stop).await;
}

/// Listening is being healthy; whether ADD can be served is STATUS's question.
async fn healthy() -> &'static str {
    ""
}
