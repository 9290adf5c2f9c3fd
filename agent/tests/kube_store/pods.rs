//! Pods: of bare containers, in the cache or not yet.

use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use spiderpool_agent::store::{Freshness, ObjectKey, StandalonePod, Store};

use crate::rig::{bench, wait_for};

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_bare_containers_keep_their_uid_and_make_room() {
    let bench = bench().await;
    let first = StandalonePod::of("aaaabbbbccccdddd-1", "n1");
    let made = bench.store.ensure_pod(&first).await.unwrap();
    assert_eq!(made.uid(), first.uid);
    assert_eq!(
        bench.store.ensure_pod(&first).await.unwrap().uid(),
        first.uid
    );

    // Another container with the same first 12 characters takes the name over.
    let second = StandalonePod::of("aaaabbbbccccdddd-2", "n1");
    assert_eq!(second.key, first.key);
    assert_eq!(
        bench.store.ensure_pod(&second).await.unwrap().uid(),
        second.uid
    );

    // The late DEL of the first leaves the second alone.
    bench
        .store
        .delete_pod(&first.key, &first.uid)
        .await
        .unwrap();
    assert!(
        bench
            .store
            .pod(&second.key, Freshness::Fresh)
            .await
            .unwrap()
            .is_some()
    );
    bench
        .store
        .delete_pod(&second.key, &second.uid)
        .await
        .unwrap();
    bench
        .store
        .delete_pod(&second.key, &second.uid)
        .await
        .unwrap();
    assert!(
        bench
            .store
            .pod(&second.key, Freshness::Fresh)
            .await
            .unwrap()
            .is_none()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_the_cache_lacks_are_read_and_others_come_by_watch() {
    let bench = bench().await;
    let api: Api<Pod> = Api::namespaced(bench.client.clone(), "default");
    let pod = |name: &str, node: &str| -> Pod {
        serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"nodeName": node, "containers": [{"name": "c"}]}})).unwrap()
    };
    api.create(&PostParams::default(), &pod("far", "n2"))
        .await
        .unwrap();
    let far = ObjectKey::new("default", "far");
    assert!(
        bench
            .store
            .pod(&far, Freshness::Cached)
            .await
            .unwrap()
            .is_some()
    );
    assert!(
        bench
            .store
            .pod(&ObjectKey::new("default", "none"), Freshness::Cached)
            .await
            .unwrap()
            .is_none()
    );

    let labels = json!({"metadata": {"labels": {"team": "red"}}});
    let namespaces: Api<Namespace> = Api::all(bench.client.clone());
    namespaces
        .patch("default", &PatchParams::default(), &Patch::Merge(&labels))
        .await
        .unwrap();
    wait_for("the namespace's label", || async {
        let labels = bench
            .store
            .caches("default")
            .await
            .unwrap()
            .namespace
            .labels;
        (labels.get("team").map(String::as_str) == Some("red")).then_some(())
    })
    .await;
}
