//! Reservations, and those that cannot be read.

use serde_json::{Value, json};
use spiderpool_agent::store::Reservation;

use crate::provider::text;
use crate::world::{Request, World, addresses};

fn reservation(name: &str, spec: &Value) -> Reservation {
    let meta = json!({"name": name, "uid": name});
    Reservation::read(&serde_json::from_value(meta).unwrap(), Some(spec))
}

/// Three Pods: one with an address, two without.
fn world() -> World {
    let world = World::new();
    world.plain_pool("p4", "10.31.0.0/24", &["10.31.0.10-10.31.0.14"]);
    world.plain_pool("p6", "fd31::/64", &["fd31::10"]);
    for (key, uid) in [
        ("shop/web-0", "u-1"),
        ("shop/web-1", "u-2"),
        ("shop/web-2", "u-3"),
    ] {
        world.pod(key, uid);
    }
    world
}

fn add(container: &str, pod: &str, uid: &str) -> Request {
    Request::ipam(container, "eth0", &["p4"]).pod(pod, uid)
}

#[tokio::test]
async fn what_may_be_reserved_is_not_given_out_and_the_rest_goes_on() {
    let world = world();
    let first = add("c-1", "shop/web-0", "u-1");
    let had = addresses(&world.add(&first).await.unwrap());
    let odd = json!({"ipVersion": 4, "ips": [{"ip": "10.31.0.11"}]});
    world.store.add_reserved(reservation("odd", &odd));
    let second = add("c-2", "shop/web-1", "u-2");
    let failure = world.add(&second).await.unwrap_err();
    let why = "IPPool p4 gives out nothing new: SpiderReservedIP odd cannot be read: spec.ips[0]";
    assert!(text(&failure).contains(why), "{}", text(&failure));
    assert_eq!(world.records("p4"), ["10.31.0.10 u-1"]);
    // What a Pod has stays, and the other family is none of its business.
    assert_eq!(addresses(&world.add(&first).await.unwrap()), had);
    let six = Request::ipam("c-3", "eth0", &[]).pools("ipv6", &["p6"]);
    let got = world.add(&six.pod("shop/web-2", "u-3")).await.unwrap();
    assert_eq!(addresses(&got), ["fd31::10/64"]);
}

/// One entry that is no address does not open the others.
#[tokio::test]
async fn entries_that_can_be_read_are_reserved() {
    let world = world();
    let before = reservation("r", &json!({"ips": ["10.31.0.10"]}));
    let now = reservation("r", &json!({"ips": ["10.31.0.11", "ten"]}));
    world.store.add_reserved(now.or_as_before(Some(&before)));
    let got = world.add(&add("c-1", "shop/web-0", "u-1")).await.unwrap();
    assert_eq!(addresses(&got), ["10.31.0.12/24"]);
}
