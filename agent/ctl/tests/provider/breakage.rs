//! Providers that break the contract: the simulator behind something that changes calls or answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use provider_sim::service::Service;
use serde_json::{Value, json};

use crate::rig::{Rig, Wrap, rig, settings};

const LIMIT: usize = 64 << 20;

/// As it is.
pub(crate) fn whole(router: Router, _: Arc<Service>) -> Router {
    router
}

/// The body of a request and what makes one of it again.
async fn taken(request: Request) -> (Request, Bytes) {
    let (head, body) = request.into_parts();
    let body = to_bytes(body, LIMIT).await.unwrap_or_default();
    (Request::from_parts(head, Body::from(body.clone())), body)
}

/// Answers with JSON, changed.
async fn changed(response: Response, change: impl Fn(&mut Value)) -> Response {
    let (mut head, body) = response.into_parts();
    let body = to_bytes(body, LIMIT).await.unwrap();
    let Ok(mut value) = serde_json::from_slice::<Value>(&body) else {
        return Response::from_parts(head, Body::from(body));
    };
    change(&mut value);
    head.headers.remove("content-length");
    Response::from_parts(head, Body::from(value.to_string()))
}

fn each_item(answer: &mut Value, change: impl Fn(&mut Value)) {
    let items = answer
        .get_mut("subEniResponses")
        .and_then(Value::as_array_mut);
    items.into_iter().flatten().for_each(change);
}

/// A MAC of its own for each answer.
fn forgetful(router: Router, _: Arc<Service>) -> Router {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    router.layer(from_fn(async |request: Request, next: Next| {
        changed(next.run(request).await, |answer| {
            each_item(answer, |item| {
                let number = COUNT.fetch_add(1, Ordering::Relaxed);
                item["macAddress"] = json!(format!(
                    "fa:16:3e:ff:{:02x}:{:02x}",
                    number / 256 % 256,
                    number % 256
                ));
            });
        })
        .await
    }))
}

fn answering(router: Router, key: &'static str, value: Value) -> Router {
    router.layer(from_fn(move |request: Request, next: Next| {
        let value = value.clone();
        async move {
            let change = |item: &mut Value| item[key] = value.clone();
            changed(next.run(request).await, |answer| each_item(answer, change)).await
        }
    }))
}

fn one_vlan(router: Router, _: Arc<Service>) -> Router {
    answering(router, "vlanId", json!(100))
}

fn group_mac(router: Router, _: Arc<Service>) -> Router {
    answering(router, "macAddress", json!("01:00:5e:00:00:01"))
}

fn parent_mac(router: Router, _: Arc<Service>) -> Router {
    answering(router, "macAddress", json!("fa:16:3e:01:00:01"))
}

/// Reads the first JSON of a body and ignores the rest.
fn careless_reader(router: Router, _: Arc<Service>) -> Router {
    router.layer(from_fn(async |request: Request, next: Next| {
        let (request, body) = taken(request).await;
        let mut stream = serde_json::Deserializer::from_slice(&body).into_iter::<Value>();
        let first = stream.next();
        let Some(Ok(first)) = first else {
            return next.run(request).await;
        };
        let (mut head, _) = request.into_parts();
        head.headers.remove("content-length");
        let request = Request::from_parts(head, Body::from(first.to_string()));
        next.run(request).await
    }))
}

/// Whatever it refuses is its own fault.
fn guilty(router: Router, _: Arc<Service>) -> Router {
    router.layer(from_fn(async |request: Request, next: Next| {
        let malformed = request.method() == Method::POST;
        let mut response = next.run(request).await;
        if malformed && response.status() == StatusCode::BAD_REQUEST {
            *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        }
        response
    }))
}

/// Releases only what it knows.
fn strict_release(router: Router, service: Arc<Service>) -> Router {
    let layer = async |State(service): State<Arc<Service>>, request: Request, next: Next| {
        let is_release = request.uri().path().ends_with("/release-ip");
        let (request, body) = taken(request).await;
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let ip = body["ipAddress"]
            .as_str()
            .and_then(|text| text.parse().ok());
        let complete = body["nodeName"]
            .as_str()
            .is_some_and(|node| !node.is_empty());
        let known = ip.is_some_and(|ip| service.with(|world| world.memory.find(ip).is_some()));
        if is_release && complete && ip.is_some() && !known {
            let refusal = json!({ "code": "AddressNotFound", "message": "never heard of it" });
            return (StatusCode::NOT_FOUND, refusal.to_string()).into_response();
        }
        next.run(request).await
    };
    router.layer(from_fn_with_state(service, layer))
}

/// Does the items of a call one by one, and leaves what it has done.
fn half_way(router: Router, _: Arc<Service>) -> Router {
    let again = router.clone();
    let layer = async |State(again): State<Router>, request: Request, next: Next| {
        let (head, body) = request.into_parts();
        let body = to_bytes(body, LIMIT).await.unwrap_or_default();
        if let Ok(mut first) = serde_json::from_slice::<Value>(&body)
            && let Some(Value::Array(items)) = first.get_mut("subEniRequests")
            && items.len() > 1
        {
            items.truncate(1);
            let mut request = Request::from_parts(head.clone(), Body::from(first.to_string()));
            request.headers_mut().remove("content-length");
            tower::ServiceExt::oneshot(again, request).await.unwrap();
        }
        next.run(Request::from_parts(head, Body::from(body))).await
    };
    router.layer(from_fn_with_state(again, layer))
}

/// Two calls at a time do not see each other's work.
fn racing(router: Router, _: Arc<Service>) -> Router {
    static AT_WORK: AtomicUsize = AtomicUsize::new(0);
    router.layer(from_fn(async |request: Request, next: Next| {
        let others = AT_WORK.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(20)).await;
        let response = next.run(request).await;
        AT_WORK.fetch_sub(1, Ordering::SeqCst);
        changed(response, |answer| {
            each_item(answer, |item| {
                if others > 0 {
                    item["macAddress"] = json!(format!("fa:16:3e:ee:00:{others:02x}"));
                }
            });
        })
        .await
    }))
}

/// Serves anything anywhere.
fn obliging(router: Router, _: Arc<Service>) -> Router {
    router.layer(from_fn(async |request: Request, next: Next| {
        let response = next.run(request).await;
        match response.status() {
            StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_FOUND
                if response.headers().get("content-type").is_none() =>
            {
                StatusCode::OK.into_response()
            }
            _ => response,
        }
    }))
}

fn is_hopeless(request: &Request) -> bool {
    let budget = request.headers().get("X-Request-Timeout-Ms");
    budget.is_some_and(|budget| budget == "1")
}

/// Thinks about it first.
fn slow_to_refuse(router: Router, _: Arc<Service>) -> Router {
    router.layer(from_fn(async |request: Request, next: Next| {
        if is_hopeless(&request) {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        next.run(request).await
    }))
}

/// Takes a token before it looks at the budget.
fn wasteful(router: Router, service: Arc<Service>) -> Router {
    let layer = async |State(service): State<Arc<Service>>, request: Request, next: Next| {
        if is_hopeless(&request) {
            let now = service.now();
            service.with(|world| world.bucket.take(now, Duration::MAX));
        }
        next.run(request).await
    };
    router.layer(from_fn_with_state(service, layer))
}

/// Ignores the IPv6 address of what it has already.
fn v4_minded(router: Router, service: Arc<Service>) -> Router {
    let layer = async |State(service): State<Arc<Service>>, request: Request, next: Next| {
        let (head, body) = request.into_parts();
        let body = to_bytes(body, LIMIT).await.unwrap_or_default();
        let mut text = body.to_vec();
        if let Ok(mut call) = serde_json::from_slice::<Value>(&body) {
            let items = call.get_mut("subEniRequests").and_then(Value::as_array_mut);
            for item in items.into_iter().flatten() {
                let of = |key: &str| item[key].as_str()?.parse::<std::net::IpAddr>().ok();
                let (v4, v6) = (of("ipv4Address"), of("ipv6Address"));
                let known = v4.and_then(|ip| service.with(|world| world.memory.find(ip)?.ipv6));
                if let (Some(known), Some(asked)) = (known, v6)
                    && asked != known
                {
                    item["ipv6Address"] = json!(known);
                    text = Vec::new();
                }
            }
            if text.is_empty() {
                text = call.to_string().into_bytes();
            }
        }
        let mut request = Request::from_parts(head, Body::from(text));
        request.headers_mut().remove("content-length");
        let response = next.run(request).await;
        changed(response, |answer| {
            each_item(answer, |item| {
                drop(item.as_object_mut().map(|item| item.remove("ipv6Address")))
            });
        })
        .await
    };
    router.layer(from_fn_with_state(service, layer))
}

/// Takes a released IPv6 address from its sub-ENI, and leaves the rest.
fn half_a_pair(router: Router, _: Arc<Service>) -> Router {
    router.layer(from_fn(async |request: Request, next: Next| {
        if request.uri().path().contains("/ips-cache/fd72") {
            return StatusCode::NOT_FOUND.into_response();
        }
        let (request, body) = taken(request).await;
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let ip = body.get("ipAddress").and_then(Value::as_str);
        if ip.is_some_and(|ip| ip.starts_with("fd72")) {
            return StatusCode::ACCEPTED.into_response();
        }
        next.run(request).await
    }))
}

/// Refuses in plain words.
fn plain_spoken(router: Router, _: Arc<Service>) -> Router {
    router.layer(from_fn(async |request: Request, next: Next| {
        let response = next.run(request).await;
        match response.status() {
            status if status.is_client_error() && status != StatusCode::TOO_MANY_REQUESTS => {
                (status, "no").into_response()
            }
            _ => response,
        }
    }))
}

/// What answers every malformed call with 500.
const REFUSALS: &[&str] = &[
    "header.missing",
    "header.negative",
    "header.text",
    "header.zero",
    "malformed.empty",
    "malformed.json",
    "malformed.nesting",
    "malformed.release",
    "malformed.trailing",
    "malformed.types",
    "malformed.values",
    "malformed.versions",
    "pair.mismatch",
    "refuse.no-address",
    "refuse.no-items",
    "refuse.node",
    "refuse.parent",
    "refuse.subnet",
    "release.no-node",
];

/// What cannot be without a MAC that stays.
const MACS: &[&str] = &[
    "allocate.hang-up",
    "allocate.move",
    "allocate.repeat",
    "concurrent.nodes",
    "concurrent.same",
    "pair.create",
    "pair.spelling",
    "release.again",
];

#[rustfmt::skip] // a case a line
const BREAKAGES: [(&str, Wrap, &[&str]); 13] = [
    ("another MAC each time", forgetful, MACS),
    ("one VLAN id for all", one_vlan, &["allocate.distinct", "allocate.two-items", "concurrent.distinct"]),
    ("a group's MAC", group_mac, &["answer.mac"]),
    ("the parent's MAC", parent_mac, &["answer.parent-mac"]),
    ("the end of a body is not read", careless_reader, &["malformed.trailing"]),
    ("500 for what is malformed", guilty, REFUSALS),
    ("unknown addresses are not released", strict_release, &["release.unknown-address", "release.unknown-pool"]),
    ("done by halves", half_way, &["allocate.all-or-nothing"]),
    ("no lock", racing, &["concurrent.nodes", "concurrent.same"]),
    ("any path, any method", obliging, &["http.method", "http.path"]),
    ("slow refusals", slow_to_refuse, &["budget.refused"]),
    ("IPv6 does not count", v4_minded, &["pair.mismatch"]),
    ("refusals without a body", plain_spoken, &[]),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_breakage_fails_its_own_checks() {
    for (what, wrap, failed) in BREAKAGES {
        let rig = rig(settings(), wrap).await;
        rig.service.prewarm().await;
        let report = rig.verify(&[]).await;
        report.fails_exactly(failed, what);
        let advice = report.having("advice").contains("answer.error-body");
        assert_eq!(advice, what == "refusals without a body", "{what}");
        rig.is_clean().await;
    }
}

async fn only(rig: &Rig, checks: &str, failed: &[&str], what: &str) {
    let report = rig.verify(&["--only", checks]).await;
    report.fails_exactly(failed, what);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn budgets_are_looked_at_first_or_it_is_told() {
    let mut slow = settings();
    slow.rate.burst = 20.0;
    slow.rate.qps = 20.0;
    let careful = rig(slow.clone(), whole).await;
    only(&careful, "budget", &[], "no token is taken").await;
    let careless = rig(slow, wasteful).await;
    only(&careless, "budget", &["budget.token"], "a token is taken").await;
    let mut blind = settings();
    blind.budget_check = false;
    let blind = rig(blind, whole).await;
    let report = blind.verify(&[]).await;
    report.fails_exactly(&["budget.refused"], "budgets are not looked at");
    assert!(report.why("budget.token").contains("budget.refused"));
    let mut easy = settings();
    easy.require_timeout_header = false;
    let easy = rig(easy, whole).await;
    let report = easy.verify(&["--only", "header"]).await;
    report.fails_exactly(&[], "no header is wanted");
    assert_eq!(report.having("advice"), ["header.missing"].into());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_a_pair_that_is_left_is_seen() {
    let rig = rig(settings(), half_a_pair).await;
    let checks = "allocate.create,release.pair";
    only(&rig, checks, &["release.pair"], "IPv4 stays").await;
}

/// One failure is told once, not by everything that needs an allocation.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_that_serves_nothing_fails_once() {
    let rig = rig(settings(), whole).await;
    rig.faults(json!([{ "op": "allocate", "kind": "status", "status": 500, "body": "broken" }]));
    let report = rig
        .verify(&["--only", "allocate,pair,concurrent,answer"])
        .await;
    report.fails_exactly(&["allocate.create"], "all allocates answer 500");
    assert!(
        report.why("allocate.create").contains("500 broken"),
        "{}",
        report.why("allocate.create")
    );
}
