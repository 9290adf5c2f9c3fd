//! Cases from public reports (cases.md), by their number.

use serde_json::json;

use crate::world::{Request, World, addresses, object_key, pod_object};

fn two_nics(world: &World) -> (Request, Request) {
    let choice =
        json!([{"interface": "eth0", "ipv4": ["p-a"]}, {"interface": "net1", "ipv4": ["p-b"]}]);
    let note = ("ipam.spidernet.io/ippools", choice.to_string());
    world.annotated_pod("shop/web-0", "u-1", &[(note.0, &note.1)]);
    let of = |ifname| Request::ipam("c-1", ifname, &[]).pod("shop/web-0", "u-1");
    (of("eth0"), of("net1"))
}

fn b01_world() -> World {
    let world = World::new();
    world.plain_pool("p-a", "10.31.0.0/24", &["10.31.0.10-10.31.0.14"]);
    world.plain_pool("p-b", "10.32.0.0/24", &["10.32.0.10"]);
    world.set_record("p-b", "10.32.0.10", "other/blocker", "u-9", Some("eth0"));
    world
}

#[tokio::test]
async fn b01_a_full_second_pool_does_not_drain_the_first() {
    let world = b01_world();
    let (eth0, net1) = two_nics(&world);
    for container in 1..=6 {
        let add = eth0.clone().set("containerID", format!("c-{container}"));
        let failure = world.add(&add).await.unwrap_err();
        let text = format!("{}: {}", failure.msg, failure.details);
        assert!(text.contains("net1") && text.contains("p-b"), "{text}");
        assert_eq!(world.records("p-a"), ["10.31.0.10 u-1"]);
    }
    let freed = world.records("p-b");
    assert_eq!(freed, ["10.32.0.10 u-9"]);
    world.plain_pool("p-b", "10.32.0.0/24", &["10.32.0.10"]);
    let add = |request: &Request| request.clone().set("containerID", "c-7");
    let first = world.add(&add(&eth0)).await.unwrap();
    let second = world.add(&add(&net1)).await.unwrap();
    assert_eq!(addresses(&first), ["10.31.0.10/24"]);
    assert_eq!(addresses(&second), ["10.32.0.10/24"]);
    assert_eq!(
        (world.records("p-a").len(), world.records("p-b").len()),
        (1, 1)
    );
}

#[tokio::test]
async fn b01_variant_a_pod_deleted_before_it_started_leaves_nothing() {
    let world = b01_world();
    let (eth0, _) = two_nics(&world);
    world.add(&eth0).await.unwrap_err();
    assert_eq!(world.records("p-a").len(), 1);
    world.store.remove_pod(&object_key("shop/web-0"));
    world.del(&eth0).await.unwrap();
    assert!(world.records("p-a").is_empty());
    assert_eq!(world.records("p-b"), ["10.32.0.10 u-9"]);
}

#[tokio::test]
async fn a_failed_claim_rolls_global_addresses_back_and_keeps_the_others() {
    for node in [None, Some("n1")] {
        let world = b01_world();
        world.marked_pool("g", "172.91.0.0/24", &[("172.91.0.100", 301)], node);
        let choice =
            json!([{"interface": "eth0", "ipv4": ["g"]}, {"interface": "net1", "ipv4": ["p-b"]}]);
        let note = choice.to_string();
        world.annotated_pod("shop/web-0", "u-1", &[("ipam.spidernet.io/ippools", &note)]);
        let add = Request::eni("c-1", "/ns/a", "eth0").pod("shop/web-0", "u-1");
        let failure = world.add(&add).await.unwrap_err();
        assert!(failure.details.contains("p-b"), "{failure:?}");
        let kept = if node.is_some() {
            vec!["172.91.0.100 u-1"]
        } else {
            vec![]
        };
        assert_eq!(world.records("g"), kept, "{node:?}");
    }
}

#[tokio::test]
async fn b02_a_record_without_endpoint_is_found_by_its_uid_alone() {
    let world = World::new();
    world.plain_pool("p-c", "10.33.0.0/24", &["10.33.0.10-10.33.0.11"]);
    world.set_record("p-c", "10.33.0.10", "ns/a", "u-a", None);
    world.set_record("p-c", "10.33.0.11", "ns/b", "u-b", None);
    world.pod("ns/b", "u-b");
    let request = Request::ipam("c-1", "eth0", &["p-c"]);
    let result = world
        .add(&request.clone().pod("ns/b", "u-b"))
        .await
        .unwrap();
    assert_eq!(addresses(&result), ["10.33.0.11/24"]);
    assert_eq!(world.endpoint_uid("ns/b").as_deref(), Some("u-b"));
    assert_eq!(world.records("p-c").len(), 2);
    // Control: the same name with another UID gets nothing by its name.
    world.pod("ns/b", "u-b2");
    let newer = request
        .clone()
        .set("containerID", "c-2")
        .pod("ns/b", "u-b2");
    let failure = world.add(&newer).await.unwrap_err();
    assert!(failure.details.contains("used out"), "{failure:?}");
    world.del(&request.pod("ns/b", "u-b")).await.unwrap();
    let result = world.add(&newer).await.unwrap();
    assert_eq!(addresses(&result), ["10.33.0.11/24"]);
    assert_eq!(world.records("p-c"), ["10.33.0.10 u-a", "10.33.0.11 u-b2"]);
}

#[tokio::test]
async fn b03_a_recreated_pod_and_the_late_del_of_the_old_one() {
    let world = World::new();
    world.plain_pool("p-d", "10.34.0.0/24", &["10.34.0.10-10.34.0.12"]);
    world.set_record("p-d", "10.34.0.10", "batch/job-0", "u-1", Some("eth0"));
    let detail =
        json!([{"interface": "eth0", "ipv4": "10.34.0.10/24", "ipv4Pool": "p-d", "vlan": 0}]);
    world.set_endpoint("batch/job-0", "u-1", "n0", detail);
    // The agent's cache still has the old Pod.
    world.pod("batch/job-0", "u-2");
    let old = pod_object("batch/job-0", "u-1", &[]);
    world
        .store
        .set_cached_pod(object_key("batch/job-0"), Some(old));
    let request = Request::ipam("c-2", "eth0", &["p-d"]).pod("batch/job-0", "u-2");
    let result = world.add(&request).await.unwrap();
    assert_eq!(addresses(&result), ["10.34.0.11/24"]);
    let endpoint = world
        .store
        .current_endpoint(&object_key("batch/job-0"))
        .unwrap();
    let current = &endpoint.status.current;
    assert_eq!((current.uid.as_str(), current.node.as_str()), ("u-2", "n1"));
    let late = Request::ipam("c-1", "eth0", &["p-d"]).pod("batch/job-0", "u-1");
    for _ in 0..2 {
        world.del(&late).await.unwrap();
        assert_eq!(world.records("p-d"), ["10.34.0.11 u-2"]);
        assert_eq!(world.endpoint_uid("batch/job-0").as_deref(), Some("u-2"));
    }
}

#[tokio::test]
async fn b19_late_dels_of_a_dead_sandbox_leave_the_next_pod_alone() {
    let world = World::new();
    world.prewarm_pool("p4", "10.71.0.0/24", &[("10.71.0.10", 101)]);
    world.pod("shop/a", "u-1");
    world.pod("shop/b", "u-2");
    let a = Request::eni("c-1", "/ns/a", "net1").pod("shop/a", "u-1");
    world.add(&a).await.unwrap();
    world.store.remove_pod(&object_key("shop/a"));
    world.nic.remove_netns("/ns/a");
    // The cloud gives VLAN 101 to another address; the runtime reuses path and identity too.
    let raw = world.store.current_pool("p4").unwrap().raw().clone();
    world.prewarm_pool("p4", "10.71.0.0/24", &[("10.71.0.11", 101)]);
    let mut next = world.store.current_pool("p4").unwrap().raw().clone();
    next["status"]["allocatedIPs"] = raw["status"]["allocatedIPs"].clone();
    next["status"]["allocatedIPCount"] = json!(1);
    world.store.set_pool(next).unwrap();
    world.nic.add_netns("/ns/a", 200);
    let b = Request::eni("c-2", "/ns/a", "net1").pod("shop/b", "u-2");
    world.add(&b).await.unwrap();
    let link = world.nic.link("/ns/a", "net1").unwrap();
    for _ in 0..2 {
        world.del(&a.clone().set("netns", "")).await.unwrap();
        assert_eq!(world.nic.link("/ns/a", "net1"), Some(link.clone()));
        assert_eq!(world.records("p4"), ["10.71.0.11 u-2"]);
        assert_eq!(world.files(), ["c-2-net1.json"]);
    }
}

/// What has happened before the DEL.
type Damage = fn(&World);

#[tokio::test]
async fn b20_del_never_fails_on_what_is_gone() {
    let states: [(&str, Option<&str>, Damage); 6] = [
        ("a normal", None, |_| {}),
        ("b netns file missing", None, |world| {
            world.nic.remove_netns("/ns/a")
        }),
        ("c no netns", Some(""), |_| {}),
        ("d link deleted", None, |world| {
            world.nic.delete_link("/ns/a", "net1")
        }),
        ("e master gone", None, |world| {
            world.nic.remove_master("eth1")
        }),
        ("f run folder lost", None, |world| {
            std::fs::remove_file(world.paths.attachments_dir().join("c-1-net1.json")).unwrap();
        }),
    ];
    for (state, netns, damage) in states {
        let mut world = World::new();
        world.prewarm_pool("p4", "172.91.0.0/24", &[("172.91.0.100", 105)]);
        world.pod("shop/web-0", "u-1");
        let add = Request::eni("c-1", "/ns/a", "net1").pod("shop/web-0", "u-1");
        world.add(&add).await.unwrap();
        world.store.remove_pod(&object_key("shop/web-0"));
        damage(&world);
        world.restart();
        let del = match netns {
            Some(netns) => add.clone().set("netns", netns),
            None => add.clone(),
        };
        let writes = world.store.counts().pool_writes;
        for _ in 0..2 {
            world
                .del(&del)
                .await
                .unwrap_or_else(|failure| panic!("{state}: {failure:?}"));
        }
        assert!(world.records("p4").is_empty(), "{state}");
        assert_eq!(world.store.counts().pool_writes, writes + 1, "{state}");
        assert_eq!(world.nic.link_count(), 0, "{state}");
        assert!(world.files().is_empty(), "{state}");
    }
    // Never an ADD: nothing to free, no error.
    let world = World::new();
    let del = Request::eni("c-8", "/ns/zz", "net1").pod("shop/none", "u-8");
    world.del(&del).await.unwrap();
    world.del(&Request::eni("c-8", "", "net1")).await.unwrap();
}

fn thin(uid: &str) -> Request {
    Request::ipam("c-1", "eth0", &[])
        .set("netns", "")
        .set("conf", json!({"cniVersion": "0.3.1", "name": "lab", "type": "x", "ipam": {"type": "spiderpool"}}))
        .pod("shop/web-1", uid)
}

fn b33_world() -> World {
    let world = World::new();
    world.plain_pool("p", "10.76.0.0/24", &["10.76.0.10-10.76.0.12"]);
    world.set_record("p", "10.76.0.10", "shop/web-1", "u-1", Some("eth0"));
    let detail =
        json!([{"interface": "eth0", "ipv4": "10.76.0.10/24", "ipv4Pool": "p", "vlan": 0}]);
    world.set_endpoint("shop/web-1", "u-1", "n1", detail);
    world
}

#[tokio::test]
async fn b33_a_thin_del_frees_in_one_call() {
    for plugin in ["spiderpool", "eni-vlan"] {
        let world = b33_world();
        world.del(&thin("u-1").set("plugin", plugin)).await.unwrap();
        assert!(world.records("p").is_empty(), "{plugin}");
        assert_eq!(world.endpoint_uid("shop/web-1"), None, "{plugin}");
    }
}

#[tokio::test]
async fn b33_variants_without_uid_and_with_a_newer_pod() {
    let world = b33_world();
    world.del(&thin("")).await.unwrap();
    assert_eq!(world.records("p"), ["10.76.0.10 u-1"]);
    world.pod("shop/web-1", "u-2");
    world.set_record("p", "10.76.0.11", "shop/web-1", "u-2", Some("eth0"));
    world.del(&thin("u-1")).await.unwrap();
    assert_eq!(world.records("p"), ["10.76.0.11 u-2"]);
}

#[tokio::test]
async fn b33_variant_the_api_is_away() {
    let world = b33_world();
    world.store.set_outage(true);
    let failure = world.del(&thin("u-1")).await.unwrap_err();
    assert_eq!(failure.code.number(), 11);
    world.store.set_outage(false);
    world.del(&thin("u-1")).await.unwrap();
    assert!(world.records("p").is_empty());
}

/// Case B09, the agents' part: of two pools that overlap although both passed admission, the later one
/// gives out nothing, so that no address is given twice.
#[tokio::test]
async fn b09_of_two_overlapping_pools_the_later_gives_out_nothing() {
    let world = World::new();
    for (name, created, ips) in [
        ("r-1", "2027-01-05T10:00:01Z", "10.36.0.20-10.36.0.39"),
        ("r-2", "2027-01-05T10:00:00Z", "10.36.0.10-10.36.0.29"),
    ] {
        world.plain_pool(name, "10.36.0.0/24", &[ips]);
        let mut raw = world.store.current_pool(name).unwrap().raw().clone();
        raw["metadata"]["creationTimestamp"] = json!(created);
        world.store.set_pool(raw).unwrap();
    }
    let mut given = Vec::new();
    for number in 0..30 {
        let (key, uid) = (format!("shop/w-{number}"), format!("u-{number}"));
        world.pod(&key, &uid);
        let container = format!("c-{number}");
        let request = Request::ipam(&container, "eth0", &["r-1", "r-2"]).pod(&key, &uid);
        match world.add(&request).await {
            Ok(result) => given.extend(addresses(&result)),
            Err(failure) => assert!(
                failure
                    .details
                    .contains("overlaps the older IPPool r-2 in 10.36.0.20-10.36.0.29"),
                "{failure:?}"
            ),
        }
    }
    let own: Vec<String> = (10..30).map(|host| format!("10.36.0.{host}/24")).collect();
    assert_eq!(given, own);
    assert_eq!(world.records("r-1"), [""; 0]);
}
