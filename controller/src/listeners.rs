//! Health and metrics of the controller over TCP, for kubelet and Prometheus (spec api 4.4).

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::config::Env;
use crate::gc::ScanRequests;
use crate::health::{Health, Probe};
use crate::http::{OPEN_METRICS, Port, PortError, Reach, accept, open};
use crate::metrics::{Metrics, Shown};
use crate::tasks::Context;

/// The listeners that are open.
#[derive(Debug)]
pub struct Listeners {
    health: Option<TcpListener>,
    metrics: Option<TcpListener>,
}

impl Listeners {
    /// Opens those that are wanted. Needs a runtime.
    ///
    /// # Errors
    /// [`PortError`].
    pub async fn open(env: &Env) -> Result<Self, PortError> {
        let port = |number| {
            if number == 0 {
                Port::Off
            } else {
                Port::Wanted(number)
            }
        };
        let metrics = if env.metrics {
            port(env.metrics_port)
        } else {
            Port::Off
        };
        let everybody = Reach::Everybody;
        let (purpose, variable) = ("health probes", "SPIDERPOOL_HEALTH_PORT");
        let health = open(everybody, port(env.health_port), purpose, variable).await?;
        let (purpose, variable) = ("metrics", "SPIDERPOOL_METRIC_HTTP_PORT");
        Ok(Self {
            health,
            metrics: open(everybody, metrics, purpose, variable).await?,
        })
    }

    /// Serves until `stop`.
    pub async fn serve(self, context: Context, stop: CancellationToken) {
        let shown = match context.settings.env.debug_metrics {
            true => Shown::WithDebug,
            false => Shown::Usual,
        };
        let health = health_routes(context.health).merge(scan_route(context.scans));
        let metrics = Router::new()
            .fallback(get(metrics))
            .with_state((context.metrics, shown));
        tokio::join!(
            accept(self.health, health, stop.clone()),
            accept(self.metrics, metrics, stop)
        );
    }
}

fn health_routes(health: Arc<Health>) -> Router {
    Router::new()
        // Served at all, the controller has started.
        .route("/v1/runtime/startup", get(|| async {}))
        .route("/v1/runtime/liveness", get(liveness))
        .route("/v1/runtime/readiness", get(readiness))
        .with_state(health)
}

/// `POST /v1/gc/scan`: a scan of all records before its time.
fn scan_route(scans: Arc<ScanRequests>) -> Router {
    Router::new()
        .route("/v1/gc/scan", post(scan))
        .with_state(scans)
}

async fn scan(State(scans): State<Arc<ScanRequests>>) -> Response {
    if scans.ask() {
        return StatusCode::ACCEPTED.into_response();
    }
    let text = "this replica does not collect garbage: ask the one that leads\n";
    (StatusCode::CONFLICT, text).into_response()
}

async fn liveness(State(health): State<Arc<Health>>) -> Response {
    answer(health.ask(Probe::Liveness).await)
}

async fn readiness(State(health): State<Arc<Health>>) -> Response {
    answer(health.ask(Probe::Readiness).await)
}

fn answer(asked: Result<(), String>) -> Response {
    match asked {
        Ok(()) => StatusCode::OK.into_response(),
        Err(wrong) => (StatusCode::INTERNAL_SERVER_ERROR, wrong).into_response(),
    }
}

async fn metrics(State((metrics, shown)): State<(Arc<Metrics>, Shown)>) -> Response {
    match metrics.text(shown) {
        Ok(text) => ([(header::CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
