//! Virtual machines, whose records and endpoints have the machine's name, and Pods of that name.

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::PODS;
use super::rig::{Bend, NODE, Rig};
use super::running;

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_with_the_name_of_a_machine_takes_nothing_from_it() {
    let mut rig = Rig::new(|_| {});
    rig.bend(PODS, Bend::SilentWatch);
    rig.start();
    rig.scan().await;
    // The watch knows none of these.
    rig.pod_of(launcher("virt-launcher-db-x1", "u-1"), running())
        .await;
    rig.pod("v/db", "u-2", running()).await;
    rig.machine("v/db", true, true);
    let records = [
        ("10.7.0.20", "v/db", "u-1"),
        ("10.7.0.21", "v/db", "u-2"),
        ("10.7.0.22", "v/db", "u-3"),
    ];
    rig.pool("p", json!({}), &records).await;
    rig.scan().await;
    // That of an earlier Pod goes, whosever it was.
    assert_eq!(rig.recorded("p").await, ["10.7.0.20", "10.7.0.21"]);
    let owner = ("VirtualMachineInstance", "db");
    rig.endpoint("v/db", "u-1", owner, &[("p", "10.7.0.20")])
        .await;
    rig.scan().await;
    assert_eq!(rig.recorded("p").await, ["10.7.0.20", "10.7.0.21"]);
    assert!(rig.has_endpoint("v/db").await);
    // Stopped, it keeps its address.
    rig.delete_pod("v/virt-launcher-db-x1").await;
    rig.machine("v/db", false, true);
    rig.scan().await;
    assert_eq!(rig.recorded("p").await, ["10.7.0.20", "10.7.0.21"]);
    assert!(rig.has_endpoint("v/db").await);
    rig.machine("v/db", false, false);
    rig.scan().await;
    assert_eq!(rig.recorded("p").await, ["10.7.0.21"]);
    assert!(!rig.has_endpoint("v/db").await);
}

/// A Pod that a machine runs in.
fn launcher(name: &str, uid: &str) -> Value {
    json!({"metadata": {"namespace": "v", "name": name, "uid": uid,
            "labels": {"kubevirt.io": "virt-launcher"}, "ownerReferences": [
            {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": "db", "uid": "m-1", "controller": true}]},
        "spec": {"nodeName": NODE, "containers": [{"name": "c", "image": "i"}]}})
}

/// A migration has failed, so the record is the target's; then the machine is deleted. Its guest shuts down,
/// which takes the source's Pod its time.
#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_shuts_down_keeps_its_address_until_its_pod_has_gone() {
    let mut rig = Rig::new(|settings| settings.env.gc.delay = SignedDuration::ZERO);
    rig.start();
    rig.scan().await;
    rig.pod_of(launcher("source", "u-1"), running()).await;
    let failed = json!({"phase": "Failed", "podIPs": [{"ip": "10.7.0.9"}]});
    rig.pod_of(launcher("target", "u-2"), failed).await;
    rig.machine("v/db", false, false);
    let records = [
        ("10.7.0.20", "v/db", "u-2"),
        ("10.7.0.30", "v/plain", "u-3"),
    ];
    rig.pool("p", json!({}), &records).await;
    let owner = ("VirtualMachineInstance", "db");
    rig.endpoint("v/db", "u-2", owner, &[("p", "10.7.0.20")])
        .await;
    rig.pod("v/plain", "u-3", running()).await;
    rig.endpoint("v/plain", "u-3", ("Pod", "plain"), &[("p", "10.7.0.30")])
        .await;
    rig.scan().await;
    assert_eq!(rig.recorded("p").await.len(), 2);
    rig.delete_pod("v/target").await;
    // The trace comes to that one later.
    rig.delete_pod("v/plain").await;
    rig.until("the trace is at work", async || {
        !rig.recorded("p").await.contains(&"10.7.0.30".to_owned())
    })
    .await;
    rig.scan().await;
    assert_eq!(rig.recorded("p").await, ["10.7.0.20"]);
    rig.delete_pod("v/source").await;
    rig.scan().await;
    assert!(rig.recorded("p").await.is_empty());
    assert!(!rig.has_endpoint("v/db").await);
}
