//! `GET /v1/workloadendpoint`. Errors are one JSON string, as foreign callers expect (spec dataplane
//! 0.1).

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use spiderpool_api::workload_v1::WorkloadQuery;

use crate::agent::Agent;
use crate::flow::error::full;
use crate::flow::workload::WorkloadError;

pub(super) async fn endpoint(
    State(agent): State<Arc<Agent>>,
    query: Result<Query<WorkloadQuery>, QueryRejection>,
) -> Response {
    let query = match query {
        Ok(Query(query)) => query,
        Err(error) => return (StatusCode::BAD_REQUEST, Json(error.to_string())).into_response(),
    };
    match agent.workload_endpoint(query).await {
        Ok(endpoint) => Json(endpoint).into_response(),
        Err(error) => {
            let status = match error {
                WorkloadError::NotFound { .. } => StatusCode::NOT_FOUND,
                WorkloadError::Flow(_) => StatusCode::INTERNAL_SERVER_ERROR,
            };
            (status, Json(full(&error))).into_response()
        }
    }
}
