//! The TCP side: accepts, shakes hands over TLS in a task of its own, checks the token, serves
//! HTTP/1.1. A client that connects and says nothing costs one task for ten seconds.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, header};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::routes;
use crate::status::ApiError;

/// For the TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// For the head of the next request: longer than clients keep idle connections in their pools, so
/// that it is they who close them.
const IDLE: Duration = Duration::from_mins(2);
/// Pause after an accept error such as "too many open files".
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Lets only requests with the token through; probes need none.
pub(crate) fn authenticated(router: Router, token: &str) -> Router {
    let token: Arc<str> = token.into();
    router.layer(middleware::from_fn(move |request: Request, next: Next| {
        let token = Arc::clone(&token);
        async move { check(&token, request, next).await }
    }))
}

async fn check(token: &str, request: Request, next: Next) -> Response {
    if routes::is_probe(request.uri().path()) || bearer_matches(request.headers(), token) {
        return next.run(request).await;
    }
    ApiError::unauthorized().into_response()
}

fn bearer_matches(headers: &HeaderMap, token: &str) -> bool {
    let header = headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok());
    let given = header.and_then(|value| {
        let (scheme, given) = value.split_once(' ')?;
        scheme
            .eq_ignore_ascii_case("bearer")
            .then_some(given.trim())
    });
    given.is_some_and(|given| equal_in_constant_time(given.as_bytes(), token.as_bytes()))
}

/// Takes as long for a token that is wrong at the end as for one that is wrong at the start.
fn equal_in_constant_time(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len()
        && a.iter()
            .zip(b)
            .fold(0, |different, (a, b)| different | (a ^ b))
            == 0
}

/// Accepts until stopped. `tasks` holds the connections, which then finish the request they are at.
pub(crate) async fn run(
    socket: TcpListener,
    config: Arc<ServerConfig>,
    router: Router,
    stop: CancellationToken,
    tasks: TaskTracker,
) {
    let acceptor = TlsAcceptor::from(config);
    loop {
        let accepted = tokio::select! {
            accepted = socket.accept() => accepted,
            () = stop.cancelled() => return,
        };
        match accepted {
            Ok((stream, peer)) => {
                let connection = serve(acceptor.clone(), stream, router.clone(), stop.clone());
                tasks.spawn(async move {
                    if let Err(error) = connection.await {
                        tracing::debug!(%peer, error, "connection ended");
                    }
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection to the embedded API");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

type ConnectionError = Box<dyn std::error::Error + Send + Sync>;

async fn serve(
    acceptor: TlsAcceptor,
    stream: TcpStream,
    router: Router,
    stop: CancellationToken,
) -> Result<(), ConnectionError> {
    // watch events are small and somebody waits for them
    stream.set_nodelay(true)?;
    let handshake = timeout(HANDSHAKE, acceptor.accept(stream));
    let stream = tokio::select! {
        stream = handshake => stream??,
        () = stop.cancelled() => return Ok(()),
    };
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = pin!(connection);
    tokio::select! {
        result = connection.as_mut() => return Ok(result?),
        () = stop.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    Ok(connection.await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_token_opens() {
        let cases = [
            ("Bearer secret", true),
            ("bearer secret", true),
            ("Bearer secre", false),
            ("Bearer secrets", false),
            ("Bearer", false),
            ("Basic secret", false),
            ("secret", false),
        ];
        for (value, expected) in cases {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, value.parse().unwrap());
            assert_eq!(bearer_matches(&headers, "secret"), expected, "{value}");
        }
        assert!(!bearer_matches(&HeaderMap::new(), "secret"));
    }
}
