//! The observer's routes (spec dataplane 5.6, 5.7): what it counts, what was wrong, and its end.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use spiderpool_api::observer_v1::{DetachReport, ObserverReport, VerifyReport};

use crate::agent::Agent;

/// `GET /v1/observer/subeni`.
pub(super) async fn sub_eni(State(agent): State<Arc<Agent>>) -> Json<ObserverReport> {
    Json(agent.observer_report().await)
}

/// `GET /v1/observer/verify`.
pub(super) async fn verify(State(agent): State<Arc<Agent>>) -> Json<VerifyReport> {
    Json(agent.observer.verify().await)
}

/// `POST /v1/observer/detach`.
pub(super) async fn detach(State(agent): State<Arc<Agent>>) -> Json<DetachReport> {
    Json(agent.observer.detach().await)
}
