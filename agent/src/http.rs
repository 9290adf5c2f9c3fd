//! Health and metrics over TCP, for kubelet and Prometheus (spec api 4.4).
//!
//! Owns the two listeners: where they are, what happens when a port is taken, how many callers
//! there may be. Health asks the agent's own socket, so that it says what a plugin would meet.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use nix::errno::Errno;
use spiderpool_api::names;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UnixStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::agent::Agent;
use crate::api::listener;

/// Usual port of health probes.
pub const HEALTH_PORT: u16 = 5710;
/// Usual port of metrics.
pub const METRICS_PORT: u16 = 5711;

/// Callers served at once on a port. One more takes the place of the oldest: those that say nothing,
/// or never read their answer, must not keep a probe or a scrape waiting.
const MAX_CALLERS: usize = 16;
/// Time the agent's own socket has to answer, and callers have to take an answer when it stops.
const PATIENCE: Duration = Duration::from_secs(3);
/// Pause after an accept error such as "too many open files".
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Of the OpenMetrics text format.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A port to listen on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Port {
    /// None.
    Off,
    /// The usual one, which nobody asked for by name: where it is taken, the agent does without.
    Usual(u16),
    /// One that somebody asked for: where it is taken, the agent does not start.
    Wanted(u16),
}

/// Who reaches the ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// This host alone.
    Loopback,
    /// Everybody who reaches this host.
    Everybody,
}

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

/// A port that was asked for cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot listen on port {port} for {purpose}: name another with {option}, or 0 to do without"
)]
pub struct PortError {
    port: u16,
    purpose: &'static str,
    option: &'static str,
    source: io::Error,
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

async fn open(
    reach: Reach,
    port: Port,
    purpose: &'static str,
    option: &'static str,
) -> Result<Option<TcpListener>, PortError> {
    let (Port::Usual(number) | Port::Wanted(number)) = port else {
        return Ok(None);
    };
    match bind(reach, number).await {
        Ok(listener) => {
            let address = listener.local_addr().map(|address| address.to_string());
            let address = address.unwrap_or_default();
            tracing::info!(address, purpose, "listening");
            Ok(Some(listener))
        }
        Err(error) if port == Port::Usual(number) => {
            tracing::warn!(port = number, purpose, %error, "the usual port cannot be used; the agent does without, {option} names another");
            Ok(None)
        }
        Err(source) => Err(PortError {
            port: number,
            purpose,
            option,
            source,
        }),
    }
}

async fn bind(reach: Reach, port: u16) -> io::Result<TcpListener> {
    let at = |ip: IpAddr| TcpListener::bind((ip, port));
    match reach {
        Reach::Loopback => at(Ipv4Addr::LOCALHOST.into()).await,
        Reach::Everybody => match at(Ipv6Addr::UNSPECIFIED.into()).await {
            Err(error) if is_without_ipv6(&error) => at(Ipv4Addr::UNSPECIFIED.into()).await,
            bound => bound,
        },
    }
}

fn is_without_ipv6(error: &io::Error) -> bool {
    let none = [Errno::EAFNOSUPPORT, Errno::EADDRNOTAVAIL];
    let number = error.raw_os_error().map(Errno::from_raw);
    number.is_some_and(|number| none.contains(&number))
}

async fn accept(listener: Option<TcpListener>, router: Router, stop: CancellationToken) {
    let Some(listener) = listener else { return };
    let mut callers = JoinSet::new();
    let mut oldest_first = VecDeque::<AbortHandle>::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_ended) = callers.join_next() => continue,
            () = stop.cancelled() => break,
        };
        match accepted {
            Ok((stream, _)) => {
                oldest_first.retain(|caller| !caller.is_finished());
                if oldest_first.len() >= MAX_CALLERS
                    && let Some(oldest) = oldest_first.pop_front()
                {
                    oldest.abort();
                }
                let served = listener::serve(stream, router.clone(), stop.clone());
                oldest_first.push_back(callers.spawn(served));
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection for health or metrics");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    let answered = async { while callers.join_next().await.is_some() {} };
    // Who asked and does not read the answer is cut off with the set.
    let _cut_off = tokio::time::timeout(PATIENCE, answered).await.is_err();
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
