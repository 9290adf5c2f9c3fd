//! What the provider writes into pools of an API server, next to agents that write too.

use kube::api::{Patch, PatchParams};
use provider_sim::settings::ReleasePolicy;
use serde_json::{Value, json};
use spiderpool_api::ip_meta::{EntryState, Metadata};
use spiderpool_iaas::error::CallError;

use crate::cluster::{Intruder, cluster};
use crate::rig::{item, pair, release, request};

#[tokio::test]
async fn a_global_pool_is_marked_at_once_and_follows_the_cloud() {
    let cluster = cluster().await;
    cluster.global().await;
    let status = cluster
        .until("g", "an empty envelope", |_, read| read.entries.is_empty())
        .await;
    assert_eq!(status["ipMetaData"]["metadata"], r#"{"ips":{},"scope":""}"#);
    assert_eq!(status["ipMetaData"]["observedGeneration"], 1);
    assert_eq!(
        (
            &status["ipMetaData"]["readyIPCount"],
            &status["ipMetaData"]["unreadyIPCount"]
        ),
        (&json!(0), &json!(10))
    );
    let wanted = request("n1", &[item("n1", "10.72.0.10", "g")]);
    cluster.claim("g", "10.72.0.10", "u-1").await;
    let bound = cluster.rig.allocate(&wanted).await.unwrap();
    let key = "10.72.0.10".parse().unwrap();
    let status = cluster
        .until("g", "the entry", |_, read| {
            match read.entries.get(&key).map(|entry| &entry.state) {
                Some(EntryState::Attached { node, vlan, mac }) => {
                    (node.as_deref(), Some(*vlan), Some(*mac))
                        == (Some("n1"), bound[0].vlan, bound[0].mac)
                }
                _ => false,
            }
        })
        .await;
    assert!(
        status["allocatedIPs"].as_str().unwrap().contains("u-1"),
        "{status}"
    );
    cluster.audit().await;
}

#[tokio::test]
async fn a_prewarm_pool_is_published_whole_once_its_parent_is_known() {
    let cluster = cluster().await;
    cluster.prewarm().await;
    cluster
        .rig
        .until("the pool is known", |service| {
            service.with(|world| world.memory.pools.len() == 1)
        })
        .await;
    assert!(cluster.pools.get("w").await.unwrap().data["status"]["ipMetaData"].is_null());
    cluster.name_parent("w").await;
    let status = cluster.until("w", "the entries", |_, _| true).await;
    let published = &status["ipMetaData"];
    let read = Metadata::decode(published["metadata"].as_str().unwrap()).unwrap();
    assert_eq!(
        (read.scope.as_str(), read.entries.len()),
        ("n1", 3),
        "whole or not at all"
    );
    assert_eq!(
        (&published["readyIPCount"], &published["unreadyIPCount"]),
        (&json!(3), &json!(0))
    );
    cluster.audit().await;
}

/// The old generation stays published until each new address was tried; what is taken out of a
/// pool goes.
#[tokio::test]
async fn a_prewarm_pool_follows_its_addresses() {
    let cluster = cluster().await;
    cluster.prewarm().await;
    cluster.name_parent("w").await;
    cluster.until("w", "the entries", |_, _| true).await;
    let patch = json!({ "spec": { "ips": ["10.72.0.30-10.72.0.35"] } });
    cluster
        .pools
        .patch("w", &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .unwrap();
    cluster
        .until("w", "the new addresses", |published, read| {
            assert_eq!(
                published["observedGeneration"] == 2,
                read.entries.len() == 5,
                "{published}"
            );
            read.entries.len() == 5
        })
        .await;
    let patch = json!({ "spec": { "ips": ["10.72.0.30"] } });
    cluster
        .pools
        .patch("w", &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .unwrap();
    cluster
        .until("w", "the old addresses gone", |_, read| {
            read.entries.len() == 1
        })
        .await;
    cluster
        .rig
        .until("their sub-ENIs are gone", |service| {
            service.with(|world| world.cloud.sub_enis().count() == 1)
        })
        .await;
    cluster.audit().await;
}

#[tokio::test]
async fn a_single_failure_is_a_missing_entry() {
    let cluster = cluster().await;
    cluster.rig.faults(json!([{ "op": "create", "match": { "ip": "10.72.0.32" }, "kind": "cloud-error", "times": 1 }]));
    cluster.prewarm().await;
    cluster.name_parent("w").await;
    let status = cluster.until("w", "what could be made", |_, _| true).await;
    assert_eq!(
        (
            &status["ipMetaData"]["readyIPCount"],
            &status["ipMetaData"]["unreadyIPCount"]
        ),
        (&json!(2), &json!(1))
    );
    cluster.rig.service.prewarm().await;
    cluster
        .until("w", "the rest", |_, read| read.entries.len() == 3)
        .await;
    cluster.audit().await;
}

#[tokio::test]
async fn a_pair_is_published_on_its_ipv4_pool_alone() {
    let cluster = cluster().await;
    let annotations = |other: &str| json!({ "ipam.spidernet.io/pair-pool": other });
    let v6 = json!({ "subnet": "fd72::/64", "ips": ["fd72::20-fd72::24"] });
    cluster
        .create(
            "p4",
            annotations("p6"),
            json!({ "subnet": "10.72.0.0/24", "ips": ["10.72.0.20-10.72.0.24"] }),
        )
        .await;
    cluster.create("p6", annotations("p4"), v6).await;
    cluster.until("p4", "the mark", |_, _| true).await;
    let wanted = request("n2", &[pair("n2", "10.72.0.20", "fd72::21")]);
    cluster
        .rig
        .until("both pools are known", |service| {
            service.with(|world| world.memory.pools.len() == 2)
        })
        .await;
    cluster.rig.allocate(&wanted).await.unwrap();
    let key = "10.72.0.20".parse().unwrap();
    let partner = Some("fd72::21".parse().unwrap());
    cluster
        .until("p4", "the pair", |_, read| {
            read.entries
                .get(&key)
                .is_some_and(|entry| entry.ipv6 == partner)
        })
        .await;
    assert!(cluster.pools.get("p6").await.unwrap().data["status"]["ipMetaData"].is_null());
    cluster.audit().await;
    // one address of a pair is not another Pod's
    cluster.claim("p6", "fd72::21", "u-2").await;
    for (uid, parted) in [("u-1", true), ("u-2", false)] {
        cluster.claim("p4", "10.72.0.20", uid).await;
        let found = cluster.rig.service.audit().await;
        let named = |text: &String| text.contains("u-1") && text.contains("u-2");
        assert_eq!(found.iter().any(named), parted, "{found:?}");
    }
    cluster.audit().await;
}

/// Scenario 33 from the provider's side: claims and publications race; neither is lost.
#[tokio::test]
async fn claims_and_publications_do_not_overwrite_each_other() {
    let cluster = cluster().await;
    cluster.global().await;
    cluster.until("g", "the mark", |_, _| true).await;
    let agents = (10..20).map(|host| {
        let cluster = &cluster;
        async move {
            let ip = format!("10.72.0.{host}");
            let uid = format!("u-{host}");
            let mut conflicts = 0;
            while let Err(error) = cluster.try_claim("g", &ip, &uid).await {
                assert!(
                    matches!(&error, kube::Error::Api(status) if status.code == 409),
                    "{error}"
                );
                conflicts += 1;
            }
            let node = if host % 4 == 0 { "n2" } else { "n1" };
            cluster
                .rig
                .allocate(&request(node, &[item(node, &ip, "g")]))
                .await
                .unwrap();
            conflicts
        }
    });
    let conflicts: usize = futures::future::join_all(agents).await.into_iter().sum();
    assert!(conflicts > 0, "nothing raced");
    let status = cluster
        .until("g", "all entries", |_, read| read.entries.len() == 10)
        .await;
    let claims: Value = serde_json::from_str(status["allocatedIPs"].as_str().unwrap()).unwrap();
    assert_eq!(claims.as_object().unwrap().len(), 10, "{claims}");
    cluster.audit().await;
}

/// Right before the provider's write an agent claims: the write is refused and made anew.
#[tokio::test]
async fn a_publication_is_conditional_on_what_was_read() {
    let cluster = cluster().await;
    cluster.global().await;
    cluster.until("g", "the mark", |_, _| true).await;
    let claim = Intruder::new(&cluster, "10.72.0.10", "u-1");
    let wanted = request("n1", &[item("n1", "10.72.0.10", "g")]);
    cluster.rig.allocate(&wanted).await.unwrap();
    let entry = |_: &Value, read: &Metadata| read.entries.len() == 1;
    let status = cluster.until("g", "the entry", entry).await;
    assert!(status["allocatedIPs"].as_str().unwrap().contains("u-1"));
    let answers = claim.answers();
    assert!(answers.contains(&409), "{answers:?}");
    cluster.audit().await;
}

/// P10: the entry is gone before the answer says that the address may be given out again.
#[tokio::test]
async fn a_recycled_address_is_withdrawn_before_the_answer() {
    let cluster = cluster().await;
    cluster.prewarm().await;
    cluster.name_parent("w").await;
    cluster.until("w", "the entries", |_, _| true).await;
    cluster
        .rig
        .service
        .with(|world| world.settings.release_policy = ReleasePolicy::Recycle);
    cluster
        .rig
        .service
        .with(|world| world.settings.latency.detach_ms = 50);
    let old = cluster.rig.at("10.72.0.30").unwrap().mac;
    cluster
        .rig
        .release(&release("n1", "10.72.0.30", "w"))
        .await
        .unwrap();
    let object = cluster.pools.get("w").await.unwrap();
    let text = object.data["status"]["ipMetaData"]["metadata"]
        .as_str()
        .unwrap();
    let key = "10.72.0.30".parse().unwrap();
    assert!(
        !Metadata::decode(text).unwrap().entries.contains_key(&key),
        "{text}"
    );
    cluster
        .until("w", "a new sub-ENI", |_, read| {
            match read.entries.get(&key).map(|entry| &entry.state) {
                Some(EntryState::Attached { mac, .. }) => *mac != old,
                _ => false,
            }
        })
        .await;
    cluster.audit().await;
}

/// The provider's duty (spec iaas 8): what cannot be withdrawn is not accepted, and stays usable.
#[tokio::test]
async fn a_release_is_not_accepted_before_its_entry_is_withdrawn() {
    let cluster = cluster().await;
    cluster.prewarm().await;
    cluster.name_parent("w").await;
    cluster.until("w", "the entries", |_, _| true).await;
    let set = |policy| {
        let service = &cluster.rig.service;
        service.with(|world| world.settings.release_policy = policy);
    };
    set(ReleasePolicy::Recycle);
    let before = cluster.rig.at("10.72.0.30");
    cluster
        .rig
        .faults(serde_json::json!([{ "kind": "publish-stall", "match": { "pool": "w" } }]));
    let wanted = release("n1", "10.72.0.30", "w");
    let error = cluster.rig.release(&wanted).await.unwrap_err();
    assert!(
        matches!(error, CallError::Status { status: 503, .. }),
        "{error}"
    );
    assert_eq!(cluster.rig.at("10.72.0.30"), before);
    set(ReleasePolicy::Keep);
    cluster.rig.release(&wanted).await.unwrap();
    set(ReleasePolicy::Recycle);
    cluster.rig.faults(json!([]));
    cluster.rig.release(&wanted).await.unwrap();
    cluster
        .rig
        .until("it is made anew", |service| {
            let ip = "10.72.0.30".parse().unwrap();
            let now = service.with(|world| world.cloud.by_address(ip).cloned());
            now.is_some_and(|now| Some(now.mac) != before.as_ref().map(|before| before.mac))
        })
        .await;
}

#[tokio::test]
async fn a_deleted_pool_leaves_no_sub_eni() {
    let cluster = cluster().await;
    cluster.global().await;
    cluster.until("g", "the mark", |_, _| true).await;
    cluster
        .rig
        .allocate(&request("n1", &[item("n1", "10.72.0.10", "g")]))
        .await
        .unwrap();
    cluster
        .pools
        .delete("g", &kube::api::DeleteParams::default())
        .await
        .unwrap();
    // in a cluster the controller takes its finalizer off once nothing is allocated
    let patch = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    cluster
        .pools
        .patch("g", &PatchParams::default(), &patch)
        .await
        .unwrap();
    cluster
        .rig
        .until("it is gone", |service| {
            service.with(|world| world.cloud.sub_enis().count() == 0)
        })
        .await;
    let text = cluster
        .rig
        .allocate(&request("n1", &[item("n1", "10.72.0.10", "g")]))
        .await
        .unwrap_err();
    assert!(text.contains("PoolNotFound"), "{text}");
    cluster.audit().await;
}
