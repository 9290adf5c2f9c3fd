//! Pools: counts, finalizer, and two that overlap.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use vm_tests::lab::api_client::POOLS;

use crate::rig::{Rig, ours};

fn create(rig: &Rig, name: &str, ips: &str) -> Value {
    let metadata = json!({"name": name, "finalizers": ["spiderpool.spidernet.io"]});
    let spec = json!({"subnet": "10.36.0.0/24", "ips": [ips]});
    rig.api
        .create(POOLS, &ours("SpiderIPPool", &metadata, &spec))
        .unwrap()
}

fn wait_for_total(rig: &mut Rig, name: &str, total: u64) -> Value {
    rig.until(&format!("a total of {total}"), |api| {
        let status = api.pool(name).unwrap()["status"].clone();
        (status["totalIPCount"] == total).then_some(status)
    })
}

#[test]
#[ignore = "api level"]
fn a_pool_is_counted_and_let_go_when_its_records_are_gone() {
    let mut rig = Rig::start();
    create(&rig, "p", "10.36.0.10-10.36.0.19");
    let status = wait_for_total(&mut rig, "p", 10);
    assert_eq!(status["allocatedIPCount"], 0);
    let path = format!("{POOLS}/p");
    let grown = json!({"spec": {"ips": ["10.36.0.10-10.36.0.29"], "excludeIPs": ["10.36.0.12"]}});
    rig.api.merge(&path, &grown).unwrap();
    wait_for_total(&mut rig, "p", 19);
    let status = format!("{path}/status");
    let records = |text: &str| json!({"status": {"allocatedIPs": text}});
    let held = r#"{"10.36.0.10":{"pod":"default/web","podUid":"u-1"}}"#;
    rig.api.merge(&status, &records(held)).unwrap();
    rig.api.delete(&path).unwrap();
    // A pool that goes at once comes and goes; the other is still held then.
    create(&rig, "q", "10.36.0.200");
    rig.api.delete(&format!("{POOLS}/q")).unwrap();
    rig.until("the end of pool q", |api| {
        api.get(&format!("{POOLS}/q"))
            .unwrap()
            .is_none()
            .then_some(())
    });
    assert!(rig.api.pool("p").unwrap()["metadata"]["deletionTimestamp"].is_string());
    rig.api.merge(&status, &records("{}")).unwrap();
    rig.until("the end of pool p", |api| {
        api.get(&path).unwrap().is_none().then_some(())
    });
}

/// Nobody raised the revision of the copy: the server answers watches from what the controller remembers
/// with silence.
#[test]
#[ignore = "api level"]
fn after_a_restore_of_an_older_copy_pools_are_counted() {
    let mut rig = Rig::start();
    create(&rig, "p", "10.36.0.10-10.36.0.19");
    wait_for_total(&mut rig, "p", 10);
    rig.plane.back_up().unwrap();
    create(&rig, "lost", "10.36.0.30-10.36.0.32");
    wait_for_total(&mut rig, "lost", 3);
    for n in 0..200 {
        let patch = json!({"metadata": {"labels": {"n": n.to_string()}}});
        rig.api.merge(&format!("{POOLS}/p"), &patch).unwrap();
    }
    rig.plane.restore().unwrap();
    create(&rig, "q", "10.36.0.50-10.36.0.54");
    wait_for_total(&mut rig, "q", 5);
}

/// Case B09 behind admission: nobody judges here, so both objects stand, as when two replicas judge at
/// once. That the loser gives out nothing is the agents' part.
#[test]
#[ignore = "api level"]
fn b09_the_later_of_two_overlapping_pools_is_told() {
    let mut rig = Rig::start();
    create(&rig, "first", "10.36.0.150-10.36.0.160");
    wait_for_total(&mut rig, "first", 11);
    let begun = Instant::now();
    let made = ["r-2", "r-1"].map(|name| {
        let ips = if name == "r-1" {
            "10.36.0.10-10.36.0.29"
        } else {
            "10.36.0.20-10.36.0.39"
        };
        create(&rig, name, ips)
    });
    let created = made
        .each_ref()
        .map(|pool| pool["metadata"]["creationTimestamp"].as_str().unwrap());
    // r-2 was made first; within one second the name decides.
    let (loser, winner) = if created[0] < created[1] {
        ("r-1", "r-2")
    } else {
        ("r-2", "r-1")
    };
    let told = rig.event("SpiderIPPool", loser, "IPPoolOverlap");
    assert!(
        begun.elapsed() < Duration::from_secs(10),
        "{:?}",
        begun.elapsed()
    );
    assert!(
        told.contains(winner) && told.contains("10.36.0.20-10.36.0.29"),
        "{told}"
    );
    let events = rig.api.list("/api/v1/events").unwrap();
    let told: Vec<&Value> = events
        .iter()
        .filter(|event| event["reason"] == "IPPoolOverlap")
        .collect();
    assert_eq!(told.len(), 1, "{told:#?}");
}
