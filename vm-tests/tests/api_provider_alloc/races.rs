//! Provider and agent at the same address at the same moment, and Pods that move.

use serde_json::{Value, json};
use vm_tests::cluster::pods::{Workload, network};
use vm_tests::cluster::{Cluster, N1, N2};

use crate::counted;

const SETS: &str = "/apis/apps/v1/namespaces/default/statefulsets";

/// Makes the StatefulSet `web` of one Pod; what makes a Pod its `web-0`.
fn stateful(cluster: &Cluster) -> Value {
    let set = json!({ "apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": { "name": "web" },
        "spec": { "replicas": 1, "serviceName": "web",
            "selector": { "matchLabels": { "app": "web" } },
            "template": { "metadata": { "labels": { "app": "web" } },
                "spec": { "containers": [{ "name": "c", "image": "none" }] } } } });
    let made = cluster.api.create(SETS, &set).unwrap();
    let owner = json!({ "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web",
        "uid": made["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true });
    json!({ "metadata": { "labels": { "app": "web" }, "ownerReferences": [owner] } })
}

fn ordinal(cluster: &Cluster, node: &str, keys: &Value) -> Workload {
    let conf = network(&["g"], &[]);
    cluster.pod_with("web-0", node, &conf, keys).unwrap()
}

#[test]
#[ignore = "api level"]
fn scenario_75_an_ordinal_that_moves_takes_its_address_along() {
    let name = "scenario_75_an_ordinal_that_moves_takes_its_address_along";
    let Some(cluster) = Cluster::take(name).unwrap() else {
        return;
    };
    cluster.ready_global("g", "10.72.0.10-10.72.0.12").unwrap();
    let keys = stateful(&cluster);
    let first = ordinal(&cluster, N1, &keys);
    let before = cluster.add_in_the_end(&first).unwrap();
    cluster.end(&first).unwrap();
    assert_eq!(cluster.claims("g").unwrap().len(), 1, "kept for the next");
    cluster.await_entries("g", 1).unwrap();

    let second = ordinal(&cluster, N2, &keys);
    let given = cluster.add_in_the_end(&second).unwrap();
    assert_eq!((given.ips.clone(), &given.mac), (before.ips, &before.mac));
    assert_ne!(given.vlan, before.vlan);
    let calls = cluster.allocate_calls().unwrap();
    assert_eq!(calls.len(), 2);
    assert_eq!(calls[1].body["nodeName"], N2);
    // `add` has compared the endpoint with the result.
    let nic = cluster.endpoint_nic(&second).unwrap().unwrap();
    assert_eq!(nic["vlan"], given.vlan);
    assert!(counted(&cluster, N2, "g", "cache_hit") < 0.1);
    cluster
        .api
        .delete(&format!("{SETS}/web?gracePeriodSeconds=0"))
        .unwrap();
    cluster.end(&second).unwrap();
    cluster.finish().unwrap();
}
