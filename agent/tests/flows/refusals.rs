//! Every refusal: its code, its words, and that nothing is left.

use serde_json::json;
use spiderpool_agent::flow::error::Failure;

use crate::fake_nic::Link;
use crate::world::{MASTER_MAC, Request, World, object_key, pod_object};

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

fn expect(failure: &Failure, code: u32, parts: &[&str]) {
    let text = format!("{}: {}", failure.msg, failure.details);
    assert_eq!(failure.code.number(), code, "{text}");
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    }
}

/// No link, file, record or endpoint.
fn nothing_left(world: &World) {
    assert_eq!(world.nic.link_count(), 0);
    assert!(world.files().is_empty());
    assert!(world.records("p4").is_empty());
    assert_eq!(world.endpoint_uid("shop/web-0"), None);
}

type Case = (&'static str, Request, u32, &'static [&'static str]);

fn bad_calls() -> Vec<Case> {
    vec![
        (
            "version",
            request().conf("cniVersion", "0.2.0"),
            1,
            &["0.2.0"],
        ),
        (
            "json",
            request().set("conf", json!([])),
            6,
            &["JSON object"],
        ),
        ("types", request().conf("mtu", "big"), 6, &["mtu", "big"]),
        (
            "plugin",
            request().set("plugin", "macvlan"),
            7,
            &["macvlan"],
        ),
        ("master name", request().conf("master", ""), 7, &["master"]),
        (
            "vlanId",
            request().conf("vlanId", 7),
            7,
            &["community vlan plugin"],
        ),
        (
            "ifname",
            request().set("ifname", "sixteen-chars-xy"),
            7,
            &["sixteen-chars-xy"],
        ),
        ("netns", request().set("netns", ""), 4, &["CNI_NETNS"]),
        (
            "no namespace's name",
            request().pod("../..", "u-1"),
            4,
            &["K8S_POD_NAMESPACE", "CNI_ARGS", "\"..\""],
        ),
        (
            "no Pod's name",
            request().pod("shop/../secrets", "u-1"),
            4,
            &["K8S_POD_NAME ", "CNI_ARGS", "../secrets"],
        ),
    ]
}

fn bad_places() -> Vec<Case> {
    vec![
        (
            "netns gone",
            request().set("netns", "/ns/zz"),
            4,
            &["/ns/zz"],
        ),
        ("no pod", request().set("args", ""), 4, &["K8S_POD_NAME"]),
        (
            "master gone",
            request().conf("master", "eth9"),
            106,
            &["eth9"],
        ),
        (
            "mtu",
            request().conf("mtu", 9000),
            7,
            &["9000", "1500", "eth1"],
        ),
        (
            "pod unknown",
            request().pod("shop/web-9", "u-9"),
            100,
            &["shop/web-9"],
        ),
        (
            "pod replaced",
            request().pod("shop/web-0", "u-7"),
            100,
            &["u-7", "u-1"],
        ),
        (
            "no pool",
            request().pools("ipv4", &["nope"]),
            7,
            &["nope", "net1"],
        ),
    ]
}

#[tokio::test]
async fn what_is_refused_before_the_claim_leaves_nothing() {
    for (name, request, code, parts) in bad_calls().into_iter().chain(bad_places()) {
        let world = world();
        let failure = world.add(&request).await.expect_err(name);
        expect(&failure, code, parts);
        nothing_left(&world);
    }
}

#[tokio::test]
async fn dead_pods_and_ipam_only_calls_get_no_sub_eni() {
    let world = world();
    let mut dead = pod_object("shop/web-0", "u-1", &[]);
    dead.facts.terminating = true;
    world.store.set_pod(dead);
    expect(
        &world.add(&request()).await.unwrap_err(),
        100,
        &["dead Pod", "shop/web-0"],
    );
    nothing_left(&world);
    world.pod("shop/web-0", "u-1");
    let ipam = Request::ipam("c-1", "net1", &["p4"]).pod("shop/web-0", "u-1");
    expect(
        &world.add(&ipam).await.unwrap_err(),
        100,
        &["p4", "eni-vlan"],
    );
    nothing_left(&world);
    let gone = ipam.set("netns", "/nonexistent/ns");
    expect(
        &world.add(&gone).await.unwrap_err(),
        4,
        &["/nonexistent/ns"],
    );
}

#[tokio::test]
async fn a_plain_pool_gives_no_vlan_and_keeps_its_claim() {
    let world = world();
    world.plain_pool("p", "10.31.0.0/24", &["10.31.0.10"]);
    let request = request().pools("ipv4", &["p"]);
    expect(
        &world.add(&request).await.unwrap_err(),
        104,
        &["shop/web-0", "net1", "IPPool p"],
    );
    assert_eq!(world.records("p"), ["10.31.0.10 u-1"]);
    assert!(world.files().is_empty() && world.nic.link_count() == 0);
    world.store.remove_pod(&object_key("shop/web-0"));
    world.del(&request).await.unwrap();
    assert!(world.records("p").is_empty());
}

#[tokio::test]
async fn an_interface_of_another_network_is_named() {
    let world = world();
    world.plain_pool("p", "10.31.0.0/24", &["10.31.0.10"]);
    let first = Request::ipam("c-1", "net1", &["p"]).pod("shop/web-0", "u-1");
    world.add(&first.conf("name", "neta")).await.unwrap();
    let second = request().conf("name", "netb");
    let words = [
        "net1",
        "has an address of network neta already",
        "IPPool p",
        "another interface for network netb",
    ];
    expect(&world.add(&second).await.unwrap_err(), 104, &words);
}

#[tokio::test]
async fn a_parent_nic_of_another_mac_is_106_and_the_claim_stays() {
    let world = world();
    world.nic.add_master("eth2", "fa:16:3e:00:00:02");
    let failure = world
        .add(&request().conf("master", "eth2"))
        .await
        .unwrap_err();
    expect(&failure, 106, &["eth2", "fa:16:3e:00:00:02", MASTER_MAC]);
    assert!(world.files().is_empty() && world.nic.link_count() == 0);
    assert_eq!(world.records("p4"), ["172.91.0.100 u-1"]);
}

#[tokio::test]
async fn bad_vlans_in_metadata_are_never_given() {
    for vlan in [0, -1, 4095, 70_000] {
        let world = World::new();
        world.prewarm_pool("p4", "172.91.0.0/24", &[("172.91.0.100", vlan)]);
        world.pod("shop/web-0", "u-1");
        expect(
            &world.add(&request()).await.unwrap_err(),
            100,
            &["used out", "p4", "net1"],
        );
        nothing_left(&world);
    }
}

#[tokio::test]
async fn metadata_that_is_not_ready_is_a_refusal_with_its_reason() {
    let world = world();
    let mut raw = world.store.current_pool("p4").unwrap().raw().clone();
    raw["metadata"]["generation"] = json!(2);
    world.store.set_pool(raw).unwrap();
    expect(
        &world.add(&request()).await.unwrap_err(),
        100,
        &["IaaS IP metadata not ready", "generation"],
    );
    nothing_left(&world);
}

#[tokio::test]
async fn a_taken_name_is_107_and_the_foreign_link_stays() {
    let world = world();
    let link = Link {
        master: "eth1".parse().unwrap(),
        vlan: 77.try_into().unwrap(),
        mac: "fa:16:3e:99:99:99".parse().unwrap(),
        addresses: vec![],
    };
    world.nic.add_foreign_link(100, "net1", link.clone());
    expect(
        &world.add(&request()).await.unwrap_err(),
        107,
        &["net1", "/ns/a"],
    );
    assert_eq!(world.nic.link("/ns/a", "net1"), Some(link));
    assert!(world.files().is_empty());
}

#[tokio::test]
async fn a_vlan_of_nobody_we_know_is_105_with_namespace_and_link() {
    let world = world();
    let link = Link {
        master: "eth1".parse().unwrap(),
        vlan: 301.try_into().unwrap(),
        mac: "fa:16:3e:99:99:99".parse().unwrap(),
        addresses: vec![],
    };
    world.nic.add_foreign_link(103, "vlan301", link);
    expect(
        &world.add(&request()).await.unwrap_err(),
        105,
        &["301", "eth1", "vlan301", "/ns/d"],
    );
    assert!(world.nic.link("/ns/d", "vlan301").is_some());
    assert!(world.files().is_empty());
    assert_eq!(world.records("p4"), ["172.91.0.100 u-1"]);
}

#[tokio::test]
async fn a_vlan_of_a_live_pod_is_105_with_its_name_of_a_dead_one_is_taken() {
    for (dead, code) in [(false, Some(105)), (true, None)] {
        let world = world();
        world.pod("shop/old", "u-9");
        let old = Request::eni("c-9", "/ns/d", "net1").pod("shop/old", "u-9");
        world.add(&old).await.unwrap();
        // The cloud gives its VLAN to another address, the record is gone.
        world.prewarm_pool("p4", "172.91.0.0/24", &[("172.91.0.101", 301)]);
        if dead {
            world.nic.rename_link("/ns/d", "net1", "renamed");
            world.store.remove_pod(&object_key("shop/old"));
            world.nic.leak_netns("/ns/d");
        }
        match (world.add(&request()).await, code) {
            (Err(failure), Some(code)) => {
                expect(&failure, code, &["301", "eth1", "shop/old"]);
                assert!(world.nic.link("/ns/d", "net1").is_some());
            }
            (Ok(_), None) => {
                assert!(world.nic.link("/ns/a", "net1").is_some());
                assert_eq!(world.nic.link_count(), 1);
            }
            (outcome, _) => panic!("dead {dead}: {outcome:?}"),
        }
    }
}

#[tokio::test]
async fn validation_fails_closed_and_the_retry_meets_the_same_triple() {
    let world = world();
    world.nic.hold_back("172.91.0.100");
    let failure = world.add(&request()).await.unwrap_err();
    let mac = crate::world::mac_of(301);
    expect(
        &failure,
        103,
        &[
            "172.91.0.1",
            "172.91.0.100",
            &mac,
            "301",
            "eth1",
            "3 attempts",
            "500 ms",
        ],
    );
    assert!(world.files().is_empty() && world.nic.link_count() == 0);
    assert_eq!(world.records("p4"), ["172.91.0.100 u-1"]);
    assert_eq!(world.endpoint_uid("shop/web-0").as_deref(), Some("u-1"));
    world.nic.let_through("172.91.0.100");
    let result = world
        .add(&request().set("containerID", "c-2"))
        .await
        .unwrap();
    assert_eq!(crate::world::addresses(&result), ["172.91.0.100/24"]);
    assert_eq!(result.sub_eni.unwrap().vlan.get(), 301);
}

#[tokio::test]
async fn the_fifth_failure_gives_the_address_up_for_a_while() {
    let world = world();
    world.nic.hold_back("172.91.0.100");
    for round in 1..=5 {
        expect(
            &world.add(&request()).await.unwrap_err(),
            103,
            &["172.91.0.100"],
        );
        assert_eq!(world.records("p4").len(), usize::from(round < 5), "{round}");
    }
    let events = world.events().await;
    let reasons: Vec<&str> = events.iter().map(|event| event.reason).collect();
    assert_eq!(reasons, ["SubENIAttachFailed", "SubENIValidationFailed"]);
    let endpoint = world.store.current_endpoint(&object_key("shop/web-0"));
    assert!(endpoint.unwrap().status.current.ips.is_empty());
    let result = world.add(&request()).await.unwrap();
    assert_eq!(crate::world::addresses(&result), ["172.91.0.101/24"]);
    assert_eq!(world.records("p4"), ["172.91.0.101 u-1"]);
}

#[tokio::test]
async fn lower_classes_are_ignored_with_an_event() {
    let world = world();
    world.plain_pool("p", "10.31.0.0/24", &["10.31.0.10"]);
    world
        .add(&request().pools("ipv4", &["p", "p4"]))
        .await
        .unwrap();
    let events = world.events().await;
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].reason, "IPPoolCandidateIgnored");
    assert!(world.records("p").is_empty());
}

#[tokio::test]
async fn an_unreadable_pool_is_named_with_its_reason_and_left_alone() {
    let world = world();
    let mut raw = world.store.current_pool("p4").unwrap().raw().clone();
    raw["status"]["allocatedIPs"] = json!("[7]");
    world.store.set_pool(raw.clone()).unwrap();
    expect(
        &world.add(&request()).await.unwrap_err(),
        7,
        &["p4", "records"],
    );
    let left = world.store.current_pool("p4").unwrap();
    assert_eq!(left.raw()["status"], raw["status"]);
}

/// Spec ipam 3.4, filter 8: pools of the physical function's subnets only; without a function to ask,
/// none.
#[tokio::test]
async fn match_master_subnet_asks_the_physical_function() {
    let world = World::new();
    world.plain_pool("p4", "10.31.0.0/24", &["10.31.0.10"]);
    world.plain_pool("q4", "10.32.0.0/24", &["10.32.0.10"]);
    world.pod("shop/web-0", "u-1");
    let mut add = Request::ipam("c-1", "net1", &["p4", "q4"]).pod("shop/web-0", "u-1");
    let mut ipam = serde_json::to_value(add.build("ADD")).unwrap()["conf"]["ipam"].clone();
    ipam["match_master_subnet"] = serde_json::json!(true);
    add = add.conf("ipam", ipam);
    let failure = world.add(&add).await.unwrap_err();
    assert_eq!(failure.code.number(), 100, "{failure:?}");
    let part = "the Pod has no NIC net1 of a PCI device";
    assert!(failure.details.contains(part), "{failure:?}");
    let host = spiderpool_agent::nic::HostNic {
        name: "ens1f0".into(),
        addresses: vec!["10.32.0.2".parse().unwrap()],
    };
    world.nic.add_function("/proc/self/ns/net", "net1", host);
    let result = world.add(&add).await.unwrap();
    assert_eq!(crate::world::addresses(&result), ["10.32.0.10/24"]);
    assert!(world.records("p4").is_empty());
}
