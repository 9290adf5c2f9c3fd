//! Connections on the agent socket: HTTP/1.1, each in a task of its own. Owns how long a caller
//! may take to say what it wants, the end at shutdown, and the socket's return when somebody
//! removed its file.

use std::pin::pin;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::socket::Socket;

/// For a request's head, and for its body: callers are on this host and send at once. A caller
/// that was stopped in the middle must not keep the agent from stopping.
pub(super) const REQUEST_TIME: Duration = Duration::from_secs(10);
/// Between two looks whether the socket's file is still there.
const LOOK: Duration = Duration::from_secs(2);
/// Pause after an accept error such as "too many open files".
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until `stop`, then answers what is under way and takes the socket away.
pub(super) async fn run(mut socket: Socket, router: Router, stop: CancellationToken) {
    let connections = TaskTracker::new();
    let mut look = interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let accepted = tokio::select! {
            accepted = socket.accept() => accepted,
            _ = look.tick() => {
                socket = socket.restored();
                continue;
            }
            () = stop.cancelled() => break,
        };
        match accepted {
            Ok(stream) => {
                connections.spawn(serve(stream, router.clone(), stop.clone()));
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection on the agent socket");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    // Callers from here on are refused, and come again to the next agent.
    let claim = socket.close();
    connections.close();
    connections.wait().await;
    claim.release();
}

/// One connection, until its end, or after `stop` until what is under way is answered.
pub(crate) async fn serve<S>(stream: S, router: Router, stop: CancellationToken)
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
