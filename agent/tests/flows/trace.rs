//! What the agent tells whoever asks why a Pod has its addresses, or none.

use std::sync::Arc;

use serde_json::Value;
use spiderpool_agent::api;
use spiderpool_api::trace_v1::{HeldAttachment, TraceReport};

use crate::world::{Request, World, pod_object};

pub(crate) async fn ask(world: &World, route: &str) -> Value {
    let stop = tokio_util::sync::CancellationToken::new();
    let socket = api::socket::Socket::bind(world.paths.socket_path()).unwrap();
    let served = tokio::spawn(api::serve(Arc::clone(&world.agent), socket, stop.clone()));
    let text = format!("GET {route} HTTP/1.1\r\nhost: agent\r\nconnection: close\r\n\r\n");
    let answer = crate::server::exchange(world.paths.socket_path(), &text).await;
    stop.cancel();
    served.await.unwrap();
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}

pub(crate) async fn trace(world: &World, pod: &str) -> TraceReport {
    let (namespace, name) = pod.split_once('/').unwrap();
    let route = format!("/v1/trace?podNamespace={namespace}&podName={name}");
    serde_json::from_value(ask(world, &route).await).unwrap()
}

#[tokio::test]
async fn candidates_refusals_and_what_was_written_are_told() {
    let world = World::new();
    world.prewarm_pool("p4", "172.91.0.0/24", &[("172.91.0.100", 301)]);
    world.marked_pool(
        "other",
        "172.92.0.0/24",
        &[("172.92.0.100", 302)],
        Some("n2"),
    );
    world.pod("shop/web-0", "u-1");
    let add = Request::eni("c-1", "/ns/a", "net1")
        .pod("shop/web-0", "u-1")
        .pools("ipv4", &["other", "p4"]);
    world.add(&add).await.unwrap();
    let told = trace(&world, "shop/web-0").await;
    assert_eq!((told.error, told.pod_uid.as_str()), (None, "u-1"));
    let [record] = told.records.as_slice() else {
        panic!("{:?}", told.records)
    };
    assert_eq!(
        (record.pool.as_str(), record.pod_uid.as_str()),
        ("p4", "u-1")
    );
    assert_eq!(told.endpoint.unwrap()["current"]["uid"], "u-1");
    assert_eq!(told.attachments[0].ips[0].address, record.address);
    let [nic] = told.nics.as_slice() else {
        panic!("{:?}", told.nics)
    };
    assert_eq!(
        (nic.interface.as_str(), nic.last.as_ref().unwrap().code),
        ("net1", 0)
    );
    assert!(nic.level.as_ref().unwrap().contains("CNI configuration"));
    let [family] = nic.families.as_slice() else {
        panic!("{:?}", nic.families)
    };
    assert_eq!(family.candidates[0].gives, [record.address]);
    assert_eq!(family.refused[0].pool, "other");
    assert!(family.refused[0].reason.contains("n2"), "{family:?}");
    let files: Vec<HeldAttachment> =
        serde_json::from_value(ask(&world, "/v1/attachments").await).unwrap();
    assert_eq!(
        (files[0].pod_name.as_str(), files[0].vlan),
        ("web-0", Some(301))
    );
}

#[tokio::test]
async fn failures_strangers_and_the_dead_are_told_apart() {
    let world = World::new();
    world.plain_pool("p", "10.31.0.0/24", &["10.31.0.10"]);
    world.pod("shop/web-0", "u-1");
    let add = Request::ipam("c-1", "eth0", &["nope"]).pod("shop/web-0", "u-1");
    let failure = world.add(&add).await.unwrap_err();
    let told = trace(&world, "shop/web-0").await;
    let last = told.nics[0].last.as_ref().unwrap();
    assert_eq!(last.code, 7);
    assert!(last.error.as_ref().unwrap().contains(&failure.msg));
    assert!(told.nics[0].error.as_ref().unwrap().contains("nope"));
    // Nobody has asked yet: no configuration is known.
    world.pod("shop/web-1", "u-2");
    let told = trace(&world, "shop/web-1").await;
    assert_eq!((told.nics.len(), &told.nics[0].last), (1, &None));
    let mut away = pod_object("shop/away", "u-3", &[]);
    away.facts.node = "n2".into();
    world.store.set_pod(away);
    let told = trace(&world, "shop/away").await;
    assert_eq!((told.pod_node.as_str(), told.node.as_str()), ("n2", "n1"));
    assert!(told.nics.is_empty());
    let told = trace(&world, "shop/gone").await;
    assert!(told.error.unwrap().contains("shop/gone"));
}
