//! The endpoint is written beside the claim; whatever the claim comes to, it tells the truth when the
//! call is answered.

use std::time::Duration;

use spiderpool_api::allocation::{Record, Records};
use tokio::time::Instant;

use crate::world::{Request, World, addresses, object_key};

const ROUND_TRIP: Duration = Duration::from_millis(10);

fn world(ips: &[&str]) -> (World, Request) {
    let world = World::new();
    world.plain_pool("p4", "10.31.0.0/24", ips);
    world.pod("shop/web-0", "u-1");
    world.store.set_delay(ROUND_TRIP);
    let request = Request::ipam("c-1", "eth0", &["p4"]).pod("shop/web-0", "u-1");
    (world, request)
}

fn take(records: &mut Records, address: &str) {
    let record = serde_json::json!({"pod": "x/y", "podUid": "foreign", "nic": "eth0"});
    let record: Record = serde_json::from_value(record).unwrap();
    records.insert(address.parse().unwrap(), record);
}

fn recorded(world: &World) -> Option<String> {
    let endpoint = world.store.current_endpoint(&object_key("shop/web-0"))?;
    endpoint.status.current.ips[0].ipv4.clone()
}

#[tokio::test(start_paused = true)]
async fn claim_and_endpoint_take_one_round_trip() {
    let (world, request) = world(&["10.31.0.10"]);
    let begun = Instant::now();
    world.add(&request).await.unwrap();
    assert_eq!(begun.elapsed(), ROUND_TRIP);
    assert_eq!(recorded(&world).as_deref(), Some("10.31.0.10/24"));
    let counts = world.store.counts();
    assert_eq!((counts.pool_writes, counts.endpoint_writes), (1, 1));
}

/// Of a sub-ENI that is ready too: it waits for nobody but the record.
#[tokio::test(start_paused = true)]
async fn a_hit_takes_no_longer_than_a_plain_address() {
    let world = World::new();
    world.prewarm_pool("p4", "172.91.0.0/24", &[("172.91.0.100", 301)]);
    world.pod("shop/web-0", "u-1");
    world.store.set_delay(ROUND_TRIP);
    let conf = Request::ipam("c-1", "eth0", &["p4"]).conf("type", "eni-vlan");
    let request = conf.conf("master", "eth1").pod("shop/web-0", "u-1");
    let begun = Instant::now();
    world.add(&request).await.unwrap();
    assert_eq!(begun.elapsed(), ROUND_TRIP);
    let endpoint = world
        .store
        .current_endpoint(&object_key("shop/web-0"))
        .unwrap();
    assert_eq!(endpoint.status.current.ips[0].vlan, 301);
    assert_eq!(world.store.counts().endpoint_writes, 1);
    // Changed by the provider meanwhile, it is written again.
    world.prewarm_pool(
        "w",
        "172.92.0.0/24",
        &[("172.92.0.100", 302), ("172.92.0.101", 303)],
    );
    world.pod("shop/web-1", "u-2");
    world
        .store
        .conflict("w", Box::new(|records| take(records, "172.92.0.100")));
    let request = request
        .set("containerID", "c-2")
        .pod("shop/web-1", "u-2")
        .pools("ipv4", &["w"]);
    let result = world.add(&request).await.unwrap();
    assert_eq!(addresses(&result), ["172.92.0.101/24"]);
    let endpoint = world
        .store
        .current_endpoint(&object_key("shop/web-1"))
        .unwrap();
    assert_eq!(endpoint.status.current.ips[0].vlan, 303);
}

#[tokio::test(start_paused = true)]
async fn after_a_conflict_the_endpoint_names_what_the_answer_does() {
    let (world, request) = world(&["10.31.0.10-10.31.0.12"]);
    world
        .store
        .conflict("p4", Box::new(|records| take(records, "10.31.0.10")));
    let result = world.add(&request).await.unwrap();
    assert_eq!(addresses(&result), ["10.31.0.11/24"]);
    assert_eq!(recorded(&world).as_deref(), Some("10.31.0.11/24"));
}

#[tokio::test(start_paused = true)]
async fn no_endpoint_is_left_by_a_claim_that_fails_after_all() {
    let (world, request) = world(&["10.31.0.10"]);
    world
        .store
        .conflict("p4", Box::new(|records| take(records, "10.31.0.10")));
    world.add(&request).await.unwrap_err();
    assert_eq!(recorded(&world), None);
    assert_eq!(world.records("p4"), ["10.31.0.10 foreign"]);
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_that_cannot_be_written_beside_is_written_afterwards() {
    let (world, request) = world(&["10.31.0.10"]);
    world.store.conflict_endpoints(1);
    world.add(&request).await.unwrap();
    assert_eq!(recorded(&world).as_deref(), Some("10.31.0.10/24"));
}
