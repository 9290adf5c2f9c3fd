//! Prewarm pools: what is ready is given, and nothing else.

use serde_json::json;
use vm_tests::cluster::pools::prewarm;
use vm_tests::cluster::{Cluster, N1};

use crate::{counted, pod, refusal};

/// Its fabric part, the way to the gateway, is `vm_provider`'s.
#[test]
#[ignore = "api level"]
fn scenario_14_a_prewarmed_address_costs_no_call() {
    let name = "scenario_14_a_prewarmed_address_costs_no_call";
    let Some(cluster) = Cluster::take(name).unwrap() else {
        return;
    };
    cluster
        .ready_prewarm("pw1", "10.72.0.10-10.72.0.12", N1, 3)
        .unwrap();
    let a = pod(&cluster, "a", N1, &["pw1"]);
    let given = cluster.add_in_the_end(&a).unwrap();
    assert_eq!(given.ip(), "10.72.0.10");
    let entry = &cluster.entries("pw1").unwrap()["10.72.0.10"];
    assert_eq!(entry["mac"], given.mac.as_str());
    assert_eq!(entry["vlan"], given.vlan);
    let claim = &cluster.claims("pw1").unwrap()["10.72.0.10"];
    assert_eq!(claim["podUid"], a.uid.as_str());
    assert_eq!(cluster.allocate_calls().unwrap().len(), 0);
    assert!(counted(&cluster, N1, "pw1", "cache_hit") >= 1.0);
    let line =
        "Skipping IaaS provider allocation call: all results are sourced from prewarm ipMetaData";
    assert!(cluster.logged(N1, line).unwrap() >= 1);
    cluster.end(&a).unwrap();
    cluster.finish().unwrap();
}

#[test]
#[ignore = "api level"]
fn scenario_15_as_many_pods_run_as_addresses_are_ready() {
    let name = "scenario_15_as_many_pods_run_as_addresses_are_ready";
    let Some(cluster) = Cluster::take(name).unwrap() else {
        return;
    };
    // Of twenty, the cloud makes the first three.
    let refused: Vec<_> = (13..30)
        .map(|octet| {
            json!({ "op": "create", "kind": "cloud-error",
                "match": { "ip": format!("10.72.0.{octet}") } })
        })
        .collect();
    cluster.faults(&json!(refused)).unwrap();
    let pool = prewarm("pw1", "10.72.0.10-10.72.0.29", N1);
    cluster.create_pool(&pool).unwrap();
    cluster.await_entries("pw1", 3).unwrap();
    let mut pods: Vec<_> = ["a", "b", "c", "d"]
        .iter()
        .map(|name| pod(&cluster, name, N1, &["pw1"]))
        .collect();
    let fourth = pods.pop().unwrap();
    for (pod, octet) in pods.iter().zip(10..) {
        let given = cluster.add_in_the_end(pod).unwrap();
        assert_eq!(given.ip(), format!("10.72.0.{octet}"));
    }
    let text = refusal(&cluster, &fourth);
    assert!(text.contains("all IP addresses used out"), "{text}");
    cluster.faults(&json!(refused[1..])).unwrap();
    cluster
        .admin("POST", "/admin/prewarm", &json!(null))
        .unwrap();
    cluster.await_entries("pw1", 4).unwrap();
    assert_eq!(cluster.add_in_the_end(&fourth).unwrap().ip(), "10.72.0.13");
    assert_eq!(cluster.allocate_calls().unwrap().len(), 0);
    cluster.end(&fourth).unwrap();
    for pod in &pods {
        cluster.end(pod).unwrap();
    }
    cluster.faults(&json!([])).unwrap();
    cluster
        .admin("POST", "/admin/prewarm", &json!(null))
        .unwrap();
    cluster.await_entries("pw1", 20).unwrap();
    cluster.finish().unwrap();
}
