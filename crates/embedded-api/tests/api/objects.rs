//! Single objects through a real kube client: creation, replacement, patches, deletion.

use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions};
use kube::core::ApiResource;
use kube::{Api, Resource, ResourceExt};
use serde_json::{Value, json};
use spiderpool_api::ippool::SpiderIPPool;

use crate::rig::{code, from, pool, rig, within};

#[tokio::test(flavor = "multi_thread")]
async fn conflicts_generation_and_status_of_a_pool() {
    let rig = rig();
    let pools: Api<SpiderIPPool> = Api::all(rig.client);
    let created = pools
        .create(&PostParams::default(), &pool("p"))
        .await
        .unwrap();
    assert_eq!(created.meta().generation, Some(1));
    assert!(created.uid().is_some() && created.creation_timestamp().is_some());
    assert_eq!(
        code(pools.create(&PostParams::default(), &pool("p")).await),
        409
    );

    // a status write leaves the spec alone and is conditional
    let mut with_status = created.clone();
    with_status.spec.subnet = "10.8.0.0/24".to_owned();
    with_status.status = Some(from(json!({"allocatedIPCount": 1})));
    let status = pools
        .replace_status("p", &PostParams::default(), &with_status)
        .await
        .unwrap();
    assert_eq!(status.spec.subnet, "10.7.0.0/24");
    assert_eq!(status.meta().generation, Some(1));
    assert_eq!(
        code(
            pools
                .replace_status("p", &PostParams::default(), &with_status)
                .await
        ),
        409
    );

    // a spec write leaves the status alone and counts
    let mut replaced = status.clone();
    replaced.status = None;
    replaced.spec.disable = Some(true);
    let replaced = pools
        .replace("p", &PostParams::default(), &replaced)
        .await
        .unwrap();
    assert_eq!(replaced.meta().generation, Some(2));
    assert_eq!(
        replaced.status.as_ref().unwrap().allocated_ip_count,
        Some(1)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_changes_nothing_counts_for_nothing() {
    let rig = rig();
    let pools: Api<SpiderIPPool> = Api::all(rig.client);
    pools
        .create(&PostParams::default(), &pool("p"))
        .await
        .unwrap();
    let params = PatchParams::default();
    // metadata does not count; writing what is there changes nothing
    let label = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
    let labelled = pools.patch("p", &params, &label).await.unwrap();
    assert_eq!(labelled.meta().generation, Some(1));
    let again = pools.patch("p", &params, &label).await.unwrap();
    assert_eq!(again.resource_version(), labelled.resource_version());

    // blind replacement is refused for custom resources
    let mut blind = again;
    blind.meta_mut().resource_version = None;
    assert_eq!(
        code(pools.replace("p", &PostParams::default(), &blind).await),
        422
    );
    assert_eq!(code(pools.get("q").await), 404);
    within(rig.api.close()).await;
    assert_eq!(
        code(pools.create(&PostParams::default(), &pool("late")).await),
        503
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn finalizers_hold_a_deletion_back() {
    let rig = rig();
    let pools: Api<SpiderIPPool> = Api::all(rig.client);
    let mut held = pool("p");
    held.finalizers_mut()
        .push("spiderpool.spidernet.io".to_owned());
    let created = pools.create(&PostParams::default(), &held).await.unwrap();

    let wrong = DeleteParams {
        preconditions: Some(Preconditions {
            uid: Some("other".to_owned()),
            ..Default::default()
        }),
        ..DeleteParams::foreground()
    };
    assert_eq!(code(pools.delete("p", &wrong).await), 409);
    let terminating = pools
        .delete("p", &DeleteParams::default())
        .await
        .unwrap()
        .left()
        .unwrap();
    assert!(terminating.meta().deletion_timestamp.is_some());
    assert_eq!(terminating.uid(), created.uid());

    // it can be written still, but takes no new finalizer and does not come back to life
    let adds = Patch::Merge(json!({"metadata": {"finalizers": ["spiderpool.spidernet.io", "x"]}}));
    assert_eq!(
        code(pools.patch("p", &PatchParams::default(), &adds).await),
        422
    );
    let revive = Patch::Merge(json!({"metadata": {"deletionTimestamp": null}}));
    let still = pools
        .patch("p", &PatchParams::default(), &revive)
        .await
        .unwrap();
    assert!(still.meta().deletion_timestamp.is_some());

    let release = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    pools
        .patch("p", &PatchParams::default(), &release)
        .await
        .unwrap();
    assert_eq!(code(pools.get("p").await), 404);
    pools
        .create(&PostParams::default(), &pool("p"))
        .await
        .unwrap();
    assert!(
        pools
            .delete("p", &DeleteParams::default())
            .await
            .unwrap()
            .is_right()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn patches_of_all_kinds() {
    let rig = rig();
    let pools: Api<SpiderIPPool> = Api::all(rig.client.clone());
    pools
        .create(&PostParams::default(), &pool("p"))
        .await
        .unwrap();
    let params = PatchParams::default();

    let json_patch: json_patch::Patch =
        from(json!([{"op": "add", "path": "/spec/ips/-", "value": "10.7.0.10"}]));
    let patched = pools
        .patch("p", &params, &Patch::Json::<()>(json_patch))
        .await
        .unwrap();
    assert_eq!(patched.spec.ips.unwrap().len(), 2);
    let failing: json_patch::Patch = from(json!([{"op": "test", "path": "/spec/ips", "value": 1}]));
    assert_eq!(
        code(pools.patch("p", &params, &Patch::Json::<()>(failing)).await),
        422
    );
    let merge = Patch::Merge(json!({"status": {"parentNic": {"name": "eth1", "mac": "m"}}}));
    let patched = pools.patch_status("p", &params, &merge).await.unwrap();
    assert_eq!(patched.status.unwrap().parent_nic.unwrap().name, "eth1");
    let stale = Patch::Merge(json!({"metadata": {"resourceVersion": "1"}, "spec": {}}));
    assert_eq!(code(pools.patch("p", &params, &stale).await), 409);
    let apply = Patch::Apply(pool("p"));
    assert_eq!(
        code(pools.patch("p", &PatchParams::apply("test"), &apply).await),
        415
    );
    let strategic = Patch::Strategic(json!({"spec": {}}));
    assert_eq!(code(pools.patch("p", &params, &strategic).await), 415);

    let nodes: Api<Node> = Api::all(rig.client);
    let node: Node = from(json!({"metadata": {"name": "n"}, "status": {
        "conditions": [{"type": "Ready", "status": "True"}]}}));
    nodes.create(&PostParams::default(), &node).await.unwrap();
    let strategic = Patch::Strategic(json!({"status": {
        "conditions": [{"type": "Disk", "status": "False"}]}}));
    let node = nodes.patch_status("n", &params, &strategic).await.unwrap();
    assert_eq!(node.status.unwrap().conditions.unwrap().len(), 2);
    let annotate = Patch::Merge(json!({"metadata": {"annotations": {"k": "v"}}}));
    nodes.patch_metadata("n", &params, &annotate).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_patches_never_conflict_and_conditional_writes_never_get_lost() {
    let rig = rig();
    let pools: Api<SpiderIPPool> = Api::all(rig.client);
    pools
        .create(&PostParams::default(), &pool("p"))
        .await
        .unwrap();
    let patches = (0..50).map(|i| {
        let pools = pools.clone();
        async move {
            let label = format!("l{i}");
            let patch = Patch::Merge(json!({"metadata": {"labels": {label: "x"}}}));
            pools
                .patch("p", &PatchParams::default(), &patch)
                .await
                .unwrap();
        }
    });
    within(futures::future::join_all(patches)).await;
    assert_eq!(pools.get("p").await.unwrap().labels().len(), 50);

    let counters = (0..8).map(|_| {
        let pools = pools.clone();
        async move {
            loop {
                let mut current = pools.get_status("p").await.unwrap();
                let count = current
                    .status
                    .as_ref()
                    .and_then(|s| s.allocated_ip_count)
                    .unwrap_or(0);
                current.status = Some(from(json!({"allocatedIPCount": count + 1})));
                match pools
                    .replace_status("p", &PostParams::default(), &current)
                    .await
                {
                    Ok(_) => break,
                    Err(kube::Error::Api(status)) if status.code == 409 => {}
                    Err(error) => panic!("{error}"),
                }
            }
        }
    });
    within(futures::future::join_all(counters)).await;
    let counted = pools
        .get("p")
        .await
        .unwrap()
        .status
        .unwrap()
        .allocated_ip_count;
    assert_eq!(counted, Some(8));
}

#[tokio::test(flavor = "multi_thread")]
async fn dry_runs_and_generated_names() {
    let rig = rig();
    let resource = ApiResource::erase::<SpiderIPPool>(&());
    let pools: Api<DynamicObject> = Api::all_with(rig.client, &resource);
    let mut object: DynamicObject = from(serde_json::to_value(pool("p")).unwrap());
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    assert!(pools.create(&dry, &object).await.unwrap().uid().is_some());
    assert_eq!(code(pools.get("p").await), 404);
    object.metadata.name = None;
    object.metadata.generate_name = Some("auto-".to_owned());
    let one = pools.create(&PostParams::default(), &object).await.unwrap();
    let two = pools.create(&PostParams::default(), &object).await.unwrap();
    assert!(one.name_any().starts_with("auto-") && one.name_any().len() == 10);
    assert_ne!(one.name_any(), two.name_any());
    let dry = DeleteParams {
        dry_run: true,
        ..DeleteParams::default()
    };
    pools.delete(&one.name_any(), &dry).await.unwrap();
    pools.get(&one.name_any()).await.unwrap();
    let invalid = object_with(&object, &json!({"subnet": 5}));
    assert_eq!(
        code(pools.create(&PostParams::default(), &invalid).await),
        422
    );
}

fn object_with(object: &DynamicObject, spec: &Value) -> DynamicObject {
    let mut object = object.clone();
    object.data = json!({"spec": spec});
    object
}
