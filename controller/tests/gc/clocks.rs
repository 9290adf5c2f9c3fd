//! A wall clock that is set: what only looks old by it is not taken away.

use std::time::Duration;

use jiff::SignedDuration;
use serde_json::json;

use super::rig::{NODE, Rig};
use super::running;

/// Lets the monotonic clock go on without waiting for it.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

#[tokio::test]
async fn a_release_of_somebody_else_is_left_to_him_for_his_time() {
    let mut rig = Rig::new(|_| {});
    let marked = "u-1+agent/n1/7@2027-01-05T09:59:00Z";
    let prewarm =
        json!({"ipam.spidernet.io/iaas-provider": "lab", "ipam.spidernet.io/parent-nic": "eth1"});
    rig.pool("v4", prewarm, &[("10.7.0.10", "ns/gone", marked)])
        .await;
    rig.start();
    rig.scan().await;
    assert_eq!(rig.recorded("v4").await, ["10.7.0.10"]);
    // The clock was set forward: his call may be under way all the same.
    rig.clock.set("2027-01-05T11:00:00Z".parse().unwrap());
    rig.scan().await;
    assert_eq!(rig.recorded("v4").await, ["10.7.0.10"]);
    assert!(rig.provider.released().is_empty());
    pass(Duration::from_secs(120)).await;
    rig.scan().await;
    assert_eq!(rig.recorded("v4").await, [""; 0]);
    assert_eq!(rig.provider.released().len(), 1);
}

#[tokio::test]
async fn a_clock_that_jumps_makes_no_pod_overdue() {
    let mut rig = Rig::new(|settings| settings.env.gc.delay = SignedDuration::from_secs(60));
    rig.clock.set("2020-01-01T00:00:00Z".parse().unwrap());
    let pod = json!({"metadata": {"namespace": "ns", "name": "ends", "uid": "u-1", "finalizers": ["test.io/keep"]},
        "spec": {"nodeName": NODE, "containers": [{"name": "c", "image": "i"}]}});
    rig.pod_of(pod, running()).await;
    rig.delete_pod("ns/ends").await;
    let records = [
        ("10.7.0.9", "ns/ends", "u-1"),
        ("10.7.0.10", "ns/gone", "u-2"),
    ];
    rig.pool("p", json!({}), &records).await;
    rig.endpoint("ns/ends", "u-1", ("Pod", "ends"), &[("p", "10.7.0.9")])
        .await;
    rig.start();
    rig.scan().await;
    rig.record("p", &records).await;
    rig.clock.set("2100-01-01T00:00:00Z".parse().unwrap());
    rig.scan().await;
    // Neither by the trace.
    let looks = rig.gets("/api/v1/namespaces/ns/pods/ends");
    pass(Duration::from_secs(30)).await;
    rig.scan().await;
    assert_eq!(rig.recorded("p").await, ["10.7.0.9"]);
    pass(Duration::from_secs(31)).await;
    rig.until("its time is over", async || {
        rig.recorded("p").await.is_empty()
    })
    .await;
    assert!(rig.gets("/api/v1/namespaces/ns/pods/ends") > looks);
}
