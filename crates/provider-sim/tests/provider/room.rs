//! Room on a full parent NIC: idle cache goes, what is claimed stays (P13, P14).

use provider_sim::cloud::State;
use spiderpool_api::ip_meta::{Entry, EntryState};

use crate::cluster::cluster;
use crate::rig::{item, request, rig_with, settings, topology};

/// A full parent: idle cache goes first, announced before it goes; what is claimed stays (P14).
#[tokio::test]
async fn a_full_parent_makes_room_out_of_idle_cache() {
    let cluster = cluster().await;
    cluster.global().await;
    cluster.until("g", "the mark", |_, _| true).await;
    let wanted = |host| request("n2", &[item("n2", &format!("10.72.0.{host}"), "g")]);
    for host in 10..14 {
        let ip = format!("10.72.0.{host}");
        cluster.rig.allocate(&wanted(host)).await.unwrap();
        if host != 12 {
            cluster.claim("g", &ip, "u-1").await;
        }
    }
    cluster.claim("g", "10.72.0.14", "u-2").await;
    cluster.rig.allocate(&wanted(14)).await.unwrap();
    assert_eq!(cluster.rig.at("10.72.0.12").unwrap().state, State::Unbound);
    cluster.claim("g", "10.72.0.15", "u-3").await;
    let text = cluster.rig.allocate(&wanted(15)).await.unwrap_err();
    assert!(text.contains("CapacityExceeded"), "{text}");
    let key = "10.72.0.12".parse().unwrap();
    cluster
        .until("g", "the idle one is free", |_, read| {
            matches!(
                read.entries.get(&key).map(|entry| &entry.state),
                Some(EntryState::Unattached { .. })
            )
        })
        .await;
}

/// Scenario 34: claimed between the choice and the detach: it is let be and works.
#[tokio::test]
async fn what_is_claimed_meanwhile_is_not_taken() {
    let cluster = cluster().await;
    cluster.global().await;
    cluster.until("g", "the mark", |_, _| true).await;
    let wanted = |host| request("n2", &[item("n2", &format!("10.72.0.{host}"), "g")]);
    for host in 10..14 {
        cluster.rig.allocate(&wanted(host)).await.unwrap();
        cluster.claim("g", &format!("10.72.0.{host}"), "u-1").await;
    }
    // as if the provider had not heard of them
    cluster
        .rig
        .until("the claims are known", |service| {
            service.with(|world| world.memory.pools["g"].claims.len() == 4)
        })
        .await;
    cluster
        .rig
        .service
        .with(|world| world.memory.pools.get_mut("g").unwrap().claims.clear());
    let before = cluster.rig.at("10.72.0.10");
    let text = cluster.rig.allocate(&wanted(14)).await.unwrap_err();
    assert!(text.contains("CapacityExceeded"), "{text}");
    assert_eq!(cluster.rig.at("10.72.0.10"), before);
    cluster
        .until("g", "all entries as they were", |_, read| {
            let attached = |entry: &Entry| matches!(entry.state, EntryState::Attached { .. });
            read.entries.len() == 4 && read.entries.values().all(attached)
        })
        .await;
    cluster.audit().await;
}

/// A subnet has more IPv6 addresses than anybody can look at, and nothing is made for IPv6 alone.
#[test]
fn a_whole_ipv6_subnet_does_not_hold_up_prewarming() {
    let (done, ended) = std::sync::mpsc::channel();
    // on a thread of its own: it would never end
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_all().build().unwrap();
        runtime.block_on(async {
            let mut topology = topology();
            let whole = r#"{name: w6, subnet: "fd72::/64", ips: ["fd72::100-fd72::ffff:ffff:ffff:ffff"], node: n1}"#;
            topology.pools.push(serde_saphyr::from_str(whole).unwrap());
            topology.check().unwrap();
            let rig = rig_with(settings(), topology, None).await;
            rig.service.prewarm().await;
            assert!(rig.at("10.72.0.30").is_some());
        });
        done.send(()).unwrap();
    });
    let limit = std::time::Duration::from_secs(20);
    ended.recv_timeout(limit).expect("prewarming ends");
}
