//! Pools with a provider: who is told, in which order, and under which mark.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use spiderpool_api::allocation::Record;
use spiderpool_controller::gc::explain;
use spiderpool_controller::metrics::Shown;
use spiderpool_controller::objects::ObjectKey;
use spiderpool_iaas::fake::FakeProvider;
use spiderpool_iaas::provider::Generation;
use spiderpool_ipam::gc::Knobs;
use spiderpool_ipam::sticky::Switches;

use super::rig::{NODE, Rig, uid};

fn prewarm(pair: Option<&str>) -> Value {
    let mut marks =
        json!({"ipam.spidernet.io/iaas-provider": "lab", "ipam.spidernet.io/parent-nic": "eth1"});
    if let Some(pair) = pair {
        marks["ipam.spidernet.io/pair-pool"] = json!(pair);
    }
    marks
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prewarmed_pair_goes_with_one_call_and_not_before_it() {
    let mut rig = Rig::new(|_| {});
    rig.pool(
        "v4",
        prewarm(Some("v6")),
        &[("10.7.0.10", "ns/gone", "u-1")],
    )
    .await;
    rig.pool("v6", prewarm(None), &[("fd00:7::10", "ns/gone", "u-1")])
        .await;
    rig.provider.fail_release(500);
    let begun = tokio::time::Instant::now();
    rig.start();
    rig.until("the first call", async || {
        rig.provider.released().len() == 1
    })
    .await;
    let record = rig.records("v4").await;
    let record = record.get("10.7.0.10".parse().unwrap()).unwrap();
    let mark = record.releasing.clone().unwrap();
    assert!(mark.by.starts_with("controller/c-0/"), "{mark:?}");
    // Nobody may have taken the mark over by then, however long the process is stopped.
    let until = rig.provider.release_ends().first().copied().flatten();
    let within = until.expect("a deadline") - begun;
    assert!(within < Duration::from_secs(100), "{within:?}");
    rig.scan().await;
    assert_eq!(rig.recorded("v4").await, [""; 0]);
    assert_eq!(rig.recorded("v6").await, [""; 0]);
    let calls = rig.provider.released();
    assert_eq!(calls.len(), 2, "{calls:?}");
    let call = calls.last().unwrap();
    assert_eq!(
        (call.pool_name.as_str(), call.node_name.as_str()),
        ("v4", NODE)
    );
    assert_eq!(
        (call.pod_name.as_str(), call.pod_uid.as_str()),
        ("gone", uid("u-1").as_str())
    );
    assert_eq!(call.parent_nic_mac, None);
    assert_eq!(call.ip_address.to_string(), "10.7.0.10");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_published_parent_is_named() {
    let mut rig = Rig::new(|_| {});
    rig.pool("v4", prewarm(None), &[("10.7.0.10", "ns/gone", "u-1")])
        .await;
    let parent = json!({"parentNic": {"name": "eth1", "mac": "fa:16:3e:00:00:01"}});
    rig.patch_status("SpiderIPPool", "v4", parent).await;
    rig.start();
    rig.scan().await;
    let calls = rig.provider.released();
    assert_eq!(calls.len(), 1);
    assert_eq!(
        calls[0].parent_nic_mac.unwrap().to_string(),
        "fa:16:3e:00:00:01"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_and_global_pools_need_no_provider() {
    let mut rig = Rig::new(|_| {});
    let global = json!({"ipam.spidernet.io/iaas-provider": "lab"});
    rig.pool("global", global, &[("10.7.0.10", "ns/gone", "u-1")])
        .await;
    rig.start();
    rig.scan().await;
    assert_eq!(rig.recorded("global").await, [""; 0]);
    assert!(rig.provider.released().is_empty());
}

/// Contract version 1: the record says that the provider was asked, and for which node; marks of pools
/// say nothing.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_first_generation_bound_goes_by_its_record() {
    let mut rig = Rig::new(|_| {});
    rig.provider = Arc::new(FakeProvider::first_generation());
    rig.context.provider = Some(Arc::clone(&rig.provider) as _);
    let records = [
        ("10.7.0.10", "ns/gone", "u-1"),
        ("10.7.0.11", "ns/gone", "u-1"),
    ];
    rig.pool("v4", prewarm(None), &records).await;
    let mut held = rig.records("v4").await;
    let address = "10.7.0.10".parse().unwrap();
    let record = held.get(address).unwrap().clone();
    let node = Some("n7".to_owned());
    held.insert(address, Record { node, ..record });
    let status = json!({"allocatedIPs": held.encode()});
    rig.patch_status("SpiderIPPool", "v4", status).await;
    rig.provider.fail_release(503);
    rig.start();
    rig.until("the first call", async || {
        rig.provider.released().len() == 1
    })
    .await;
    rig.until("the other record goes", async || {
        rig.recorded("v4").await == ["10.7.0.10"]
    })
    .await;
    rig.scan().await;
    assert_eq!(rig.recorded("v4").await, [""; 0]);
    let calls = rig.provider.released();
    assert_eq!(calls.len(), 2, "{calls:?}");
    assert_eq!(
        (calls[1].node_name.as_str(), calls[1].ip_address.to_string()),
        ("n7", "10.7.0.10".to_owned())
    );
    let metrics = rig.context.metrics.text(Shown::Usual).unwrap();
    let shown = |name: &str, rest: &str| {
        let mut lines = metrics.lines().filter(|line| line.starts_with(name));
        lines.any(|line| line.ends_with(rest))
    };
    let failed = r#"op="release",reason="http_status"} 1"#;
    assert!(
        shown("spiderpool_iaas_rpc_failure_total{", failed),
        "{metrics}"
    );
    let timed = "spiderpool_iaas_rpc_duration_seconds_count{";
    assert!(shown(timed, r#"op="release"} 2"#), "{metrics}");
}

/// Agents of other releases wrote no node into records; their endpoints tell of the VLAN.
#[tokio::test(flavor = "multi_thread")]
async fn records_of_older_agents_go_by_their_endpoints_and_explain_agrees() {
    let mut rig = Rig::new(|_| {});
    rig.provider = Arc::new(FakeProvider::first_generation());
    rig.context.provider = Some(Arc::clone(&rig.provider) as _);
    let records = [
        ("10.7.0.10", "ns/bound", "u-1"),
        ("10.7.0.11", "ns/nowhere", "u-2"),
    ];
    rig.pool("v4", json!({}), &records).await;
    let status = json!({"allocatedIPs": json!({
        "10.7.0.10": {"pod": "ns/bound", "podUid": uid("u-1")},
        "10.7.0.11": {"pod": "ns/nowhere", "podUid": uid("u-2")},
        "10.7.0.12": {"pod": "ns/ours", "podUid": uid("u-3"), "nic": "eth0"},
    }).to_string()});
    rig.patch_status("SpiderIPPool", "v4", status).await;
    rig.sub_eni("ns/bound", "u-1", "n7", ("v4", "10.7.0.10"))
        .await;
    let explained = async |provider| {
        let settings = explain::Settings {
            sticky: Switches::ON,
            knobs: Knobs::default(),
            provider,
        };
        let mut hows = Vec::new();
        for word in ["bound", "nowhere", "ours"] {
            let subject = explain::Subject::Pod(ObjectKey::new("ns", word));
            let client = &rig.context.client;
            let told = explain::explain(client, &settings, &subject).await.unwrap();
            hows.extend(told.into_iter().map(|one| one.how.unwrap()));
        }
        hows
    };
    let first = explained(Some(Generation::First)).await;
    let [bound, nowhere, ours] = first.try_into().unwrap();
    assert_eq!(bound, "the provider first, then the record");
    assert!(
        nowhere.starts_with("the record alone: nothing tells"),
        "{nowhere}"
    );
    assert_eq!(ours, "the record alone");
    rig.start();
    rig.scan().await;
    assert_eq!(rig.recorded("v4").await, [""; 0]);
    let calls = rig.provider.released();
    assert_eq!(calls.len(), 1, "{calls:?}");
    assert_eq!(
        (calls[0].node_name.as_str(), calls[0].ip_address.to_string()),
        ("n7", "10.7.0.10".to_owned())
    );
}

/// Marks of pools mean what they mean to the collector.
#[tokio::test(flavor = "multi_thread")]
async fn explain_heeds_marks_as_the_collector_with_that_provider_does() {
    let rig = Rig::new(|_| {});
    rig.pool("v4", prewarm(None), &[("10.7.0.10", "ns/gone", "u-1")])
        .await;
    let record = json!({"10.7.0.10": {"pod": "ns/gone", "podUid": uid("u-1"), "nic": "eth0"}});
    rig.patch_status(
        "SpiderIPPool",
        "v4",
        json!({"allocatedIPs": record.to_string()}),
    )
    .await;
    for (provider, want) in [
        (
            Some(Generation::Second),
            "the provider first, then the record",
        ),
        (Some(Generation::First), "the record alone"),
        (
            None,
            "the record alone: the controller has no provider to tell",
        ),
    ] {
        let settings = explain::Settings {
            sticky: Switches::ON,
            knobs: Knobs::default(),
            provider,
        };
        let subject = explain::Subject::Address("10.7.0.10".parse().unwrap());
        let told = explain::explain(&rig.context.client, &settings, &subject).await;
        let [one] = told.unwrap().try_into().unwrap();
        assert_eq!(one.how.as_deref(), Some(want), "{provider:?}");
    }
}

/// Spec iaas 16: a rollback that could not be written leaves a claim without an endpoint.
#[tokio::test(flavor = "multi_thread")]
async fn scenario_47_a_claim_that_was_not_rolled_back_goes_with_its_pod() {
    let mut rig = Rig::new(|_| {});
    let global = json!({"ipam.spidernet.io/iaas-provider": "lab"});
    rig.pod("ns/new", "u-1", json!({"phase": "Pending"})).await;
    rig.pool("global", global, &[("10.7.0.10", "ns/new", "u-1")])
        .await;
    rig.start();
    rig.scan().await;
    // Its next ADD meets the same address.
    assert_eq!(rig.recorded("global").await, ["10.7.0.10"]);
    rig.delete_pod("ns/new").await;
    rig.scan().await;
    assert_eq!(rig.recorded("global").await, [""; 0]);
    assert!(rig.provider.released().is_empty());
}

/// Spec iaas 16: the agent is gone and the Pod was forced away.
#[tokio::test(flavor = "multi_thread")]
async fn scenario_62_a_release_names_node_and_pool_of_the_endpoint() {
    let mut rig = Rig::new(|_| {});
    rig.pool("v4", prewarm(None), &[("10.7.0.10", "ns/gone", "u-1")])
        .await;
    rig.sub_eni("ns/gone", "u-1", "n7", ("v4", "10.7.0.10"))
        .await;
    rig.start();
    rig.scan().await;
    let calls = rig.provider.released();
    assert_eq!(calls.len(), 1, "{calls:?}");
    let call = &calls[0];
    assert_eq!(
        (call.node_name.as_str(), call.pool_name.as_str()),
        ("n7", "v4")
    );
    assert_eq!(
        (call.pod_namespace.as_str(), call.pod_name.as_str()),
        ("ns", "gone")
    );
    assert_eq!(call.pod_uid, uid("u-1"));
    assert_eq!(call.subnet.to_string(), "10.7.0.0/24");
    assert_eq!(rig.recorded("v4").await, [""; 0]);
    assert!(!rig.has_endpoint("ns/gone").await);
}

/// Spec iaas 16.
#[tokio::test(flavor = "multi_thread")]
async fn scenario_63_without_an_endpoint_the_pool_names_the_node() {
    let mut rig = Rig::new(|_| {});
    let records = [
        ("10.7.0.10", "ns/gone", "u-1"),
        ("10.7.0.11", "ns/again", "u-2"),
    ];
    rig.pool("v4", prewarm(None), &records).await;
    // Of a later Pod of the name: its node is not the record's.
    rig.sub_eni("ns/again", "u-3", "n7", ("v4", "10.7.0.12"))
        .await;
    rig.start();
    rig.scan().await;
    let calls = rig.provider.released();
    let nodes: Vec<&str> = calls.iter().map(|call| call.node_name.as_str()).collect();
    assert_eq!(nodes, [NODE, NODE], "{calls:?}");
    assert_eq!(rig.recorded("v4").await, [""; 0]);
}

/// Nobody could ever release them, and the published sub-ENIs serve the next Pods; but it is said.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_provider_prewarmed_addresses_are_freed_and_that_is_told_once() {
    let mut rig = Rig::new(|_| {});
    rig.context.provider = None;
    let records = |uid: &'static str| [("10.7.0.10", "ns/gone", uid)];
    rig.pool("v4", prewarm(None), &records("u-1")).await;
    rig.pool("plain", json!({}), &[("fd00:7::10", "ns/gone", "u-1")])
        .await;
    rig.start();
    for uid in ["u-1", "u-2"] {
        rig.scan().await;
        assert_eq!(rig.recorded("v4").await, [""; 0], "{uid}");
        let told = rig.events("IaaSProviderNotConfigured").await;
        let pools: Vec<&str> = told.iter().map(|(pool, _)| pool.as_str()).collect();
        assert_eq!(pools, ["v4"]);
        assert!(told[0].1.contains("iaasNetworkProvider"), "{told:?}");
        rig.record("v4", &records("u-2")).await;
    }
    assert_eq!(rig.recorded("plain").await, [""; 0]);
    // What contract version 1 has bound is known by its record, whatever the pool.
    let record = json!({"pod": "ns/gone", "podUid": uid("u-1"), "nic": "eth0", "node": "n7"});
    let text = json!({"fd00:7::10": record}).to_string();
    rig.patch_status("SpiderIPPool", "plain", json!({"allocatedIPs": text}))
        .await;
    rig.scan().await;
    assert_eq!(rig.recorded("plain").await, [""; 0]);
    assert_eq!(rig.events("IaaSProviderNotConfigured").await.len(), 2);
}
