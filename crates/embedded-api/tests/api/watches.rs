//! Watches through the watcher and reflector of kube, as the agent runs them.

use std::pin::pin;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::core::PartialObjectMeta;
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Api, ResourceExt};
use serde_json::json;
use spiderpool_api::ippool::SpiderIPPool;
use spiderpool_embedded_api::HistoryLimits;

use crate::rig::{pod, pool, rig, rig_with, within};

#[tokio::test(flavor = "multi_thread")]
async fn reflectors_follow_selected_objects_by_list_and_by_stream() {
    for config in [
        watcher::Config::default(),
        watcher::Config::default().streaming_lists(),
    ] {
        let rig = rig();
        let pods: Api<Pod> = Api::all(rig.client.clone());
        let here: Api<Pod> = Api::default_namespaced(rig.client.clone());
        here.create(&PostParams::default(), &pod("a", "n1"))
            .await
            .unwrap();
        let (reader, writer) = reflector::store();
        let config = config.clone().fields("spec.nodeName=n1");
        let mut stream = pin!(reflector(writer, watcher(pods, config)).applied_objects());
        let first = within(stream.try_next()).await.unwrap().unwrap();
        assert_eq!(first.name_any(), "a");
        here.create(&PostParams::default(), &pod("elsewhere", "n2"))
            .await
            .unwrap();
        here.create(&PostParams::default(), &pod("b", "n1"))
            .await
            .unwrap();
        let second = within(stream.try_next()).await.unwrap().unwrap();
        assert_eq!(second.name_any(), "b");
        // the deletion arrives before the next applied object
        here.delete("a", &DeleteParams::default()).await.unwrap();
        here.create(&PostParams::default(), &pod("c", "n1"))
            .await
            .unwrap();
        within(stream.try_next()).await.unwrap().unwrap();
        let mut names: Vec<_> = reader.state().iter().map(|p| p.name_any()).collect();
        names.sort();
        assert_eq!(names, ["b", "c"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn metadata_watches_carry_no_status() {
    let rig = rig();
    let pools: Api<SpiderIPPool> = Api::all(rig.client.clone());
    pools
        .create(&PostParams::default(), &pool("p"))
        .await
        .unwrap();
    let metadata: Api<PartialObjectMeta<SpiderIPPool>> = Api::all(rig.client);
    let mut stream = pin!(watcher(metadata.clone(), watcher::Config::default()).applied_objects());
    let first: PartialObjectMeta<SpiderIPPool> = within(stream.try_next()).await.unwrap().unwrap();
    assert_eq!(first.metadata.generation, Some(1));
    let status = Patch::Merge(json!({"status": {"allocatedIPs": "x".repeat(1000)}}));
    let written = pools
        .patch_status("p", &PatchParams::default(), &status)
        .await
        .unwrap();
    let second = within(stream.try_next()).await.unwrap().unwrap();
    assert_eq!(second.metadata.resource_version, written.resource_version());
    let got = metadata.get_metadata("p").await.unwrap();
    assert_eq!(got.metadata.resource_version, written.resource_version());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watcher_that_fell_behind_lists_again_and_blocks_nobody() {
    let rig = rig_with(HistoryLimits {
        changes: 4,
        bytes: 1 << 20,
    });
    let pools: Api<SpiderIPPool> = Api::all(rig.client.clone());
    pools
        .create(&PostParams::default(), &pool("p"))
        .await
        .unwrap();
    let mut stream = pin!(watcher(pools.clone(), watcher::Config::default()).default_backoff());
    while !matches!(
        within(stream.try_next()).await,
        Ok(Some(watcher::Event::InitDone))
    ) {}
    // nobody reads the stream meanwhile
    for i in 0..40 {
        let patch = Patch::Merge(json!({"metadata": {"labels": {"i": i.to_string()}}}));
        within(pools.patch("p", &PatchParams::default(), &patch))
            .await
            .unwrap();
    }
    let mut relisted = false;
    loop {
        match within(stream.next()).await.unwrap() {
            Err(watcher::Error::WatchError(status)) => {
                assert_eq!((status.code, status.reason.as_str()), (410, "Expired"));
            }
            Ok(watcher::Event::InitApply(p)) => {
                relisted = true;
                assert_eq!(p.labels().get("i").map(String::as_str), Some("39"));
                break;
            }
            Ok(watcher::Event::Apply(p)) if p.labels().get("i").is_some_and(|i| i == "39") => break,
            Ok(_) => {}
            Err(error) => panic!("{error}"),
        }
    }
    assert!(
        relisted,
        "the history of four changes was long enough for forty"
    );
}
