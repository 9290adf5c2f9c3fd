//! Sub-ENIs that hang on another node, or on none.

use serde_json::{Value, json};
use vm_tests::cluster::{Cluster, N1, N2};

use crate::{counted, pod, refusal};

/// A global pool of two addresses, both idle on n1.
fn both_idle_on_n1(cluster: &Cluster) {
    cluster.ready_global("g", "10.72.0.10-10.72.0.11").unwrap();
    let pods = [pod(cluster, "a", N1, &["g"]), pod(cluster, "b", N1, &["g"])];
    for pod in &pods {
        cluster.add_in_the_end(pod).unwrap();
    }
    cluster.await_entries("g", 2).unwrap();
    for pod in &pods {
        cluster.end(pod).unwrap();
    }
}

/// The parent NIC and VLAN of an address, as the fabric forwards.
fn forwarded(cluster: &Cluster, ip: &str) -> Vec<(String, u64)> {
    let table = cluster.admin("GET", "/admin/fabric", &Value::Null);
    let table = table.unwrap();
    let bindings = table["bindings"].as_array().unwrap().iter();
    let of_ip = bindings.filter(|binding| binding["ipv4"] == ip && binding["state"] == "bound");
    of_ip
        .map(|binding| {
            let parent = binding["parent"].as_str().unwrap().to_owned();
            (parent, binding["vlan"].as_u64().unwrap())
        })
        .collect()
}

#[test]
#[ignore = "api level"]
fn scenario_29_a_steal_moves_the_sub_eni_to_a_new_vlan() {
    let name = "scenario_29_a_steal_moves_the_sub_eni_to_a_new_vlan";
    let Some(cluster) = Cluster::take(name).unwrap() else {
        return;
    };
    both_idle_on_n1(&cluster);
    let before = cluster.entries("g").unwrap()["10.72.0.10"].clone();
    let parent = |node: &str| cluster.worker(node).unwrap().parent_mac.to_string();
    let at = forwarded(&cluster, "10.72.0.10");
    assert_eq!(at, [(parent(N1), before["vlan"].as_u64().unwrap())]);
    let c = pod(&cluster, "c", N2, &["g"]);
    let given = cluster.add_in_the_end(&c).unwrap();
    assert_eq!(given.ip(), "10.72.0.10");
    assert_eq!(before["mac"], given.mac.as_str());
    assert_ne!(before["vlan"], given.vlan);
    let at = forwarded(&cluster, "10.72.0.10");
    assert_eq!(at, [(parent(N2), given.vlan)]);
    assert_eq!(cluster.allocate_calls().unwrap().len(), 3);
    assert!(counted(&cluster, N2, "g", "cold_steal") >= 1.0);
    let entry = cluster
        .await_entry("g", "10.72.0.10", |entry| entry["node"] == N2)
        .unwrap();
    assert_eq!(entry["vlan"], given.vlan);
    cluster.end(&c).unwrap();
    cluster.finish().unwrap();
}

/// The published text with other values in the entry of an address.
fn publish_with(cluster: &Cluster, ip: &str, keys: &Value) {
    let mut ips = Value::Object(cluster.entries("g").unwrap());
    for (key, value) in keys.as_object().unwrap() {
        let entry = ips[ip].as_object_mut().unwrap();
        match value {
            Value::Null => drop(entry.remove(key)),
            value => drop(entry.insert(key.clone(), value.clone())),
        }
    }
    let text = json!({ "scope": "", "ips": ips }).to_string();
    cluster.lie("g", &text).unwrap();
}

#[test]
#[ignore = "api level"]
fn scenario_30_what_is_chosen_for_reclaim_is_stolen_first() {
    let name = "scenario_30_what_is_chosen_for_reclaim_is_stolen_first";
    let Some(cluster) = Cluster::take(name).unwrap() else {
        return;
    };
    both_idle_on_n1(&cluster);
    let marked = json!({ "detachTime": "2026-01-01T00:00:00Z" });
    publish_with(&cluster, "10.72.0.11", &marked);
    let c = pod(&cluster, "c", N2, &["g"]);
    assert_eq!(cluster.add_in_the_end(&c).unwrap().ip(), "10.72.0.11");
    cluster.faults(&json!([])).unwrap();
    cluster
        .await_entry("g", "10.72.0.11", |entry| entry["node"] == N2)
        .unwrap();
    let d = pod(&cluster, "d", N2, &["g"]);
    assert_eq!(cluster.add(&d).unwrap().ip(), "10.72.0.10");
    cluster.end(&c).unwrap();
    cluster.end(&d).unwrap();
    cluster.finish().unwrap();
}

#[test]
#[ignore = "api level"]
fn scenario_31_a_detached_sub_eni_is_attached_again() {
    let name = "scenario_31_a_detached_sub_eni_is_attached_again";
    let Some(cluster) = Cluster::take(name).unwrap() else {
        return;
    };
    both_idle_on_n1(&cluster);
    let detached = json!({ "node": null, "vlan": -1, "status": "unbound" });
    publish_with(&cluster, "10.72.0.10", &detached);
    let before = counted(&cluster, N2, "g", "cold_rebind");
    let c = pod(&cluster, "c", N2, &["g"]);
    let given = cluster.add_in_the_end(&c).unwrap();
    assert_eq!(given.ip(), "10.72.0.10");
    assert!((1..=4094).contains(&given.vlan));
    let in_cloud = cluster.provider().unwrap();
    let ip = "10.72.0.10".parse().unwrap();
    let state = in_cloud.sub_eni(ip).unwrap().unwrap().state;
    assert_eq!(
        state.vlan.map(|vlan| u64::from(vlan.get())),
        Some(given.vlan)
    );
    assert!((counted(&cluster, N2, "g", "cold_rebind") - before - 1.0).abs() < 0.1);
    cluster.faults(&json!([])).unwrap();
    cluster.end(&c).unwrap();
    cluster.finish().unwrap();
}

#[test]
#[ignore = "api level"]
fn scenario_32_a_sub_eni_on_its_way_off_is_never_chosen() {
    let name = "scenario_32_a_sub_eni_on_its_way_off_is_never_chosen";
    let Some(cluster) = Cluster::take(name).unwrap() else {
        return;
    };
    both_idle_on_n1(&cluster);
    for status in [json!("detaching"), Value::Null] {
        let leaving = json!({ "vlan": -1, "status": status });
        publish_with(&cluster, "10.72.0.10", &leaving);
        let a = pod(&cluster, "first", N1, &["g"]);
        assert_eq!(cluster.add_in_the_end(&a).unwrap().ip(), "10.72.0.11");
        for node in [N1, N2] {
            let b = pod(&cluster, "second", node, &["g"]);
            let text = refusal(&cluster, &b);
            assert!(text.contains("all IP addresses used out"), "{text}");
            cluster.end(&b).unwrap();
        }
        cluster.end(&a).unwrap();
    }
    cluster.faults(&json!([])).unwrap();
    cluster.finish().unwrap();
}
