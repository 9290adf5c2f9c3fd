//! The operator's side of the provider (spec iaas 15.4), beside the fabric's in [`crate::admin`].
//! Shows and changes the simulation; no authentication, so for loopback only.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use spiderpool_api::value::Mac;
use tokio::time::Instant;

use crate::bucket::{Bucket, Rate};
use crate::cloud::{Saved, SubEni};
use crate::fabric::counters::Counters;
use crate::fabric::run::View;
use crate::faults::{Fault, Faults};
use crate::reclaim::Reclaimed;
use crate::records::Record;
use crate::refusal::Refusal;
use crate::service::Service;
use crate::settings::{Latency, MAX_MS, Settings, SettingsError};
use crate::topology::Topology;

type Shared = State<Arc<Service>>;

/// What the provider knows of one address, for anybody who may call it.
pub fn diagnostics(service: Arc<Service>) -> Router {
    Router::new()
        .route(
            "/v1/apis/network.iaas.io/status/ips-cache/{ip}",
            get(show_address),
        )
        .with_state(service)
}

/// What there is to see of a fabric that moves no frames.
pub fn without_fabric(service: Arc<Service>) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/admin/fabric", get(show_bindings))
        .route(
            "/admin/drops",
            get(|| async { Json(Counters::default().snapshot()) }),
        )
        .route("/admin/packets", get(|| async { Json(json!([])) }))
        .route("/admin/hold", post(no_fabric))
        .route("/admin/unhold", post(no_fabric))
        .route("/admin/bindings", put(no_fabric))
        .with_state(service)
}

/// In the form of the fabric's own errors.
async fn no_fabric() -> (StatusCode, Json<Value>) {
    let text = "there is no fabric that moves frames: start it with --fabric";
    (StatusCode::CONFLICT, Json(json!({ "error": text })))
}

async fn show_bindings(State(service): Shared) -> Json<View> {
    Json(service.with(|world| View {
        topology: Topology {
            bindings: world.forwarded(),
            ..world.topology.clone()
        },
        held: BTreeSet::new(),
    }))
}

/// The operator's routes but those of the fabric.
pub fn router(service: Arc<Service>) -> Router {
    let routes = Router::new()
        .route("/records", get(show_records))
        .route("/reset", post(reset))
        .route("/admin/sub-enis", get(show_sub_enis))
        .route("/admin/cloud-calls", get(show_cloud_calls))
        .route("/admin/settings", get(show_settings))
        .route("/admin/faults", get(show_faults).post(replace_faults))
        .route("/admin/rate-limit", post(replace_rate))
        .route("/admin/latency", post(replace_latency))
        .route("/admin/watermarks", post(change_watermarks))
        .route("/admin/reclaim", post(reclaim))
        .route("/admin/topology", put(replace_topology))
        .route("/admin/flush", post(flush))
        .route("/admin/prewarm", post(prewarm))
        .route("/admin/crash", post(crash))
        .route("/admin/wipe-cloud", post(wipe_cloud))
        .route("/admin/audit", get(audit))
        .with_state(Arc::clone(&service));
    routes.merge(diagnostics(service))
}

async fn show_address(
    State(service): Shared,
    Path(text): Path<String>,
) -> Result<Json<Value>, Refusal> {
    let ip: IpAddr = text
        .parse()
        .map_err(|_| Refusal::invalid(format!("{text:?} is no IP address")))?;
    let entry = service.with(|world| {
        let sub_eni = world.memory.find(ip)?;
        let at = sub_eni.state.attachment();
        let node = at.and_then(|at| world.cloud.node_of(at.parent));
        let subnet = world
            .memory
            .pools
            .get(&sub_eni.pool)
            .map(|pool| pool.subnet);
        Some(json!({
            "ipAddress": ip,
            "nodeName": node.unwrap_or_default(),
            "parentNicMac": at.map(|at| at.parent),
            "subnet": subnet,
            "mac": sub_eni.mac,
            "vlanID": at.map(|at| at.vlan),
        }))
    });
    let unknown = || Refusal::new(404, "AddressNotFound", format!("{ip} is unknown"));
    entry
        .map(|entry| Json(json!({ "entry": entry })))
        .ok_or_else(unknown)
}

async fn show_records(State(service): Shared) -> Json<Vec<Record>> {
    Json(service.records.all())
}

async fn reset(State(service): Shared) -> StatusCode {
    service.reset();
    StatusCode::NO_CONTENT
}

async fn show_sub_enis(State(service): Shared) -> Json<Vec<SubEni>> {
    Json(service.with(|world| world.cloud.sub_enis().cloned().collect()))
}

async fn show_cloud_calls(State(service): Shared) -> Json<Value> {
    Json(service.with(|world| json!(world.cloud.calls())))
}

async fn show_settings(State(service): Shared) -> Json<Value> {
    let now = service.now();
    let ready = service.is_ready();
    Json(service.with(|world| {
        let tokens = world.bucket.level(now);
        json!({ "settings": world.settings, "tokens": tokens, "ready": ready })
    }))
}

async fn show_faults(State(service): Shared) -> Json<Vec<Fault>> {
    Json(service.with(|world| world.faults.rules().to_vec()))
}

async fn replace_faults(
    State(service): Shared,
    Json(rules): Json<Vec<Fault>>,
) -> Result<StatusCode, Refusal> {
    Faults::check(&rules).map_err(|error| Refusal::invalid(error.to_string()))?;
    // through `change`: what the fabric forwards depends on them
    service.change(|world| world.faults.replace(rules));
    service.changed.notify_one();
    Ok(StatusCode::NO_CONTENT)
}

async fn replace_rate(
    State(service): Shared,
    Json(rate): Json<Rate>,
) -> Result<StatusCode, Refusal> {
    let checked = rate.check("qps", "burst");
    checked.map_err(|error| Refusal::invalid(error.to_string()))?;
    service.with(|world| {
        world.settings.rate = rate;
        world.bucket = Bucket::new(rate);
    });
    Ok(StatusCode::NO_CONTENT)
}

async fn replace_latency(
    State(service): Shared,
    Json(latency): Json<Latency>,
) -> Result<StatusCode, Refusal> {
    service.with(|world| {
        let settings = Settings {
            latency,
            ..world.settings.clone()
        };
        world.settings = checked(settings)?;
        Ok::<_, Refusal>(())
    })?;
    Ok(StatusCode::NO_CONTENT)
}

fn checked(settings: Settings) -> Result<Settings, Refusal> {
    match settings.check() {
        Ok(()) => Ok(settings),
        Err(error) => Err(Refusal::invalid(error.to_string())),
    }
}

/// Any keys of the setting `reclaim`; the others stay.
async fn change_watermarks(
    State(service): Shared,
    Json(changes): Json<Map<String, Value>>,
) -> Result<StatusCode, Refusal> {
    service.with(|world| {
        let mut whole = json!(world.settings.reclaim);
        if let Some(known) = whole.as_object_mut() {
            known.extend(changes);
        }
        let invalid = |error: serde_json::Error| Refusal::invalid(error.to_string());
        let settings = checked(Settings {
            reclaim: serde_json::from_value(whole).map_err(invalid)?,
            ..world.settings.clone()
        })?;
        world.reclaim_bucket = Bucket::new(settings.reclaim.rate);
        world.settings = settings;
        Ok::<_, Refusal>(())
    })?;
    service.reclaim_due.notify_one();
    Ok(StatusCode::NO_CONTENT)
}

/// Now, whatever the debounce; ends when nothing is left to do.
async fn reclaim(State(service): Shared) -> Result<Json<Reclaimed>, Refusal> {
    if service.publisher.is_none() {
        let message = "without an API server (--kubeconfig) nobody knows what is claimed";
        return Err(Refusal::new(409, "InvalidRequest", message));
    }
    let done = service.reclaim_now().await;
    service.flush().await;
    Ok(Json(done))
}

/// Nodes, parents, limits, subnets and pools; sub-ENIs stay. The fabric's wires cannot change.
async fn replace_topology(
    State(service): Shared,
    Json(topology): Json<Topology>,
) -> Result<StatusCode, Refusal> {
    let refused = |message: String| Refusal::new(409, "InvalidRequest", message);
    let checked = topology.check();
    checked.map_err(|error| Refusal::invalid(error.to_string()))?;
    service.change(|world| {
        for sub_eni in world.cloud.sub_enis() {
            let attached = sub_eni.state.attachment().map(|at| at.parent);
            let lost = |mac: &Mac| !topology.parents.iter().any(|parent| parent.mac == *mac);
            if let Some(parent) = attached.filter(lost) {
                return Err(refused(format!(
                    "sub-ENI {} hangs on {parent}, which the topology lacks",
                    sub_eni.mac
                )));
            }
        }
        if let Some(fabric) = &service.fabric {
            let rewired = fabric.rewire(&topology);
            rewired.map_err(|error| refused(error.to_string()))?;
        }
        world.rewire(topology);
        Ok(())
    })?;
    service.update_pools(|_| ());
    Ok(StatusCode::NO_CONTENT)
}

async fn flush(State(service): Shared) -> Response {
    if service.flush().await {
        return StatusCode::NO_CONTENT.into_response();
    }
    Refusal::new(502, "Internal", "a pool was not published; see the log").into_response()
}

async fn prewarm(State(service): Shared) -> StatusCode {
    service.prewarm().await;
    service.flush().await;
    StatusCode::NO_CONTENT
}

/// What a crash is told; no body at all: nothing.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Crash {
    down_ms: u64,
}

/// Loses the memory, answers 503 for `downMs`, and is done when it serves again.
async fn crash(State(service): Shared, body: Bytes) -> Result<StatusCode, Refusal> {
    let told = match body.as_ref() {
        b"" | b"null" => Ok(Crash::default()),
        text => serde_json::from_slice(text),
    };
    let told: Crash = told.map_err(|error| Refusal::invalid(error.to_string()))?;
    let (key, value) = ("downMs", told.down_ms);
    if value > MAX_MS {
        let error = SettingsError::Long { key, value };
        return Err(Refusal::invalid(error.to_string()));
    }
    if service.crash(Duration::from_millis(told.down_ms)).await {
        return Ok(StatusCode::NO_CONTENT);
    }
    let message = "the pools cannot be listed: see the log; it goes on trying";
    Err(Refusal::new(504, "NotReady", message))
}

/// All sub-ENIs are gone, and the provider has not noticed until it restarts.
async fn wipe_cloud(State(service): Shared) -> StatusCode {
    let now = service.now();
    service.change(|world| world.cloud.restore(Saved::default(), now));
    StatusCode::NO_CONTENT
}

/// Empty: all is well. Waits for what is under way to settle, a few seconds at most, because a
/// call whose caller left goes on by itself.
async fn audit(State(service): Shared) -> Json<Vec<String>> {
    let deadline = Instant::now() + SETTLE;
    loop {
        let found = service.audit().await;
        if found.is_empty() || Instant::now() > deadline {
            return Json(found);
        }
        tokio::time::sleep(SETTLE / 50).await;
    }
}

const SETTLE: Duration = Duration::from_secs(5);
