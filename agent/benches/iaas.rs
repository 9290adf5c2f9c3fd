//! What a provider's pools cost the agent where nobody has to be called: reading a pool whose metadata
//! has not changed, and an ADD that finds its sub-ENI ready. Over the embedded API, with a kernel in
//! memory; one JSON object on stdout for `cargo xtask bench iaas`.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a measurement that cannot go on fails, and its result is for a program"
)]

#[expect(dead_code, reason = "the tests' kernel can do more than is measured")]
#[path = "../tests/flows/fake_nic.rs"]
mod fake_nic;

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use spiderpool_agent::agent::{Agent, Seams, Settings};
use spiderpool_agent::clock::{Jitter, SystemClock};
use spiderpool_agent::flow::call::Limits;
use spiderpool_agent::observer::NoObserver;
use spiderpool_agent::paths::Paths;
use spiderpool_agent::store::kube::{KubeStore, Waits};
use spiderpool_api::agent_v1::CniRequest;
use spiderpool_api::ippool::SpiderIPPool;
use spiderpool_api::names;
use spiderpool_controller::objects::memo::Memo;
use spiderpool_controller::objects::pool::PoolObject;
use spiderpool_embedded_api::EmbeddedApi;
use spiderpool_embedded_api::admission::AcceptAll;
use tokio_util::sync::CancellationToken;

use fake_nic::FakeNic;

const NODE: &str = "n1";
const MASTER: &str = "eth1";
/// Entries of each pool of the provider, and addresses of the plain one.
const ENTRIES: u16 = 1_000;
/// Reads that are timed.
const READS: usize = 200;
/// ADDs of each pool that are timed, one after the other in turn.
const ADDS: usize = 250;
/// ADDs of each pool before that.
const WARM_UP: usize = 20;
const PATIENCE: Duration = Duration::from_secs(60);

fn median(mut values: Vec<Duration>) -> f64 {
    values.sort_unstable();
    let middle = values.get(values.len() / 2).copied().unwrap_or_default();
    middle.as_secs_f64() * 1e3
}

/// The `n`th address of `10.net.0.0/21`, from .0.10 on.
fn address(net: u8, n: u16) -> String {
    let [high, low] = (n + 10).to_be_bytes();
    format!("10.{net}.{high}.{low}")
}

/// A pool; with `scope` one of a provider that has published all its addresses as ready on this node.
fn pool(name: &str, net: u8, scope: Option<&str>) -> Value {
    let ips = format!("{}-{}", address(net, 0), address(net, ENTRIES - 1));
    let mut pool = json!({"apiVersion": format!("{}/{}", names::GROUP, names::VERSION), "kind": "SpiderIPPool",
        "metadata": {"name": name},
        "spec": {"ipVersion": 4, "subnet": format!("10.{net}.0.0/21"), "ips": [ips]}});
    let Some(scope) = scope else { return pool };
    set(
        &mut pool,
        "/metadata",
        "annotations",
        json!({names::IAAS_PROVIDER: "bench", names::PARENT_NIC: MASTER}),
    );
    if !scope.is_empty() {
        set(&mut pool, "/spec", "nodeName", json!([scope]));
    }
    pool
}

fn set(object: &mut Value, at: &str, key: &str, value: Value) {
    let part = object
        .pointer_mut(at)
        .and_then(Value::as_object_mut)
        .unwrap();
    part.insert(key.to_owned(), value);
}

fn published(net: u8, scope: &str) -> Value {
    let entry = |n: u16| {
        let [high, low] = n.to_be_bytes();
        let mac = format!("fa:16:3e:{net:02x}:{high:02x}:{low:02x}");
        let mut entry = json!({"mac": mac, "vlan": n + 1});
        if scope.is_empty() {
            set(&mut entry, "", "node", json!(NODE));
        }
        (address(net, n), entry)
    };
    let ips: serde_json::Map<String, Value> = (0..ENTRIES).map(entry).collect();
    let metadata = json!({"scope": scope, "ips": ips}).to_string();
    json!({"ipMetaData": {"observedGeneration": 1, "readyIPCount": ENTRIES, "metadata": metadata}})
}

/// Milliseconds to read a pool of a thousand entries, known and not known.
fn reads() -> (f64, f64) {
    let mut raw = pool("w", 62, Some(NODE));
    set(&mut raw, "/metadata", "generation", json!(1));
    set(&mut raw, "", "status", published(62, NODE));
    let timed = |memo: &dyn Fn() -> Memo| {
        let kept = memo();
        drop(PoolObject::from_raw_with(raw.clone(), &kept).unwrap());
        let one = |fresh: Option<Memo>| {
            let copy = raw.clone();
            let begun = Instant::now();
            let read = PoolObject::from_raw_with(copy, fresh.as_ref().unwrap_or(&kept)).unwrap();
            let took = begun.elapsed();
            assert!(black_box(read).pool().is_ok_and(|pool| pool.is_iaas()));
            took
        };
        let unchanged = (0..READS).map(|_| one(None)).collect();
        let changed = (0..READS).map(|_| one(Some(memo()))).collect();
        (median(unchanged), median(changed))
    };
    timed(&Memo::default)
}

async fn publish(client: &Client) {
    let pools: Api<SpiderIPPool> = Api::all(client.clone());
    for (name, net, scope) in [
        ("plain", 61, None),
        ("prewarm", 62, Some(NODE)),
        ("cached", 63, Some("")),
    ] {
        let object = serde_json::from_value(pool(name, net, scope)).unwrap();
        pools.create(&PostParams::default(), &object).await.unwrap();
        if let Some(scope) = scope {
            let status = Patch::Merge(json!({"status": published(net, scope)}));
            let written = pools
                .patch_status(name, &PatchParams::default(), &status)
                .await
                .unwrap();
            assert_eq!(written.metadata.generation, Some(1));
        }
    }
}

async fn agent(dir: &Path, client: Client) -> Agent {
    let nic = FakeNic::default();
    nic.add_master(MASTER, "fa:16:3e:30:00:01");
    let paths = Paths::new(&dir.join("run"));
    paths.prepare().unwrap();
    let seams = Seams {
        store: Arc::new(
            KubeStore::start(client, NODE, Waits::new(PATIENCE))
                .await
                .unwrap(),
        ),
        nic: Arc::new(nic),
        provider: None,
        observer: Arc::new(NoObserver),
        clock: Arc::new(SystemClock),
        jitter: Arc::new(Jitter::from_entropy()),
    };
    let settings = Settings {
        standalone: true,
        ..Settings::new(NODE)
    };
    Agent::new(settings, seams, &paths).unwrap()
}

/// An ADD of the IPAM plugin, for a NIC whose link another plugin makes. A container of no Pod is named by
/// the first twelve characters of its id: they differ from pool to pool, or each ADD would replace the
/// Pod of the one before.
fn request(pool: &str, n: usize) -> CniRequest {
    let first = match pool {
        "plain" => 'a',
        "prewarm" => 'b',
        _ => 'c',
    };
    let request = json!({"v": 1, "command": "ADD", "plugin": names::PLUGIN_IPAM, "containerID": format!("{first}{n:011x}"),
        "netns": "/proc/self/ns/net", "ifname": "net1",
        "conf": {"cniVersion": "1.0.0", "name": "bench",
            "type": if pool == "plain" { "macvlan" } else { names::PLUGIN_ENI_VLAN },
            "master": MASTER, "ipam": {"type": names::PLUGIN_IPAM, "default_ipv4_ippool": [pool]}}});
    serde_json::from_value(request).unwrap()
}

async fn add(agent: &Agent, pool: &str, n: usize) -> Duration {
    let limits = Limits {
        deadline: tokio::time::Instant::now() + PATIENCE,
        cancel: CancellationToken::new(),
    };
    let request = request(pool, n);
    let begun = Instant::now();
    let result = agent.cni(request, limits).await.unwrap().unwrap();
    let took = begun.elapsed();
    assert_eq!(
        pool != "plain",
        result.get("spidernet.io/sub-eni").is_some()
    );
    took
}

/// Median milliseconds of an ADD from a plain pool, one that is prewarmed, and a cached one.
async fn adds() -> [f64; 3] {
    let dir = tempfile::tempdir().unwrap();
    let api = EmbeddedApi::open(&dir.path().join("state.redb"), Arc::new(AcceptAll)).unwrap();
    let client = Client::new(api.router(), "default");
    publish(&client).await;
    let agent = agent(dir.path(), client).await;
    let mut took: [Vec<Duration>; 3] = Default::default();
    for n in 0..WARM_UP + ADDS {
        for (pool, took) in ["plain", "prewarm", "cached"].into_iter().zip(&mut took) {
            let one = add(&agent, pool, n).await;
            if n >= WARM_UP {
                took.push(one);
            }
        }
    }
    took.map(median)
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let (unchanged, changed) = reads();
    let [plain, prewarm, cached] = runtime.block_on(adds());
    println!(
        "{}",
        json!({"read_unchanged": unchanged, "read_changed": changed,
            "plain": plain, "prewarm": prewarm, "cached": cached})
    );
}
