//! Garbage collection against the embedded API: what is freed, what stays, in which order.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking, its helpers too"
)]

mod clocks;
mod machines;
mod orphans;
mod provider;
mod rig;
mod traces;

use serde_json::json;
use spiderpool_controller::clock::Clock;

use rig::{Bend, Rig};

/// The list and watch of all Pods.
const PODS: &str = "/api/v1/pods";

/// A running Pod with an address.
fn running() -> serde_json::Value {
    json!({"phase": "Running", "podIPs": [{"ip": "10.7.0.9"}]})
}

#[tokio::test(flavor = "multi_thread")]
async fn records_without_a_living_pod_go_and_the_rest_is_as_it_was() {
    let mut rig = Rig::new(|_| {});
    rig.pod("ns/lives", "u-1", running()).await;
    rig.pod("ns/again", "u-3", running()).await;
    let records = [
        ("10.7.0.9", "ns/lives", "u-1"),
        ("10.7.0.10", "ns/gone", "u-2"),
        ("10.7.0.11", "ns/again", "u-old"),
        ("10.7.0.12", "ns/again", "u-3"),
        // Nobody can be asked about it.
        ("10.7.0.13", "nobody", "u-9"),
    ];
    rig.pool("p", json!({}), &records).await;
    rig.endpoint("ns/gone", "u-2", ("Pod", "gone"), &[("p", "10.7.0.10")])
        .await;
    rig.start();
    rig.scan().await;
    let kept = rig.recorded("p").await;
    assert_eq!(kept, ["10.7.0.12", "10.7.0.13", "10.7.0.9"]);
    assert_eq!(rig.status("p").await["allocatedIPCount"], 3);
    let records = rig.records("p").await;
    let living = records.get("10.7.0.9".parse().unwrap()).unwrap();
    assert_eq!(living.extra["novel"], 7);
    assert!(!rig.has_endpoint("ns/gone").await);
}

/// Case B12, its second trial: the watch lags behind the API server.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_the_watch_does_not_know_yet_keeps_its_address() {
    let mut rig = Rig::new(|_| {});
    rig.bend(PODS, Bend::SilentWatch);
    rig.start();
    rig.scan().await;
    rig.pod("q/new-0", "u-1", running()).await;
    let records = [
        ("10.7.0.20", "q/new-0", "u-1"),
        ("10.7.0.21", "q/gone", "u-2"),
    ];
    rig.pool("p", json!({}), &records).await;
    rig.scan().await;
    assert_eq!(rig.recorded("p").await, ["10.7.0.20"]);
    assert!(rig.gets("/api/v1/namespaces/q/pods/new-0") > 0);
}

/// Case B12: a read that fails frees nothing, whatever it says.
#[tokio::test(flavor = "multi_thread")]
async fn failed_reads_free_nothing() {
    let mut rig = Rig::new(|_| {});
    let records = [("10.7.0.20", "q/gone", "u-2")];
    rig.pool("p", json!({}), &records).await;
    let status = |code, reason| {
        Bend::Answer(
            code,
            json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason}),
        )
    };
    let pod = "/api/v1/namespaces/q/pods/gone";
    let endpoint = "/apis/spiderpool.spidernet.io/v2beta1/namespaces/q/spiderendpoints/gone";
    let launchers = "/api/v1/namespaces/q/pods";
    rig.bend(pod, status(500, "InternalError"));
    rig.start();
    for (path, bend) in [
        (pod, status(403, "Forbidden")),
        (pod, Bend::Page(404)),
        (pod, Bend::Answer(200, json!([]))),
        (endpoint, status(503, "ServiceUnavailable")),
        (launchers, status(504, "Timeout")),
    ] {
        rig.scan().await;
        assert_eq!(
            rig.recorded("p").await,
            ["10.7.0.20"],
            "before {path} {bend:?}"
        );
        // At no moment, and in no scan, does every read succeed.
        rig.bend(path, bend);
        rig.scan().await;
        for known in [pod, endpoint, launchers] {
            if known != path {
                rig.straighten(known);
            }
        }
    }
    rig.scan().await;
    assert_eq!(rig.recorded("p").await, ["10.7.0.20"]);
    rig.straighten(launchers);
    rig.scan().await;
    assert_eq!(rig.recorded("p").await, [""; 0]);
}

/// `kubectl delete pod` of a static Pod deletes its mirror alone: kubelet makes another one, of another
/// UID, and the containers run on with their address.
#[tokio::test(flavor = "multi_thread")]
async fn a_static_pod_whose_mirror_was_deleted_keeps_its_address() {
    let mut rig = Rig::new(|settings| settings.env.gc.delay = jiff::SignedDuration::ZERO);
    let mirror = |uid: &str| {
        json!({"metadata": {"namespace": "kube-system", "name": "web-n1", "uid": uid,
                "annotations": {"kubernetes.io/config.mirror": "h-1", "kubernetes.io/config.hash": "h-1"}},
            "spec": {"nodeName": rig::NODE, "containers": [{"name": "c", "image": "i"}]}})
    };
    rig.pod_of(mirror("u-1"), running()).await;
    let records = [
        ("10.7.0.9", "kube-system/web-n1", "u-1"),
        ("10.7.0.10", "kube-system/web-n1", "u-0"),
        ("10.7.0.11", "ns/other", "u-3"),
    ];
    rig.pool("p", json!({}), &records).await;
    rig.pod("ns/other", "u-3", running()).await;
    rig.endpoint("ns/other", "u-3", ("Pod", "other"), &[("p", "10.7.0.11")])
        .await;
    let held = [("p", "10.7.0.9")];
    rig.endpoint("kube-system/web-n1", "u-1", ("Pod", "web-n1"), &held)
        .await;
    rig.start();
    rig.scan().await;
    rig.delete_pod("kube-system/web-n1").await;
    rig.pod_of(mirror("u-2"), running()).await;
    // By the trace, which would free both.
    rig.delete_pod("ns/other").await;
    rig.until("the other Pod's address is free", async || {
        let now = rig.clock.wall();
        rig.clock.set(now + jiff::SignedDuration::from_millis(20));
        !rig.recorded("p").await.contains(&"10.7.0.11".to_owned())
    })
    .await;
    rig.scan().await;
    // What it does not show is of an earlier sandbox.
    assert_eq!(rig.recorded("p").await, ["10.7.0.9"]);
}

/// Case B10.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_of_a_stateful_set_finds_its_address_again() {
    let mut rig = Rig::new(|_| {});
    rig.stateful_set("db/sts", Some(1));
    let pod = json!({"metadata": {"namespace": "db", "name": "sts-0", "uid": "u-2", "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "sts", "uid": "s-1", "controller": true}]},
        "spec": {"nodeName": rig::NODE, "containers": [{"name": "c", "image": "i"}]}});
    rig.pod_of(pod, json!({"phase": "Pending"})).await;
    rig.pool("p", json!({}), &[("10.7.0.10", "db/sts-0", "u-1")])
        .await;
    rig.endpoint(
        "db/sts-0",
        "u-1",
        ("StatefulSet", "sts"),
        &[("p", "10.7.0.10")],
    )
    .await;
    rig.start();
    rig.scan().await;
    assert_eq!(rig.recorded("p").await, ["10.7.0.10"]);
    rig.delete_pod("db/sts-0").await;
    rig.scan().await;
    assert_eq!(
        rig.recorded("p").await,
        ["10.7.0.10"],
        "the set still wants the Pod"
    );
    rig.stateful_set("db/sts", Some(0));
    rig.scan().await;
    assert_eq!(rig.recorded("p").await, [""; 0]);
    assert!(!rig.has_endpoint("db/sts-0").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoints_without_a_record_go_when_that_is_wanted() {
    for wanted in [false, true] {
        let mut rig = Rig::new(|settings| settings.conf.enable_clean_outdated_endpoint = wanted);
        rig.pod("ns/lives", "u-1", running()).await;
        let records = [
            ("10.7.0.9", "ns/lives", "u-1"),
            ("10.7.0.30", "ns/twice", "u-4"),
        ];
        rig.pool("p", json!({}), &records).await;
        rig.pod("ns/twice", "u-4", running()).await;
        rig.endpoint("ns/lives", "u-1", ("Pod", "lives"), &[("p", "10.7.0.9")])
            .await;
        rig.endpoint("ns/left", "u-2", ("Pod", "left"), &[("p", "10.7.0.10")])
            .await;
        rig.start();
        rig.scan().await;
        assert!(rig.has_endpoint("ns/lives").await);
        assert_eq!(rig.has_endpoint("ns/left").await, !wanted);
        // Of an earlier Pod of that name: goes in any case.
        let old = [("p", "10.7.0.31")];
        rig.endpoint("ns/twice", "u-3", ("Pod", "twice"), &old)
            .await;
        rig.scan().await;
        assert!(!rig.has_endpoint("ns/twice").await);
        assert_eq!(rig.recorded("p").await, ["10.7.0.30", "10.7.0.9"]);
    }
}
