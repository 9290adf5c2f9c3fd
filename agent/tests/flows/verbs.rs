//! CHECK, GC and STATUS.

use serde_json::{Value, json};

use spiderpool_agent::store::{Freshness, Store};

use crate::world::{Request, World, object_key};

fn world() -> World {
    let world = World::new();
    world.prewarm_pool(
        "p4",
        "172.91.0.0/24",
        &[("172.91.0.100", 301), ("172.91.0.101", 302)],
    );
    world.pod("shop/web-0", "u-1");
    world
}

fn request() -> Request {
    Request::eni("c-1", "/ns/a", "net1").pod("shop/web-0", "u-1")
}

async fn check(world: &World, request: &Request) -> u32 {
    let answer = world.call(request.build("CHECK")).await;
    answer.map_or_else(|failure| failure.code.number(), |_| 0)
}

#[tokio::test]
async fn check_compares_result_records_and_link() {
    let world = world();
    let result = world.add(&request()).await.unwrap();
    let result = serde_json::to_value(result).unwrap();
    let checked = |previous: Value| request().conf("prevResult", previous);
    assert_eq!(check(&world, &checked(result.clone())).await, 0);
    assert_eq!(check(&world, &request()).await, 7);
    let mut other = result.clone();
    other["ips"][0]["address"] = json!("172.91.0.101/24");
    assert_eq!(check(&world, &checked(other)).await, 100);
    let mut elsewhere = result.clone();
    elsewhere["interfaces"][0]["sandbox"] = json!("/ns/b");
    assert_eq!(check(&world, &checked(elsewhere)).await, 100);
    world.nic.delete_link("/ns/a", "net1");
    assert_eq!(check(&world, &checked(result.clone())).await, 100);
    world.add(&request()).await.unwrap();
    assert_eq!(check(&world, &checked(result.clone())).await, 0);
    world.set_record("p4", "172.91.0.100", "x/y", "u-9", Some("net1"));
    assert_eq!(check(&world, &checked(result)).await, 100);
}

#[tokio::test]
async fn check_of_an_unknown_container_makes_no_pod() {
    let world = World::standalone();
    let request = Request::eni("4f5a6b7c8d9e0f1a", "/ns/a", "net1");
    let request = request.conf("prevResult", json!({"cniVersion": "1.1.0", "ips": []}));
    assert_eq!(check(&world, &request).await, 100);
    let key = object_key("default/c-4f5a6b7c8d9e");
    let pod = world.store.pod(&key, Freshness::Fresh).await.unwrap();
    assert_eq!(pod, None);
}

#[tokio::test]
async fn gc_frees_only_what_is_unknown_and_whose_pod_is_gone() {
    let world = world();
    world.pod("shop/web-1", "u-2");
    world.add(&request()).await.unwrap();
    let second = Request::eni("c-2", "/ns/b", "net1").pod("shop/web-1", "u-2");
    world.add(&second).await.unwrap();
    world.store.remove_pod(&object_key("shop/web-0"));
    let gc = |valid: Option<Value>| {
        let request = Request::eni("", "", "").set("args", "");
        match valid {
            Some(list) => request.conf("cni.dev/valid-attachments", list),
            None => request,
        }
    };
    let run = async |request: Request| world.call(request.build("GC")).await.unwrap();
    run(gc(None)).await;
    let both =
        json!([{"containerID": "c-1", "ifname": "net1"}, {"containerID": "c-2", "ifname": "net1"}]);
    run(gc(Some(both))).await;
    run(gc(Some(json!([]))).conf("name", "another")).await;
    assert_eq!(world.records("p4").len(), 2);
    run(gc(Some(json!([])))).await;
    assert_eq!(world.records("p4"), ["172.91.0.101 u-2"]);
    assert_eq!(world.files(), ["c-2-net1.json"]);
    assert_eq!(world.nic.link_count(), 1);
}

#[tokio::test]
async fn gc_reports_every_failure_and_goes_on() {
    let world = world();
    world.pod("shop/web-1", "u-2");
    world.add(&request()).await.unwrap();
    let second = Request::eni("c-2", "/ns/b", "net1").pod("shop/web-1", "u-2");
    world.add(&second).await.unwrap();
    world.store.set_outage(true);
    let gc = Request::eni("", "", "").conf("cni.dev/valid-attachments", json!([]));
    let failure = world.call(gc.build("GC")).await.unwrap_err();
    assert!(
        failure.details.contains("c-1") && failure.details.contains("c-2"),
        "{failure:?}"
    );
}

#[tokio::test]
async fn gc_takes_bare_containers_that_the_runtime_forgot() {
    let world = World::standalone();
    world.prewarm_pool("p4", "172.91.0.0/24", &[("172.91.0.100", 301)]);
    world
        .add(&Request::eni("4f5a6b7c8d9e0f1a", "/ns/a", "net1"))
        .await
        .unwrap();
    let gc = Request::eni("", "", "").conf("cni.dev/valid-attachments", json!([]));
    world.call(gc.build("GC")).await.unwrap();
    assert!(world.records("p4").is_empty() && world.files().is_empty());
}

#[tokio::test]
async fn status_says_50_without_the_api_and_51_without_the_master() {
    let world = world();
    let status = async |request: Request| {
        let answer = world.call(request.build("STATUS")).await;
        answer.map_or_else(|failure| failure.code.number(), |_| 0)
    };
    let request = Request::eni("", "", "");
    assert_eq!(status(request.clone()).await, 0);
    assert_eq!(status(request.clone().conf("cniVersion", "1.0.0")).await, 1);
    world.nic.refuse_vlan_links(true);
    let failure = world.call(request.build("STATUS")).await.unwrap_err();
    assert_eq!(failure.code.number(), 50);
    assert!(failure.msg.contains("modprobe 8021q"), "{failure:?}");
    // The IPAM plugin alone needs none.
    let ipam = Request::ipam("", "", &[]).conf("cniVersion", "1.1.0");
    assert_eq!(status(ipam).await, 0);
    world.nic.refuse_vlan_links(false);
    world.store.set_outage(true);
    assert_eq!(status(request.clone()).await, 50);
    world.nic.remove_master("eth1");
    assert_eq!(status(request).await, 51);
}
