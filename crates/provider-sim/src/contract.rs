//! The provider contract over HTTP, both versions (iaas-provider.openapi.yaml).
//!
//! Refuses what its caller cannot wait for before anything is spent (P5, P6). Bodies are read in
//! [`crate::asked`], faults of a call are played in [`stage`], the work is done in
//! [`crate::allocate`] and [`crate::release`].

mod stage;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde_json::json;
use spiderpool_api::provider::{ALLOCATE_PATH, RELEASE_PATH, ReleaseRequest, TIMEOUT_HEADER};
use tokio::time::sleep;

use crate::answer;
use crate::asked::{self, Asked};
use crate::faults::Op;
use crate::refusal::Refusal;
use crate::service::{Service, World};

/// A body that takes longer is not waited for, whatever the caller's budget.
const BODY: Duration = Duration::from_secs(10);

/// The two calls.
pub fn router(service: Arc<Service>) -> Router {
    Router::new()
        .route(ALLOCATE_PATH, post(allocate))
        .route(RELEASE_PATH, post(release))
        .with_state(service)
}

async fn allocate(State(service): State<Arc<Service>>, request: Request) -> Response {
    let call = match Call::read(&service, ALLOCATE_PATH, request).await {
        Ok(call) => call,
        Err(response) => return response,
    };
    let answered = allocate_now(&service, &call).await;
    call.end(&service, answered)
}

async fn release(State(service): State<Arc<Service>>, request: Request) -> Response {
    let call = match Call::read(&service, RELEASE_PATH, request).await {
        Ok(call) => call,
        Err(response) => return response,
    };
    let answered = release_now(&service, &call).await;
    call.end(&service, answered)
}

/// A call that came in whole, and its place in the records.
struct Call {
    headers: HeaderMap,
    body: axum::body::Bytes,
    record: usize,
}

impl Call {
    /// Waits for the body. A call whose body does not come is recorded without it.
    async fn read(service: &Service, path: &str, request: Request) -> Result<Self, Response> {
        let (parts, body) = request.into_parts();
        let headers = parts.headers;
        let read = asked::body(body, BODY).await;
        let bytes = read.as_ref().map_or(&[][..], |bytes| bytes.as_ref());
        let record = service.records.begin(service.now(), path, &headers, bytes);
        match read {
            Ok(body) => Ok(Self {
                headers,
                body,
                record,
            }),
            Err(refusal) => {
                service.records.end(record, refusal.status);
                Err(refusal.into_response())
            }
        }
    }

    fn end(&self, service: &Service, answered: Result<Response, Refusal>) -> Response {
        let response = answered.unwrap_or_else(IntoResponse::into_response);
        service.records.end(self.record, response.status().as_u16());
        response
    }
}

async fn allocate_now(service: &Arc<Service>, call: &Call) -> Result<Response, Refusal> {
    let budget = budget(service, &call.headers)?;
    let accept_v1 = service.with(|world| world.settings.accept_v1);
    let asked = Asked::decode(&call.body, accept_v1)?;
    let fault = service.with(|world| world.faults.take(Op::Allocate, &asked.subject()));
    if let Some(response) = stage::before_work(fault.as_ref()).await {
        return Ok(response);
    }
    service.refuse_short(
        budget,
        service.with(|world| world.settings.longest_allocate()),
    )?;
    service.look(|world| world.check(&asked))??;
    service.queue().await?;
    // Of its own: whoever hangs up does not stop it half way, only before it begins.
    let caller = Arc::new(());
    let waits = Arc::downgrade(&caller);
    let waits = move || waits.strong_count() > 0;
    let work = tokio::spawn(Arc::clone(service).bind_while(asked.clone(), waits));
    let bound = work.await;
    drop(caller);
    let bound = bound.map_err(|error| Refusal::new(500, "Internal", error.to_string()))??;
    Ok(stage::allocated(fault, answer::to(&asked, &bound)).await)
}

async fn release_now(service: &Arc<Service>, call: &Call) -> Result<Response, Refusal> {
    let budget = budget(service, &call.headers)?;
    let request: ReleaseRequest =
        serde_json::from_slice(&call.body).map_err(|error| Refusal::invalid(error.to_string()))?;
    if request.node_name.is_empty() {
        return Err(Refusal::invalid("nodeName must not be empty"));
    }
    let ips = BTreeSet::from([request.ip_address]);
    let subject = World::subject(&ips, [request.pool_name.clone()], &request.node_name);
    let fault = service.with(|world| world.faults.take(Op::Release, &subject));
    if let Some(response) = stage::before_work(fault.as_ref()).await {
        return Ok(response);
    }
    service.refuse_short(
        budget,
        service.with(|world| world.settings.longest_release()),
    )?;
    service.look(|_| ())?;
    service.queue().await?;
    let work = tokio::spawn(Arc::clone(service).release(request));
    let status = work.await;
    let status = status.map_err(|error| Refusal::new(500, "Internal", error.to_string()))??;
    Ok(stage::released(fault, status).await)
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
