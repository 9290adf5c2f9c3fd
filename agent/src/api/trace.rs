//! The routes of people who ask why (`spiderpoolctl trace`, `ip find`).

use std::sync::Arc;

use axum::Json;
use axum::extract::{Query, State};
use spiderpool_api::trace_v1::{HeldAttachment, TraceQuery, TraceReport};

use crate::agent::Agent;
use crate::store::ObjectKey;

/// `GET /v1/trace`.
pub(super) async fn trace(
    State(agent): State<Arc<Agent>>,
    Query(pod): Query<TraceQuery>,
) -> Json<TraceReport> {
    let key = ObjectKey::new(pod.pod_namespace, pod.pod_name);
    Json(agent.trace(&key).await)
}

/// `GET /v1/attachments`.
pub(super) async fn attachments(State(agent): State<Arc<Agent>>) -> Json<Vec<HeldAttachment>> {
    Json(agent.held_attachments())
}
