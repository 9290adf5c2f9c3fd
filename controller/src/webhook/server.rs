//! HTTPS by rustls: accepts, shakes hands in a task of its own, serves HTTP/1.1 with keep-alive, as API
//! servers call.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, HttpBody};
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::routes::MAX_BODY;

use crate::complaints::Complaints;

/// For the TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// For a request's body to follow its head: API servers send both at once.
const BODY_TIME: Duration = Duration::from_secs(5);
/// Longest body that any connection may send while the others do too, bytes; with all of them that is
/// 64 MB.
const SHORT_BODY: usize = 256 << 10;
/// Longer ones at once.
const LONG_BODIES: usize = 4;
/// For the head of the next request: longer than API servers keep idle connections (90 s), so that it
/// is they who close them.
const IDLE: Duration = Duration::from_mins(2);
/// Connections at once. API servers use a few; one more takes the place of the oldest on which nothing
/// is being answered, and waits where there is none.
pub const MAX_CONNECTIONS: usize = 256;
/// Pause after an accept error such as "too many open files".
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long a server that is to stop is still called: endpoints of a Pod that goes are taken out of the
/// Service while the Pod is told.
const LINGER: Duration = Duration::from_secs(3);
/// For what is under way when the server stops.
const PATIENCE: Duration = Duration::from_secs(10);
/// For the first call on a connection that a server which stops has just accepted: its peer sends that
/// call at once, and does not repeat it on another connection.
const FIRST_CALL: Duration = Duration::from_secs(3);

/// Serves until a moment after `stop`; what is under way is answered. From `stop` on each answer is the
/// last of its connection: a kept one that is closed as the next call arrives would fail that call.
pub async fn serve(
    listener: TcpListener,
    config: Arc<ServerConfig>,
    router: Router,
    stop: CancellationToken,
) {
    let acceptor = TlsAcceptor::from(config);
    let router = router.layer(middleware::from_fn_with_state(stop.clone(), last_answer));
    let free = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let long = Arc::new(Semaphore::new(LONG_BODIES));
    let mut connections = JoinSet::new();
    let mut complaints = Complaints::default();
    let mut oldest_first = VecDeque::<Open>::new();
    let closed = CancellationToken::new();
    let mut over = pin!(async {
        stop.cancelled().await;
        sleep(LINGER).await;
    });
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_ended) = connections.join_next() => continue,
            () = over.as_mut() => break,
        };
        match accepted {
            Ok((stream, _)) => {
                let permit = tokio::select! {
                    permit = room(&free, &mut oldest_first) => permit,
                    () = over.as_mut() => break,
                };
                let calls = Arc::<Calls>::default();
                let router = noting(router.clone(), Arc::clone(&calls), Arc::clone(&long));
                let ends = (closed.clone(), Arc::clone(&calls));
                let served = connection(acceptor.clone(), stream, router, ends);
                let handle = connections.spawn(async move {
                    if let Err(error) = served.await {
                        tracing::debug!("a connection to the webhooks ended: {error}");
                    }
                    drop(permit);
                });
                oldest_first.push_back(Open { handle, calls });
            }
            Err(error) => {
                complaints.of_accept("the port of the webhooks", &error);
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    // Whoever connects now is refused at once, and tries another replica.
    drop(listener);
    closed.cancel();
    let answered = async { while connections.join_next().await.is_some() {} };
    // Who does not read the answer is cut off with the set.
    let _cut_off = timeout(PATIENCE, answered).await.is_err();
}

async fn last_answer(
    State(stop): State<CancellationToken>,
    request: Request,
    next: Next,
) -> Response {
    let response = next.run(request).await;
    if stop.is_cancelled() {
        return last(response);
    }
    response
}

/// A connection that may have to give way.
struct Open {
    handle: AbortHandle,
    calls: Arc<Calls>,
}

/// What became of the calls on a connection.
#[derive(Default)]
struct Calls {
    /// There was one.
    any: AtomicBool,
    /// One is being answered.
    busy: AtomicBool,
}

/// Room for one more. The permits of a connection that is aborted come back with its task.
async fn room(
    free: &Arc<Semaphore>,
    oldest_first: &mut VecDeque<Open>,
) -> Option<OwnedSemaphorePermit> {
    oldest_first.retain(|open| !open.handle.is_finished());
    if free.available_permits() == 0 {
        let mut open = oldest_first.iter();
        if let Some(idle) = open.find(|open| !open.calls.busy.load(Ordering::Relaxed)) {
            idle.handle.abort();
        }
    }
    // The semaphore is never closed.
    Arc::clone(free).acquire_owned().await.ok()
}

/// The same routes, which are asked once all of a request is there; `busy` while one of them is being
/// answered, not while a body is waited for. HTTP/1.1: one at a time.
fn noting(router: Router, calls: Arc<Calls>, long: Arc<Semaphore>) -> Router {
    router.layer(middleware::from_fn(move |request: Request, next: Next| {
        let (calls, long) = (Arc::clone(&calls), Arc::clone(&long));
        async move {
            calls.any.store(true, Ordering::Relaxed);
            let (request, permit) = match whole(request, &long).await {
                Ok(whole) => whole,
                Err(status) => return last(status.into_response()),
            };
            calls.busy.store(true, Ordering::Relaxed);
            let response = next.run(request).await;
            calls.busy.store(false, Ordering::Relaxed);
            drop(permit);
            response
        }
    }))
}

type Whole = (Request, Option<OwnedSemaphorePermit>);

/// The request with all of its body.
async fn whole(request: Request, long: &Arc<Semaphore>) -> Result<Whole, StatusCode> {
    let (parts, body) = request.into_parts();
    let length = body.size_hint().upper();
    let is_short = length.is_some_and(|length| length <= SHORT_BODY as u64);
    if length.is_some_and(|length| length > MAX_BODY as u64) {
        return Err(StatusCode::PAYLOAD_TOO_LARGE);
    }
    let permit = if is_short {
        None
    } else {
        let turn = timeout(BODY_TIME, Arc::clone(long).acquire_owned()).await;
        // The semaphore is never closed.
        turn.map_err(|_| StatusCode::REQUEST_TIMEOUT)?.ok()
    };
    match timeout(BODY_TIME, Limited::new(body, MAX_BODY).collect()).await {
        Ok(Ok(body)) => {
            let body = Body::from(body.to_bytes());
            Ok((Request::from_parts(parts, body), permit))
        }
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(StatusCode::PAYLOAD_TOO_LARGE),
        Ok(Err(_)) => Err(StatusCode::BAD_REQUEST),
        Err(_) => Err(StatusCode::REQUEST_TIMEOUT),
    }
}

/// The last answer of its connection.
fn last(mut response: Response) -> Response {
    let close = HeaderValue::from_static("close");
    response.headers_mut().insert(header::CONNECTION, close);
    response
}

type ConnectionError = Box<dyn std::error::Error + Send + Sync>;

async fn connection(
    acceptor: TlsAcceptor,
    stream: TcpStream,
    router: Router,
    (closed, calls): (CancellationToken, Arc<Calls>),
) -> Result<(), ConnectionError> {
    // A request is a head and a body in two packets; neither waits for the other's ACK.
    stream.set_nodelay(true)?;
    let stream = timeout(HANDSHAKE, acceptor.accept(stream)).await??;
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = pin!(connection);
    tokio::select! {
        result = connection.as_mut() => return Ok(result?),
        () = closed.cancelled() => {}
    }
    if !calls.any.load(Ordering::Relaxed)
        && let Ok(ended) = timeout(FIRST_CALL, connection.as_mut()).await
    {
        return Ok(ended?);
    }
    connection.as_mut().graceful_shutdown();
    Ok(connection.await?)
}
