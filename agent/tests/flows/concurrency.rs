//! Many calls at once: one attachment per NIC, one record per Pod, and no call that fails because
//! others are busy.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::future::join_all;
use spiderpool_agent::flow::call::Limits;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::world::{Request, World, addresses, object_key};

fn entries(count: usize) -> Vec<(String, i64)> {
    (0..count)
        .map(|index| {
            (
                format!("172.91.0.{}", index + 20),
                300 + i64::try_from(index).unwrap(),
            )
        })
        .collect()
}

fn world(count: usize) -> World {
    let world = World::new();
    let entries = entries(count);
    let entries: Vec<_> = entries
        .iter()
        .map(|(ip, vlan)| (ip.as_str(), *vlan))
        .collect();
    world.prewarm_pool("p4", "172.91.0.0/24", &entries);
    for index in 0..count {
        world
            .nic
            .add_netns(&format!("/ns/{index}"), 1000 + index as u64);
        world.pod(&format!("shop/web-{index}"), &format!("u-{index}"));
    }
    world
}

fn request(index: usize) -> Request {
    Request::eni(&format!("c-{index}"), &format!("/ns/{index}"), "net1")
        .pod(&format!("shop/web-{index}"), &format!("u-{index}"))
}

#[tokio::test(start_paused = true)]
async fn two_adds_of_one_nic_give_one_attachment() {
    let world = world(4);
    world.nic.set_delay(Duration::from_secs(2));
    world.store.set_delay(Duration::from_millis(5));
    let request = request(0);
    let (one, two) = tokio::join!(world.add(&request), world.add(&request));
    assert_eq!(one.unwrap(), two.unwrap());
    assert_eq!((world.nic.attaches(), world.nic.overlaps()), (1, 0));
    assert_eq!(world.records("p4").len(), 1);
    assert!(world.agent.tasks().len() <= 1);
}

#[tokio::test(start_paused = true)]
async fn a_second_sandbox_that_waits_takes_the_nic_over() {
    let world = world(4);
    world.nic.set_delay(Duration::from_secs(2));
    let first = request(0);
    let second = request(0).set("containerID", "c-new").set("netns", "/ns/1");
    let (one, two) = tokio::join!(world.add(&first), async {
        tokio::time::sleep(Duration::from_millis(10)).await;
        world.add(&second).await
    });
    assert_eq!(addresses(&one.unwrap()), addresses(&two.unwrap()));
    assert_eq!(world.nic.link_count(), 1);
    assert!(world.nic.link("/ns/1", "net1").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_hundred_adds_share_few_writes_and_get_a_hundred_addresses() {
    let world = world(100);
    world.store.set_delay(Duration::from_millis(5));
    let requests: Vec<_> = (0..100).map(request).collect();
    let results = join_all(requests.iter().map(|request| world.add(request))).await;
    let given: BTreeSet<String> = results
        .into_iter()
        .flat_map(|result| addresses(&result.unwrap()))
        .collect();
    assert_eq!(given.len(), 100);
    assert_eq!(world.records("p4").len(), 100);
    let writes = world.store.counts().pool_writes;
    assert!(writes <= 5, "{writes} writes");
    // And away again, at once.
    for index in 0..100 {
        world
            .store
            .remove_pod(&object_key(&format!("shop/web-{index}")));
    }
    for result in join_all(requests.iter().map(|request| world.del(request))).await {
        result.unwrap();
    }
    assert!(world.records("p4").is_empty());
    assert_eq!(world.nic.link_count(), 0);
    assert!(world.files().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_storm_of_conflicts_delays_and_never_fails() {
    let world = world(40);
    world.store.set_delay(Duration::from_millis(5));
    // Another node takes an address before each of our first 30 writes.
    for index in 0..30 {
        let write = move |records: &mut spiderpool_api::allocation::Records| {
            let ip = format!("172.91.0.{}", 59 - index).parse().unwrap();
            let record = serde_json::json!({"pod": "x/y", "podUid": format!("foreign-{index}"), "nic": "eth0"});
            records.insert(ip, serde_json::from_value(record).unwrap());
        };
        world.store.conflict("p4", Box::new(write));
    }
    let requests: Vec<_> = (0..10).map(request).collect();
    for result in join_all(requests.iter().map(|request| world.add(request))).await {
        result.unwrap();
    }
    assert_eq!(world.store.counts().pool_conflicts, 30);
    let records = world.records("p4");
    assert_eq!(records.len(), 40);
    assert_eq!(
        records
            .iter()
            .filter(|line| line.contains("foreign"))
            .count(),
        30
    );
}

#[tokio::test(start_paused = true)]
async fn endless_conflicts_end_at_the_deadline_with_code_11() {
    let world = world(2);
    world.store.set_delay(Duration::from_millis(100));
    for _ in 0..10_000 {
        world.store.conflict("p4", Box::new(|_| {}));
    }
    let begun = Instant::now();
    let failure = world.add(&request(0)).await.unwrap_err();
    assert_eq!(failure.code.number(), 11);
    assert!(
        failure.details.contains("exhaust all retries"),
        "{failure:?}"
    );
    assert!(begun.elapsed() <= Duration::from_secs(98));
    assert!(world.records("p4").is_empty());
}

#[tokio::test(start_paused = true)]
async fn one_that_does_not_fit_fails_alone() {
    let world = world(3);
    world.store.set_delay(Duration::from_millis(5));
    world.nic.add_netns("/ns/9", 9);
    world.pod("shop/web-9", "u-9");
    let requests: Vec<_> = [0, 1, 2, 9].into_iter().map(request).collect();
    let results = join_all(requests.iter().map(|request| world.add(request))).await;
    let failures: Vec<_> = results.into_iter().filter_map(Result::err).collect();
    assert_eq!(failures.len(), 1);
    assert!(failures[0].details.contains("used out"), "{failures:?}");
    assert_eq!(world.records("p4").len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_before_the_write_takes_nothing() {
    let world = world(2);
    world.store.set_delay(Duration::from_millis(50));
    let cancel = CancellationToken::new();
    let limits = Limits {
        deadline: Instant::now() + Duration::from_secs(90),
        cancel: cancel.clone(),
    };
    // The first keeps the writer busy, the second waits in line and hangs up.
    let (first, second) = (request(0), request(1));
    let ((), one, two) = tokio::join!(
        async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            cancel.cancel();
        },
        world.add(&first),
        async {
            tokio::time::sleep(Duration::from_millis(10)).await;
            world.agent.cni(second.build("ADD"), limits).await
        },
    );
    one.unwrap();
    assert_eq!(two.unwrap_err().code.number(), 11);
    assert_eq!(world.records("p4"), ["172.91.0.20 u-0"]);
    assert_eq!(world.nic.link_count(), 1);
}

#[tokio::test]
async fn a_hundred_cycles_on_one_vlan() {
    let world = world(1);
    for _ in 0..100 {
        world.pod("shop/web-0", "u-0");
        world.add(&request(0)).await.unwrap();
        world.store.remove_pod(&object_key("shop/web-0"));
        world.del(&request(0)).await.unwrap();
    }
    assert_eq!(world.nic.attaches(), 100);
    assert_eq!(world.nic.link_count(), 0);
}
