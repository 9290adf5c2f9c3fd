//! Virtual machines, whose records and endpoints have the machine's name, and Pods of that name.

use serde_json::json;

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
    let launcher = json!({"metadata": {"namespace": "v", "name": "virt-launcher-db-x1", "uid": "u-1",
            "labels": {"kubevirt.io": "virt-launcher"}, "ownerReferences": [
            {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": "db", "uid": "m-1", "controller": true}]},
        "spec": {"nodeName": NODE, "containers": [{"name": "c", "image": "i"}]}});
    rig.pod_of(launcher, running()).await;
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
