//! DEL with a provider: prewarmed sub-ENIs are marked, told of, and only then freed; others are
//! freed at once.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use spiderpool_agent::spool::Replay;
use spiderpool_agent::store::memory::pool_json;

use crate::log::Logged;
use crate::provider::{Cloud, global, request, world};
use crate::world::{MASTER_MAC, Request, World, addresses, object_key, pod_object};

const POOL: &str = "p4";

async fn attached() -> (World, Arc<Cloud>) {
    let (world, cloud) = world();
    let entries = [("172.91.0.100", 301), ("172.91.0.101", 302)];
    world.prewarm_pool(POOL, "172.91.0.0/24", &entries);
    world.add(&request()).await.unwrap();
    world.store.remove_pod(&object_key("shop/web-0"));
    (world, cloud)
}

fn marker(world: &World, ip: &str) -> Option<String> {
    let pool = world.store.current_pool(POOL).unwrap();
    let record = pool.pool().unwrap().records.get(ip.parse().unwrap())?;
    Some(record.releasing.as_ref()?.by.clone())
}

fn mark(world: &World, ip: &str, by: &str, at: &str) {
    let mut raw = world.store.current_pool(POOL).unwrap().raw().clone();
    let text = raw["status"]["allocatedIPs"].as_str().unwrap();
    let mut map: Value = serde_json::from_str(text).unwrap();
    map[ip]["releasing"] = json!({"by": by, "at": at});
    raw["status"]["allocatedIPs"] = json!(map.to_string());
    world.store.set_pool(raw).unwrap();
}

#[tokio::test]
async fn a_prewarmed_sub_eni_is_told_of_once_and_freed_after_that() {
    let (world, cloud) = attached().await;
    for _ in 0..3 {
        world.del(&request()).await.unwrap();
        assert!(world.records(POOL).is_empty() && world.files().is_empty());
        assert_eq!(world.endpoint_uid("shop/web-0"), None);
    }
    let [call] = cloud.fake.released().try_into().unwrap();
    let want = json!({"podName": "web-0", "podNamespace": "shop", "podUID": "u-1", "nodeName": "n1",
        "parentNicMac": MASTER_MAC, "subnet": "172.91.0.0/24", "ipAddress": "172.91.0.100", "poolName": POOL});
    assert_eq!(serde_json::to_value(call).unwrap(), want);
    // Mark and free are two writes, the claim was the first.
    assert_eq!(world.store.counts().pool_writes, 3);
}

#[tokio::test]
async fn a_living_pod_is_no_reason_to_call() {
    let (world, cloud) = attached().await;
    world.pod("shop/web-0", "u-1");
    world.del(&request()).await.unwrap();
    assert!(cloud.fake.released().is_empty());
    assert_eq!(world.records(POOL), ["172.91.0.100 u-1"]);
    assert_eq!(marker(&world, "172.91.0.100"), None);
}

/// Cases B23 and B25, as far as DEL and its repetition go.
#[tokio::test]
async fn b25_what_the_provider_refuses_stays_claimed_and_is_tried_again() {
    let (world, cloud) = attached().await;
    cloud.fake.fail_release(503);
    cloud.fake.fail_release(503);
    // The runtime sees success.
    world.del(&request()).await.unwrap();
    for round in 1..=2 {
        assert_eq!(cloud.fake.released().len(), round);
        assert!(marker(&world, "172.91.0.100").is_some());
        assert_eq!(world.endpoint_uid("shop/web-0").as_deref(), Some("u-1"));
        let (key, uid) = (format!("shop/new-{round}"), format!("u-1{round}"));
        world.pod(&key, &uid);
        let netns = format!("/ns/{}", ["b", "c"][round - 1]);
        let add = Request::eni(&format!("c-1{round}"), &netns, "net1").pod(&key, &uid);
        let got = world.add(&add).await;
        match round {
            1 => assert_eq!(addresses(&got.unwrap()), ["172.91.0.101/24"]),
            _ => assert!(got.unwrap_err().details.contains("used out")),
        }
        world.agent.replay_spool().await;
    }
    assert_eq!(cloud.fake.released().len(), 3);
    assert!(
        cloud
            .fake
            .released()
            .iter()
            .all(|call| call.pod_uid == "u-1")
    );
    assert_eq!(world.records(POOL), ["172.91.0.101 u-11"]);
    assert_eq!(world.endpoint_uid("shop/web-0"), None);
    world.agent.replay_spool().await;
    assert_eq!(cloud.fake.released().len(), 3);
}

#[tokio::test]
async fn what_the_provider_refuses_outlives_the_agent() {
    let (mut world, cloud) = attached().await;
    cloud.fake.fail_release(503);
    cloud.fake.fail_release(503);
    world.del(&request()).await.unwrap();
    assert!(world.files().is_empty(), "the link is gone");
    world.restart();
    // Two minutes belong to a call of the dead agent that may be under way. (Here both have one
    // process id and one clock, so the mark is given another name.)
    for (at, calls) in [("1969-12-31T23:58:01Z", 1), ("1969-12-31T23:58:00Z", 2)] {
        mark(&world, "172.91.0.100", "the agent before", at);
        assert_eq!(world.agent.replay_spool().await.kept, 1);
        assert_eq!(cloud.fake.released().len(), calls);
    }
    assert_eq!(world.agent.replay_spool().await.done, 1);
    assert_eq!(cloud.fake.released().len(), 3);
    assert!(world.records(POOL).is_empty());
    assert_eq!(world.endpoint_uid("shop/web-0"), None);
    assert_eq!(world.agent.replay_spool().await, Replay::default());
}

#[tokio::test]
async fn a_del_that_succeeds_leaves_nothing_that_waits() {
    let (world, cloud) = attached().await;
    cloud.fake.fail_release(503);
    world.del(&request()).await.unwrap();
    world.del(&request()).await.unwrap();
    assert_eq!(cloud.fake.released().len(), 2);
    assert!(world.records(POOL).is_empty());
    assert_eq!(world.agent.replay_spool().await, Replay::default());
}

/// A container that comes again under its id (cnitool names it by its namespace).
#[tokio::test]
async fn an_add_waits_for_the_release_of_its_own_older_del() {
    let (world, cloud) = attached().await;
    cloud.fake.fail_release(503);
    cloud.fake.fail_release(503);
    world.del(&request()).await.unwrap();
    world.pod("shop/web-0", "u-2");
    let add = Request::eni("c-1", "/ns/a", "net1").pod("shop/web-0", "u-2");
    let failure = world.add(&add).await.unwrap_err();
    assert_eq!(failure.code.number(), 11);
    assert!(failure.msg.contains("older DEL"), "{failure:?}");
    let result = world.add(&add).await.unwrap();
    assert_eq!(addresses(&result), ["172.91.0.100/24"]);
    assert_eq!(world.records(POOL), ["172.91.0.100 u-2"]);
    assert_eq!(cloud.fake.released().len(), 3);
}

#[tokio::test]
async fn b23_a_release_has_the_time_of_its_call_whatever_the_pods_grace() {
    for gone in [true, false] {
        let (world, cloud) = attached().await;
        if !gone {
            let mut dying = pod_object("shop/web-0", "u-1", &[]);
            dying.facts.terminating = true;
            world.store.set_pod(dying);
        }
        world.del(&request()).await.unwrap();
        let [budget] = cloud.budgets().try_into().unwrap();
        assert!(budget > Duration::from_secs(90) && budget < Duration::from_secs(100));
        assert!(world.records(POOL).is_empty());
    }
}

#[tokio::test]
async fn what_somebody_else_releases_is_left_to_them_for_two_minutes() {
    // The agent's clock stands at 1970.
    for (at, calls) in [("1969-12-31T23:58:01Z", 0), ("1969-12-31T23:58:00Z", 1)] {
        let (world, cloud) = attached().await;
        mark(&world, "172.91.0.100", "gc", at);
        world.del(&request()).await.unwrap();
        assert_eq!(cloud.fake.released().len(), calls, "{at}");
        assert_eq!(world.records(POOL).len(), 1 - calls, "{at}");
        let kept = marker(&world, "172.91.0.100");
        assert_eq!(kept.as_deref(), (calls == 0).then_some("gc"));
        assert_eq!(world.endpoint_uid("shop/web-0").is_some(), calls == 0);
    }
}

#[tokio::test(start_paused = true)]
async fn two_dels_of_one_pod_tell_the_provider_once_a_sub_eni() {
    let (world, cloud) = world();
    let entries = [("172.91.0.100", 301), ("172.91.0.101", 302)];
    world.prewarm_pool(POOL, "172.91.0.0/24", &entries);
    let second = Request::eni("c-1", "/ns/a", "net2").pod("shop/web-0", "u-1");
    world.add(&request()).await.unwrap();
    world.add(&second).await.unwrap();
    world.store.remove_pod(&object_key("shop/web-0"));
    world.store.set_delay(Duration::from_millis(5));
    let (one, two) = (request(), second);
    let (one, two) = tokio::join!(world.del(&one), world.del(&two));
    one.unwrap();
    two.unwrap();
    assert_eq!(cloud.fake.released().len(), 2);
    assert!(world.records(POOL).is_empty());
}

#[tokio::test]
async fn one_nic_that_stays_does_not_hold_the_others() {
    let (world, cloud) = world();
    let entries = [("172.91.0.100", 301), ("172.91.0.101", 302)];
    world.prewarm_pool(POOL, "172.91.0.0/24", &entries);
    global(&world, "g", &["10.72.0.10"], &json!({}));
    let second = Request::eni("c-1", "/ns/a", "net2").pod("shop/web-0", "u-1");
    let third = Request::eni("c-1", "/ns/a", "net3").pod("shop/web-0", "u-1");
    world.add(&request()).await.unwrap();
    world.add(&second).await.unwrap();
    world.add(&third.pools("ipv4", &["g"])).await.unwrap();
    world.store.remove_pod(&object_key("shop/web-0"));
    cloud.fake.fail_release(500);
    world.del(&request()).await.unwrap();
    assert_eq!(cloud.fake.released().len(), 2);
    assert_eq!(world.records(POOL).len(), 1);
    assert!(world.records("g").is_empty());
    assert!(world.endpoint_uid("shop/web-0").is_some());
    world.agent.replay_spool().await;
    assert!(world.records(POOL).is_empty());
    assert_eq!(cloud.fake.released().len(), 3);
}

#[tokio::test]
async fn a_pair_goes_back_by_its_ipv4_address_alone() {
    for declared in [true, false] {
        let (world, cloud) = world();
        world.prewarm_pool(POOL, "172.91.0.0/24", &[("172.91.0.100", 301)]);
        let mut v4 = world.store.current_pool(POOL).unwrap().raw().clone();
        v4["metadata"]["annotations"]["ipam.spidernet.io/pair-pool"] = json!("p6");
        let text = v4["status"]["ipMetaData"]["metadata"].as_str().unwrap();
        let mut metadata: Value = serde_json::from_str(text).unwrap();
        metadata["ips"]["172.91.0.100"]["ipv6"] = json!("fd91::177");
        v4["status"]["ipMetaData"]["metadata"] = json!(metadata.to_string());
        world.store.set_pool(v4).unwrap();
        let mut v6 = pool_json("p6", "fd91::/64", &["fd91::100-fd91::1ff"]);
        v6["metadata"]["annotations"] = json!({"ipam.spidernet.io/iaas-provider": "lab",
            "ipam.spidernet.io/parent-nic": "eth1"});
        if declared {
            v6["metadata"]["annotations"]["ipam.spidernet.io/pair-pool"] = json!(POOL);
        }
        v6["spec"]["nodeName"] = json!(["n1"]);
        world.store.set_pool(v6).unwrap();
        world.add(&request()).await.unwrap();
        assert_eq!(world.records("p6"), ["fd91::177 u-1"]);
        world.store.remove_pod(&object_key("shop/web-0"));
        cloud.fake.fail_release(503);
        world.del(&request()).await.unwrap();
        assert_eq!(
            (world.records(POOL).len(), world.records("p6").len()),
            (1, 1)
        );
        world.del(&request()).await.unwrap();
        let calls = cloud.fake.released();
        assert_eq!(calls.len(), 2);
        assert!(
            calls
                .iter()
                .all(|call| call.ip_address.to_string() == "172.91.0.100")
        );
        assert!(world.records(POOL).is_empty() && world.records("p6").is_empty());
    }
}

#[tokio::test]
async fn global_addresses_are_freed_without_a_call_and_met_again() {
    let (world, cloud) = world();
    global(&world, POOL, &["10.72.0.10"], &json!({}));
    world.add(&request()).await.unwrap();
    world.store.remove_pod(&object_key("shop/web-0"));
    world.del(&request()).await.unwrap();
    assert!(world.records(POOL).is_empty() && cloud.fake.released().is_empty());
}

#[tokio::test]
async fn a_spooled_del_goes_the_same_way() {
    let (mut world, cloud) = attached().await;
    let text = serde_json::to_string(&request().build("DEL")).unwrap();
    std::fs::write(world.paths.spool_dir().join("c-1-net1.json"), text).unwrap();
    world.restart();
    assert_eq!(world.agent.replay_spool().await.done, 1);
    assert_eq!(cloud.fake.released().len(), 1);
    assert!(world.records(POOL).is_empty());
}

#[tokio::test]
async fn an_address_that_never_works_goes_back_to_the_provider() {
    for refused in [false, true] {
        let (world, cloud) = world();
        let entries = [("172.91.0.100", 301), ("172.91.0.101", 302)];
        world.prewarm_pool(POOL, "172.91.0.0/24", &entries);
        world.nic.hold_back("172.91.0.100");
        if refused {
            cloud.fake.fail_release(503);
        }
        for n in 0..5 {
            let add = request().set("containerID", format!("c-{n}"));
            let failure = world.add(&add).await.unwrap_err();
            assert_eq!(failure.code.number(), 103, "{failure:?}");
        }
        assert_eq!(cloud.fake.released().len(), 1);
        let result = world.add(&request()).await.unwrap();
        assert_eq!(addresses(&result), ["172.91.0.101/24"]);
        assert_eq!(world.records(POOL).len(), if refused { 2 } else { 1 });
        world.store.remove_pod(&object_key("shop/web-0"));
        world.del(&request()).await.unwrap();
        assert!(world.records(POOL).is_empty());
        assert_eq!(cloud.fake.released().len(), if refused { 3 } else { 2 });
    }
}

#[tokio::test]
async fn a_pool_that_is_gone_costs_one_call_and_no_more() {
    let (world, cloud) = attached().await;
    world.store.remove_pool(POOL);
    cloud.fake.fail_release(503);
    world.del(&request()).await.unwrap();
    let [call] = cloud.fake.released().try_into().unwrap();
    assert_eq!(
        (call.node_name.as_str(), call.pool_name.as_str()),
        ("n1", POOL)
    );
    assert_eq!(world.endpoint_uid("shop/web-0"), None);
}

/// The address is another pool's to give, or a Pod there has it already: a release would take it away.
#[tokio::test]
async fn an_address_that_another_pool_has_by_now_is_not_told_of() {
    for taken in [false, true] {
        let (world, cloud) = attached().await;
        world.store.remove_pool(POOL);
        world.prewarm_pool("newer", "172.91.0.0/24", &[("172.91.0.100", 301)]);
        if taken {
            world.set_record("newer", "172.91.0.100", "shop/next", "u-9", Some("net1"));
            let mut raw = world.store.current_pool("newer").unwrap().raw().clone();
            raw["spec"]["ips"] = json!(["172.91.0.200"]);
            world.store.set_pool(raw).unwrap();
        }
        let logged = Logged::begin();
        world.del(&request()).await.unwrap();
        assert!(cloud.fake.released().is_empty(), "{taken}");
        assert_eq!(world.endpoint_uid("shop/web-0"), None);
        let [line] = logged.lines("the provider is not told").try_into().unwrap();
        assert!(
            line.contains("172.91.0.100") && line.contains("newer"),
            "{line}"
        );
    }
}

/// Nobody knows whether it can be understood.
#[tokio::test]
async fn a_pool_that_cannot_be_used_may_have_the_address() {
    let (world, cloud) = attached().await;
    world.store.remove_pool(POOL);
    let mut raw = pool_json("broken", "172.91.0.0/24", &["172.91.0.250"]);
    raw["status"]["allocatedIPs"] = json!("{");
    world.store.set_pool(raw).unwrap();
    world.del(&request()).await.unwrap();
    assert!(cloud.fake.released().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_call_without_an_answer_is_not_overtaken_by_another() {
    let (world, cloud) = attached().await;
    cloud.fake.fail_release(504);
    for _ in 0..3 {
        world.del(&request()).await.unwrap();
        world.agent.replay_spool().await;
        tokio::time::advance(Duration::from_secs(39)).await;
    }
    // The gateway gave up, the provider may not have: it could take the address from its next Pod.
    assert_eq!(cloud.fake.released().len(), 1);
    assert_eq!(world.records(POOL), ["172.91.0.100 u-1"]);
    tokio::time::advance(Duration::from_secs(3)).await;
    world.agent.replay_spool().await;
    assert_eq!(cloud.fake.released().len(), 2);
    assert!(world.records(POOL).is_empty());
}
