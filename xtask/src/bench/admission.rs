//! Admission calls at a steady rate: what an API server waits for, asked of the controller as it ships,
//! in a cluster with many pools.
//!
//! Owns a control plane and a controller for the time of the measurement. Calls go to the webhooks
//! directly, over one kept connection, as an API server keeps one.

use std::ffi::OsString;
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use vm_tests::control_plane::{ControlPlane, ControlPlaneSpec, Lifetime};
use vm_tests::lab::api_client::{ApiClient, POOLS};
use vm_tests::lab::http::{Request, exchange_kept};
use vm_tests::lab::process::{Daemon, DaemonSpec, HERE};
use vm_tests::lab::{wait, webhooks};

use super::{Better, Figure, median};
use crate::{build, control_plane, paths, term};

pub(super) const NAMES: &[&str] = &["admission_p99"];

/// Pools of the cluster.
const POOLS_THERE: usize = 1_000;
/// Calls of a round.
const CALLS: u32 = 500;
/// Between two calls: 50 a second.
const PACE: Duration = Duration::from_millis(20);
/// Measurements; the figure is their median.
const ROUNDS: usize = 5;
/// Milliseconds.
const LIMIT: f64 = 10.0;
const SOON: Duration = Duration::from_secs(60);
const NAMESPACE: &str = "spiderpool";

/// Builds what ships and measures it.
pub(super) fn measure() -> Result<Vec<Figure>> {
    term::progress("building the control plane and the controller (dist)");
    let controller = build::controller()?;
    let lab_dir = build::guest_tools()?;
    let dir = paths::target_dir().join("bench").join("admission");
    if dir.exists() {
        fs::remove_dir_all(&dir).with_context(|| format!("clear {}", dir.display()))?;
    }
    let plane = ControlPlane::start(&ControlPlaneSpec {
        programs_dir: &control_plane::build()?,
        bin_dir: &lab_dir,
        dir: dir.join("control-plane"),
        lifetime: Lifetime::Lab,
        wanted: &|| Ok(()),
    })?;
    let api = plane.api()?;
    fill(&api)?;
    let port = free_port()?;
    let mut daemon = start(&controller, &lab_dir, &dir, &plane.kubeconfig(), port)?;
    let bundle = wait::until(SOON, "the controller's certificate", || {
        daemon.still_runs()?;
        authority(&api)
    })?;
    let mut connection = wait::until(SOON, "webhooks that answer", || {
        daemon.still_runs()?;
        Ok(webhooks::connect(port, &bundle).ok())
    })?;
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let taken = round(&mut connection)?;
        term::progress(&format!("  p99 {taken:.3} ms"));
        rounds.push(taken);
    }
    Ok(vec![Figure {
        name: "admission_p99",
        value: (median(&mut rounds) * 1e3).round() / 1e3,
        unit: "ms",
        reference: None,
        limit: Some(LIMIT),
        better: Better::Lower,
    }])
}

/// The namespace of the controller, and pools that no call overlaps.
fn fill(api: &ApiClient) -> Result<()> {
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    api.create("/api/v1/namespaces", &namespace)?;
    let mut session = api.session()?;
    for number in 0..POOLS_THERE {
        let name = format!("there-{number}");
        session.request("POST", POOLS, &pool(&name, 70, number))?;
    }
    Ok(())
}

/// A pool of a network of its own, 10.`net + …`.…0/24.
fn pool(name: &str, net: usize, number: usize) -> Value {
    let prefix = format!("10.{}.{}", net + number / 256, number % 256);
    json!({"apiVersion": "spiderpool.spidernet.io/v2beta1", "kind": "SpiderIPPool",
        "metadata": {"name": name}, "spec": {"ipVersion": 4, "subnet": format!("{prefix}.0/24"),
            "ips": [format!("{prefix}.10-{prefix}.200")], "gateway": format!("{prefix}.1")}})
}

fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("find a free port")?;
    Ok(listener.local_addr()?.port())
}

fn start(
    program: &Path,
    lab_dir: &Path,
    dir: &Path,
    kubeconfig: &Path,
    port: u16,
) -> Result<Daemon> {
    let argv: Vec<OsString> = vec![
        program.into(),
        "daemon".into(),
        "--kubeconfig".into(),
        kubeconfig.into(),
        "--config-path".into(),
        dir.join("conf.yml").into(),
    ];
    Daemon::start(&DaemonSpec {
        name: "the controller",
        bin_dir: lab_dir,
        netns: Path::new(HERE),
        argv,
        env: &[
            ("SPIDERPOOL_POD_NAME", "c-0"),
            ("SPIDERPOOL_POD_NAMESPACE", NAMESPACE),
            ("SPIDERPOOL_WEBHOOK_PORT", &port.to_string()),
            ("SPIDERPOOL_HEALTH_PORT", "0"),
            ("SPIDERPOOL_TLS_EXTRA_NAMES", webhooks::HOST),
        ],
        log_path: dir.join("controller.log"),
        lifetime: Lifetime::Lab,
    })
}

/// What to trust, once the controller has made it.
fn authority(api: &ApiClient) -> Result<Option<String>> {
    let path = format!("/api/v1/namespaces/{NAMESPACE}/secrets/spiderpool-controller-server-certs");
    let secret = api.get(&path)?;
    let encoded = secret
        .as_ref()
        .and_then(|secret| secret.pointer("/data/ca.crt"));
    encoded
        .and_then(Value::as_str)
        .map(webhooks::decoded)
        .transpose()
}

/// Milliseconds that 99 of 100 calls take at most. A call that waited for the one before counts from
/// when it was due.
fn round(connection: &mut webhooks::Connection) -> Result<f64> {
    let begun = Instant::now();
    let mut taken = Vec::new();
    for number in 0..CALLS {
        let due = begun + PACE * number;
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let verb = if number % 2 == 0 {
            "mutate"
        } else {
            "validate"
        };
        call(connection, verb, number)?;
        taken.push(due.elapsed().as_secs_f64() * 1e3);
    }
    taken.sort_by(f64::total_cmp);
    let index = taken.len() * 99 / 100;
    taken.get(index).copied().context("no calls")
}

fn call(connection: &mut webhooks::Connection, verb: &str, number: u32) -> Result<()> {
    let name = format!("new-{number}");
    let object = pool(&name, 90, usize::try_from(number)?);
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": name, "operation": "CREATE", "name": name, "object": object, "oldObject": null}});
    let body = serde_json::to_vec(&review)?;
    let answer = exchange_kept(
        connection,
        &Request {
            method: "POST",
            path: &format!("/{verb}-spiderpool-spidernet-io-v2beta1-spiderippool"),
            headers: &["Content-Type: application/json".to_owned()],
            body: &body,
        },
    )?;
    let text = String::from_utf8_lossy(&answer.body);
    ensure!(
        answer.status == 200 && text.contains("\"allowed\":true"),
        "{verb}: status {}: {text}",
        answer.status
    );
    Ok(())
}
