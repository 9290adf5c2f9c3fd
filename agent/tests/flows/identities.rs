//! Pods of StatefulSets: their addresses outlive them while the set wants the ordinal (spec ipam 1.3
//! rows 5 to 7, 1.4, 1.7 row 6, 4.5, 7.5).

use serde_json::{Value, json};
use spiderpool_agent::agent::Settings;
use spiderpool_agent::store::memory::pool_json;
use spiderpool_ipam::sticky::Switches;

use crate::provider::{entry, global, world as with_cloud};
use crate::world::{NODE, Request, World, addresses, object_key};

const POD: &str = "db/sts-0";

fn ipam(uid: &str) -> Request {
    Request::ipam("c-1", "eth0", &["p4"]).pod(POD, uid)
}

fn world() -> World {
    let world = World::new();
    world.plain_pool("p4", "10.38.0.0/24", &["10.38.0.10-10.38.0.14"]);
    world.scale("db/sts", Some(3));
    world
}

/// The Pod ends and another one of its name begins.
async fn recreate(world: &World, request: impl Fn(&str) -> Request, from: &str, to: &str) {
    world.end(world.member(POD, from, &[]));
    world.del(&request(from)).await.unwrap();
    world.member(POD, to, &[]);
}

#[tokio::test]
async fn the_next_pod_of_an_ordinal_has_the_same_address() {
    let mut world = world();
    world.member(POD, "u-1", &[]);
    let first = world.add(&ipam("u-1")).await.unwrap();
    let endpoint = world.store.current_endpoint(&object_key(POD)).unwrap();
    assert_eq!(endpoint.metadata.owner_references, None);
    assert_eq!(endpoint.status.owner_controller_type, "StatefulSet");
    // Others take what is free meanwhile, and the agent restarts in between.
    recreate(&world, ipam, "u-1", "u-2").await;
    world.restart();
    world.pod("db/other", "u-9");
    let other = Request::ipam("c-9", "eth0", &["p4"]).pod("db/other", "u-9");
    world.add(&other).await.unwrap();
    let second = world.add(&ipam("u-2")).await.unwrap();
    assert_eq!(addresses(&first), addresses(&second));
    assert_eq!(world.records("p4"), ["10.38.0.10 u-2", "10.38.0.11 u-9"]);
    assert_eq!(world.endpoint_uid(POD).as_deref(), Some("u-2"));
    // A repeated ADD writes nothing more.
    let writes = world.store.counts().pool_writes;
    world.add(&ipam("u-2")).await.unwrap();
    assert_eq!(world.store.counts().pool_writes, writes);
}

#[tokio::test]
async fn an_ordinal_that_the_set_no_longer_wants_is_freed() {
    for replicas in [Some(0), None] {
        let world = world();
        let pod = world.member(POD, "u-1", &[]);
        world.add(&ipam("u-1")).await.unwrap();
        world.scale("db/sts", replicas);
        // Alive: nothing is asked, nothing freed.
        world.del(&ipam("u-1")).await.unwrap();
        assert_eq!(world.records("p4"), ["10.38.0.10 u-1"]);
        world.end(pod);
        world.del(&ipam("u-1")).await.unwrap();
        assert!(world.records("p4").is_empty());
        assert_eq!(world.endpoint_uid(POD), None);
    }
}

#[tokio::test]
async fn without_an_answer_about_the_set_nothing_is_freed() {
    let world = world();
    let pod = world.member(POD, "u-1", &[]);
    world.add(&ipam("u-1")).await.unwrap();
    world.scale("db/sts", None);
    world.end(pod);
    world.store.set_outage(true);
    let failure = world.del(&ipam("u-1")).await.unwrap_err();
    assert_eq!(failure.code.number(), 11, "{failure:?}");
    world.store.set_outage(false);
    assert_eq!(world.records("p4"), ["10.38.0.10 u-1"]);
}

#[tokio::test]
async fn a_pod_comes_with_its_address_from_another_node() {
    let world = world();
    world.set_record("p4", "10.38.0.12", POD, "u-0", Some("eth0"));
    let nic = json!({"interface": "eth0", "ipv4": "10.38.0.12/24", "ipv4Pool": "p4", "vlan": 0});
    world.set_endpoint(POD, "u-0", "n2", json!([nic]));
    world.member(POD, "u-1", &[]);
    let result = world.add(&ipam("u-1")).await.unwrap();
    assert_eq!(addresses(&result), ["10.38.0.12/24"]);
    assert_eq!(world.records("p4"), ["10.38.0.12 u-1"]);
    let endpoint = world.store.current_endpoint(&object_key(POD)).unwrap();
    assert_eq!(endpoint.status.current.node, NODE);
    let labels = endpoint.metadata.labels.unwrap();
    assert_eq!(labels["spiderpool.spidernet.io/node"], NODE);
}

#[tokio::test]
async fn a_lost_record_is_claimed_again_and_a_taken_address_is_not() {
    for (owner, want, records) in [
        (None, "10.38.0.12/24", vec!["10.38.0.12 u-1"]),
        (
            Some("u-9"),
            "10.38.0.10/24",
            vec!["10.38.0.10 u-1", "10.38.0.12 u-9"],
        ),
    ] {
        let world = world();
        if let Some(uid) = owner {
            world.set_record("p4", "10.38.0.12", "db/other", uid, Some("eth0"));
        }
        let nic =
            json!({"interface": "eth0", "ipv4": "10.38.0.12/24", "ipv4Pool": "p4", "vlan": 0});
        world.set_endpoint(POD, "u-0", NODE, json!([nic]));
        world.member(POD, "u-1", &[]);
        let result = world.add(&ipam("u-1")).await.unwrap();
        assert_eq!(addresses(&result), [want]);
        assert_eq!(world.records("p4"), records);
    }
}

/// Somebody takes the lost address between the plan and the write.
#[tokio::test]
async fn an_address_that_is_taken_at_the_last_moment_is_given_up() {
    let world = world();
    let nic = json!({"interface": "eth0", "ipv4": "10.38.0.12/24", "ipv4Pool": "p4", "vlan": 0});
    world.set_endpoint(POD, "u-0", NODE, json!([nic]));
    world.member(POD, "u-1", &[]);
    let record = json!({"pod": "db/other", "podUid": "u-9", "nic": "eth0"});
    let record = serde_json::from_value(record).unwrap();
    world.store.conflict(
        "p4",
        Box::new(move |records| {
            records.insert("10.38.0.12".parse().unwrap(), record);
        }),
    );
    let result = world.add(&ipam("u-1")).await.unwrap();
    assert_eq!(addresses(&result), ["10.38.0.10/24"]);
    assert_eq!(world.records("p4"), ["10.38.0.10 u-1", "10.38.0.12 u-9"]);
    let endpoint = world.store.current_endpoint(&object_key(POD)).unwrap();
    let details = &endpoint.status.current.ips;
    assert_eq!(details.len(), 1);
    assert_eq!(details[0].ipv4.as_deref(), Some("10.38.0.10/24"));
}

/// Spec ipam 1.4.
#[tokio::test]
async fn other_pools_in_the_choice_free_the_old_addresses_first() {
    let world = world();
    world.plain_pool("q4", "10.39.0.0/24", &["10.39.0.10"]);
    world.member(POD, "u-1", &[]);
    world.add(&ipam("u-1")).await.unwrap();
    recreate(&world, ipam, "u-1", "u-2").await;
    let moved = ipam("u-2").pools("ipv4", &["q4"]);
    let result = world.add(&moved).await.unwrap();
    assert_eq!(addresses(&result), ["10.39.0.10/24"]);
    assert!(world.records("p4").is_empty());
    assert_eq!(world.records("q4"), ["10.39.0.10 u-2"]);
    // A choice that is wrong itself gives up nothing.
    recreate(&world, ipam, "u-2", "u-3").await;
    let wrong = ipam("u-3").pools("ipv4", &["nope"]);
    assert_eq!(world.add(&wrong).await.unwrap_err().code.number(), 7);
    assert_eq!(world.records("q4"), ["10.39.0.10 u-2"]);
}

#[tokio::test]
async fn a_new_nic_is_fresh_and_the_others_stay() {
    let world = world();
    world.member(POD, "u-1", &[]);
    world.add(&ipam("u-1")).await.unwrap();
    recreate(&world, ipam, "u-1", "u-2").await;
    let second = Request::ipam("c-1", "net1", &["p4"]).pod(POD, "u-2");
    assert_eq!(
        addresses(&world.add(&second).await.unwrap()),
        ["10.38.0.11/24"]
    );
    assert_eq!(
        addresses(&world.add(&ipam("u-2")).await.unwrap()),
        ["10.38.0.10/24"]
    );
    assert_eq!(world.records("p4"), ["10.38.0.10 u-2", "10.38.0.11 u-2"]);
    let endpoint = world.store.current_endpoint(&object_key(POD)).unwrap();
    assert_eq!(endpoint.status.current.ips.len(), 2);
}

/// Weak spot 31: items without names count by their order, and nothing is given up for it.
#[tokio::test]
async fn nameless_choices_follow_the_order_of_adds_and_stay() {
    let world = world();
    world.plain_pool("q4", "10.39.0.0/24", &["10.39.0.10-10.39.0.12"]);
    let notes = [
        (
            "ipam.spidernet.io/ippools",
            r#"[{"ipv4":["p4"]},{"ipv4":["q4"]}]"#,
        ),
        ("k8s.v1.cni.cncf.io/networks", "db/storage@stor0"),
    ];
    let nics = ["eth0", "stor0"];
    let mut before = Vec::new();
    for uid in ["u-1", "u-2", "u-3"] {
        let pod = world.member(POD, uid, &notes);
        let mut got = Vec::new();
        for nic in nics {
            let add = Request::ipam("c-1", nic, &[]).pod(POD, uid);
            got.extend(addresses(&world.add(&add).await.unwrap()));
        }
        assert_eq!(got, ["10.38.0.10/24", "10.39.0.10/24"], "{uid}");
        let writes = world.store.counts().pool_writes;
        before.push(writes);
        world.end(pod);
        for nic in nics {
            let del = Request::ipam("c-1", nic, &[]).pod(POD, uid);
            world.del(&del).await.unwrap();
        }
    }
    // Two claims, then two adoptions for each next Pod.
    assert_eq!(before, [2, 4, 6]);
}

#[tokio::test]
async fn switched_off_the_pod_is_like_any_other() {
    let world = World::with(Settings {
        switches: Switches::default(),
        ..Settings::new(NODE)
    });
    world.plain_pool("p4", "10.38.0.0/24", &["10.38.0.10-10.38.0.14"]);
    world.scale("db/sts", Some(3));
    let pod = world.member(POD, "u-1", &[]);
    world.add(&ipam("u-1")).await.unwrap();
    let endpoint = world.store.current_endpoint(&object_key(POD)).unwrap();
    assert_eq!(endpoint.metadata.owner_references.unwrap()[0].uid, "u-1");
    world.end(pod);
    world.del(&ipam("u-1")).await.unwrap();
    assert!(world.records("p4").is_empty());
}

/// What a Pod holds besides what its identity keeps goes with it.
#[tokio::test]
async fn surplus_of_a_kept_ordinal_is_freed_with_its_pod() {
    let world = world();
    let pod = world.member(POD, "u-1", &[]);
    world.add(&ipam("u-1")).await.unwrap();
    world.set_record("p4", "10.38.0.14", POD, "u-1", Some("net7"));
    world.end(pod);
    world.del(&ipam("u-1")).await.unwrap();
    assert_eq!(world.records("p4"), ["10.38.0.10 u-1"]);
}

fn eni(uid: &str) -> Request {
    Request::eni("c-1", "/ns/a", "net1").pod(POD, uid)
}

fn bound(address: &str, pool: &str, entry: &Value) -> Value {
    json!([{"interface": "net1", "ipv4": address, "ipv4Pool": pool,
        "vlan": entry["vlan"], "mac": entry["mac"]}])
}

/// Spec ipam 7.5: sub-ENIs of a prewarm pool hang at their node.
#[tokio::test]
async fn a_prewarmed_sub_eni_of_another_node_goes_back_and_one_of_this_node_comes() {
    let (world, cloud) = with_cloud();
    world.scale("db/sts", Some(1));
    world.prewarm_pool("p4", "172.91.0.0/24", &[("172.91.0.100", 301)]);
    world.marked_pool("far", "172.92.0.0/24", &[("172.92.0.100", 302)], Some("n2"));
    world.set_record("far", "172.92.0.100", POD, "u-0", Some("net1"));
    let old = bound(
        "172.92.0.100/24",
        "far",
        &json!({"vlan": 302, "mac": crate::world::mac_of(302)}),
    );
    world.set_endpoint(POD, "u-0", "n2", old);
    world.member(POD, "u-1", &[]);
    let result = world
        .add(&eni("u-1").pools("ipv4", &["far", "p4"]))
        .await
        .unwrap();
    assert_eq!(addresses(&result), ["172.91.0.100/24"]);
    assert!(world.records("far").is_empty());
    let [call] = cloud.fake.released().try_into().unwrap();
    assert_eq!(
        (call.pod_uid.as_str(), call.node_name.as_str()),
        ("u-0", "n2")
    );
    assert_eq!(call.ip_address.to_string(), "172.92.0.100");
}

#[tokio::test]
async fn a_sub_eni_of_a_global_pool_is_called_to_the_new_node() {
    let (world, cloud) = with_cloud();
    world.scale("db/sts", Some(1));
    let far = entry(5, "n2");
    global(
        &world,
        "p4",
        &["10.72.0.10-10.72.0.12"],
        &json!({"10.72.0.11": far}),
    );
    world.set_record("p4", "10.72.0.11", POD, "u-0", Some("net1"));
    world.set_endpoint(POD, "u-0", "n2", bound("10.72.0.11/24", "p4", &far));
    world.member(POD, "u-1", &[]);
    // A provider that fails costs the ADD, not the address.
    cloud.fake.fail(500);
    assert_eq!(world.add(&eni("u-1")).await.unwrap_err().code.number(), 100);
    assert_eq!(world.records("p4"), ["10.72.0.11 u-1"]);
    let result = world.add(&eni("u-1")).await.unwrap();
    assert_eq!(addresses(&result), ["10.72.0.11/24"]);
    let calls = cloud.fake.allocated();
    assert_eq!(calls.len(), 2);
    let item = &calls[1].sub_eni_requests[0];
    assert_eq!(item.ipv4_address.unwrap().to_string(), "10.72.0.11");
    assert_eq!(calls[1].node_name, NODE);
    let endpoint = world.store.current_endpoint(&object_key(POD)).unwrap();
    let detail = &endpoint.status.current.ips[0];
    let link = world.nic.link("/ns/a", "net1").unwrap();
    assert_eq!(detail.vlan, i64::from(link.vlan.get()));
    assert_ne!(detail.vlan, 5, "a VLAN is new on each attach");
    assert_eq!(detail.mac.as_deref(), Some(link.mac.to_string().as_str()));
    assert!(cloud.fake.released().is_empty());
}

/// A provider that pauses its publication takes nothing away.
#[tokio::test]
async fn metadata_that_is_not_ready_is_waited_for() {
    let (world, _cloud) = with_cloud();
    world.scale("db/sts", Some(1));
    let here = entry(5, NODE);
    global(
        &world,
        "p4",
        &["10.72.0.10-10.72.0.12"],
        &json!({"10.72.0.11": here}),
    );
    world.set_record("p4", "10.72.0.11", POD, "u-0", Some("net1"));
    world.set_endpoint(POD, "u-0", NODE, bound("10.72.0.11/24", "p4", &here));
    world.member(POD, "u-1", &[]);
    let mut raw = world.store.current_pool("p4").unwrap().raw().clone();
    let published = raw["status"]["ipMetaData"].clone();
    raw["status"]["ipMetaData"]["observedGeneration"] = json!(0);
    world.store.set_pool(raw.clone()).unwrap();
    assert!(world.add(&eni("u-1")).await.is_err());
    assert_eq!(world.records("p4"), ["10.72.0.11 u-0"]);
    raw["status"]["ipMetaData"] = published;
    world.store.set_pool(raw).unwrap();
    let result = world.add(&eni("u-1")).await.unwrap();
    assert_eq!(addresses(&result), ["10.72.0.11/24"]);
}

/// Case B10 without its scan: a recreated Pod that has not called yet keeps its record, and scaled
/// to nothing it loses it.
#[tokio::test]
async fn b10_the_record_waits_for_the_pod_that_is_pending() {
    let world = World::new();
    world
        .store
        .set_pool(pool_json("p4", "10.38.0.0/24", &["10.38.0.10-10.38.0.12"]))
        .unwrap();
    world.scale("db/sts", Some(1));
    world.member(POD, "u-1", &[]);
    world.add(&ipam("u-1")).await.unwrap();
    world.member(POD, "u-2", &[]);
    // The late DEL of the one before, while its successor is Pending.
    world.del(&ipam("u-1")).await.unwrap();
    assert_eq!(world.records("p4"), ["10.38.0.10 u-1"]);
    let result = world.add(&ipam("u-2")).await.unwrap();
    assert_eq!(addresses(&result), ["10.38.0.10/24"]);
    world.scale("db/sts", Some(0));
    world.store.remove_pod(&object_key(POD));
    world.del(&ipam("u-2")).await.unwrap();
    assert!(world.records("p4").is_empty());
}
