//! The rules of pools where they run: inside the writer.

use std::sync::Arc;

use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use spiderpool_api::ippool::SpiderIPPool;
use spiderpool_embedded_api::{HistoryLimits, IpamAdmission};

use crate::rig::{Rig, code, from, pool, rig_under, within};

fn ruled() -> Rig {
    rig_under(Arc::new(IpamAdmission::default()), HistoryLimits::default())
}

#[tokio::test(flavor = "multi_thread")]
async fn pools_are_completed_checked_and_protected() {
    let rig = ruled();
    let pools: Api<SpiderIPPool> = Api::all(rig.client);
    let made = pools
        .create(&PostParams::default(), &pool("p"))
        .await
        .unwrap();
    assert_eq!(made.spec.ip_version, Some(4));
    assert_eq!(made.finalizers(), ["spiderpool.spidernet.io"]);
    let wrong: SpiderIPPool = from(json!({"metadata": {"name": "w"},
        "apiVersion": "spiderpool.spidernet.io/v2beta1", "kind": "SpiderIPPool",
        "spec": {"subnet": "10.9.0.0/24", "ips": ["10.8.0.1"]}}));
    match pools.create(&PostParams::default(), &wrong).await {
        Err(kube::Error::Api(status)) => {
            assert_eq!((status.code, status.reason.as_str()), (422, "Invalid"));
            let start = "SpiderIPPool.spiderpool.spidernet.io \"w\" is invalid: spec.ips";
            assert!(status.message.starts_with(start), "{}", status.message);
            assert_eq!(status.details.unwrap().causes.len(), 1);
        }
        other => panic!("{other:?}"),
    }
    // status writes are not reviewed, deletions are
    let used = Patch::Merge(json!({"status": {"allocatedIPCount": 1,
        "allocatedIPs": "{\"10.7.0.9\":{\"pod\":\"a/b\",\"podUid\":\"u\"}}"}}));
    pools
        .patch_status("p", &PatchParams::default(), &used)
        .await
        .unwrap();
    assert_eq!(code(pools.delete("p", &DeleteParams::default()).await), 403);
    let free = Patch::Merge(json!({"status": {"allocatedIPCount": 0, "allocatedIPs": null}}));
    pools
        .patch_status("p", &PatchParams::default(), &free)
        .await
        .unwrap();
    pools
        .delete("p", &DeleteParams::default())
        .await
        .unwrap()
        .unwrap_left();
    let release = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    pools
        .patch("p", &PatchParams::default(), &release)
        .await
        .unwrap();
    assert_eq!(code(pools.get("p").await), 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_between_objects_do_not_race() {
    let rig = ruled();
    let pools: Api<SpiderIPPool> = Api::all(rig.client);
    // the same address in twenty pools at once
    let attempts = (0..20).map(|i| {
        let pools = pools.clone();
        async move {
            pools
                .create(&PostParams::default(), &pool(&format!("p{i}")))
                .await
                .is_ok()
        }
    });
    let made = within(futures::future::join_all(attempts)).await;
    assert_eq!(made.iter().filter(|ok| **ok).count(), 1);
    assert_eq!(
        pools
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
            .len(),
        1
    );
}

/// What a creation of object `x` comes to: its spec as stored, or the refusal.
async fn creation(client: &Client, kind: &str, spec: Value) -> String {
    let object: DynamicObject = from(json!({"apiVersion": "spiderpool.spidernet.io/v2beta1",
        "kind": kind, "metadata": {"name": "x"}, "spec": spec}));
    let of = GroupVersionKind::gvk("spiderpool.spidernet.io", "v2beta1", kind);
    let resource = ApiResource::from_gvk(&of);
    let api: Api<DynamicObject> = if kind == "SpiderMultusConfig" {
        Api::namespaced_with(client.clone(), "default", &resource)
    } else {
        Api::all_with(client.clone(), &resource)
    };
    match api.create(&PostParams::default(), &object).await {
        Ok(made) => made.data["spec"].to_string(),
        Err(kube::Error::Api(status)) => format!("{} {}", status.code, status.message),
        Err(other) => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_has_its_rules() {
    let rig = ruled();
    for (kind, spec, want) in [
        ("SpiderSubnet", json!({"subnet": "10.7.0.0/33"}), "422"),
        (
            "SpiderSubnet",
            json!({"subnet": "10.7.0.0/24"}),
            "\"ipVersion\":4",
        ),
        (
            "SpiderCoordinator",
            json!({}),
            "spec.podCIDRType: Required value",
        ),
        (
            "SpiderCoordinator",
            json!({"podCidrType": "none"}),
            "\"vethMTU\":1500",
        ),
        (
            "SpiderMultusConfig",
            json!({"cniType": "macvlan"}),
            "spec.macvlan: Required value",
        ),
        (
            "SpiderMultusConfig",
            json!({"cniType": "custom", "disableIpam": null}),
            "\"customCNI\":\"\"",
        ),
    ] {
        let said = creation(&rig.client, kind, spec.clone()).await;
        assert!(said.contains(want), "{kind} {spec}: {said}");
    }
}
