//! ADD that succeeds, and what it leaves: result, link, record, endpoint, file.

use serde_json::json;

use crate::world::{MASTER_MAC, Request, World, addresses, mac_of, object_key};

#[tokio::test]
async fn a_pod_gets_link_record_endpoint_and_file() {
    let world = World::new();
    world.prewarm_pool(
        "p4",
        "172.91.0.0/24",
        &[("172.91.0.100", 301), ("172.91.0.101", 302)],
    );
    world.pod("shop/web-0", "u-1");
    let request = Request::eni("c-1", "/ns/a", "net1").pod("shop/web-0", "u-1");
    let result = world.call(request.build("ADD")).await.unwrap().unwrap();
    let want = json!({"cniVersion": "1.1.0",
        "interfaces": [{"name": "net1", "mac": mac_of(301), "mtu": 1500, "sandbox": "/ns/a"}],
        "ips": [{"interface": 0, "address": "172.91.0.100/24", "gateway": "172.91.0.1"}],
        "routes": [{"dst": "0.0.0.0/0", "gw": "172.91.0.1"}], "dns": {},
        "spidernet.io/sub-eni": {"vlan": 301, "mac": mac_of(301), "parentMac": MASTER_MAC, "nodeName": "n1"}});
    assert_eq!(result, want);
    assert_eq!(world.records("p4"), ["172.91.0.100 u-1"]);
    assert_eq!(world.files(), ["c-1-net1.json"]);
    let link = world.nic.link("/ns/a", "net1").unwrap();
    assert_eq!((link.vlan.get(), link.mac.to_string()), (301, mac_of(301)));
    assert_eq!(link.addresses, ["172.91.0.100/24"]);
    let endpoint = world
        .store
        .current_endpoint(&crate::world::object_key("shop/web-0"))
        .unwrap();
    let detail = &endpoint.status.current.ips[0];
    assert_eq!((detail.interface.as_str(), detail.vlan), ("net1", 301));
    assert_eq!(
        endpoint.metadata.labels.unwrap()["spiderpool.spidernet.io/node"],
        "n1"
    );
    assert_eq!(
        endpoint.metadata.finalizers.unwrap(),
        ["spiderpool.spidernet.io"]
    );
    assert_eq!(endpoint.status.owner_controller_type, "Pod");
}

#[tokio::test]
async fn results_below_1_0_0_carry_the_ip_version() {
    let world = World::new();
    world.plain_pool("p4", "10.31.0.0/24", &["10.31.0.10"]);
    world.pod("shop/web-0", "u-1");
    let request = Request::ipam("c-1", "eth0", &["p4"]).pod("shop/web-0", "u-1");
    let result = world.call(request.build("ADD")).await.unwrap().unwrap();
    let want = json!({"cniVersion": "0.4.0", "ips": [{"version": "4", "address": "10.31.0.10/24"}],
        "routes": [], "dns": {}});
    assert_eq!(result, want);
    assert_eq!(world.nic.link_count(), 0);
}

#[tokio::test]
async fn a_repeated_add_is_the_same_attachment_without_a_write() {
    let world = World::new();
    world.prewarm_pool(
        "p4",
        "172.91.0.0/24",
        &[("172.91.0.100", 301), ("172.91.0.101", 302)],
    );
    world.pod("shop/web-0", "u-1");
    let request = Request::eni("c-1", "/ns/a", "net1").pod("shop/web-0", "u-1");
    let first = world.add(&request).await.unwrap();
    let before = world.store.counts();
    assert_eq!(world.add(&request).await.unwrap(), first);
    assert_eq!(world.store.counts(), before);
    assert_eq!(world.nic.attaches(), 1);
}

#[tokio::test]
async fn a_fast_add_reads_nothing_past_the_caches() {
    let world = World::new();
    world.prewarm_pool("p4", "172.91.0.0/24", &[("172.91.0.100", 301)]);
    world.pod("shop/web-0", "u-1");
    let request = Request::eni("c-1", "/ns/a", "net1").pod("shop/web-0", "u-1");
    world.add(&request).await.unwrap();
    let counts = world.store.counts();
    assert_eq!(
        (
            counts.fresh_reads,
            counts.pool_writes,
            counts.endpoint_writes
        ),
        (0, 1, 1)
    );
}

#[tokio::test]
async fn a_new_sandbox_of_the_pod_takes_the_vlan_over() {
    let world = World::new();
    world.prewarm_pool(
        "p4",
        "172.91.0.0/24",
        &[("172.91.0.100", 301), ("172.91.0.101", 302)],
    );
    world.pod("shop/web-0", "u-1");
    let old = Request::eni("c-1", "/ns/a", "net1").pod("shop/web-0", "u-1");
    let new = Request::eni("c-2", "/ns/b", "net1").pod("shop/web-0", "u-1");
    let first = world.add(&old).await.unwrap();
    let second = world.add(&new).await.unwrap();
    assert_eq!(addresses(&first), addresses(&second));
    assert_eq!(world.nic.link("/ns/a", "net1"), None);
    assert!(world.nic.link("/ns/b", "net1").is_some());
    // The old sandbox's DEL comes late and touches only what is its own.
    world.del(&old).await.unwrap();
    assert!(world.nic.link("/ns/b", "net1").is_some());
    assert_eq!(world.records("p4"), ["172.91.0.100 u-1"]);
    assert_eq!(world.files(), ["c-2-net1.json"]);
}

#[tokio::test]
async fn pairs_come_from_one_entry_and_share_the_sub_eni() {
    let world = World::new();
    world.prewarm_pool(
        "p4",
        "172.91.0.0/24",
        &[("172.91.0.100", 301), ("172.91.0.101", 302)],
    );
    world.plain_pool("p6", "fd91::/64", &["fd91::100-fd91::1ff"]);
    let mut v4 = world.store.current_pool("p4").unwrap().raw().clone();
    v4["metadata"]["annotations"]["ipam.spidernet.io/pair-pool"] = json!("p6");
    let text = v4["status"]["ipMetaData"]["metadata"].as_str().unwrap();
    let mut metadata: serde_json::Value = serde_json::from_str(text).unwrap();
    metadata["ips"]["172.91.0.100"]["ipv6"] = json!("fd91::177");
    v4["status"]["ipMetaData"]["metadata"] = json!(metadata.to_string());
    world.store.set_pool(v4).unwrap();
    let mut v6 = world.store.current_pool("p6").unwrap().raw().clone();
    v6["metadata"]["annotations"] = json!({"ipam.spidernet.io/iaas-provider": "lab",
        "ipam.spidernet.io/parent-nic": "eth1"});
    v6["spec"]["nodeName"] = json!(["n1"]);
    world.store.set_pool(v6).unwrap();
    world.pod("shop/web-0", "u-1");
    let request = Request::eni("c-1", "/ns/a", "net1").pod("shop/web-0", "u-1");
    let result = world.add(&request).await.unwrap();
    assert_eq!(addresses(&result), ["172.91.0.100/24", "fd91::177/64"]);
    assert_eq!(world.records("p6"), ["fd91::177 u-1"]);
    // The entry that is left has no partner: pair or nothing.
    world.pod("shop/web-1", "u-2");
    let other = Request::eni("c-2", "/ns/b", "net1").pod("shop/web-1", "u-2");
    let failure = world.add(&other).await.unwrap_err();
    assert_eq!(failure.code.number(), 100, "{failure:?}");
    assert_eq!(world.records("p4"), ["172.91.0.100 u-1"]);
    // DEL frees both.
    world
        .store
        .remove_pod(&crate::world::object_key("shop/web-0"));
    world.del(&request).await.unwrap();
    assert!(world.records("p4").is_empty() && world.records("p6").is_empty());
}

#[tokio::test]
async fn bare_containers_get_a_pod_of_their_own() {
    let world = World::standalone();
    world.prewarm_pool("p4", "172.91.0.0/24", &[("172.91.0.100", 301)]);
    let request = Request::eni("4f5a6b7c8d9e0f1a", "/ns/a", "net1");
    world.add(&request).await.unwrap();
    let key = "default/c-4f5a6b7c8d9e";
    let uid = world.endpoint_uid(key).unwrap();
    assert_eq!(world.records("p4"), [format!("172.91.0.100 {uid}")]);
    world.del(&request).await.unwrap();
    assert!(world.records("p4").is_empty());
    assert_eq!(world.endpoint_uid(key), None);
    assert_eq!(world.nic.link_count(), 0);
    assert!(world.files().is_empty());
    world.del(&request).await.unwrap();
    world.add(&request).await.unwrap();
    assert_eq!(world.records("p4").len(), 1);
}

#[tokio::test]
async fn a_lost_record_is_claimed_again_or_the_nic_starts_afresh() {
    let world = World::new();
    world.prewarm_pool(
        "p4",
        "172.91.0.0/24",
        &[("172.91.0.100", 301), ("172.91.0.101", 302)],
    );
    world.pod("shop/web-0", "u-1");
    let request = Request::eni("c-1", "/ns/a", "net1").pod("shop/web-0", "u-1");
    world.add(&request).await.unwrap();
    let clear = |ip: &str, other: Option<&str>| {
        let mut raw = world.store.current_pool("p4").unwrap().raw().clone();
        let records = match other {
            Some(uid) => json!({ip: {"pod": "x/y", "podUid": uid, "nic": "net1"}}),
            None => json!({}),
        };
        raw["status"]["allocatedIPCount"] = json!(records.as_object().unwrap().len());
        raw["status"]["allocatedIPs"] = json!(records.to_string());
        world.store.set_pool(raw).unwrap();
    };
    clear("172.91.0.100", None);
    let again = world.add(&request).await.unwrap();
    assert_eq!(addresses(&again), ["172.91.0.100/24"]);
    assert_eq!(world.records("p4"), ["172.91.0.100 u-1"]);
    // Somebody else has it now: no answer may carry it.
    clear("172.91.0.100", Some("u-9"));
    world.nic.delete_link("/ns/a", "net1");
    let other = world.add(&request).await.unwrap();
    assert_eq!(addresses(&other), ["172.91.0.101/24"]);
    assert_eq!(
        world.records("p4"),
        ["172.91.0.100 u-9", "172.91.0.101 u-1"]
    );
}

#[tokio::test]
async fn a_claim_that_nobody_was_told_of_goes_when_another_pool_gives_the_address() {
    let world = World::new();
    world.plain_pool("p-a", "10.1.0.0/24", &["10.1.0.10-10.1.0.19"]);
    world.plain_pool("p-b", "10.2.0.0/24", &["10.2.0.10-10.2.0.19"]);
    world.pod("shop/web-0", "u-1");
    // An earlier try's write was stored and its answer lost; then the pool was switched off.
    world.set_record("p-a", "10.1.0.10", "shop/web-0", "u-1", Some("net1"));
    world.set_record("p-a", "10.1.0.11", "shop/web-0", "u-1", Some("net2"));
    world.set_record("p-a", "10.1.0.12", "shop/web-1", "u-2", Some("net1"));
    let mut raw = world.store.current_pool("p-a").unwrap().raw().clone();
    raw["spec"]["disable"] = json!(true);
    world.store.set_pool(raw).unwrap();
    let request = Request::ipam("c-1", "net1", &["p-a", "p-b"]).pod("shop/web-0", "u-1");
    let result = world.add(&request).await.unwrap();
    assert_eq!(addresses(&result), ["10.2.0.10/24"]);
    assert_eq!(world.records("p-a"), ["10.1.0.11 u-1", "10.1.0.12 u-2"]);
    assert_eq!(world.records("p-b"), ["10.2.0.10 u-1"]);
}

#[tokio::test]
async fn an_endpoint_does_not_go_on_naming_what_is_not_to_be_had() {
    let world = World::new();
    world.plain_pool("p-a", "10.1.0.0/24", &["10.1.0.10-10.1.0.19"]);
    world.pod("shop/web-0", "u-1");
    // Written before its claim by an agent that died in between.
    let detail = json!([{"interface": "net1", "ipv4": "10.1.0.10/24", "ipv4Pool": "p-a"}]);
    world.set_endpoint("shop/web-0", "u-1", "n1", detail);
    let mut raw = world.store.current_pool("p-a").unwrap().raw().clone();
    raw["spec"]["disable"] = json!(true);
    world.store.set_pool(raw).unwrap();
    let request = Request::ipam("c-1", "net1", &["p-a"]).pod("shop/web-0", "u-1");
    world.add(&request).await.unwrap_err();
    let endpoint = world.store.current_endpoint(&object_key("shop/web-0"));
    assert!(endpoint.unwrap().status.current.ips.is_empty());
}
