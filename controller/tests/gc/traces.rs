//! Pods that end: freed when due, by the trace alone, and what the switches say.

use jiff::SignedDuration;
use serde_json::json;
use spiderpool_controller::clock::Clock;

use super::rig::{NODE, Rig};
use super::running;

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_pod_is_freed_after_the_delay_without_a_scan() {
    let mut rig = Rig::new(|settings| settings.env.gc.delay = SignedDuration::from_secs(5));
    rig.pod("ns/a", "u-1", running()).await;
    rig.pool("p", json!({}), &[("10.7.0.9", "ns/a", "u-1")])
        .await;
    rig.endpoint("ns/a", "u-1", ("Pod", "a"), &[("p", "10.7.0.9")])
        .await;
    rig.start();
    // The first scan is the only one: the next would free it too.
    rig.until("the first scan", async || {
        rig.gets("/apis/spiderpool.spidernet.io/v2beta1/spiderendpoints") > 0
    })
    .await;
    rig.delete_pod("ns/a").await;
    let deleted = rig.clock.wall();
    let mut freed = deleted;
    rig.until("the end of the record", async || {
        freed = rig.clock.wall();
        rig.clock.set(freed + SignedDuration::from_millis(20));
        rig.recorded("p").await.is_empty()
    })
    .await;
    let after = freed.duration_since(deleted);
    assert!(after >= SignedDuration::from_secs(5), "{after:?}");
    rig.until("the end of the endpoint", async || {
        !rig.has_endpoint("ns/a").await
    })
    .await;
    assert_eq!(rig.context.metrics.freed.get(), 1);
}

/// Case B11: trace, scan and a restart all read the switch.
#[tokio::test(flavor = "multi_thread")]
async fn overdue_pods_keep_their_addresses_as_their_nodes_switch_says() {
    let node = |ready: &str| json!({"conditions": [{"type": "Ready", "status": ready}]});
    let mut rig = Rig::new(|settings| {
        settings.env.gc.not_ready_node = false;
        settings.env.gc.delay = SignedDuration::ZERO;
    });
    for (name, ready) in [(NODE, "True"), ("n2", "Unknown")] {
        rig.create("Node", json!({"metadata": {"name": name}}))
            .await;
        rig.patch_status("Node", name, node(ready)).await;
    }
    for (name, uid, on) in [("w-1", "u-1", "n2"), ("w-2", "u-2", NODE)] {
        let pod = json!({"metadata": {"namespace": "ns", "name": name, "uid": uid,
                "finalizers": ["test.io/keep"]},
            "spec": {"nodeName": on, "containers": [{"name": "c", "image": "i"}]}});
        rig.pod_of(pod, running()).await;
        rig.delete_pod(&format!("ns/{name}")).await;
    }
    let records = [
        ("10.7.0.9", "ns/w-1", "u-1"),
        ("10.7.0.10", "ns/w-2", "u-2"),
    ];
    rig.pool("p", json!({}), &records).await;
    rig.endpoint("ns/w-1", "u-1", ("Pod", "w-1"), &[("p", "10.7.0.9")])
        .await;
    rig.endpoint("ns/w-2", "u-2", ("Pod", "w-2"), &[("p", "10.7.0.10")])
        .await;
    // Before everybody's time: the embedded API's clock is the machine's.
    rig.clock.set("2020-01-01T00:00:00Z".parse().unwrap());
    rig.start();
    rig.scan().await;
    assert_eq!(rig.recorded("p").await.len(), 2);
    rig.clock.set("2100-01-01T00:00:00Z".parse().unwrap());
    rig.until("the Pod on the ready node is collected", async || {
        rig.recorded("p").await == ["10.7.0.9"]
    })
    .await;
    rig.scan().await;
    rig.restart().await;
    rig.scan().await;
    assert_eq!(rig.recorded("p").await, ["10.7.0.9"]);
    // The node comes back: its own switch is on.
    rig.patch_status("Node", "n2", node("True")).await;
    rig.scan().await;
    rig.until("the rest is collected", async || {
        rig.recorded("p").await.is_empty()
    })
    .await;
}
