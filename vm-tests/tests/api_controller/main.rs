//! The controller against a real kube-apiserver: who leads, what is collected, and that the rights the
//! chart gives are enough.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "functions that tests share fail as tests do"
)]

mod overlap;
mod refusals;
mod rig;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use vm_tests::lab::cni_call::{CniCall, CniOutcome, kubernetes_args};

use rig::{ENDPOINTS, LEASE, PODS, Rig, SOON, TAKEOVER};

const READINESS: &str = "/v1/runtime/readiness";
const SCAN: &str = "/v1/gc/scan";
const SETS: &str = "/apis/apps/v1/namespaces/default/statefulsets";

/// Everything that is not under test scans often.
const OFTEN: &[(&str, &str)] = &[
    ("GC_DEFAULT_INTERVAL_DURATION", "3"),
    ("GC_ADDITIONAL_GRACE_DELAY", "0"),
];

fn held(net: u8, count: u8, pod: &str) -> Vec<(String, String, String)> {
    let one = |index: u8| {
        let last = 10 + index;
        (
            format!("10.{net}.0.{last}"),
            format!("{pod}-{index}"),
            format!("u-{pod}-{index}"),
        )
    };
    (0..count).map(one).collect()
}

/// Calls by address.
fn calls_by_address(rig: &Rig) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for (_, call) in rig.provider.calls() {
        *counts
            .entry(call["ipAddress"].as_str().unwrap().to_owned())
            .or_default() += 1;
    }
    counts
}

/// Two replicas over a prewarm pool whose nine Pods are gone, the first leads; the health port of the
/// second.
fn two_replicas(rig: &mut Rig) -> u16 {
    let marks =
        json!({"ipam.spidernet.io/iaas-provider": "lab", "ipam.spidernet.io/parent-nic": "eth1"});
    rig.pool("prewarm", 83, &marks, &held(83, 9, "gone"));
    let first = rig.start_controller("c-0", OFTEN);
    rig.until("c-0 leads", || rig.leader() == "c-0");
    let second = rig.start_controller("c-1", OFTEN);
    rig.until("both are ready", || {
        let ready = |port: &u16| Rig::ask(*port, "GET", READINESS) == Some(200);
        [first, second].iter().all(ready)
    });
    second
}

#[test]
#[ignore = "api level"]
fn a_killed_leader_is_replaced_and_no_release_is_lost_or_doubled() {
    let mut rig = Rig::start();
    let second = two_replicas(&mut rig);
    assert_eq!(Rig::ask(second, "POST", SCAN), Some(409));
    rig.until("the second round of releases is under way", || {
        rig.provider.calls().len() > 3
    });
    let killed = Instant::now();
    rig.kill("c-0");
    rig.until("c-1 leads", || rig.leader() == "c-1");
    let replaced = killed.elapsed();
    assert!(replaced <= Duration::from_secs(20), "{replaced:?}");

    // What the killed one was at is marked: left alone until the marks are old.
    let is_left = |record: &Value| {
        let by = record["releasing"]["by"].as_str();
        by.is_some_and(|by| by.starts_with("controller/c-0/"))
    };
    rig.until("the others are released", || {
        let records = rig.records("prewarm");
        !records.is_empty() && records.values().all(is_left)
    });
    let under_way: Vec<String> = rig.records("prewarm").keys().cloned().collect();
    let counts = calls_by_address(&rig);
    assert_eq!(counts.len(), 9, "{counts:?}");
    assert!(counts.values().all(|count| *count == 1), "{counts:?}");
    let limit = TAKEOVER + SOON;
    rig.until_within(limit, "nothing is held", || {
        rig.records("prewarm").is_empty()
    });
    for (address, count) in calls_by_address(&rig) {
        let want = 1 + usize::from(under_way.contains(&address));
        assert_eq!(count, want, "calls for {address}");
    }

    // The killed one comes back and waits for its turn.
    let lease = rig.api.get(LEASE).unwrap().unwrap();
    assert_eq!(lease["spec"]["leaseTransitions"], 2);
    let again = rig.start_controller("c-0", OFTEN);
    rig.until("it is ready again", || {
        Rig::ask(again, "GET", READINESS) == Some(200)
    });
    assert_eq!(rig.leader(), "c-1");
    assert_allowed(&rig, &["c-0", "c-1"]);
}

/// The rights of the chart were enough so far.
fn assert_allowed(rig: &Rig, names: &[&str]) {
    for name in names {
        let log = rig.log(name);
        assert!(
            !log.contains("forbidden") && !log.contains("Forbidden"),
            "{name}:\n{log}"
        );
    }
}

/// One that is ready, and one that does not report.
fn make_nodes(rig: &Rig) {
    for (node, ready) in [("n1", "True"), ("n2", "Unknown")] {
        let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}});
        rig.api.create("/api/v1/nodes", &object).unwrap();
        let status = json!({"status": {"conditions": [{"type": "Ready", "status": ready,
            "reason": "x", "message": "x"}]}});
        let path = format!("/api/v1/nodes/{node}/status");
        rig.api.merge(&path, &status).unwrap();
    }
}

/// A StatefulSet of one replica; what makes a Pod its own.
fn make_set(rig: &Rig) -> Value {
    let set = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "sts"},
        "spec": {"replicas": 1, "serviceName": "s", "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}},
                "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    let uid = rig.api.create(SETS, &set).unwrap()["metadata"]["uid"].clone();
    json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "sts", "uid": uid, "controller": true})
}

/// Pods of all kinds: address, Pod and UID of their records.
fn pods_and_records(rig: &Rig, owner: &Value) -> Vec<(String, String, String)> {
    let mut held = vec![(
        "10.84.0.10".to_owned(),
        "sts-0".to_owned(),
        "u-old".to_owned(),
    )];
    rig.create_pod("sts-0", "n1", 1, Some(owner));
    for (name, node, ip) in [
        ("w-1", "n2", "10.84.0.11"),
        ("w-2", "n1", "10.84.0.12"),
        ("lives", "n1", "10.84.0.13"),
    ] {
        let uid = rig.create_pod(name, node, 1, None);
        rig.pod_runs(name, ip);
        held.push((ip.to_owned(), name.to_owned(), uid));
    }
    held.push((
        "10.84.0.14".to_owned(),
        "never".to_owned(),
        "u-never".to_owned(),
    ));
    held
}

#[test]
#[ignore = "api level"]
fn records_go_with_their_pods_and_stay_with_what_outlives_them() {
    let mut rig = Rig::start();
    make_nodes(&rig);
    let owner = make_set(&rig);
    let held = pods_and_records(&rig, &owner);
    rig.pool("plain", 84, &Value::Null, &held);
    for name in ["w-1", "w-2"] {
        rig.api.delete(&format!("{PODS}/{name}")).unwrap();
    }
    let off = (
        "GC_STATELESS_TERMINATING_POD_ON_NOT_READY_NODE_ENABLED",
        "false",
    );
    let knobs: Vec<_> = OFTEN.iter().copied().chain([off]).collect();
    rig.start_controller("c-0", &knobs);
    let addresses = |rig: &Rig| rig.records("plain").keys().cloned().collect::<Vec<_>>();
    rig.until(
        "the record without a Pod and the overdue Pod's are collected",
        || addresses(&rig) == ["10.84.0.10", "10.84.0.11", "10.84.0.13"],
    );
    // A restart forgets nothing (case B11), a set that is scaled down lets go (case B10).
    rig.kill("c-0");
    rig.start_controller("c-0", OFTEN);
    rig.api
        .merge(&format!("{SETS}/sts"), &json!({"spec": {"replicas": 0}}))
        .unwrap();
    rig.api
        .delete(&format!("{PODS}/sts-0?gracePeriodSeconds=0"))
        .unwrap();
    rig.until("the switch is on, and the set wants no Pod", || {
        addresses(&rig) == ["10.84.0.13"]
    });
    assert_eq!(
        rig.api.pool("plain").unwrap()["status"]["allocatedIPCount"],
        1
    );
    assert_allowed(&rig, &["c-0"]);
}

/// Agent and controller with the rights of the chart: an ADD, a DEL that never comes, another ADD.
#[test]
#[ignore = "api level"]
fn what_an_agent_gave_is_collected_when_nobody_tells_it() {
    let mut rig = Rig::start();
    rig.pool("plain", 85, &Value::Null, &[]);
    rig.start_agent("n1");
    let often = [
        ("GC_ADDITIONAL_GRACE_DELAY", "1"),
        ("GC_TRACE_POD_GAP_DURATION", "1"),
    ];
    rig.start_controller("c-0", &often);
    let uid = rig.create_pod("web", "n1", 1, None);
    rig.until("an ADD", || add(&rig, "n1", "web", &uid).code == 0);
    rig.pod_runs("web", "10.85.0.10");
    assert_eq!(rig.records("plain").len(), 1);
    let endpoint = format!("{ENDPOINTS}/web");
    assert!(rig.api.get(&endpoint).unwrap().is_some());
    rig.api
        .delete(&format!("{PODS}/web?gracePeriodSeconds=0"))
        .unwrap();
    rig.until("its record and its endpoint are collected", || {
        rig.records("plain").is_empty() && rig.api.get(&endpoint).unwrap().is_none()
    });
    // The reconcilers' part, with the same rights.
    let config = json!({"apiVersion": "spiderpool.spidernet.io/v2beta1", "kind": "SpiderMultusConfig",
        "metadata": {"name": "net"}, "spec": {"cniType": "macvlan", "macvlan": {"master": ["eth1"]}}});
    let configs = "/apis/spiderpool.spidernet.io/v2beta1/namespaces/default/spidermultusconfigs";
    rig.api.create(configs, &config).unwrap();
    let network = "/apis/k8s.cni.cncf.io/v1/namespaces/default/network-attachment-definitions/net";
    rig.until("the network of a SpiderMultusConfig", || {
        rig.api.get(network).unwrap().is_some()
    });
    let pool = rig.api.pool("plain").unwrap();
    assert_eq!(pool["status"]["totalIPCount"], 90);
    assert_allowed(&rig, &["c-0", "agent-n1"]);
}

fn add(rig: &Rig, node: &str, pod: &str, uid: &str) -> CniOutcome {
    let socket = rig.run_dir(node).join("spiderpool.sock");
    let container_id = format!("box-{pod}");
    let conf = json!({"cniVersion": "1.1.0", "name": "lab", "type": "macvlan",
        "ipam": {"type": "spiderpool", "ipam_unix_socket_path": socket,
            "log_file_path": rig.dir.path().join("cni.log")}});
    let call = CniCall {
        plugin: "spiderpool".to_owned(),
        command: "ADD".to_owned(),
        args: kubernetes_args("default", pod, uid, &container_id),
        container_id,
        netns: "/proc/self/ns/net".to_owned(),
        ifname: "eth0".to_owned(),
        stdin: conf.to_string(),
    };
    call.run_here(&rig.bin_dir).unwrap()
}
