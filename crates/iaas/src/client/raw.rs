//! One request exactly as it is given, on a connection of its own: for whoever tests a provider and
//! must be able to send what the client never would. Adds nothing but `Host`; judges nothing.

use bytes::Bytes;
use http::header::HOST;
use http::{HeaderMap, HeaderValue, Request, StatusCode};
use http_body_util::Full;
use tokio::time::{Duration, Instant};

use super::connection::{broken, open, read};
use super::endpoint::Endpoint;
use super::{ClientError, MAX_BODY_LEN};
use crate::error::TransportError;

/// What came back.
#[derive(Debug, Clone)]
pub struct RawReply {
    /// Status.
    pub status: StatusCode,
    /// Headers.
    pub headers: HeaderMap,
    /// The body, or its first [`MAX_BODY_LEN`] bytes.
    pub body: Vec<u8>,
    /// Whether that was all of it.
    pub is_whole: bool,
    /// From the request on the open connection to the head of the answer.
    pub took: Duration,
}

/// Whether the endpoint's name and CA file can be used. Reads the file, blocking.
///
/// # Errors
/// [`ClientError`].
pub fn probe(endpoint: &Endpoint) -> Result<(), ClientError> {
    endpoint.probe()
}

/// Connects, sends, reads the answer. Waits as long as it takes; dropping it closes the connection.
///
/// # Errors
/// [`TransportError`] when there was no answer. A provider that closes the connection on a body it
/// does not want to read is one.
pub async fn send(
    endpoint: &Endpoint,
    mut request: Request<Bytes>,
) -> Result<RawReply, TransportError> {
    let host = HeaderValue::try_from(endpoint.authority());
    let host = host.map_err(|error| TransportError::Request {
        provider: endpoint.to_string(),
        reason: error.to_string(),
    })?;
    request.headers_mut().entry(HOST).or_insert(host);
    let mut opened = open(endpoint).await?;
    let began = Instant::now();
    let answered = opened.sender.send_request(request.map(Full::new)).await;
    let response = answered.map_err(|source| broken(endpoint, source))?;
    let took = began.elapsed();
    let (status, headers) = (response.status(), response.headers().clone());
    let mut body = Vec::new();
    let is_whole = read(response.into_body(), MAX_BODY_LEN, &mut body).await;
    Ok(RawReply {
        status,
        headers,
        body,
        is_whole: is_whole.map_err(|source| broken(endpoint, source))?,
        took,
    })
}
