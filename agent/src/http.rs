//! Health and metrics over TCP, for kubelet and Prometheus (spec api 4.4).
//!
//! Owns the two listeners and what they answer. Health asks the agent's own socket, so that it says
//! what a plugin would meet.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use spiderpool_api::names;
use spiderpool_controller::http::{OPEN_METRICS, accept, open};
pub use spiderpool_controller::http::{Port, PortError, Reach};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UnixStream};
use tokio_util::sync::CancellationToken;

use crate::agent::Agent;

/// Usual port of health probes.
pub const HEALTH_PORT: u16 = 5710;
/// Usual port of metrics.
pub const METRICS_PORT: u16 = 5711;

/// Time the agent's own socket has to answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// What to listen on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HttpSettings {
    /// Who reaches it.
    pub reach: Reach,
    /// Health probes.
    pub health: Port,
    /// Metrics.
    pub metrics: Port,
}

/// The listeners that are open.
#[derive(Debug)]
pub struct Listeners {
    health: Option<TcpListener>,
    metrics: Option<TcpListener>,
}

impl Listeners {
    /// Opens them. Needs a runtime.
    ///
    /// # Errors
    /// [`PortError`].
    pub async fn open(settings: &HttpSettings) -> Result<Self, PortError> {
        let HttpSettings {
            reach,
            health,
            metrics,
        } = *settings;
        Ok(Self {
            health: open(reach, health, "health probes", "--health-port").await?,
            metrics: open(reach, metrics, "metrics", "--metrics-port").await?,
        })
    }

    /// Where health probes and metrics are served.
    #[must_use]
    pub fn addresses(&self) -> (Option<SocketAddr>, Option<SocketAddr>) {
        let address = |listener: &Option<TcpListener>| listener.as_ref()?.local_addr().ok();
        (address(&self.health), address(&self.metrics))
    }

    /// Serves until `stop`, then answers what is under way. `socket` is the agent's own.
    pub async fn serve(self, agent: Arc<Agent>, socket: &Path, stop: CancellationToken) {
        let health = health_routes(socket.to_owned());
        let metrics = Router::new().fallback(get(metrics)).with_state(agent);
        tokio::join!(
            accept(self.health, health, stop.clone()),
            accept(self.metrics, metrics, stop)
        );
    }
}

fn health_routes(socket: PathBuf) -> Router {
    Router::new()
        // Served at all, the agent has started: the socket is bound before this port.
        .route("/v1/runtime/startup", get(|| async {}))
        .route("/v1/runtime/liveness", get(socket_answers))
        .route("/v1/runtime/readiness", get(socket_answers))
        .with_state(Arc::new(socket))
}

async fn socket_answers(State(socket): State<Arc<PathBuf>>) -> Response {
    match tokio::time::timeout(PATIENCE, probe(&socket)).await {
        Ok(Ok(())) => StatusCode::OK.into_response(),
        Ok(Err(error)) => unhealthy(&socket, &error.to_string()),
        Err(_) => unhealthy(&socket, "no answer in time"),
    }
}

fn unhealthy(socket: &Path, why: &str) -> Response {
    let text = format!("the agent socket {}: {why}\n", socket.display());
    (StatusCode::INTERNAL_SERVER_ERROR, text).into_response()
}

async fn probe(socket: &Path) -> io::Result<()> {
    let mut stream = UnixStream::connect(socket).await?;
    let route = names::ROUTE_HEALTHY;
    let request = format!("GET {route} HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    if answer.starts_with(b"HTTP/1.1 200 ") {
        Ok(())
    } else {
        Err(io::Error::other("it does not answer as an agent would"))
    }
}

async fn metrics(State(agent): State<Arc<Agent>>) -> Response {
    match agent.metrics_text().await {
        Ok(text) => ([(header::CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
