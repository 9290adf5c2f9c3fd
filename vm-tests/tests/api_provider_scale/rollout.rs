//! Pods that follow others: the cache serves them, whatever becomes of the provider.

use serde_json::{Value, json};
use vm_tests::cluster::pods::Workload;
use vm_tests::cluster::settings::quick;
use vm_tests::cluster::{Cluster, N1, N2};

use crate::pod;

/// So many Pods of each node run for the first time, and one of them ends again: cache for its
/// successor.
fn warm(cluster: &Cluster, replicas: usize) -> Vec<Workload> {
    let mut pods = Vec::new();
    for node in [N1, N2] {
        for n in 0..=replicas {
            let pod = pod(cluster, &format!("old-{node}-{n}"), node, &["g"]);
            cluster.add_in_the_end(&pod).unwrap();
            pods.push(pod);
        }
    }
    cluster.await_entries("g", pods.len()).unwrap();
    for node in [N1, N2] {
        let at = pods.iter().rposition(|pod| pod.node == node).unwrap();
        cluster.end(&pods.remove(at)).unwrap();
    }
    pods
}

#[test]
#[ignore = "api level"]
fn scenario_72_a_rolling_restart_within_the_cache_costs_no_call() {
    let name = "scenario_72_a_rolling_restart_within_the_cache_costs_no_call";
    let Some(cluster) = Cluster::take(name).unwrap() else {
        return;
    };
    cluster.ready_global("g", "10.72.0.10-10.72.0.29").unwrap();
    // Eight replicas, ten sub-ENIs.
    let old = warm(&cluster, 4);
    let before = cluster.allocate_calls().unwrap().len();
    assert_eq!(before, 10);
    for pod in old {
        let next = pod.name.replace("old", "new");
        let successor = crate::pod(&cluster, &next, &pod.node, &["g"]);
        cluster.add(&successor).unwrap();
        cluster.end(&pod).unwrap();
    }
    assert_eq!(cluster.allocate_calls().unwrap().len(), before);
    assert_eq!(cluster.claims("g").unwrap().len(), 8);
    cluster.finish().unwrap();
}

#[test]
#[ignore = "api level"]
fn scenario_73_a_provider_that_restarts_delays_only_what_is_cold() {
    let name = "scenario_73_a_provider_that_restarts_delays_only_what_is_cold";
    let Some(mut cluster) = Cluster::take(name).unwrap() else {
        return;
    };
    cluster.ready_global("g", "10.72.0.10-10.72.0.29").unwrap();
    let old = warm(&cluster, 4);
    let macs = |cluster: &Cluster| {
        let all = cluster.provider().unwrap().sub_enis().unwrap();
        let mut macs: Vec<_> = all.iter().map(|sub| sub.mac.to_string()).collect();
        macs.sort();
        macs
    };
    let before = macs(&cluster);
    assert_eq!(before.len(), 10);
    cluster.kill_provider().unwrap();
    let mut cold = Vec::new();
    for pod in &old {
        let next = pod.name.replace("old", "new");
        let successor = crate::pod(&cluster, &next, &pod.node, &["g"]);
        cluster.add(&successor).unwrap();
        cluster.end(pod).unwrap();
        if cold.len() < 3 {
            // While the successor and the others run, one is idle on each node.
            let more = crate::pod(&cluster, &format!("hit-{next}"), &pod.node, &["g"]);
            cluster.add(&more).unwrap();
            let none = crate::pod(&cluster, &format!("cold-{next}"), &pod.node, &["g"]);
            cluster.refused(&none).unwrap();
            cluster.end(&more).unwrap();
            cold.push(none);
        }
    }
    // It knows nothing but what the cloud tells it.
    cluster.restart_provider(quick()).unwrap();
    assert_eq!(macs(&cluster), before, "all are found again");
    for pod in &cold {
        cluster.add_in_the_end(pod).unwrap();
    }
    cluster.admin("POST", "/admin/crash", &Value::Null).unwrap();
    cluster
        .until("a provider that knows its sub-ENIs", || {
            Ok(cluster.provider()?.audit()? == Vec::<String>::new())
        })
        .unwrap();
    assert_eq!(cluster.claims("g").unwrap().len(), 8 + cold.len());
    let made = macs(&cluster);
    assert!(before.iter().all(|mac| made.contains(mac)), "{made:?}");
    cluster.faults(&json!([])).unwrap();
    cluster.finish().unwrap();
}
