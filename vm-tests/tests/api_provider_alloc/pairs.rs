//! Two addresses of one sub-ENI: both or none, and always the same two.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use vm_tests::cluster::pods::{Given, network};
use vm_tests::cluster::pools::{global, pair, plain};
use vm_tests::cluster::settings::AgentSettings;
use vm_tests::cluster::{Cluster, N1, N2};

use crate::{pod, refusal};

/// The pair `p4`/`p6` of these addresses, known to both agents and without cache.
fn ready_pair(cluster: &Cluster, v4: &str, v6: &str) {
    for pool in pair(global("p4", v4), global("p6", v6)) {
        cluster.create_pool(&pool).unwrap();
    }
    cluster.await_entries("p4", 0).unwrap();
    let broken = json!([{ "op": "allocate", "kind": "status", "status": 500 }]);
    cluster.faults(&broken).unwrap();
    for node in [N1, N2] {
        let probe = pod(cluster, "probe", node, &["p4"]);
        cluster
            .until("an agent that knows the pair", || {
                Ok(refusal(cluster, &probe).contains("status 500"))
            })
            .unwrap();
        cluster.end(&probe).unwrap();
    }
    cluster.faults(&json!([])).unwrap();
    cluster.admin("POST", "/reset", &Value::Null).unwrap();
}

fn texts(given: &Given) -> Vec<String> {
    given.ips.iter().map(ToString::to_string).collect()
}

/// How many claims the two pools have.
fn held(cluster: &Cluster) -> [usize; 2] {
    ["p4", "p6"].map(|pool| cluster.claims(pool).unwrap().len())
}

#[test]
#[ignore = "api level"]
fn scenario_49_a_pair_is_one_item_of_one_call() {
    let name = "scenario_49_a_pair_is_one_item_of_one_call";
    let Some(cluster) = Cluster::take(name).unwrap() else {
        return;
    };
    ready_pair(&cluster, "10.72.0.10-10.72.0.11", "fd72::10-fd72::11");
    let a = pod(&cluster, "a", N1, &["p4"]);
    let given = cluster.add(&a).unwrap();
    assert_eq!(texts(&given), ["10.72.0.10", "fd72::10"]);
    let calls = cluster.allocate_calls().unwrap();
    assert_eq!(calls.len(), 1);
    let items = calls[0].body["subEniRequests"].as_array().unwrap();
    assert_eq!(items.len(), 1);
    for (key, value) in [
        ("ipv4Address", "10.72.0.10"),
        ("ipv6Address", "fd72::10"),
        ("ipv4PoolName", "p4"),
        ("ipv6PoolName", "p6"),
        ("subnet", "10.72.0.0/22"),
    ] {
        assert_eq!(items[0][key], value, "{key}");
    }
    assert_eq!(held(&cluster), [1, 1]);
    let entry = cluster.await_entry("p4", "10.72.0.10", |_| true).unwrap();
    assert_eq!(entry["ipv6"], "fd72::10");
    cluster.end(&a).unwrap();
    assert_eq!(held(&cluster), [0, 0]);
    cluster.finish().unwrap();
}

#[test]
#[ignore = "api level"]
fn scenario_50_a_cached_pair_stays_together() {
    let name = "scenario_50_a_cached_pair_stays_together";
    let Some(cluster) = Cluster::take(name).unwrap() else {
        return;
    };
    ready_pair(&cluster, "10.72.0.10-10.72.0.11", "fd72::10-fd72::11");
    let a = pod(&cluster, "a", N1, &["p4"]);
    let given = cluster.add(&a).unwrap();
    cluster.await_entries("p4", 1).unwrap();
    cluster.end(&a).unwrap();
    // Another node's new address leaves alone what the cached one has.
    let far = pod(&cluster, "far", N2, &["p4"]);
    let other = cluster.add(&far).unwrap();
    assert_eq!(texts(&other), ["10.72.0.11", "fd72::11"]);
    let b = pod(&cluster, "b", N1, &["p4"]);
    assert_eq!(cluster.add(&b).unwrap(), given);
    assert_eq!(cluster.allocate_calls().unwrap().len(), 2);
    cluster.end(&b).unwrap();
    cluster.end(&far).unwrap();
    cluster.finish().unwrap();
}

#[test]
#[ignore = "api level"]
fn scenario_51_without_a_second_address_there_is_no_first() {
    let name = "scenario_51_without_a_second_address_there_is_no_first";
    let Some(cluster) = Cluster::take(name).unwrap() else {
        return;
    };
    ready_pair(&cluster, "10.72.0.10-10.72.0.11", "fd72::10");
    let a = pod(&cluster, "a", N1, &["p4"]);
    cluster.add(&a).unwrap();
    let b = pod(&cluster, "b", N1, &["p4"]);
    let text = refusal(&cluster, &b);
    assert!(text.contains("all IP addresses used out"), "{text}");
    assert_eq!(held(&cluster), [1, 1]);
    assert_eq!(cluster.allocate_calls().unwrap().len(), 1);
    cluster.end(&a).unwrap();
    cluster.finish().unwrap();
}

/// Has the provider make these pairs on n1, as if its caches had come about so.
fn make_pairs(cluster: &Cluster, pairs: &BTreeMap<String, String>) {
    for (v4, v6) in pairs {
        let item = json!({ "ipv4Address": v4, "ipv4PoolName": "p4",
            "ipv6Address": v6, "ipv6PoolName": "p6", "subnet": "10.72.0.0/22",
            "parentNicMac": cluster.worker(N1).unwrap().parent_mac.to_string() });
        let status = cluster.allocate(N1, &item).unwrap();
        assert_eq!(status, 200, "{item}");
    }
    cluster.await_entries("p4", pairs.len()).unwrap();
}

#[test]
#[ignore = "api level"]
fn scenario_52_scrambled_pairs_stay_pairs_in_a_rush() {
    let name = "scenario_52_scrambled_pairs_stay_pairs_in_a_rush";
    let Some(cluster) = Cluster::take(name).unwrap() else {
        return;
    };
    ready_pair(&cluster, "10.72.0.10-10.72.0.15", "fd72::10-fd72::15");
    let pairs: BTreeMap<_, _> = [3, 5, 0, 4, 1, 2]
        .iter()
        .zip(0..)
        .map(|(v6, v4)| (format!("10.72.0.1{v4}"), format!("fd72::1{v6}")))
        .collect();
    make_pairs(&cluster, &pairs);
    let calls = cluster.allocate_calls().unwrap().len();
    let pods: Vec<_> = (0..6)
        .map(|n| pod(&cluster, &format!("a-{n}"), N1, &["p4"]))
        .collect();
    // An agent that has not seen the publication yet would call: kubelet's retry meets it.
    for outcome in cluster.add_at_once(&pods).unwrap() {
        outcome.result().unwrap();
    }
    let mut seen = BTreeSet::new();
    for pod in &pods {
        let ips = texts(&cluster.add(pod).unwrap());
        assert_eq!(pairs.get(&ips[0]), Some(&ips[1]), "{ips:?}");
        seen.extend(ips);
    }
    assert_eq!(seen.len(), 12, "{seen:?}");
    assert_eq!(cluster.allocate_calls().unwrap().len(), calls);
    for pod in &pods {
        cluster.end(pod).unwrap();
    }
    cluster.finish().unwrap();
}

#[test]
#[ignore = "api level"]
fn scenario_53_a_stale_view_of_a_pair_is_refused_and_rolled_back() {
    let name = "scenario_53_a_stale_view_of_a_pair_is_refused_and_rolled_back";
    let Some(cluster) = Cluster::take(name).unwrap() else {
        return;
    };
    ready_pair(&cluster, "10.72.0.10", "fd72::10-fd72::11");
    let pairs = BTreeMap::from([("10.72.0.10".to_owned(), "fd72::11".to_owned())]);
    make_pairs(&cluster, &pairs);
    // The agents are told of another partner.
    let text = json!({ "scope": "", "ips": { "10.72.0.10": {
        "mac": "fa:16:3e:00:00:01", "vlan": 7, "node": N1, "ipv6": "fd72::10" } } });
    let text = text.to_string();
    cluster.lie("p4", &text).unwrap();
    let a = pod(&cluster, "a", N2, &["p4"]);
    cluster
        .until("a refusal of the pair", || {
            let text = refusal(&cluster, &a);
            Ok(text.contains("status 400") && text.contains("PairMismatch"))
        })
        .unwrap();
    assert_eq!(held(&cluster), [0, 0]);
    cluster.faults(&json!([])).unwrap();
    let given = cluster.add_in_the_end(&a).unwrap();
    assert_eq!(texts(&given), ["10.72.0.10", "fd72::11"]);
    cluster.end(&a).unwrap();
    cluster.finish().unwrap();
}

#[test]
#[ignore = "api level"]
fn scenario_54_without_ipv6_a_pair_is_an_ipv4_pool() {
    let name = "scenario_54_without_ipv6_a_pair_is_an_ipv4_pool";
    let Some(mut cluster) = Cluster::take(name).unwrap() else {
        return;
    };
    let settings = AgentSettings {
        options: vec!["--enable-ipv6=false".to_owned()],
        ..AgentSettings::default()
    };
    cluster.restart_agent(N1, settings).unwrap();
    ready_pair(&cluster, "10.72.0.10", "fd72::10");
    let a = pod(&cluster, "a", N1, &["p4"]);
    assert_eq!(texts(&cluster.add(&a).unwrap()), ["10.72.0.10"]);
    assert_eq!(held(&cluster), [1, 0]);
    let calls = cluster.allocate_calls().unwrap();
    let item = &calls[0].body["subEniRequests"][0];
    assert_eq!(item["ipv6Address"].as_str().unwrap_or_default(), "");
    cluster.end(&a).unwrap();
    cluster.finish().unwrap();
}

#[test]
#[ignore = "api level"]
fn scenario_55_another_ipv6_pool_beside_a_pair_is_ignored() {
    let name = "scenario_55_another_ipv6_pool_beside_a_pair_is_ignored";
    let Some(cluster) = Cluster::take(name).unwrap() else {
        return;
    };
    cluster
        .create_pool(&plain("other6", "fd72::50-fd72::59"))
        .unwrap();
    ready_pair(&cluster, "10.72.0.10", "fd72::10");
    let conf = network(&["p4"], &["other6"]);
    let a = cluster.pod("a", N1, &conf).unwrap();
    let given = cluster.add(&a).unwrap();
    assert_eq!(texts(&given), ["10.72.0.10", "fd72::10"]);
    assert_eq!(cluster.claims("other6").unwrap().len(), 0);
    let log = cluster.worker(N1).unwrap().log();
    let told = |line: &str| line.contains("\"WARN\"") && line.contains("other6");
    assert!(log.lines().any(told), "{log}");
    cluster.end(&a).unwrap();
    cluster.finish().unwrap();
}
