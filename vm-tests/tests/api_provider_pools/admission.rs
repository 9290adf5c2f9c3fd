//! What the webhooks make of pools with the marker.

use serde_json::{Value, json};
use spiderpool_api::names::{IAAS_PROVIDER, PAIR_POOL, PARENT_NIC};
use vm_tests::cluster::pods::network;
use vm_tests::cluster::pools::{annotated, global, pair, plain, prewarm};
use vm_tests::cluster::{Cluster, N1, N2};
use vm_tests::lab::api_client::POOLS;

fn take(name: &str) -> Option<Cluster> {
    let mut cluster = Cluster::take(name).unwrap()?;
    cluster.need_controller().unwrap();
    Some(cluster)
}

/// A merge patch of annotations.
fn annotations(keys: &Value) -> Value {
    json!({ "metadata": { "annotations": keys } })
}

/// Creating this is refused with all of these texts, as soon as the webhook knows the other pools.
fn refuses(cluster: &Cluster, pool: &Value, texts: &[&str]) {
    let path = format!("{POOLS}?dryRun=All");
    let refused = cluster.until_some("a refusal", || Ok(cluster.api.create(&path, pool).err()));
    let error = refused.unwrap().to_string();
    assert!(texts.iter().all(|text| error.contains(text)), "{error}");
}

/// Changing that is refused with this text.
fn refuses_change(cluster: &Cluster, name: &str, patch: &Value, text: &str) {
    let error = cluster.change_pool(name, patch).unwrap_err().to_string();
    assert!(error.contains(text), "{error}");
}

#[test]
#[ignore = "api level"]
fn scenario_07_the_label_follows_the_annotation() {
    let Some(cluster) = take("scenario_07_the_label_follows_the_annotation") else {
        return;
    };
    let label = |pool: Value| pool["metadata"]["labels"][IAAS_PROVIDER].clone();
    let made = cluster.create_pool(&global("g", "10.72.0.10")).unwrap();
    assert_eq!(label(made), "sim");
    for value in [json!("other"), Value::Null] {
        let keys = annotations(&json!({ IAAS_PROVIDER: value }));
        assert_eq!(label(cluster.change_pool("g", &keys).unwrap()), value);
    }
    cluster.finish().unwrap();
}

#[test]
#[ignore = "api level"]
fn scenario_08_a_prewarm_pool_needs_one_node_and_one_nic() {
    let Some(cluster) = take("scenario_08_a_prewarm_pool_needs_one_node_and_one_nic") else {
        return;
    };
    let good = prewarm("pw1", "10.72.0.10", N1);
    let mut without = good.clone();
    without["metadata"]["annotations"]
        .as_object_mut()
        .unwrap()
        .remove(PARENT_NIC);
    let text = "requires annotation ipam.spidernet.io/parent-nic";
    refuses(&cluster, &without, &[text]);
    let two = annotated(good.clone(), PARENT_NIC, "eth1,eth2");
    refuses(&cluster, &two, &["must be a single NIC name"]);
    let mut nodes = good.clone();
    nodes["spec"]["nodeName"] = json!([N1, N2]);
    refuses(&cluster, &nodes, &["pinned to exactly one node"]);
    cluster.create_pool(&good).unwrap();
    cluster.await_entries("pw1", 1).unwrap();
    cluster.finish().unwrap();
}

#[test]
#[ignore = "api level"]
fn scenario_09_a_pool_stays_prewarm_or_global() {
    let Some(cluster) = take("scenario_09_a_pool_stays_prewarm_or_global") else {
        return;
    };
    cluster.ready_prewarm("pw1", "10.72.0.10", N1, 1).unwrap();
    cluster.ready_global("g", "10.72.0.20").unwrap();
    let text = "cannot add or remove 'spec.nodeName' on an IaaS pool";
    for (pool, nodes) in [("pw1", json!([])), ("g", json!([N1]))] {
        let patch = json!({ "spec": { "nodeName": nodes } });
        refuses_change(&cluster, pool, &patch, text);
    }
    cluster.finish().unwrap();
}

#[test]
#[ignore = "api level"]
fn scenario_10_claims_hold_marker_and_parent_nic() {
    let Some(cluster) = take("scenario_10_claims_hold_marker_and_parent_nic") else {
        return;
    };
    cluster.ready_global("g", "10.72.0.10").unwrap();
    let pod = cluster.pod("a", N1, &network(&["g"], &[])).unwrap();
    cluster.add_in_the_end(&pod).unwrap();
    let change = |key: &str, value: Value| annotations(&json!({ key: value }));
    let text = "cannot remove annotation";
    refuses_change(&cluster, "g", &change(IAAS_PROVIDER, Value::Null), text);
    // One that was missing may come.
    cluster
        .change_pool("g", &change(PARENT_NIC, json!("eth1")))
        .unwrap();
    refuses_change(&cluster, "g", &change(PARENT_NIC, Value::Null), text);
    let text = "while the IPPool has allocated IPs";
    refuses_change(&cluster, "g", &change(PARENT_NIC, json!("eth2")), text);
    cluster.end(&pod).unwrap();
    cluster
        .change_pool("g", &change(PARENT_NIC, json!("eth2")))
        .unwrap();
    cluster.finish().unwrap();
}

#[test]
#[ignore = "api level"]
fn scenario_11_a_pair_has_two_families_of_one_shape() {
    let Some(cluster) = take("scenario_11_a_pair_has_two_families_of_one_shape") else {
        return;
    };
    let p4 = || global("p4", "10.72.0.10-10.72.0.12");
    let itself = annotated(p4(), PAIR_POOL, "p4");
    refuses(&cluster, &itself, &["cannot reference itself"]);

    cluster
        .create_pool(&plain("same", "10.72.0.50-10.72.0.59"))
        .unwrap();
    let same = annotated(p4(), PAIR_POOL, "same");
    refuses(&cluster, &same, &["opposite IP version"]);

    // The partner may come later.
    let [v4, v6] = pair(p4(), global("p6", "fd72::10-fd72::11"));
    cluster.create_pool(&v4).unwrap();
    refuses(&cluster, &v6, &["p4", "p6", "3", "2"]);
    let [_, mut v6] = pair(p4(), prewarm("p6", "fd72::10-fd72::12", N1));
    refuses(&cluster, &v6, &["nodeName"]);
    v6 = pair(p4(), global("p6", "fd72::10-fd72::12"))[1].clone();
    cluster.create_pool(&v6).unwrap();
    cluster.await_entries("p4", 0).unwrap();
    cluster.finish().unwrap();
}
