//! Global pools: the first allocation, and the cache it leaves.

use serde_json::json;
use vm_tests::cluster::pools::global;
use vm_tests::cluster::{Cluster, N1, N2};

use crate::{counted, pod, refusal};

#[test]
#[ignore = "api level"]
fn scenario_26_the_first_pod_costs_exactly_one_call() {
    let name = "scenario_26_the_first_pod_costs_exactly_one_call";
    let Some(cluster) = Cluster::take(name).unwrap() else {
        return;
    };
    cluster.ready_global("g", "10.72.0.10-10.72.0.11").unwrap();
    let before = counted(&cluster, N1, "g", "cold_create");
    let a = pod(&cluster, "a", N1, &["g"]);
    let given = cluster.add_in_the_end(&a).unwrap();
    assert_eq!(given.ip(), "10.72.0.10");
    let calls = cluster.allocate_calls().unwrap();
    assert_eq!(calls.len(), 1);
    let (body, headers) = (&calls[0].body, &calls[0].headers);
    assert_eq!(body["nodeName"], N1);
    assert_eq!(body["podName"], "a");
    let item = &body["subEniRequests"][0];
    assert_eq!(item["ipv4PoolName"], "g");
    let parent = cluster.worker(N1).unwrap().parent_mac.to_string();
    assert_eq!(item["parentNicMac"], parent.as_str());
    let left: u64 = headers["x-request-timeout-ms"].parse().unwrap();
    assert!((1..=50_000).contains(&left), "{left}");
    let entry = cluster
        .await_entry("g", "10.72.0.10", |entry| entry["node"] == N1)
        .unwrap();
    assert_eq!(entry["mac"], given.mac.as_str());
    assert_eq!(entry["vlan"], given.vlan);
    assert!((counted(&cluster, N1, "g", "cold_create") - before - 1.0).abs() < 0.1);
    cluster.end(&a).unwrap();
    cluster.finish().unwrap();
}

#[test]
#[ignore = "api level"]
fn scenario_27_the_next_pod_of_the_node_has_the_same_for_nothing() {
    let name = "scenario_27_the_next_pod_of_the_node_has_the_same_for_nothing";
    let Some(cluster) = Cluster::take(name).unwrap() else {
        return;
    };
    cluster.ready_global("g", "10.72.0.10-10.72.0.11").unwrap();
    let a = pod(&cluster, "a", N1, &["g"]);
    let given = cluster.add_in_the_end(&a).unwrap();
    cluster.await_entries("g", 1).unwrap();
    cluster.end(&a).unwrap();
    let before = counted(&cluster, N1, "g", "cache_hit");
    let b = pod(&cluster, "b", N1, &["g"]);
    assert_eq!(cluster.add(&b).unwrap(), given);
    assert_eq!(cluster.allocate_calls().unwrap().len(), 1);
    assert!((counted(&cluster, N1, "g", "cache_hit") - before - 1.0).abs() < 0.1);
    cluster.end(&b).unwrap();
    cluster.finish().unwrap();
}

#[test]
#[ignore = "api level"]
fn scenario_28_another_node_makes_its_own_before_it_steals() {
    let name = "scenario_28_another_node_makes_its_own_before_it_steals";
    let Some(cluster) = Cluster::take(name).unwrap() else {
        return;
    };
    cluster.ready_global("g", "10.72.0.10-10.72.0.11").unwrap();
    let a = pod(&cluster, "a", N1, &["g"]);
    cluster.add_in_the_end(&a).unwrap();
    cluster.await_entries("g", 1).unwrap();
    cluster.end(&a).unwrap();
    let b = pod(&cluster, "b", N2, &["g"]);
    assert_eq!(cluster.add_in_the_end(&b).unwrap().ip(), "10.72.0.11");
    assert_eq!(cluster.entries("g").unwrap()["10.72.0.10"]["node"], N1);
    assert!(counted(&cluster, N2, "g", "cold_create") >= 1.0);
    assert!(counted(&cluster, N2, "g", "cold_steal") < 0.1);
    cluster.end(&b).unwrap();
    cluster.finish().unwrap();
}

#[test]
#[ignore = "api level"]
fn scenario_35_a_pool_without_skeleton_gives_nothing() {
    let name = "scenario_35_a_pool_without_skeleton_gives_nothing";
    let Some(cluster) = Cluster::take(name).unwrap() else {
        return;
    };
    let stall = json!([{ "kind": "publish-stall" }]);
    cluster.faults(&stall).unwrap();
    cluster.create_pool(&global("g", "10.72.0.10")).unwrap();
    let a = pod(&cluster, "a", N1, &["g"]);
    cluster
        .until("a refusal for want of metadata", || {
            Ok(refusal(&cluster, &a).contains("IaaS IP metadata not ready"))
        })
        .unwrap();
    assert_eq!(cluster.claims("g").unwrap().len(), 0);
    assert_eq!(cluster.allocate_calls().unwrap().len(), 0);
    cluster.faults(&json!([])).unwrap();
    cluster.await_entries("g", 0).unwrap();
    cluster.add_in_the_end(&a).unwrap();
    cluster.end(&a).unwrap();
    cluster.finish().unwrap();
}
