//! With a cluster: pools, records and what the provider publishes come from an API server.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::IntoResponse;
use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use provider_sim::publisher::{Publisher, pools};
use provider_sim::service::Service;
use provider_sim::settings::{ReleasePolicy, Settings};
use provider_sim::topology::Topology;
use serde_json::{Value, json};
use spiderpool_embedded_api::{
    EmbeddedApi, IpamAdmission, Listening, TlsOptions, write_kubeconfig,
};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::breakage::whole;
use crate::rig::{Report, Rig, TOPOLOGY, Wrap, rig_with, settings};

const NODES: &str = "n1=fa:16:3e:01:00:01,n2=fa:16:3e:01:00:02";

struct Cluster {
    rig: Rig,
    pools: Api<DynamicObject>,
    kubeconfig: PathBuf,
    api: EmbeddedApi,
    listening: Listening,
    _folder: TempDir,
}

async fn create(pools: &Api<DynamicObject>, name: &str, mut annotations: Value, spec: Value) {
    annotations["ipam.spidernet.io/iaas-provider"] = "sim".into();
    let object = json!({ "apiVersion": "spiderpool.spidernet.io/v2beta1", "kind": "SpiderIPPool",
        "metadata": { "name": name, "annotations": annotations }, "spec": spec });
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    pools.create(&PostParams::default(), &object).await.unwrap();
}

/// A global pool, a pair, a prewarm pool with its parent NIC.
async fn create_all(pools: &Api<DynamicObject>) {
    let pair = |other: &str| json!({ "ipam.spidernet.io/pair-pool": other });
    let nic = json!({ "ipam.spidernet.io/parent-nic": "eth1" });
    let v4 = |ips: &str| json!({ "subnet": "10.72.0.0/24", "ips": [ips] });
    create(pools, "g", json!({}), v4("10.72.0.10-10.72.0.19")).await;
    create(pools, "p4", pair("p6"), v4("10.72.0.20-10.72.0.24")).await;
    let v6 = json!({ "subnet": "fd72::/64", "ips": ["fd72::20-fd72::24"] });
    create(pools, "p6", pair("p4"), v6).await;
    let mut warm = v4("10.72.0.30-10.72.0.33");
    warm["excludeIPs"] = json!(["10.72.0.31"]);
    warm["nodeName"] = json!(["n1"]);
    create(pools, "w", nic, warm).await;
    let parent = json!({ "name": "eth1", "mac": "fa:16:3e:01:00:01" });
    let patch = json!({ "status": { "parentNic": parent } });
    let (params, patch) = (PatchParams::default(), Patch::Merge(&patch));
    pools.patch_status("w", &params, &patch).await.unwrap();
}

/// Those pools, and a provider that follows them.
async fn cluster(settings: Settings, wrap: Wrap) -> Cluster {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let admission = Arc::new(IpamAdmission::default());
    let api = EmbeddedApi::open(&dir.join("state.redb"), admission).unwrap();
    let options = TlsOptions {
        listen: "127.0.0.1:0".parse().unwrap(),
        cert_dir: dir.to_owned(),
        token_path: dir.join("token"),
        names: Vec::new(),
    };
    let listening = api.serve(&options).await.unwrap();
    let server = format!("https://{}", listening.address);
    let kubeconfig = dir.join("kubeconfig");
    write_kubeconfig(&kubeconfig, &server, &listening.ca_pem, &listening.token).unwrap();
    let client = || Client::new(api.router(), "default");
    let followed = pools(client());
    create_all(&followed).await;
    let mut topology: Topology = serde_saphyr::from_str(TOPOLOGY).unwrap();
    topology.pools = Vec::new();
    let publisher = Some(Publisher::new(client()));
    let mut rig = rig_with(topology, settings, wrap, publisher).await;
    let service = || Arc::clone(&rig.service);
    let (watching, publishing, prewarming) = (service(), service(), service());
    let watched = followed.clone();
    rig.run(async move { watching.watch_pools(watched).await });
    rig.run(async move { publishing.publish_forever().await });
    rig.run(async move { prewarming.prewarm_forever().await });
    Cluster {
        rig,
        pools: followed,
        kubeconfig,
        api,
        listening,
        _folder: folder,
    }
}

impl Cluster {
    async fn status(&self, pool: &str) -> Value {
        self.pools.get(pool).await.unwrap().data["status"].clone()
    }

    /// Waits until the prewarm pool is ready.
    async fn is_ready(&self) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while self.status("w").await["ipMetaData"]["readyIPCount"] != 3 {
            assert!(Instant::now() < deadline, "never: prewarmed");
            sleep(Duration::from_millis(5)).await;
        }
    }

    async fn verify(&self, words: &[&str]) -> Report {
        let mut command = self.rig.command(&["--pool", "g,p4,w", "-o", "json"]);
        command
            .args(words)
            .arg("--kubeconfig")
            .arg(&self.kubeconfig);
        Report::of(&command.output().await.unwrap())
    }

    /// No records, no sub-ENIs.
    async fn is_clean(&self) {
        for pool in ["g", "p4", "p6", "w"] {
            let status = self.status(pool).await;
            assert_eq!(status["allocatedIPs"], Value::Null, "{pool}");
        }
        self.rig.is_clean().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_passes_all_checks_under_both_policies() {
    for policy in [ReleasePolicy::Keep, ReleasePolicy::Recycle] {
        let mut settings = settings();
        settings.release_policy = policy;
        let cluster = cluster(settings, whole).await;
        cluster.is_ready().await;
        let report = cluster.verify(&["--node", NODES]).await;
        report.fails_exactly(&[], &format!("{policy:?}"));
        assert_eq!(
            report.having("skipped"),
            ["tls.verified"].into(),
            "{policy:?}"
        );
        // the simulator does not look at records
        assert_eq!(
            report.having("advice"),
            ["allocate.late"].into(),
            "{policy:?}"
        );
        assert_eq!(report.json["left"], json!([]));
        cluster.is_clean().await;
    }
}

/// Looks at the record of each address before it does anything.
fn looking_at_records(router: Router, service: Arc<Service>) -> Router {
    let layer = async |State(service): State<Arc<Service>>, request: Request, next: Next| {
        let (head, body) = request.into_parts();
        let body = to_bytes(body, usize::MAX).await.unwrap_or_default();
        let call: Value = serde_json::from_slice(&body).unwrap_or_default();
        let pools = service.publisher.as_ref().unwrap().pools();
        for item in call["subEniRequests"].as_array().into_iter().flatten() {
            let (Some(pool), Some(ip)) =
                (item["ipv4PoolName"].as_str(), item["ipv4Address"].as_str())
            else {
                continue;
            };
            let Ok(Some(object)) = pools.get_opt(pool).await else {
                continue;
            };
            let records = object.data["status"]["allocatedIPs"]
                .as_str()
                .unwrap_or("{}");
            let records: Value = serde_json::from_str(records).unwrap();
            if records[ip]["podUid"] != call["podUID"] {
                let refusal =
                    json!({ "code": "NotClaimed", "message": format!("{ip} is not this Pod's") });
                return (StatusCode::CONFLICT, refusal.to_string()).into_response();
            }
        }
        next.run(Request::from_parts(head, Body::from(body))).await
    };
    router.layer(from_fn_with_state(service, layer))
}

/// A provider that serves holders of records alone is served with records, and praised.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_that_looks_at_records_passes_everything() {
    let cluster = cluster(settings(), looking_at_records).await;
    cluster.is_ready().await;
    let report = cluster.verify(&["--node", NODES]).await;
    report.fails_exactly(&[], "it looks at records");
    assert_eq!(report.having("advice"), [].into());
    cluster.is_clean().await;
}

/// Answers a release first and takes the sub-ENI away afterwards.
fn hasty(router: Router, service: Arc<Service>) -> Router {
    let layer = async |State(service): State<Arc<Service>>, request: Request, next: Next| {
        let is_release = request.uri().path().ends_with("/release-ip");
        let (head, body) = request.into_parts();
        let body = to_bytes(body, usize::MAX).await.unwrap_or_default();
        let call: Value = serde_json::from_slice(&body).unwrap_or_default();
        if is_release && call["poolName"] == "w" {
            let call = serde_json::from_value(call).unwrap();
            tokio::spawn(async move {
                sleep(Duration::from_millis(100)).await;
                service.release(call).await.unwrap();
            });
            return StatusCode::ACCEPTED.into_response();
        }
        next.run(Request::from_parts(head, Body::from(body))).await
    };
    router.layer(from_fn_with_state(service, layer))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_triple_in_a_prewarm_pool_is_seen() {
    let mut settings = settings();
    settings.release_policy = ReleasePolicy::Recycle;
    let cluster = cluster(settings, hasty).await;
    cluster.is_ready().await;
    let report = cluster
        .verify(&["--node", NODES, "--only", "release"])
        .await;
    report.fails_exactly(&["release.prewarm"], "withdrawn after the answer");
    assert!(report.why("release.prewarm").contains("dead triple"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[rustfmt::skip] // a case a line
async fn wrong_publications_fail_their_own_checks() {
    let entry = |entry: &str| format!(r#"{{"scope":"","ips":{{"10.72.0.10":{entry}}}}}"#);
    let before = "publish.generation,publish.scope,publish.entries,publish.counters,publish.skeleton,publish.sibling";
    for (kind, body, only, failed) in [
        ("bad-metadata", "{".to_owned(), "publish", vec!["publish.scope"]),
        ("bad-metadata", r#"{"10.72.0.10":{}}"#.to_owned(), "publish", vec!["publish.scope"]),
        ("bad-metadata", r#"{"scope":"n1","ips":{}}"#.to_owned(), "publish", vec!["publish.scope"]),
        ("bad-metadata", entry(r#"{"status":"unbound","node":"n1"}"#), before, vec!["publish.counters", "publish.entries"]),
        ("bad-metadata", entry(r#"{"vlan":-1}"#), "publish", vec!["publish.counters", "publish.global-entry"]),
        ("publish-stall", String::new(), "publish", vec!["publish.generation"]),
    ] {
        let cluster = cluster(settings(), whole).await;
        cluster.is_ready().await;
        cluster.rig.faults(json!([{ "kind": kind, "match": { "pool": "g" }, "body": body }]));
        // as after a change of the pool's spec
        let patch = json!({ "spec": { "ips": ["10.72.0.10-10.72.0.18"] } });
        let (params, patch) = (PatchParams::default(), Patch::Merge(&patch));
        cluster.pools.patch("g", &params, &patch).await.unwrap();
        cluster.rig.service.changed.notify_one();
        let report = cluster.verify(&["--node", NODES, "--only", only]).await;
        report.fails_exactly(&failed, &format!("{kind} {body}"));
        cluster.is_clean().await;
    }
}

/// Addresses that somebody has are not used, and their records stay as they are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_has_a_record_is_not_touched() {
    let cluster = cluster(settings(), whole).await;
    cluster.is_ready().await;
    let taken: Vec<String> = (12..20).map(|last| format!("10.72.0.{last}")).collect();
    let records: serde_json::Map<_, _> = taken
        .iter()
        .map(|ip| (ip.clone(), json!({ "pod": "shop/web", "podUid": "u" })))
        .collect();
    let text = Value::from(records).to_string();
    let mut object = cluster.pools.get("g").await.unwrap();
    object.data["status"]["allocatedIPs"] = text.clone().into();
    cluster
        .pools
        .replace_status("g", &PostParams::default(), &object)
        .await
        .unwrap();
    let report = cluster.verify(&["--node", NODES]).await;
    report.fails_exactly(&[], "two addresses are free");
    assert!(
        report.why("concurrent.same").contains("2 free addresses"),
        "{}",
        report.why("concurrent.same")
    );
    let all = report.json.to_string();
    assert!(
        taken.iter().all(|ip| !all.contains(&format!("\"{ip}\\\""))),
        "{all}"
    );
    let after: Value =
        serde_json::from_str(cluster.status("g").await["allocatedIPs"].as_str().unwrap()).unwrap();
    assert_eq!(after, serde_json::from_str::<Value>(&text).unwrap());
}

/// Agents publish the NICs of their nodes; then nobody has to name them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_come_from_what_agents_publish() {
    let cluster = cluster(settings(), whole).await;
    let patch =
        json!({ "metadata": { "annotations": { "ipam.spidernet.io/parent-nic": "eth1" } } });
    let (params, patch) = (PatchParams::default(), Patch::Merge(&patch));
    cluster.pools.patch("g", &params, &patch).await.unwrap();
    let report = cluster.verify(&["--only", "allocate.create"]).await;
    assert_eq!(report.exit, Some(2), "nothing was tested");
    assert!(
        report.why("allocate.create").contains("--node"),
        "{}",
        report.why("allocate.create")
    );
    let client = Client::new(cluster.api.router(), "default");
    let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(client);
    for (name, mac) in [("n1", "fa:16:3e:01:00:01"), ("n2", "fa:16:3e:01:00:02")] {
        let nics = json!({ "eth0": "fa:16:3e:09:00:01", "eth1": mac }).to_string();
        let node = json!({ "metadata": { "name": name, "annotations": { "ipam.spidernet.io/parent-nics": nics } } });
        nodes
            .create(
                &PostParams::default(),
                &serde_json::from_value(node).unwrap(),
            )
            .await
            .unwrap();
    }
    for nodes in [&[][..], &["--node", "n1,n2"]] {
        let only = ["--only", "allocate.create,allocate.move"];
        let report = cluster.verify(&[nodes, &only].concat()).await;
        report.fails_exactly(&[], "nodes of the cluster");
        assert_eq!(
            report.having("pass"),
            ["allocate.create", "allocate.move"].into()
        );
    }
}

/// A way to an API server that ends with the set of tasks.
async fn way_to(server: SocketAddr) -> (SocketAddr, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut way = JoinSet::new();
    way.spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            let (mut near, _) = listener.accept().await.unwrap();
            connections.spawn(async move {
                let mut far = TcpStream::connect(server).await.unwrap();
                drop(copy_bidirectional(&mut near, &mut far).await);
            });
        }
    });
    (address, way)
}

/// The API server goes away in the middle: the records of the run hold addresses.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_that_stay_are_told_and_are_no_success() {
    let cluster = cluster(settings(), whole).await;
    cluster.is_ready().await;
    let slow = json!([{ "op": "allocate", "kind": "delay", "delayMs": 500 }]);
    cluster.rig.faults(slow);
    let (address, way) = way_to(cluster.listening.address).await;
    let text = std::fs::read_to_string(&cluster.kubeconfig).unwrap();
    let text = text.replace(&cluster.listening.address.to_string(), &address.to_string());
    std::fs::write(&cluster.kubeconfig, text).unwrap();
    let mut words = vec!["--pool", "g", "--node", NODES, "-o", "json"];
    words.extend(["--only", "allocate.create,allocate.repeat"]);
    let mut command = cluster.rig.command(&words);
    command.arg("--kubeconfig").arg(&cluster.kubeconfig);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn().unwrap();
    // The records are written; the second check is under way.
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let first = lines.next_line().await.unwrap();
    assert_eq!(first.as_deref(), Some("[1/2] allocate.create pass"));
    drop(way);
    let report = Report::of(&child.wait_with_output().await.unwrap());
    assert_eq!(report.exit, Some(2), "{:?}", report.json);
    assert_eq!(report.having("pass").len(), 2);
    let left = report.json["left"].to_string();
    assert!(left.contains("records of provider-verify/"), "{left}");
}
