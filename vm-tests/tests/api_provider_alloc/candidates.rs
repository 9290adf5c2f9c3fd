//! Which pools a Pod's address may come from.

use serde_json::{Value, json};
use spiderpool_api::names::{PARENT_NIC, POD_IPPOOLS};
use vm_tests::cluster::pods::{Workload, network};
use vm_tests::cluster::pools::{annotated, global, pair, plain, prewarm};
use vm_tests::cluster::{Cluster, N1, N2, PARENT};
use vm_tests::lab::cni_call::with_key;

use crate::{known, pod, refusal};

#[test]
#[ignore = "api level"]
fn scenario_20_prewarm_comes_before_global() {
    let name = "scenario_20_prewarm_comes_before_global";
    let Some(cluster) = Cluster::take(name).unwrap() else {
        return;
    };
    cluster.ready_prewarm("pw1", "10.72.0.10", N1, 1).unwrap();
    // Pools with an affinity come first among their like.
    let mut pool = global("g", "10.72.0.20-10.72.0.21");
    pool["spec"]["podAffinity"] = json!({ "matchLabels": { "app": "web" } });
    cluster.create_pool(&pool).unwrap();
    cluster.await_entries("g", 0).unwrap();
    let conf = network(&["g", "pw1"], &[]);
    let labels = json!({ "metadata": { "labels": { "app": "web" } } });
    let web = |name: &str| cluster.pod_with(name, N1, &conf, &labels).unwrap();
    let (first, second) = (web("first"), web("second"));
    // Both pools have to be known before the order shows.
    known(&cluster, N1, "pw1");
    assert_eq!(cluster.add_in_the_end(&first).unwrap().ip(), "10.72.0.10");
    assert_eq!(cluster.add_in_the_end(&second).unwrap().ip(), "10.72.0.20");
    assert_eq!(cluster.allocate_calls().unwrap().len(), 1);
    cluster.end(&first).unwrap();
    cluster.end(&second).unwrap();
    cluster.finish().unwrap();
}

#[test]
#[ignore = "api level"]
fn scenario_21_a_plain_pool_beside_a_global_one_is_never_used() {
    let name = "scenario_21_a_plain_pool_beside_a_global_one_is_never_used";
    let Some(cluster) = Cluster::take(name).unwrap() else {
        return;
    };
    cluster.create_pool(&plain("plain", "10.72.0.50")).unwrap();
    cluster.ready_global("g", "10.72.0.10").unwrap();
    known(&cluster, N1, "g");
    let pools = ["plain", "g"];
    let first = pod(&cluster, "first", N1, &pools);
    assert_eq!(cluster.add_in_the_end(&first).unwrap().ip(), "10.72.0.10");
    let second = pod(&cluster, "second", N1, &pools);
    let text = refusal(&cluster, &second);
    assert!(text.contains("all IP addresses used out"), "{text}");
    for pod in [&first, &second] {
        cluster
            .until("an event about the plain pool", || {
                let told = cluster.events(&pod.name, "IPPoolCandidateIgnored")?;
                Ok(told.iter().any(|text| text.contains("plain")))
            })
            .unwrap();
    }
    assert_eq!(cluster.claims("plain").unwrap().len(), 0);
    cluster.end(&first).unwrap();
    cluster.finish().unwrap();
}

#[test]
#[ignore = "api level"]
fn scenario_22_a_pair_beside_a_global_pool_is_dual_stack() {
    let name = "scenario_22_a_pair_beside_a_global_pool_is_dual_stack";
    let Some(cluster) = Cluster::take(name).unwrap() else {
        return;
    };
    cluster.ready_global("g", "10.72.0.50").unwrap();
    known(&cluster, N1, "g");
    for pool in pair(global("p4", "10.72.0.10"), global("p6", "fd72::10")) {
        cluster.create_pool(&pool).unwrap();
    }
    cluster.await_entries("p4", 0).unwrap();
    known(&cluster, N1, "p4");
    let both = pod(&cluster, "both", N1, &["g", "p4"]);
    let given = cluster.add_in_the_end(&both).unwrap();
    let ips: Vec<_> = given.ips.iter().map(ToString::to_string).collect();
    assert_eq!(ips, ["10.72.0.10", "fd72::10"]);
    // Every kept pool is tried, no dropped one.
    let more = pod(&cluster, "more", N1, &["g", "p4"]);
    let text = refusal(&cluster, &more);
    assert!(text.contains("all IP addresses used out"), "{text}");
    assert_eq!(cluster.claims("g").unwrap().len(), 0);
    cluster.end(&both).unwrap();
    cluster.finish().unwrap();
}

#[test]
#[ignore = "api level"]
fn scenario_23_the_class_is_decided_before_the_node() {
    let name = "scenario_23_the_class_is_decided_before_the_node";
    let Some(cluster) = Cluster::take(name).unwrap() else {
        return;
    };
    cluster.create_pool(&plain("plain", "10.72.0.50")).unwrap();
    cluster.ready_prewarm("pw2", "10.72.0.20", N2, 1).unwrap();
    let conf = with_key(&network(&["plain"], &[]), "type", json!("macvlan"));
    let first = cluster.pod("first", N1, &conf).unwrap();
    cluster
        .until("an agent that knows the plain pool", || {
            Ok(cluster.call("ADD", &first)?.code == 0)
        })
        .unwrap();
    cluster.end(&first).unwrap();
    let a = pod(&cluster, "a", N1, &["pw2", "plain"]);
    let text = refusal(&cluster, &a);
    assert!(text.contains("no IPPool available"), "{text}");
    assert_eq!(cluster.claims("plain").unwrap().len(), 0);
    cluster.finish().unwrap();
}

/// With a VLAN of the network's own, whatever the pool has.
#[test]
#[ignore = "api level"]
fn scenario_24_a_static_vlan_gets_no_address_of_a_provider() {
    let name = "scenario_24_a_static_vlan_gets_no_address_of_a_provider";
    let Some(cluster) = Cluster::take(name).unwrap() else {
        return;
    };
    cluster.ready_global("g", "10.72.0.10-10.72.0.11").unwrap();
    known(&cluster, N1, "g");
    cluster.await_entries("g", 1).unwrap();
    let calls = cluster.allocate_calls().unwrap().len();
    let mut conf = with_key(&network(&["g"], &[]), "type", json!("vlan"));
    conf["vlanId"] = json!(7);
    let a = cluster.pod("a", N1, &conf).unwrap();
    let hit = refusal(&cluster, &a);
    let text = "requires an eni-vlan SpiderMultusConfig";
    assert!(hit.contains(text), "{hit}");
    assert_eq!(cluster.claims("g").unwrap().len(), 0);
    // The same where only a cold address is left.
    let b = pod(&cluster, "b", N1, &["g"]);
    cluster.add(&b).unwrap();
    let cold = refusal(&cluster, &a);
    assert!(cold.contains(text), "{cold}");
    assert_eq!(cluster.claims("g").unwrap().len(), 1);
    assert_eq!(cluster.allocate_calls().unwrap().len(), calls);
    cluster.end(&b).unwrap();
    cluster.finish().unwrap();
}

/// A Pod of n1 with a NIC of pool pw1 and one of pool g, about to be asked for the first.
fn two_nics(cluster: &Cluster) -> Workload {
    let plan = json!([
        { "interface": "eth0", "ipv4": ["pw1"] }, { "interface": "net1", "ipv4": ["g"] },
    ]);
    let keys = json!({ "metadata": { "annotations": { POD_IPPOOLS: plan.to_string() } } });
    let pod = cluster.pod_with("both", N1, &network(&[], &[]), &keys);
    pod.unwrap()
}

#[test]
#[ignore = "api level"]
fn scenario_48_a_cold_nic_beside_a_warm_one_costs_one_item() {
    let name = "scenario_48_a_cold_nic_beside_a_warm_one_costs_one_item";
    let Some(cluster) = Cluster::take(name).unwrap() else {
        return;
    };
    cluster
        .create_pool(&prewarm("pw1", "10.72.0.10-10.72.0.11", N1))
        .unwrap();
    cluster.await_entries("pw1", 2).unwrap();
    // Of another NIC than the one of the call only the pool says what it hangs on.
    let pool = global("g", "10.72.0.20-10.72.0.21");
    cluster
        .create_pool(&annotated(pool, PARENT_NIC, PARENT))
        .unwrap();
    cluster.await_entries("g", 0).unwrap();
    known(&cluster, N1, "pw1");
    known(&cluster, N1, "g");
    cluster.await_entries("g", 1).unwrap();
    // The address that is warm on this node is taken: the next one is cold.
    let other = pod(&cluster, "other", N1, &["g"]);
    cluster.add(&other).unwrap();
    let both = two_nics(&cluster);
    let before = cluster.allocate_calls().unwrap().len();
    let broken = json!([{ "op": "allocate", "kind": "status", "status": 500, "times": 1 }]);
    cluster.faults(&broken).unwrap();
    let text = refusal(&cluster, &both);
    assert!(text.contains("status 500"), "{text}");
    // Of the two claims, the warm one is this Pod's for its next try.
    assert_eq!(cluster.claims("g").unwrap().len(), 1);
    let kept = cluster.claims("pw1").unwrap();
    assert_eq!(kept.len(), 1);
    assert_eq!(kept["10.72.0.10"]["podUid"], both.uid.as_str());

    assert_eq!(cluster.add(&both).unwrap().ip(), "10.72.0.10");
    let calls = cluster.allocate_calls().unwrap();
    assert_eq!(calls.len(), before + 2);
    for call in &calls[before..] {
        let items = call.body["subEniRequests"].as_array().unwrap();
        let ips: Vec<&Value> = items.iter().map(|item| &item["ipv4Address"]).collect();
        assert_eq!(ips, ["10.72.0.21"]);
    }
    let mut second = both.clone();
    second.ifname = "net1".to_owned();
    // An agent whose copy of the endpoint is a moment old may ask for the same once more.
    assert_eq!(cluster.add(&second).unwrap().ip(), "10.72.0.21");
    cluster.mark(&both).unwrap();
    cluster.del(&second).unwrap();
    cluster.end(&both).unwrap();
    cluster.end(&other).unwrap();
    cluster.finish().unwrap();
}
