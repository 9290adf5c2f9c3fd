//! One request and its answer on a connection of its own. Dropping the future closes it.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use spiderpool_api::provider::TIMEOUT_HEADER;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::endpoint::Endpoint;
use super::{MAX_BODY_LEN, MAX_ERROR_LEN, tls};
use crate::budget::Budget;
use crate::error::TransportError;

/// Longest wait for the text of an error.
const ERROR_PATIENCE: Duration = Duration::from_secs(1);

/// What came back.
pub(super) struct Reply {
    pub(super) status: StatusCode,
    pub(super) body: Body,
}

/// How much of the body was read.
pub(super) enum Body {
    /// All of it.
    Whole(Vec<u8>),
    /// More would have followed.
    Cut(Vec<u8>),
}

/// A connection for one request. Dropping it closes it.
pub(super) struct Opened {
    pub(super) sender: SendRequest<Full<Bytes>>,
    /// Ends with this: a set aborts its tasks when it is dropped.
    _driver: JoinSet<hyper::Result<()>>,
}

/// Connects, with TLS where the URL says so.
pub(super) async fn open(endpoint: &Endpoint) -> Result<Opened, TransportError> {
    let stream = TcpStream::connect(endpoint.address()).await;
    let stream = stream.map_err(|source| TransportError::Connect {
        provider: endpoint.to_string(),
        source,
    })?;
    // One small write each way: waiting to fill a segment would only add latency. Best effort.
    let _unset = stream.set_nodelay(true).is_err();
    if endpoint.is_tls() {
        greet(endpoint, tls::connect(endpoint, stream).await?).await
    } else {
        greet(endpoint, stream).await
    }
}

async fn greet<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    endpoint: &Endpoint,
    stream: S,
) -> Result<Opened, TransportError> {
    let greeted = http1::handshake(TokioIo::new(stream)).await;
    let (sender, connection) = greeted.map_err(|source| broken(endpoint, source))?;
    let mut driver = JoinSet::new();
    driver.spawn(connection);
    Ok(Opened {
        sender,
        _driver: driver,
    })
}

pub(super) fn broken(endpoint: &Endpoint, source: hyper::Error) -> TransportError {
    TransportError::Http {
        provider: endpoint.to_string(),
        source,
    }
}

/// Connects, sends, reads. `sent` tells whether the request had left when this is dropped.
pub(super) async fn exchange(
    endpoint: &Endpoint,
    path: &'static str,
    body: Vec<u8>,
    budget: Budget,
    sent: &mut bool,
) -> Result<Reply, TransportError> {
    let mut opened = open(endpoint).await?;
    let broken = |source| broken(endpoint, source);
    let Some(left) = budget.header(Instant::now()) else {
        // Nothing may be sent any more; the caller's timer is about to say so.
        return std::future::pending().await;
    };
    let request = Request::builder()
        .method(Method::POST)
        .uri(path)
        .header(HOST, endpoint.authority())
        .header(CONTENT_TYPE, "application/json")
        .header(TIMEOUT_HEADER, left)
        .body(Full::new(Bytes::from(body)))
        .map_err(|error| TransportError::Request {
            provider: endpoint.to_string(),
            reason: error.to_string(),
        })?;
    *sent = true;
    let response = opened.sender.send_request(request).await.map_err(broken)?;
    let status = response.status();
    let body = if status.is_success() {
        let mut bytes = Vec::new();
        let whole = read(response.into_body(), MAX_BODY_LEN, &mut bytes).await;
        match whole.map_err(broken)? {
            true => Body::Whole(bytes),
            false => Body::Cut(bytes),
        }
    } else {
        let left = budget.at.saturating_duration_since(Instant::now());
        read_error(response.into_body(), ERROR_PATIENCE.min(left / 2)).await
    };
    Ok(Reply { status, body })
}

/// As much of an error's text as comes soon: the status alone says enough, and would be lost with
/// the call's time.
async fn read_error(body: Incoming, patience: Duration) -> Body {
    let mut bytes = Vec::new();
    // what does not fit into the text need not be read
    let reading = read(body, MAX_ERROR_LEN, &mut bytes);
    let whole = matches!(timeout(patience, reading).await, Ok(Ok(true)));
    match whole {
        true => Body::Whole(bytes),
        false => Body::Cut(bytes),
    }
}

/// Reads until the end (`true`) or the limit.
pub(super) async fn read(
    mut body: Incoming,
    limit: usize,
    bytes: &mut Vec<u8>,
) -> Result<bool, hyper::Error> {
    while let Some(frame) = body.frame().await {
        let Ok(chunk) = frame?.into_data() else {
            continue;
        };
        bytes.extend_from_slice(&chunk);
        if bytes.len() > limit {
            bytes.truncate(limit);
            return Ok(false);
        }
    }
    Ok(true)
}
