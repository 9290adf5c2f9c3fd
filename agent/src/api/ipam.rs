//! `DELETE /v1/ipam/ips`: a plugin whose probes failed gives its Pod's addresses back. Errors are one
//! JSON string, as foreign callers expect (spec dataplane 0.1).

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;
use spiderpool_api::agent_v1::BatchDelRequest;
use tokio::time::Instant;

use super::cni::body_of;
use crate::agent::Agent;
use crate::flow::error::full;

/// How long it may take; as a DEL.
const BUDGET: Duration = Duration::from_secs(97);

pub(super) async fn batch_del(State(agent): State<Arc<Agent>>, request: Request) -> Response {
    let body = body_of(request).await;
    let call = body.and_then(|body| {
        serde_json::from_slice::<BatchDelRequest>(&body).map_err(|error| error.to_string())
    });
    match call {
        Ok(call) => run(agent, call).await,
        Err(message) => {
            let status = StatusCode::UNPROCESSABLE_ENTITY;
            let body = json!({"code": status.as_u16(), "message": message});
            (status, Json(body)).into_response()
        }
    }
}

/// In a task of its own: what has begun is finished, whether the caller waits or not.
async fn run(agent: Arc<Agent>, call: BatchDelRequest) -> Response {
    let begun = Instant::now();
    let (pod, container) = (
        format!("{}/{}", call.pod_namespace, call.pod_name),
        call.container_id.clone(),
    );
    let tasks = agent.tasks().clone();
    let task = tasks.spawn(async move { agent.on_batch_del(&call, begun + BUDGET).await });
    let failure = match task.await {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some((error.status(), full(&error))),
        Err(stopped) => Some((500, format!("the agent failed on this call: {stopped}"))),
    };
    let ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    let (status, error) = failure.unwrap_or((200, String::new()));
    tracing::info!(pod, container, status, ms, error, "batch DEL");
    let code = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    match error.as_str() {
        "" => code.into_response(),
        _ => (code, Json(error)).into_response(),
    }
}
