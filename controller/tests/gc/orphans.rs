//! Sub-ENIs whose pool object is gone: no record is left, the provider is told once.

use serde_json::json;

use super::rig::{Rig, uid};
use super::running;

/// Spec iaas 16, the part of a DEL that never came.
#[tokio::test(flavor = "multi_thread")]
async fn scenario_64_the_provider_is_told_once_and_the_endpoint_goes() {
    for status in [None, Some(503)] {
        let mut rig = Rig::new(|settings| settings.env.gc.delay = jiff::SignedDuration::ZERO);
        rig.pod("ns/a", "u-1", running()).await;
        rig.sub_eni("ns/a", "u-1", "n7", ("gone", "10.7.0.10"))
            .await;
        if let Some(status) = status {
            rig.provider.fail_release(status);
        }
        rig.start();
        rig.scan().await;
        assert!(rig.has_endpoint("ns/a").await && rig.provider.released().is_empty());
        rig.delete_pod("ns/a").await;
        rig.until("the end of the endpoint", async || {
            !rig.has_endpoint("ns/a").await
        })
        .await;
        rig.scan().await;
        let calls = rig.provider.released();
        assert_eq!(calls.len(), 1, "{calls:?}");
        let call = &calls[0];
        assert_eq!(
            (call.node_name.as_str(), call.pool_name.as_str()),
            ("n7", "gone")
        );
        assert_eq!(call.ip_address.to_string(), "10.7.0.10");
        assert_eq!(call.pod_uid, uid("u-1"));
    }
}

/// The trace of the Pod was in a process that died; the endpoint went with its owner, but for us.
#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_endpoint_without_a_record_does_not_stay() {
    let mut rig = Rig::new(|_| {});
    rig.sub_eni("ns/a", "u-1", "n7", ("gone", "10.7.0.10"))
        .await;
    rig.endpoint("ns/b", "u-2", ("Pod", "b"), &[("gone", "10.7.0.11")])
        .await;
    // Nobody wants this one gone, and the switch for it is off.
    rig.endpoint("ns/c", "u-3", ("Pod", "c"), &[("gone", "10.7.0.12")])
        .await;
    rig.delete_endpoint("ns/a").await;
    rig.delete_endpoint("ns/b").await;
    rig.start();
    rig.scan().await;
    assert!(!rig.has_endpoint("ns/a").await && !rig.has_endpoint("ns/b").await);
    assert!(rig.has_endpoint("ns/c").await);
    assert_eq!(rig.provider.released().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_told_of_what_has_no_node_another_pool_or_a_living_pod() {
    let mut rig = Rig::new(|settings| settings.conf.enable_clean_outdated_endpoint = true);
    // The address is another pool's by now: its Pod would lose the sub-ENI.
    rig.pool("p", json!({}), &[("10.7.0.9", "ns/other", "u-9")])
        .await;
    rig.pod("ns/other", "u-9", running()).await;
    for (key, word, node, ip) in [
        ("ns/bare", "u-1", "", "10.8.0.10"),
        ("ns/again", "u-2", "n7", "10.7.0.9"),
        ("ns/lives", "u-3", "n7", "10.8.0.11"),
    ] {
        rig.sub_eni(key, word, node, ("gone", ip)).await;
    }
    rig.pod("ns/lives", "u-3", running()).await;
    rig.start();
    rig.scan().await;
    assert!(!rig.has_endpoint("ns/bare").await && !rig.has_endpoint("ns/again").await);
    assert!(rig.has_endpoint("ns/lives").await);
    assert_eq!(rig.recorded("p").await, ["10.7.0.9"]);
    let calls = rig.provider.released();
    assert!(calls.is_empty(), "{calls:?}");
    rig.delete_pod("ns/lives").await;
    rig.scan().await;
    assert!(!rig.has_endpoint("ns/lives").await);
    assert_eq!(rig.provider.released().len(), 1);
}
