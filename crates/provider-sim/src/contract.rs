//! The provider contract, version 2, over HTTP (iaas-provider.openapi.yaml).
//!
//! Decodes, refuses what its caller cannot wait for before anything is spent (P5, P6), and plays
//! the faults of a call. The work is done in [`crate::allocate`] and [`crate::release`].

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::CONTENT_LENGTH;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use futures::stream;
use serde_json::{Value, json};
use spiderpool_api::provider::{
    ALLOCATE_PATH, AllocateRequest, RELEASE_PATH, ReleaseRequest, TIMEOUT_HEADER,
};
use tokio::time::sleep;

use crate::answer;
use crate::faults::{Fault, Kind, Subject};
use crate::refusal::Refusal;
use crate::service::{Service, World};

/// The two calls.
pub fn router(service: Arc<Service>) -> Router {
    Router::new()
        .route(ALLOCATE_PATH, post(allocate))
        .route(RELEASE_PATH, post(release))
        .with_state(service)
}

async fn allocate(
    State(service): State<Arc<Service>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let record = service
        .records
        .begin(service.now(), ALLOCATE_PATH, &headers, &body);
    let answered = allocate_now(&service, &headers, &body).await;
    let response = answered.unwrap_or_else(IntoResponse::into_response);
    service.records.end(record, response.status().as_u16());
    response
}

async fn release(State(service): State<Arc<Service>>, headers: HeaderMap, body: Bytes) -> Response {
    let record = service
        .records
        .begin(service.now(), RELEASE_PATH, &headers, &body);
    let answered = release_now(&service, &headers, &body).await;
    let response = answered.unwrap_or_else(IntoResponse::into_response);
    service.records.end(record, response.status().as_u16());
    response
}

async fn allocate_now(
    service: &Arc<Service>,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<Response, Refusal> {
    let budget = budget(service, headers)?;
    let request = decode(body)?;
    let fault = service.with(|world| world.faults.take("allocate", &subject_of(&request)));
    if let Some(response) = before_work(fault.as_ref()).await {
        return Ok(response);
    }
    let (queue, cloud) = service.with(|world| {
        (
            world.settings.queue_timeout(),
            world.settings.transaction_timeout(),
        )
    });
    service.refuse_short(budget, queue + cloud)?;
    if !service.is_ready() {
        return Err(Refusal::new(
            503,
            "NotReady",
            "rebuilding state from the cloud",
        ));
    }
    service.with(|world| world.check(&request))?;
    service.queue().await?;
    // Of its own: whoever hangs up does not stop it half way.
    let work = tokio::spawn(Arc::clone(service).bind_all(request.clone()));
    let bound = work.await;
    let bound = bound.map_err(|error| Refusal::new(500, "Internal", error.to_string()))??;
    let answer = answer::of(&request, &bound);
    Ok(after_work(fault, answer).await)
}

async fn release_now(
    service: &Arc<Service>,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<Response, Refusal> {
    let budget = budget(service, headers)?;
    let request: ReleaseRequest =
        serde_json::from_slice(body).map_err(|error| Refusal::invalid(error.to_string()))?;
    if request.node_name.is_empty() {
        return Err(Refusal::invalid("nodeName must not be empty"));
    }
    let ips = BTreeSet::from([request.ip_address]);
    let subject = World::subject(&ips, [request.pool_name.clone()], &request.node_name);
    let fault = service.with(|world| world.faults.take("release", &subject));
    if let Some(response) = before_work(fault.as_ref()).await {
        return Ok(response);
    }
    let needed = service.with(|world| {
        let settings = &world.settings;
        let cloud = if settings.sync_release {
            settings.transaction_timeout()
        } else {
            Duration::ZERO
        };
        settings.queue_timeout() + cloud
    });
    service.refuse_short(budget, needed)?;
    if !service.is_ready() {
        return Err(Refusal::new(
            503,
            "NotReady",
            "rebuilding state from the cloud",
        ));
    }
    service.queue().await?;
    let work = tokio::spawn(Arc::clone(service).release(request));
    let status = work.await;
    let status = status.map_err(|error| Refusal::new(500, "Internal", error.to_string()))??;
    late(fault.as_ref()).await;
    if fault.is_some_and(|fault| fault.kind == Kind::Reset) {
        return Ok(cut_off("{}"));
    }
    Ok(StatusCode::from_u16(status)
        .unwrap_or(StatusCode::NO_CONTENT)
        .into_response())
}

/// A version 2 body; one of version 1 is told apart by its field.
fn decode(body: &[u8]) -> Result<AllocateRequest, Refusal> {
    let invalid = |error: serde_json::Error| Refusal::invalid(error.to_string());
    let value: Value = serde_json::from_slice(body).map_err(invalid)?;
    match (
        value.get("subEniRequests"),
        value.get("iaasIPsAllocationRequest"),
    ) {
        (Some(_), None) => serde_json::from_value(value).map_err(invalid),
        (None, Some(_)) => Err(Refusal::invalid(
            "bodies of contract version 1 are not served",
        )),
        _ => Err(Refusal::invalid(
            "exactly one of subEniRequests and iaasIPsAllocationRequest is required",
        )),
    }
}

fn subject_of(request: &AllocateRequest) -> Subject {
    let items = &request.sub_eni_requests;
    let ips: BTreeSet<IpAddr> = items
        .iter()
        .flat_map(|item| {
            let v4 = item.ipv4_address.map(IpAddr::V4).into_iter();
            v4.chain(item.ipv6_address.map(IpAddr::V6))
        })
        .collect();
    let pools = items
        .iter()
        .flat_map(|item| [&item.ipv4_pool_name, &item.ipv6_pool_name]);
    World::subject(&ips, pools.flatten().cloned(), &request.node_name)
}

/// How long the caller waits; `None` when it need not say.
fn budget(service: &Service, headers: &HeaderMap) -> Result<Option<Duration>, Refusal> {
    let Some(value) = headers.get(TIMEOUT_HEADER) else {
        let required = service.with(|world| world.settings.require_timeout_header);
        if required {
            return Err(Refusal::invalid(format!(
                "header {TIMEOUT_HEADER} is required"
            )));
        }
        return Ok(None);
    };
    let number = value
        .to_str()
        .ok()
        .and_then(|text| text.parse::<u64>().ok());
    match number {
        Some(number) if number > 0 => Ok(Some(Duration::from_millis(number))),
        _ => Err(Refusal::invalid(format!(
            "header {TIMEOUT_HEADER} must be a number of milliseconds, at least 1"
        ))),
    }
}

impl Service {
    /// P5: what cannot be done in time is not begun, and costs no token.
    fn refuse_short(&self, budget: Option<Duration>, needed: Duration) -> Result<(), Refusal> {
        let checked = self.with(|world| world.settings.budget_check);
        match budget {
            Some(budget) if checked && budget < needed => {
                let (left, needed) = (budget.as_millis(), needed.as_millis());
                let message = format!("{left} ms left, {needed} ms needed");
                let details = json!({ "reason": "budget",
                    "requiredMs": u64::try_from(needed).unwrap_or(u64::MAX),
                    "receivedMs": u64::try_from(left).unwrap_or(u64::MAX) });
                Err(Refusal::new(429, "RateLimitTimeout", message).with(details))
            }
            _ => Ok(()),
        }
    }

    /// Waits for a token. A caller that goes away meanwhile leaves it to the next one.
    async fn queue(&self) -> Result<(), Refusal> {
        let now = self.now();
        let patience = self.with(|world| world.settings.queue_timeout());
        let Some(wait) = self.with(|world| world.bucket.take(now, patience)) else {
            let message = format!("no free slot within {} ms", patience.as_millis());
            let details = json!({ "reason": "queue" });
            return Err(Refusal::new(429, "RateLimitTimeout", message).with(details));
        };
        let mut ticket = Ticket(Some(self));
        sleep(wait).await;
        ticket.0 = None;
        Ok(())
    }
}

/// A token that is given back unless it was used.
struct Ticket<'a>(Option<&'a Service>);

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        if let Some(service) = self.0 {
            service.with(|world| world.bucket.give_back());
        }
    }
}

/// Faults that come instead of the work, or before it.
async fn before_work(fault: Option<&Fault>) -> Option<Response> {
    let fault = fault?;
    match fault.kind {
        Kind::Delay => {
            sleep(Duration::from_millis(fault.delay_ms)).await;
            None
        }
        Kind::Hang => std::future::pending().await,
        Kind::Status => {
            let status = fault
                .status
                .and_then(|code| StatusCode::from_u16(code).ok());
            let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            let body = fault.body.clone().unwrap_or_else(|| {
                json!({ "code": "Internal", "message": "a fault on demand" }).to_string()
            });
            Some((status, body).into_response())
        }
        _ => None,
    }
}

/// Faults of the answer.
async fn after_work(fault: Option<Fault>, answer: Value) -> Response {
    late(fault.as_ref()).await;
    match fault {
        Some(Fault {
            kind: Kind::BadJson,
            body,
            ..
        }) => body
            .unwrap_or_else(|| "{\"subEniResponses\":[".to_owned())
            .into_response(),
        Some(Fault {
            kind: Kind::Reset, ..
        }) => cut_off(&answer.to_string()),
        Some(fault) => axum::Json(answer::spoil(answer, fault.kind)).into_response(),
        None => axum::Json(answer).into_response(),
    }
}

/// A good answer of which the first half comes; then the connection ends.
fn cut_off(text: &str) -> Response {
    let half = text.get(..text.len() / 2).unwrap_or_default().to_owned();
    let end = io::Error::from(io::ErrorKind::ConnectionReset);
    let pieces = stream::iter([Ok(Bytes::from(half)), Err(end)]);
    let length = [(CONTENT_LENGTH, text.len().to_string())];
    (length, Body::from_stream(pieces)).into_response()
}

async fn late(fault: Option<&Fault>) {
    match fault {
        Some(fault) if fault.kind == Kind::LateSuccess && fault.delay_ms == 0 => {
            std::future::pending().await
        }
        Some(fault) if fault.kind == Kind::LateSuccess => {
            sleep(Duration::from_millis(fault.delay_ms)).await;
        }
        _ => {}
    }
}
