//! 200 Pods want a sub-ENI at the same moment.

use std::collections::BTreeSet;
use std::env;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use vm_tests::cluster::pods::Workload;
use vm_tests::cluster::settings::quick_but;
use vm_tests::cluster::{Cluster, N1};

use crate::pod;

const NODES: u8 = 10;
const PODS: usize = 200;
/// Pods of a node that its kubelet starts at the same time.
const AT_ONCE: usize = 12;

/// When each Pod ran, and how many ADDs failed before that.
struct Rush {
    ran: Vec<Instant>,
    failed: usize,
}

/// All Pods of all nodes; kubelet tries each until it runs.
fn rush(cluster: &Cluster, limit: Duration) -> Rush {
    let nodes = cluster.node_names();
    let pods: Vec<_> = (0..PODS)
        .map(|n| {
            pod(
                cluster,
                &format!("web-{n}"),
                &nodes[n % nodes.len()],
                &["g"],
            )
        })
        .collect();
    let ran = Mutex::new(vec![Instant::now()]);
    let failed = AtomicUsize::new(0);
    let deadline = Instant::now() + limit;
    thread::scope(|scope| {
        for node in &nodes {
            let own: Vec<&Workload> = pods.iter().filter(|pod| pod.node == *node).collect();
            let queue = Mutex::new(own.into_iter());
            let queue = std::sync::Arc::new(queue);
            for _ in 0..AT_ONCE {
                let (queue, ran, failed) = (queue.clone(), &ran, &failed);
                scope.spawn(move || {
                    loop {
                        let next = queue.lock().unwrap().next();
                        let Some(pod) = next else { return };
                        while cluster.call("ADD", pod).unwrap().code != 0 {
                            failed.fetch_add(1, Ordering::Relaxed);
                            assert!(Instant::now() < deadline, "{} never ran", pod.name);
                        }
                        ran.lock().unwrap().push(Instant::now());
                    }
                });
            }
        }
    });
    let mut ran = ran.into_inner().unwrap();
    ran.sort();
    Rush {
        ran,
        failed: failed.into_inner(),
    }
}

/// Every Pod has an address of its own.
fn all_served(cluster: &Cluster) {
    let claims = cluster.claims("g").unwrap();
    assert_eq!(claims.len(), PODS);
    let holders: BTreeSet<_> = claims
        .values()
        .map(|claim| claim["podUid"].to_string())
        .collect();
    assert_eq!(holders.len(), PODS, "no Pod has two");
}

/// How often the cloud was asked for an operation.
fn operations(cluster: &Cluster, name: &str) -> u64 {
    let calls = cluster.admin("GET", "/admin/cloud-calls", &Value::Null);
    calls.unwrap()[name].as_u64().unwrap_or_default()
}

fn answered(cluster: &Cluster, status: u16) -> usize {
    let calls = cluster.allocate_calls().unwrap();
    calls
        .iter()
        .filter(|call| call.status == Some(status))
        .count()
}

fn take(name: &str, settings: &Value) -> Option<Cluster> {
    let mut cluster = Cluster::take_with(name, NODES).unwrap()?;
    cluster.restart_provider(quick_but(settings)).unwrap();
    cluster.ready_global("g", "10.72.1.0-10.72.1.249").unwrap();
    // Every agent knows the pool before the rush.
    for node in cluster.node_names() {
        let probe = pod(&cluster, &format!("probe-{node}"), &node, &["g"]);
        cluster.add_in_the_end(&probe).unwrap();
        cluster.end(&probe).unwrap();
    }
    cluster.admin("POST", "/reset", &Value::Null).unwrap();
    cluster.await_entries("g", 0).unwrap();
    Some(cluster)
}

#[test]
#[ignore = "api level"]
fn scenario_70_two_hundred_pods_on_ten_nodes_all_run() {
    let name = "scenario_70_two_hundred_pods_on_ten_nodes_all_run";
    let settings = json!({ "rate": { "qps": 50, "burst": 100 } });
    let Some(cluster) = take(name, &settings) else {
        return;
    };
    rush(&cluster, Duration::from_secs(90));
    all_served(&cluster);
    cluster.finish().unwrap();
}

#[test]
#[ignore = "api level"]
fn scenario_71_a_slow_provider_serves_one_after_the_other() {
    let name = "scenario_71_a_slow_provider_serves_one_after_the_other";
    let full = env::var_os("SPIDERPOOL_SCENARIO_FULL").is_some();
    let faster = if full { 1 } else { 5 };
    let settings = json!({ "rate": { "qps": 2 * faster, "burst": 10 },
        "queueTimeoutMs": 30_000 / faster, "transactionTimeoutMs": 16_000 / faster });
    let Some(cluster) = take(name, &settings) else {
        return;
    };
    let created = operations(&cluster, "create");
    let rush = rush(&cluster, Duration::from_secs(300 / faster));
    all_served(&cluster);
    let gaps = rush.ran.windows(2).map(|pair| pair[1] - pair[0]);
    let longest = gaps.max().unwrap();
    assert!(longest < Duration::from_secs(30 / faster), "{longest:?}");
    // Whoever was refused had cost nothing: what was made is what is used.
    let refused = answered(&cluster, 429);
    assert!(refused > 0 && refused <= rush.failed, "{refused}");
    assert_eq!(answered(&cluster, 200), PODS);
    assert_eq!(operations(&cluster, "create"), created + 200);
    assert_eq!(operations(&cluster, "detach"), 0);
    let worker = cluster.worker(N1).unwrap();
    let limits = [("op", "allocate"), ("reason", "http_status")];
    let counted = worker
        .metric("spiderpool_iaas_rpc_failure_total", &limits)
        .unwrap();
    assert!(counted <= f64::from(u32::try_from(refused).unwrap()));
    cluster.finish().unwrap();
}
