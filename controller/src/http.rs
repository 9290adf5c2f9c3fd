//! Small HTTP servers over TCP, for kubelet and Prometheus: where they listen, what happens when a port
//! is taken, how many callers there may be, and how a connection ends.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::pin::pin;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use nix::errno::Errno;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::task::{AbortHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::complaints::Complaints;

/// Content type of the OpenMetrics text format.
pub const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// For a request's head, and for its body, to arrive. Callers send at once, and one that was stopped in
/// the middle must not keep the process from stopping.
pub const REQUEST_TIME: Duration = Duration::from_secs(10);

/// Callers served at once on a port. One more takes the place of the oldest: those that say nothing,
/// or never read their answer, must not keep a probe or a scrape waiting.
const MAX_CALLERS: usize = 16;
/// Time callers have to take an answer when the server stops.
const PATIENCE: Duration = Duration::from_secs(3);
/// Pause after an accept error such as "too many open files".
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A port to listen on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Port {
    /// None.
    Off,
    /// The usual one, which nobody asked for by name: where it is taken, the process does without.
    Usual(u16),
    /// One that somebody asked for: where it is taken, the process does not start.
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

/// Opens a listener; `None` when the port is off, or the usual one and taken. Needs a runtime.
///
/// # Errors
/// [`PortError`].
pub async fn open(
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
            tracing::warn!(port = number, purpose, %error, "the usual port cannot be used and is done without; {option} names another");
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

/// Serves until `stop`, then answers what is under way.
pub async fn accept(listener: Option<TcpListener>, router: Router, stop: CancellationToken) {
    let Some(listener) = listener else { return };
    let mut callers = JoinSet::new();
    let mut complaints = Complaints::default();
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
                let served = serve(stream, router.clone(), stop.clone());
                oldest_first.push_back(callers.spawn(served));
            }
            Err(error) => {
                complaints.of_accept("the port of health or metrics", &error);
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    let answered = async { while callers.join_next().await.is_some() {} };
    // Who asked and does not read the answer is cut off with the set.
    let _cut_off = tokio::time::timeout(PATIENCE, answered).await.is_err();
}

/// One connection, until its end, or after `stop` until what is under way is answered.
pub async fn serve<S>(stream: S, router: Router, stop: CancellationToken)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_TIME)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended");
    }
}
