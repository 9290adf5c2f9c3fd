//! Idle cache goes back to the cloud, announced first; what is claimed stays (P12, P13).

use std::net::IpAddr;

use axum::http::StatusCode;
use provider_sim::cloud::{Operation, State};
use provider_sim::reclaim::Reclaimed;
use serde_json::json;
use spiderpool_api::ip_meta::{EntryState, Metadata};

use crate::cluster::{Cluster, Intruder, cluster};
use crate::console::{get, send, send_for};
use crate::rig::{item, request};

fn ip(host: u8) -> IpAddr {
    IpAddr::from([10, 72, 0, host])
}

fn state(read: &Metadata, host: u8) -> Option<&EntryState> {
    read.entries.get(&ip(host)).map(|entry| &entry.state)
}

/// Global pool of ten, of which `10..end` are bound to n1 and idle, in this order.
async fn cached(end: u8) -> Cluster {
    let cluster = cluster().await;
    cluster.global().await;
    cluster.until("g", "the mark", |_, _| true).await;
    for host in 10..end {
        let wanted = request("n1", &[item("n1", &ip(host).to_string(), "g")]);
        cluster.rig.allocate(&wanted).await.unwrap();
    }
    let all = usize::from(end - 10);
    cluster
        .until("g", "all entries", |_, read| read.entries.len() == all)
        .await;
    let quick = json!({ "rate": { "qps": 1000, "burst": 1000 } });
    let set = send(&cluster.rig, "POST", "/admin/watermarks", &quick).await;
    assert_eq!(set, StatusCode::NO_CONTENT);
    cluster
}

async fn reclaim(cluster: &Cluster) -> Reclaimed {
    let (status, body) = send_for(&cluster.rig, "POST", "/admin/reclaim", &json!(null)).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    serde_json::from_value(body).unwrap()
}

/// Scenario 65: -1, detach, unbound; above the upper mark the entry goes.
#[tokio::test]
async fn above_the_marks_idle_cache_is_detached_and_deleted() {
    let cluster = cached(20).await;
    cluster.claim("g", "10.72.0.10", "u-1").await;
    cluster
        .rig
        .until("the claim is known", |service| {
            service.with(|world| world.memory.pools["g"].claims.len() == 1)
        })
        .await;
    // 10 of 10 attached, 0.6 allowed; 10 of 10 made, 0.9 allowed
    let done = reclaim(&cluster).await;
    assert_eq!(
        (done.detached.len(), done.deleted.len()),
        (5, 2),
        "{done:?}"
    );
    assert_eq!((&done.kept, &done.failed), (&vec![], &vec![]));
    let status = cluster
        .until("g", "eight entries", |_, read| read.entries.len() == 8)
        .await;
    let read = Metadata::decode(status["ipMetaData"]["metadata"].as_str().unwrap()).unwrap();
    assert!(matches!(
        state(&read, 10),
        Some(EntryState::Attached { .. })
    ));
    let unattached = read.entries.values().filter(|entry| {
        assert_eq!(entry.detach_time, None, "done or never begun");
        matches!(entry.state, EntryState::Unattached { mac: Some(_) })
    });
    assert_eq!(unattached.count(), 3);
    assert_eq!(reclaim(&cluster).await, Reclaimed::default(), "and no more");
    // what was detached is used again
    let wanted = request("n2", &[item("n2", &done.detached[4].to_string(), "g")]);
    cluster.rig.allocate(&wanted).await.unwrap();
    assert_eq!(cluster.rig.calls(Operation::Create), 10);
    cluster.audit().await;
}

/// By itself, after a change and the debounce.
#[tokio::test]
async fn it_follows_allocations() {
    let mut cluster = cached(17).await;
    let service = std::sync::Arc::clone(&cluster.rig.service);
    cluster
        .rig
        .run(async move { service.reclaim_forever().await });
    send(
        &cluster.rig,
        "POST",
        "/admin/watermarks",
        &json!({ "debounceMs": 5 }),
    )
    .await;
    let five = |_: &serde_json::Value, read: &Metadata| {
        let attached = read.entries.values();
        let attached = attached.filter(|entry| matches!(entry.state, EntryState::Attached { .. }));
        attached.count() == 5
    };
    cluster.until("g", "the share is kept", five).await;
    cluster.claim("g", "10.72.0.18", "u-1").await;
    let wanted = request("n1", &[item("n1", "10.72.0.18", "g")]);
    cluster.rig.allocate(&wanted).await.unwrap();
    cluster
        .until("g", "an idle one went for it", |published, read| {
            matches!(state(read, 18), Some(EntryState::Attached { .. })) && five(published, read)
        })
        .await;
    // it is announced; the audit waits until it is done
    assert_eq!(get(&cluster.rig, "/admin/audit").await, json!([]));
}

/// What is being detached is published so, with the time it was chosen, before the cloud begins.
#[tokio::test]
async fn a_detach_is_announced_before_it_begins() {
    let cluster = cached(16).await;
    cluster
        .rig
        .faults(json!([{ "op": "detach", "kind": "delay", "delayMs": 1_500, "times": 1 }]));
    let watch = async {
        cluster
            .until("g", "the announcement", |_, read| {
                let Some(entry) = read.entries.get(&ip(10)) else {
                    return false;
                };
                let leaving =
                    matches!(&entry.state, EntryState::Reclaiming { node } if node == "n1");
                assert!(leaving || matches!(entry.state, EntryState::Attached { .. }));
                assert_eq!(leaving, entry.detach_time.is_some());
                leaving
            })
            .await;
        assert!(!matches!(
            cluster.rig.at("10.72.0.10").unwrap().state,
            State::Unbound
        ));
    };
    let (done, ()) = futures::join!(reclaim(&cluster), watch);
    assert_eq!(done.detached, [ip(10)]);
    cluster.audit().await;
}

/// Scenario 34: a claim comes right before the announcement is written. The write is refused, made
/// anew, and the claim that is then seen brings everything back.
#[tokio::test]
async fn a_claim_that_comes_between_keeps_its_binding() {
    let cluster = cached(16).await;
    let before = cluster.rig.at("10.72.0.10").unwrap();
    let intruder = Intruder::new(&cluster, "10.72.0.10", "u-1");
    let done = reclaim(&cluster).await;
    assert_eq!(
        (&done.kept, &done.detached[..]),
        (&vec![ip(10)], &[ip(11)][..])
    );
    assert!(
        intruder.answers().contains(&409),
        "{:?}",
        intruder.answers()
    );
    assert_eq!(cluster.rig.at("10.72.0.10").unwrap(), before);
    cluster
        .until("g", "the entry as it was", |_, read| {
            matches!(state(read, 10), Some(EntryState::Attached { mac, .. }) if *mac == before.mac)
                && read.entries[&ip(10)].detach_time.is_none()
        })
        .await;
    cluster.audit().await;
}

/// Neither a publication that does not come through nor a cloud that refuses takes anything away.
#[tokio::test]
async fn what_cannot_be_announced_or_detached_stays() {
    let cluster = cached(16).await;
    let before = cluster.rig.at("10.72.0.10");
    for fault in [
        json!([{ "kind": "publish-stall", "match": { "pool": "g" } }]),
        json!([{ "op": "detach", "kind": "cloud-error" }]),
    ] {
        cluster.rig.faults(fault);
        let done = reclaim(&cluster).await;
        assert_eq!((done.failed, done.detached), (vec![ip(10)], vec![]));
        assert_eq!(cluster.rig.at("10.72.0.10"), before);
        cluster.rig.faults(json!([]));
        cluster
            .until("g", "the entry as it was", |_, read| {
                matches!(state(read, 10), Some(EntryState::Attached { .. }))
            })
            .await;
        cluster.audit().await;
    }
}

#[tokio::test]
async fn impossible_marks_are_refused_and_change_nothing() {
    let cluster = cached(11).await;
    for (changes, text) in [
        (json!({ "bound": 1.5 }), "reclaim.bound is 1.5"),
        (json!({ "created": 0 }), "reclaim.created is 0"),
        (json!({ "batch": 0 }), "reclaim.batch is 0"),
        (json!({ "bond": 0.5 }), "unknown field `bond`"),
        (json!({ "mode": "never" }), "unknown variant `never`"),
    ] {
        let (status, body) = send_for(&cluster.rig, "POST", "/admin/watermarks", &changes).await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
        assert!(body["message"].as_str().unwrap().contains(text), "{body}");
    }
    let shown = get(&cluster.rig, "/admin/settings").await;
    let reclaim = &shown["settings"]["reclaim"];
    assert_eq!(
        (&reclaim["bound"], &reclaim["mode"]),
        (&json!(0.6), &json!("watermark"))
    );
    let alone = crate::rig::rig().await;
    assert_eq!(
        send(&alone, "POST", "/admin/reclaim", &json!(null)).await,
        StatusCode::CONFLICT
    );
}
