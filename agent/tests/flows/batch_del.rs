//! Batch DEL over the socket: a plugin whose probes failed gives its Pod's addresses back (spec ipam 1.7,
//! last paragraph).

use std::sync::Arc;

use serde_json::{Value, json};
use spiderpool_agent::agent::Settings;
use spiderpool_agent::api::{self, socket::Socket};
use spiderpool_ipam::sticky::MachineFacts;
use tokio_util::sync::CancellationToken;

use crate::provider::world as with_cloud;
use crate::world::{NODE, Request, World, addresses, object_key, owned, pod_object};

async fn batch(world: &World, body: &Value) -> (u16, String) {
    let stop = CancellationToken::new();
    let socket = Socket::bind(world.paths.socket_path()).unwrap();
    let served = tokio::spawn(api::serve(Arc::clone(&world.agent), socket, stop.clone()));
    let body = body.to_string();
    let text = format!(
        "DELETE /v1/ipam/ips HTTP/1.1\r\nhost: agent\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let answer = crate::server::exchange(world.paths.socket_path(), &text).await;
    stop.cancel();
    served.await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, body.to_owned())
}

fn body(pod: &str, uid: &str, conflict: bool) -> Value {
    let (namespace, name) = pod.split_once('/').unwrap();
    json!({"containerID": "c-1", "podNamespace": namespace, "podName": name, "podUID": uid,
        "netNamespace": "/ns/a", "isReleaseConflictIPs": conflict})
}

fn world() -> World {
    World::new()
}

async fn attached(world: &World) {
    world.plain_pool("p4", "10.38.0.0/24", &["10.38.0.10-10.38.0.14"]);
    world.pod("shop/web-0", "u-1");
    for nic in ["eth0", "net1"] {
        let add = Request::ipam("c-1", nic, &["p4"]).pod("shop/web-0", "u-1");
        world.add(&add).await.unwrap();
    }
}

#[tokio::test]
async fn a_living_pod_gives_all_its_addresses_back() {
    for uid in ["u-1", ""] {
        let world = world();
        attached(&world).await;
        for _ in 0..2 {
            let (status, text) = batch(&world, &body("shop/web-0", uid, false)).await;
            assert_eq!((status, text.as_str()), (200, ""));
            assert!(world.records("p4").is_empty());
            let endpoint = world
                .store
                .current_endpoint(&object_key("shop/web-0"))
                .unwrap();
            assert!(endpoint.status.current.ips.is_empty());
        }
    }
}

/// The lowest free address would be the one that conflicts.
#[tokio::test]
async fn after_a_conflict_the_retry_gets_another_address() {
    let world = world();
    attached(&world).await;
    let (status, _) = batch(&world, &body("shop/web-0", "u-1", true)).await;
    assert_eq!(status, 200);
    let add = Request::ipam("c-2", "eth0", &["p4"]).pod("shop/web-0", "u-1");
    assert_eq!(
        addresses(&world.add(&add).await.unwrap()),
        ["10.38.0.12/24"]
    );
}

#[tokio::test]
async fn refusals_have_their_own_status_and_free_nothing() {
    let off = World::with(Settings {
        release_conflicts: false,
        ..Settings::new(NODE)
    });
    attached(&off).await;
    let (status, text) = batch(&off, &body("shop/web-0", "u-1", true)).await;
    assert_eq!(status, 521);
    let text: String = serde_json::from_str(&text).unwrap();
    assert!(
        text.contains("SPIDERPOOL_ENABLED_RELEASE_CONFLICT_IPS"),
        "{text}"
    );
    assert_eq!(off.records("p4").len(), 2);
    // Without a conflict the switch does not matter.
    assert_eq!(batch(&off, &body("shop/web-0", "u-1", false)).await.0, 200);

    let world = world();
    world.plain_pool("p4", "10.38.0.0/24", &["10.38.0.10-10.38.0.14"]);
    world.scale("db/sts", Some(1));
    world.member("db/sts-0", "u-1", &[]);
    let add = Request::ipam("c-1", "eth0", &["p4"]).pod("db/sts-0", "u-1");
    world.add(&add).await.unwrap();
    assert_eq!(batch(&world, &body("db/sts-0", "u-1", true)).await.0, 522);
    // Gone, and its endpoint still tells what it was.
    world.store.remove_pod(&object_key("db/sts-0"));
    assert_eq!(batch(&world, &body("db/sts-0", "u-1", true)).await.0, 522);
    assert_eq!(world.records("p4"), ["10.38.0.10 u-1"]);

    for (uid, part) in [("u-9", "UID u-1, not u-9"), ("", "")] {
        let (status, text) = batch(&world, &body("db/sts-0", uid, false)).await;
        assert_eq!(status, if uid.is_empty() { 200 } else { 500 });
        assert!(text.contains(part), "{text}");
    }
    let (status, text) = batch(&world, &body("shop/none", "u-7", false)).await;
    assert_eq!(status, 500);
    assert!(
        text.contains("no SpiderEndpoint of Pod shop/none"),
        "{text}"
    );
    let (status, text) = batch(&world, &json!({"podName": "web-0"})).await;
    assert_eq!(status, 422);
    assert!(text.contains("containerID"), "{text}");
}

#[tokio::test]
async fn sub_enis_go_back_to_the_provider_first() {
    for refused in [false, true] {
        let (world, cloud) = with_cloud();
        world.prewarm_pool("p4", "172.91.0.0/24", &[("172.91.0.100", 301)]);
        let add = Request::eni("c-1", "/ns/a", "net1").pod("shop/web-0", "u-1");
        world.add(&add).await.unwrap();
        if refused {
            cloud.fake.fail_release(429);
        }
        let (status, text) = batch(&world, &body("shop/web-0", "u-1", false)).await;
        assert_eq!(cloud.fake.released().len(), 1);
        assert_eq!(world.nic.link_count(), 0);
        assert_eq!(status, if refused { 500 } else { 200 }, "{text}");
        assert_eq!(world.records("p4").len(), usize::from(refused));
        // What the provider has not taken back is its DEL's.
        world.store.remove_pod(&object_key("shop/web-0"));
        world.del(&add).await.unwrap();
        assert!(world.records("p4").is_empty());
    }
}

#[tokio::test]
async fn a_machines_endpoint_is_found_by_its_name() {
    let world = world();
    world.plain_pool("p4", "10.40.0.0/24", &["10.40.0.10"]);
    world
        .store
        .set_machine(object_key("vms/db"), MachineFacts::default());
    let pod = pod_object("vms/launcher", "u-1", &[]);
    let pod = owned(pod, "kubevirt.io/v1", "VirtualMachineInstance", "db");
    world.store.set_pod(pod);
    let add = Request::ipam("c-1", "eth0", &["p4"]).pod("vms/launcher", "u-1");
    world.add(&add).await.unwrap();
    assert_eq!(
        batch(&world, &body("vms/launcher", "u-1", false)).await.0,
        200
    );
    assert!(world.records("p4").is_empty());
}
