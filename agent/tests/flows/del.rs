//! DEL: what it frees, what it leaves, and that it may be repeated.

use std::time::Duration;

use crate::world::{Request, World, object_key, pod_object};

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

#[tokio::test]
async fn a_living_pod_keeps_its_address() {
    let world = world();
    world.add(&request()).await.unwrap();
    world.del(&request()).await.unwrap();
    assert_eq!(world.records("p4"), ["172.91.0.100 u-1"]);
    assert_eq!(world.nic.link_count(), 0);
    assert!(world.files().is_empty());
    assert!(world.endpoint_uid("shop/web-0").is_some());
}

#[tokio::test]
async fn a_dying_or_gone_pod_frees_once_and_repeats_do_nothing() {
    for gone in [false, true] {
        let world = world();
        world.add(&request()).await.unwrap();
        if gone {
            world.store.remove_pod(&object_key("shop/web-0"));
        } else {
            let mut dying = pod_object("shop/web-0", "u-1", &[]);
            dying.facts.terminating = true;
            world.store.set_pod(dying);
        }
        world.del(&request()).await.unwrap();
        assert!(world.records("p4").is_empty());
        assert_eq!(world.endpoint_uid("shop/web-0"), None);
        let writes = world.store.counts().pool_writes;
        for _ in 0..3 {
            world.del(&request()).await.unwrap();
        }
        assert_eq!(world.store.counts().pool_writes, writes);
    }
}

/// Whatever the runtime calls the Pod: the container's own is freed, of others nothing.
#[tokio::test]
async fn a_name_that_no_pod_can_have_frees_what_the_container_has() {
    let world = world();
    world.add(&request()).await.unwrap();
    world.store.remove_pod(&object_key("shop/web-0"));
    let long = format!("shop/{}", "a".repeat(100_000));
    world.set_record("p4", "172.91.0.101", "shop/web-9", "u-9", Some("net1"));
    for name in ["../..", "shop/../secrets", "Shop/web-9", &long] {
        let other = request().pod(name, "u-9").set("containerID", "c-9");
        world.del(&other).await.unwrap();
        let held = ["172.91.0.100 u-1", "172.91.0.101 u-9"];
        assert_eq!(world.records("p4"), held, "{name:.20}");
    }
    world.del(&request().pod("../..", "u-1")).await.unwrap();
    assert_eq!(world.records("p4"), ["172.91.0.101 u-9"]);
    assert!(world.files().is_empty() && world.nic.link_count() == 0);
}

#[tokio::test]
async fn the_del_of_an_older_sandbox_frees_nothing_even_of_a_dying_pod() {
    let world = world();
    let newer = request().set("containerID", "c-2").set("netns", "/ns/b");
    world.add(&request()).await.unwrap();
    world.add(&newer).await.unwrap();
    let mut dying = pod_object("shop/web-0", "u-1", &[]);
    dying.facts.terminating = true;
    world.store.set_pod(dying);
    for _ in 0..2 {
        world.del(&request()).await.unwrap();
        assert_eq!(world.records("p4"), ["172.91.0.100 u-1"]);
        assert!(world.nic.link("/ns/b", "net1").is_some());
        assert_eq!(world.files(), ["c-2-net1.json"]);
    }
    world.del(&newer).await.unwrap();
    assert!(world.records("p4").is_empty() && world.nic.link_count() == 0);
}

#[tokio::test]
async fn concurrent_dels_end_well() {
    let world = world();
    world.add(&request()).await.unwrap();
    world.store.remove_pod(&object_key("shop/web-0"));
    let request = request();
    let dels = (0..20).map(|_| world.del(&request));
    for result in futures::future::join_all(dels).await {
        result.unwrap();
    }
    assert!(world.records("p4").is_empty() && world.nic.link_count() == 0);
}

#[tokio::test]
async fn a_pod_that_never_got_an_endpoint_leaves_no_record() {
    let mut world = world();
    world.store.conflict_endpoints(usize::MAX);
    tokio::time::pause();
    let failure = world.add(&request()).await.unwrap_err();
    assert_eq!(failure.code.number(), 11, "{failure:?}");
    assert_eq!(world.records("p4"), ["172.91.0.100 u-1"]);
    world.store.remove_pod(&object_key("shop/web-0"));
    // Not even a restart in between loses it: the cached pool shows the record.
    world.restart();
    world.del(&request()).await.unwrap();
    assert!(world.records("p4").is_empty());
}

#[tokio::test]
async fn all_nics_of_a_dead_pod_lose_their_links_before_their_addresses() {
    let world = world();
    let second = Request::eni("c-1", "/ns/a", "net2").pod("shop/web-0", "u-1");
    world.add(&request()).await.unwrap();
    world.add(&second).await.unwrap();
    world.store.remove_pod(&object_key("shop/web-0"));
    world.del(&request()).await.unwrap();
    assert!(world.records("p4").is_empty());
    assert_eq!(world.nic.link_count(), 0);
    world.del(&second).await.unwrap();
    assert!(world.files().is_empty());
}

#[tokio::test]
async fn the_api_away_is_code_11_and_the_retry_works() {
    let world = world();
    world.add(&request()).await.unwrap();
    world.store.remove_pod(&object_key("shop/web-0"));
    world.store.set_outage(true);
    let failure = world.del(&request()).await.unwrap_err();
    assert_eq!(failure.code.number(), 11, "{failure:?}");
    assert_eq!(world.nic.link_count(), 0);
    assert_eq!(world.files(), ["c-1-net1.json"]);
    world.store.set_outage(false);
    world.del(&request()).await.unwrap();
    assert!(world.records("p4").is_empty() && world.files().is_empty());
}

#[tokio::test]
async fn an_unreadable_pool_does_not_keep_the_pod_terminating() {
    let world = world();
    world.add(&request()).await.unwrap();
    world.store.remove_pod(&object_key("shop/web-0"));
    let mut raw = world.store.current_pool("p4").unwrap().raw().clone();
    raw["status"]["allocatedIPs"] = serde_json::json!("[7]");
    world.store.set_pool(raw).unwrap();
    world.del(&request()).await.unwrap();
    assert!(world.files().is_empty());
}

#[tokio::test]
async fn static_pods_are_known_by_their_hash() {
    let world = world();
    let hash = [("kubernetes.io/config.hash", "h-1")];
    world.annotated_pod("shop/web-0", "u-1", &hash);
    let request = Request::eni("c-1", "/ns/a", "net1").pod("shop/web-0", "h-1");
    world.add(&request).await.unwrap();
    assert_eq!(world.records("p4"), ["172.91.0.100 u-1"]);
    let mut dying = pod_object("shop/web-0", "u-1", &hash);
    dying.facts.terminating = true;
    world.store.set_pod(dying);
    world.del(&request).await.unwrap();
    assert!(world.records("p4").is_empty());
}

#[tokio::test]
async fn spooled_dels_run_at_start_and_before_an_add_of_the_same_name() {
    let mut world = world();
    world.add(&request()).await.unwrap();
    world.store.remove_pod(&object_key("shop/web-0"));
    let spool = |world: &World| {
        let text = serde_json::to_string(&request().build("DEL")).unwrap();
        let path = world.paths.spool_dir().join("c-1-net1.json");
        std::fs::write(&path, text).unwrap();
        path
    };
    let path = spool(&world);
    world.restart();
    world.store.set_outage(true);
    assert_eq!(world.agent.replay_spool().await.kept, 1);
    assert!(path.exists());
    world.store.set_outage(false);
    assert_eq!(world.agent.replay_spool().await.done, 1);
    assert!(!path.exists());
    assert!(world.records("p4").is_empty() && world.nic.link_count() == 0);
    // The same sandbox name again, while its old DEL still waits.
    world.pod("shop/web-0", "u-1");
    let path = spool(&world);
    world.add(&request()).await.unwrap();
    assert!(!path.exists());
    world.agent.replay_spool().await;
    assert!(world.nic.link("/ns/a", "net1").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_del_waits_for_the_add_under_way() {
    let world = world();
    world.nic.set_delay(Duration::from_secs(1));
    let (add, del) = (request(), request());
    let (added, deleted) = tokio::join!(world.add(&add), async {
        tokio::time::sleep(Duration::from_millis(10)).await;
        world.del(&del).await
    });
    added.unwrap();
    deleted.unwrap();
    assert_eq!(world.nic.link_count(), 0);
    assert!(world.files().is_empty());
}
