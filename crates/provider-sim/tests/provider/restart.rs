//! A provider that loses its memory: 503 until it is rebuilt from the cloud (P17), nothing published
//! of what it does not know.

use std::time::Duration;

use axum::http::StatusCode;
use provider_sim::cloud::Operation;
use serde_json::{Value, json};
use spiderpool_api::ip_meta::{EntryState, Metadata};

use crate::cluster::cluster;
use crate::console::{get, send};
use crate::rig::{item, pair, release, request, rig};

/// Scenario 73 from the provider's side.
#[tokio::test]
async fn it_answers_503_until_it_knows_everything_again() {
    let cluster = cluster().await;
    cluster.global().await;
    cluster.prewarm().await;
    cluster.name_parent("w").await;
    cluster.until("g", "the mark", |_, _| true).await;
    let before = cluster.until("w", "the entries", |_, _| true).await["ipMetaData"].clone();
    let wanted = request("n1", &[item("n1", "10.72.0.10", "g")]);
    let bound = cluster.rig.allocate(&wanted).await.unwrap();
    cluster
        .until("g", "the entry", |_, read| read.entries.len() == 1)
        .await;
    let crash = async {
        let told = json!({ "downMs": 2_000 });
        let status = send(&cluster.rig, "POST", "/admin/crash", &told).await;
        assert_eq!(status, StatusCode::NO_CONTENT);
    };
    let meanwhile = async {
        cluster
            .rig
            .until("it is down", |service| !service.is_ready())
            .await;
        let text = cluster.rig.allocate(&wanted).await.unwrap_err();
        assert!(
            text.contains("status 503") && text.contains("NotReady"),
            "{text}"
        );
        // a pool that appears now is found by the list that follows
        let v6 = json!({ "subnet": "10.72.0.0/24", "ips": ["10.72.0.20"] });
        cluster.create("late", json!({}), v6).await;
        cluster.rig.service.flush().await;
        let entry = |_: &Value, read: &Metadata| read.entries.len() == 1;
        cluster.until("g", "the entry is still there", entry).await;
    };
    futures::join!(crash, meanwhile);
    assert!(cluster.rig.service.is_ready());
    assert_eq!(
        cluster.rig.allocate(&wanted).await.unwrap(),
        bound,
        "found again"
    );
    cluster.until("late", "the mark", |_, _| true).await;
    let creates = cluster.rig.calls(Operation::Create);
    cluster.rig.service.prewarm().await;
    assert_eq!(
        cluster.rig.calls(Operation::Create),
        creates,
        "nothing is made twice"
    );
    let after = cluster.pools.get("w").await.unwrap().data["status"]["ipMetaData"].clone();
    assert_eq!(after, before);
    cluster.audit().await;
}

/// P9: an evaluation that is cut short publishes nothing.
#[tokio::test]
async fn a_prewarm_that_is_cut_short_publishes_nothing() {
    let cluster = cluster().await;
    cluster.rig.faults(json!([{ "op": "attach", "match": { "ip": "10.72.0.33" }, "kind": "delay", "delayMs": 300, "times": 1 }]));
    cluster.prewarm().await;
    cluster.name_parent("w").await;
    cluster
        .rig
        .until("two of three are made", |service| {
            service.with(|world| world.memory.all().count() == 3)
        })
        .await;
    cluster.rig.service.crash(Duration::from_millis(50)).await;
    let whole = cluster.until("w", "the entries", |_, _| true).await;
    let text = whole["ipMetaData"]["metadata"].as_str().unwrap();
    assert_eq!(
        Metadata::decode(text).unwrap().entries.len(),
        3,
        "the first that is said is whole"
    );
    cluster.audit().await;
}

/// A pool that went while nobody looked: its sub-ENIs go with the restart.
#[tokio::test]
async fn what_is_of_no_pool_any_more_is_removed() {
    let cluster = cluster().await;
    cluster.global().await;
    cluster.until("g", "the mark", |_, _| true).await;
    let wanted = request("n1", &[item("n1", "10.72.0.10", "g")]);
    cluster.rig.allocate(&wanted).await.unwrap();
    let vanish = async {
        cluster
            .rig
            .until("it is down", |service| !service.is_ready())
            .await;
        let gone = kube::api::DeleteParams::default();
        cluster.pools.delete("g", &gone).await.unwrap();
        let freed = kube::api::Patch::Merge(json!({ "metadata": { "finalizers": null } }));
        let params = kube::api::PatchParams::default();
        cluster.pools.patch("g", &params, &freed).await.unwrap();
    };
    futures::join!(cluster.rig.service.crash(Duration::from_secs(2)), vanish);
    cluster
        .rig
        .until("its sub-ENI is gone", |service| {
            service.with(|world| world.cloud.sub_enis().count() == 0)
        })
        .await;
    cluster.audit().await;
}

/// A choice for reclaim and an announcement do not outlive the memory that made them.
#[tokio::test]
async fn what_was_announced_before_is_taken_back() {
    let cluster = cluster().await;
    cluster.global().await;
    cluster.until("g", "the mark", |_, _| true).await;
    for host in 10..16 {
        let wanted = request("n1", &[item("n1", &format!("10.72.0.{host}"), "g")]);
        cluster.rig.allocate(&wanted).await.unwrap();
    }
    send(
        &cluster.rig,
        "POST",
        "/admin/watermarks",
        &json!({ "graceMs": 600_000 }),
    )
    .await;
    send(&cluster.rig, "POST", "/admin/reclaim", &json!(null)).await;
    let key = "10.72.0.10".parse().unwrap();
    let chosen = |read: &Metadata| read.entries[&key].detach_time.is_some();
    cluster
        .until("g", "it is chosen", |_, read| {
            read.entries.len() == 6 && chosen(read)
        })
        .await;
    send(&cluster.rig, "POST", "/admin/crash", &json!(null)).await;
    cluster
        .until("g", "it is not", |_, read| {
            let attached = matches!(read.entries[&key].state, EntryState::Attached { .. });
            attached && !chosen(read)
        })
        .await;
    cluster.audit().await;
}

/// A wiped cloud is noticed by the restart: what is claimed is a finding until it is bound again.
#[tokio::test]
async fn a_wiped_cloud_is_made_anew_on_demand() {
    let cluster = cluster().await;
    cluster.global().await;
    cluster.until("g", "the mark", |_, _| true).await;
    cluster.claim("g", "10.72.0.10", "u-1").await;
    let wanted = request("n1", &[item("n1", "10.72.0.10", "g")]);
    let before = cluster.rig.allocate(&wanted).await.unwrap();
    send(&cluster.rig, "POST", "/admin/wipe-cloud", &json!(null)).await;
    send(&cluster.rig, "POST", "/admin/crash", &json!(null)).await;
    cluster
        .until("g", "no entry", |_, read| read.entries.is_empty())
        .await;
    let found = cluster.rig.service.audit().await;
    assert_eq!(
        found,
        ["pool g: 10.72.0.10 is claimed by u-1 and not bound"]
    );
    let after = cluster.rig.allocate(&wanted).await.unwrap();
    assert_ne!(after[0].mac, before[0].mac);
    cluster.audit().await;
}

/// The fabric forwards later than the cloud says "bound" (spec iaas 15.3).
#[tokio::test(start_paused = true)]
async fn frames_pass_after_the_delay_that_is_set() {
    let mut rig = rig().await;
    rig.service
        .with(|world| world.settings.forwarding_delay_ms = 700);
    let service = std::sync::Arc::clone(&rig.service);
    rig.run(async move { service.forward_forever().await });
    let wanted = request("n1", &[pair("n1", "10.72.0.20", "fd72::20")]);
    std::sync::Arc::clone(&rig.service)
        .bind_all(wanted)
        .await
        .unwrap();
    let state = || rig.service.with(|world| world.forwarded()[0].state);
    assert_eq!(state(), provider_sim::topology::BindingState::Unbound);
    let bound = rig.service.now();
    while state() != provider_sim::topology::BindingState::Bound {
        tokio::time::advance(Duration::from_millis(10)).await;
        tokio::task::yield_now().await;
    }
    let took = rig.service.now().saturating_sub(bound);
    assert!((690..=720).contains(&took.as_millis()), "{took:?}");
    let freed = std::sync::Arc::clone(&rig.service);
    freed
        .release(release("n1", "10.72.0.20", "p4"))
        .await
        .unwrap();
}

#[tokio::test]
async fn a_topology_is_checked_before_it_is_taken_over() {
    let rig = rig().await;
    let whole = get(&rig, "/admin/fabric").await;
    assert_eq!(whole["bindings"], json!([]));
    assert_eq!(get(&rig, "/admin/drops").await["dropped"], 0);
    let mut topology = serde_json::to_value(crate::rig::topology()).unwrap();
    topology["parents"][1]["subEniLimit"] = 9.into();
    assert_eq!(
        send(&rig, "PUT", "/admin/topology", &topology).await,
        StatusCode::NO_CONTENT
    );
    assert_eq!(
        rig.service
            .with(|world| world.cloud.limit_of("fa:16:3e:01:00:02".parse().unwrap())),
        Some(9)
    );
    topology["pools"][0]["ips"] = json!(["10.99.0.1"]);
    assert_eq!(
        send(&rig, "PUT", "/admin/topology", &topology).await,
        StatusCode::BAD_REQUEST
    );
    let misspelt = json!([{ "op": "create", "kind": "bad-json" }]);
    assert_eq!(
        send(&rig, "POST", "/admin/faults", &misspelt).await,
        StatusCode::BAD_REQUEST
    );
}
