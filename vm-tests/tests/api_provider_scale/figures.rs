//! What Prometheus is told of it.

use serde_json::json;
use vm_tests::cluster::{Cluster, N1, N2};

use crate::pod;

/// Node, metric and labels.
type Series<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)]);

/// The sum of a metric's series with these labels at a node's agent.
fn figure(cluster: &Cluster, node: &str, name: &str, labels: &[(&str, &str)]) -> f64 {
    let worker = cluster.worker(node).unwrap();
    worker
        .metric(&format!("spiderpool_{name}"), labels)
        .unwrap()
}

#[test]
#[ignore = "api level"]
fn scenario_74_every_way_of_an_allocation_is_counted_under_its_labels() {
    let name = "scenario_74_every_way_of_an_allocation_is_counted_under_its_labels";
    let Some(cluster) = Cluster::take(name).unwrap() else {
        return;
    };
    cluster.ready_prewarm("f-pw1", "10.72.0.10", N1, 1).unwrap();
    cluster.ready_global("f-g", "10.72.0.20").unwrap();
    let served = |name: &str, node: &str, pool: &str| {
        let pod = pod(&cluster, name, node, &[pool]);
        cluster.add_in_the_end(&pod).unwrap();
        cluster.end(&pod).unwrap();
    };
    served("hit", N1, "f-pw1");
    served("made", N1, "f-g");
    cluster
        .await_entry("f-g", "10.72.0.20", |entry| entry["node"] == N1)
        .unwrap();
    served("stolen", N2, "f-g");
    cluster
        .await_entry("f-g", "10.72.0.20", |entry| entry["node"] == N2)
        .unwrap();
    let broken = json!([{ "op": "allocate", "kind": "status", "status": 500 }]);
    cluster.faults(&broken).unwrap();
    let failed = pod(&cluster, "failed", N1, &["f-g"]);
    let rolled_back = figure(&cluster, N1, "iaas_claim_rollback_total", &[]);
    cluster.refused(&failed).unwrap();
    cluster.faults(&json!([])).unwrap();

    let allocation = "iaas_allocation_total";
    #[rustfmt::skip] // a series a line
    let counted: [Series<'_>; 8] = [
        (N1, allocation, &[("mode", "node"), ("path", "cache_hit"), ("pool", "f-pw1")]),
        (N1, allocation, &[("mode", "global"), ("path", "cold_create"), ("pool", "f-g")]),
        (N2, allocation, &[("mode", "global"), ("path", "cold_steal"), ("pool", "f-g")]),
        (N1, "iaas_allocation_failure_total", &[("mode", "global"), ("reason", "rpc_error"), ("pool", "f-g")]),
        (N1, "iaas_allocation_duration_seconds_count", &[("mode", "node"), ("path", "cache_hit"), ("pool", "f-pw1")]),
        (N1, "iaas_allocation_duration_seconds_count", &[("mode", "global"), ("path", "cold_create"), ("pool", "f-g")]),
        (N2, "iaas_rpc_duration_seconds_count", &[("op", "allocate")]),
        (N1, "iaas_rpc_failure_total", &[("op", "allocate"), ("reason", "http_status")]),
    ];
    for (node, name, labels) in counted {
        let value = figure(&cluster, node, name, labels);
        assert!(value >= 1.0, "{name} {labels:?} is {value}");
    }
    let exact = figure(&cluster, N1, allocation, &[("pool", "f-pw1")]);
    assert!((exact - 1.0).abs() < 0.1, "{exact}");
    let now = figure(&cluster, N1, "iaas_claim_rollback_total", &[]);
    assert!((now - rolled_back - 1.0).abs() < 0.1);
    faults_are_told_once(&cluster);
    cluster.finish().unwrap();
}

fn faults_are_told_once(cluster: &Cluster) {
    let entry = json!({ "mac": "fa:16:3e:00:00:01", "vlan": 5000, "node": N1 });
    let text = json!({ "scope": "", "ips": { "10.72.0.20": entry } }).to_string();
    told_once(cluster, "bad_entry", &text, "all IP addresses used out");
    told_once(cluster, "bad_json", "{", "IaaS IP metadata not ready");
}

/// However many Pods meet a publication, what is wrong in it is counted once.
fn told_once(cluster: &Cluster, reason: &str, text: &str, refusal: &str) {
    let failures = "iaas_metadata_decode_failure_total";
    let labels = [("reason", reason)];
    let before = figure(cluster, N1, failures, &labels);
    cluster.lie("f-g", text).unwrap();
    let pod = pod(cluster, &format!("reader-{}", &reason[4..]), N1, &["f-g"]);
    cluster
        .until(refusal, || {
            Ok(cluster.refused(&pod)?.details.contains(refusal))
        })
        .unwrap();
    for _ in 0..5 {
        cluster.refused(&pod).unwrap();
    }
    let now = figure(cluster, N1, failures, &labels);
    assert!((now - before - 1.0).abs() < 0.1, "{reason}: {before} {now}");
    cluster.faults(&json!([])).unwrap();
}
