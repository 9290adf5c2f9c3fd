//! A provider of contract version 1 (spec iaas Q8): the NIC's configuration makes it a sub-ENI, whatever
//! the pool; one call binds it, one call a IPv4 address gives it back.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};
use spiderpool_agent::store::memory::pool_json;
use spiderpool_agent::store::{Marks, PodObject};
use spiderpool_iaas::error::CallError;
use spiderpool_iaas::fake::{FakeProvider, bind};

use crate::provider::{request, text};
use crate::trace::ask;
use crate::world::{MASTER_MAC, NODE, Request, World, addresses, object_key};

const POD: &str = "shop/web-0";

/// Pool p4 is plain.
fn world() -> (World, Arc<FakeProvider>) {
    let cloud = Arc::new(FakeProvider::first_generation());
    let world = World::with_provider(Arc::clone(&cloud) as _);
    world.store.set_marks(Marks::Ignored);
    let mut pool = pool_json("p4", "10.72.0.0/24", &["10.72.0.10-10.72.0.19"]);
    pool["spec"]["gateway"] = json!("10.72.0.1");
    world.store.set_pool(pool).unwrap();
    world.pod(POD, "u-1");
    (world, cloud)
}

/// `address node` of each record.
fn nodes(world: &World, pool: &str) -> Vec<String> {
    let object = world.store.current_pool(pool).unwrap();
    let records = &object.pool().unwrap().records;
    let text = |node: &Option<String>| node.clone().unwrap_or_else(|| "-".into());
    let each = records.iter();
    each.map(|(ip, record)| format!("{ip} {}", text(&record.node)))
        .collect()
}

fn nic(world: &World, ifname: &str) -> Value {
    let endpoint = world.store.current_endpoint(&object_key(POD)).unwrap();
    let mut nics = endpoint.status.current.ips.into_iter();
    let nic = nics.find(|nic| nic.interface == ifname).unwrap();
    serde_json::to_value(nic).unwrap()
}

fn vlan_of(world: &World, ifname: &str) -> u64 {
    nic(world, ifname)["vlan"].as_u64().unwrap()
}

/// A NIC whose link the community's plugin makes.
fn vlan(container: &str, ifname: &str) -> Request {
    let conf = Request::ipam(container, ifname, &["p4"]).conf("type", "vlan");
    conf.conf("master", "eth1").pod(POD, "u-1")
}

#[tokio::test]
async fn any_pool_serves_a_sub_eni_and_one_call_binds_it() {
    let (world, cloud) = world();
    for round in 0..2 {
        let result = world.add(&request()).await.unwrap();
        assert_eq!(addresses(&result), ["10.72.0.10/24"], "{round}");
    }
    // The second ADD answered from the endpoint.
    let [call] = cloud.allocated().try_into().unwrap();
    let want = json!({"podName": "web-0", "podNamespace": "shop", "podUID": "u-1", "nodeName": NODE,
        "subEniRequests": [{"parentNicMac": MASTER_MAC, "subnet": "10.72.0.0/24",
            "ipv4Address": "10.72.0.10", "ipv4PoolName": "p4"}]});
    assert_eq!(serde_json::to_value(call).unwrap(), want);
    let link = world.nic.link("/ns/a", "net1").unwrap();
    assert_eq!(link.vlan.get(), 1);
    assert_eq!(link.mac.to_string(), "fa:16:3e:00:00:01");
    let nic = nic(&world, "net1");
    assert_eq!(
        (&nic["vlan"], &nic["mac"]),
        (&json!(1), &json!("fa:16:3e:00:00:01"))
    );
    assert_eq!(nodes(&world, "p4"), ["10.72.0.10 n1"]);
    let metrics = world.agent.metrics_text().await.unwrap();
    let counted = metrics
        .lines()
        .find(|line| line.starts_with("spiderpool_iaas_allocation_total{"));
    let counted = counted.unwrap();
    assert!(
        counted.contains(r#"mode="global",path="cold_create",pool="p4""#),
        "{counted}"
    );
}

/// Prewarm and global pools, a pair, metadata that is not ready: nothing of it counts.
#[tokio::test]
async fn marks_metadata_classes_and_pairs_are_nothing() {
    let (world, cloud) = world();
    world.marked_pool("w", "172.91.0.0/24", &[("172.91.0.100", 301)], Some("n1"));
    let mut raw = world.store.current_pool("w").unwrap().raw();
    raw["metadata"]["annotations"]["ipam.spidernet.io/pair-pool"] = json!("w6");
    raw["metadata"]["annotations"]["ipam.spidernet.io/parent-nic"] = json!("eth9");
    raw["status"]["ipMetaData"] = json!({"metadata": "{"});
    world.store.set_pool(raw).unwrap();
    let add = request().pools("ipv4", &["w", "p4"]);
    let result = world.add(&add).await.unwrap();
    assert_eq!(addresses(&result), ["172.91.0.100/24"]);
    assert_eq!(
        cloud.allocated()[0].sub_eni_requests[0]
            .parent_nic_mac
            .to_string(),
        MASTER_MAC
    );
    // The next one finds w full and p4 beside it.
    world.pod("shop/web-1", "u-2");
    let add = Request::eni("c-2", "/ns/b", "net1")
        .pod("shop/web-1", "u-2")
        .pools("ipv4", &["w", "p4"]);
    assert_eq!(
        addresses(&world.add(&add).await.unwrap()),
        ["10.72.0.10/24"]
    );
    assert!(world.events().await.is_empty());
}

#[tokio::test]
async fn what_is_not_bound_is_given_back_at_once() {
    let (world, cloud) = world();
    cloud.fail(500);
    cloud.script(|_| {
        Err(CallError::Insufficient {
            remaining: std::time::Duration::from_secs(12),
        })
    });
    cloud.script(|request| {
        let mut answer = bind(&request.sub_eni_requests[0], 7);
        answer.vlan_id = 0;
        let sub_eni_responses = vec![answer];
        Ok(spiderpool_api::provider::AllocateResponse { sub_eni_responses })
    });
    for (code, part) in [
        (
            100,
            "IaaS IP allocate failed: iaas allocate failed: iaas allocate API returned status 500: ",
        ),
        (
            11,
            "parent budget insufficient: 12s remaining is less than provider worst-case 48s",
        ),
        (100, "the answer for 10.72.0.10 has no VLAN id"),
    ] {
        let failure = world.add(&request()).await.unwrap_err();
        assert!(text(&failure).contains(part), "{}", text(&failure));
        assert_eq!(failure.code.number(), code, "{part}");
        assert!(world.records("p4").is_empty(), "{part}");
        assert_eq!(world.endpoint_uid(POD), None);
    }
    let metrics = world.agent.metrics_text().await.unwrap();
    assert!(metrics.lines().any(|line| {
        line.starts_with("spiderpool_iaas_claim_rollback_total{") && line.ends_with(" 3")
    }));
    world.add(&request()).await.unwrap();
    assert_eq!(nodes(&world, "p4"), ["10.72.0.10 n1"]);
}

/// Killed between the claim and the call.
#[tokio::test]
async fn a_retry_meets_its_claim_and_asks() {
    let (world, cloud) = world();
    world.set_record("p4", "10.72.0.15", POD, "u-1", Some("net1"));
    let result = world.add(&request()).await.unwrap();
    assert_eq!(addresses(&result), ["10.72.0.15/24"]);
    assert_eq!(
        (cloud.allocated().len(), nodes(&world, "p4")),
        (1, vec!["10.72.0.15 n1".to_owned()])
    );
}

#[tokio::test]
async fn ipv6_is_refused_before_any_claim() {
    let (world, cloud) = world();
    world.plain_pool("p6", "fd72::/64", &["fd72::10"]);
    let failure = world
        .add(&request().pools("ipv6", &["p6"]))
        .await
        .unwrap_err();
    assert_eq!(failure.code.number(), 7);
    assert!(
        text(&failure).contains("NIC net1 draws from IPv4 and IPv6 pools"),
        "{}",
        text(&failure)
    );
    assert!(world.records("p4").is_empty() && cloud.allocated().is_empty());
}

/// Three NICs of one plan; the last is no sub-ENI.
async fn attached() -> (World, Arc<FakeProvider>, PodObject) {
    let (world, cloud) = world();
    let nic = |name: &str| json!({"interface": name, "ipv4": ["p4"]});
    let plan = json!([nic("net1"), nic("net2"), nic("net3")]).to_string();
    let pod = world.annotated_pod(POD, "u-1", &[("ipam.spidernet.io/ippools", &plan)]);
    world.add(&request()).await.unwrap();
    let told = ["10.72.0.10 n1", "10.72.0.11 -", "10.72.0.12 -"];
    assert_eq!(nodes(&world, "p4"), told);
    assert_eq!((cloud.allocated().len(), vlan_of(&world, "net2")), (1, 0));
    let net2 = Request::eni("c-1", "/ns/a", "net2").pod(POD, "u-1");
    let got = world.add(&net2).await.unwrap();
    assert_eq!(addresses(&got), ["10.72.0.11/24"]);
    let net3 = Request::ipam("c-1", "net3", &["p4"]).pod(POD, "u-1");
    world.add(&net3).await.unwrap();
    let told = ["10.72.0.10 n1", "10.72.0.11 n1", "10.72.0.12 -"];
    assert_eq!(nodes(&world, "p4"), told);
    assert_eq!((cloud.allocated().len(), vlan_of(&world, "net2")), (2, 2));
    (world, cloud, pod)
}

/// Each sub-ENI is bound by its own ADD and told of once.
#[tokio::test]
async fn the_provider_comes_first_once_for_each_address() {
    let (world, cloud, pod) = attached().await;
    world.end(pod);
    // One of the two calls fails: its record and the endpoint stay for the replay.
    cloud.fail_release(503);
    world.del(&request()).await.unwrap();
    assert_eq!(cloud.released().len(), 2);
    assert_eq!(world.records("p4").len(), 1);
    assert!(world.endpoint_uid(POD).is_some());
    world.agent.replay_spool().await;
    assert!(world.records("p4").is_empty() && world.endpoint_uid(POD).is_none());
    let calls = cloud.released();
    assert_eq!(calls.len(), 3);
    let told = calls.iter().map(|call| call.ip_address.to_string());
    let told: BTreeSet<String> = told.collect();
    assert_eq!(Vec::from_iter(told), ["10.72.0.10", "10.72.0.11"]);
    let want = json!({"podName": "web-0", "podNamespace": "shop", "podUID": "u-1", "nodeName": NODE,
        "parentNicMac": MASTER_MAC, "subnet": "10.72.0.0/24", "ipAddress": calls[0].ip_address, "poolName": "p4"});
    assert_eq!(serde_json::to_value(&calls[0]).unwrap(), want);
    for _ in 0..2 {
        world.del(&request()).await.unwrap();
    }
    assert_eq!(cloud.released().len(), 3);
}

/// A link that the community's `vlan` plugin makes: without `vlanId` it is a sub-ENI, and MAC and VLAN
/// are to be read where that plugin looks.
#[tokio::test]
async fn the_plugin_of_others_finds_mac_and_vlan() {
    let (world, cloud) = world();
    let route = "/v1/workloadendpoint?podNamespace=shop&podName=web-0";
    let nothing = ask(&world, route).await;
    assert!(
        nothing
            .as_str()
            .unwrap()
            .contains("it has no SpiderEndpoint"),
        "{nothing}"
    );
    let fixed = vlan("c-1", "net1").conf("vlanId", 0);
    let result = world.call(fixed.build("ADD")).await.unwrap().unwrap();
    assert!(result.get("spidernet.io/sub-eni").is_none() && cloud.allocated().is_empty());
    let result = world
        .call(vlan("c-1", "net2").build("ADD"))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(result["spidernet.io/sub-eni"]["parentMac"], MASTER_MAC);
    assert_eq!(cloud.allocated().len(), 1);
    let told = ask(&world, route).await;
    let want = json!({"podNamespace": "shop", "podName": "web-0", "podUID": "u-1", "node": NODE, "interfaces": [
        {"interface": "net1", "ipv4": "10.72.0.10/24", "ipv4Pool": "p4", "ipv4Gateway": "10.72.0.1", "routes": []},
        {"interface": "net2", "ipv4": "10.72.0.11/24", "ipv4Pool": "p4", "ipv4Gateway": "10.72.0.1", "routes": [],
         "mac": result["spidernet.io/sub-eni"]["mac"], "vlan": result["spidernet.io/sub-eni"]["vlan"]}]});
    assert_eq!(told, want);
    let one = ask(&world, &format!("{route}&nic=net2&podUID=u-1")).await;
    assert_eq!(one["interfaces"].as_array().unwrap().len(), 1);
    for (query, part) in [
        ("podNamespace=shop", "podName"),
        ("podNamespace=shop&podName=web-0&podUID=u-9", "earlier Pod"),
        ("podNamespace=shop&podName=web-0&nic=net7", "no record"),
        ("podNamespace=shop&podName=web-7", "there is no such Pod"),
    ] {
        let answer = ask(&world, &format!("/v1/workloadendpoint?{query}")).await;
        assert!(answer.as_str().unwrap().contains(part), "{query}: {answer}");
    }
    // A record of somebody else proves nothing.
    world.set_record("p4", "10.72.0.11", "shop/other", "u-8", None);
    assert_eq!(
        ask(&world, route).await["interfaces"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
}

#[tokio::test]
async fn an_identity_that_comes_from_another_node_is_bound_here() {
    let (world, cloud) = world();
    world.scale("shop/web", Some(1));
    world.member(POD, "u-2", &[]);
    for (ip, nic) in [("10.72.0.10", "net1"), ("10.72.0.11", "net2")] {
        world.set_record("p4", ip, POD, "u-1", Some(nic));
    }
    let mut raw = world.store.current_pool("p4").unwrap().raw();
    let text = raw["status"]["allocatedIPs"].as_str().unwrap();
    raw["status"]["allocatedIPs"] = json!(text.replace(r#""podUid""#, r#""node":"n2","podUid""#));
    world.store.set_pool(raw).unwrap();
    let detail = |nic: &str, ip: &str, vlan: u16| json!({"interface": nic, "ipv4": ip, "ipv4Pool": "p4", "vlan": vlan, "mac": "fa:16:3e:00:00:99"});
    let ips = json!([
        detail("net1", "10.72.0.10/24", 98),
        detail("net2", "10.72.0.11/24", 99)
    ]);
    world.set_endpoint(POD, "u-1", "n2", ips);
    let add = |nic: &str| Request::eni("c-1", "/ns/a", nic).pod(POD, "u-2");
    // The provider fails first: the address waits for the retry.
    cloud.fail(503);
    world.add(&add("net1")).await.unwrap_err();
    for (nic, ip, vlan) in [("net1", "10.72.0.10", 1), ("net2", "10.72.0.11", 2)] {
        let result = world.add(&add(nic)).await.unwrap();
        assert_eq!(addresses(&result), [format!("{ip}/24")]);
        assert_eq!(
            world.nic.link("/ns/a", nic).unwrap().vlan.get(),
            vlan,
            "{nic}"
        );
    }
    let asked = cloud.allocated();
    assert_eq!(asked.len(), 3);
    assert!(asked.iter().all(|call| call.node_name == NODE));
    assert_eq!(nodes(&world, "p4"), ["10.72.0.10 n1", "10.72.0.11 n1"]);
}

/// The same flows without a call: a NIC that is no sub-ENI.
#[tokio::test]
async fn other_nics_are_the_pools_alone() {
    let (world, cloud) = world();
    let add = Request::ipam("c-1", "eth0", &["p4"]).pod(POD, "u-1");
    world.add(&add).await.unwrap();
    assert_eq!(nodes(&world, "p4"), ["10.72.0.10 -"]);
    world.store.remove_pod(&object_key(POD));
    world.del(&add).await.unwrap();
    assert!(world.records("p4").is_empty());
    assert!(cloud.allocated().is_empty() && cloud.released().is_empty());
}

/// What agents of other releases left: their records name neither NIC nor node, their endpoints the VLAN.
#[tokio::test]
async fn a_record_of_an_older_agent_goes_by_its_endpoint() {
    for (vlan, listed, told) in [(301, true, true), (0, true, false), (0, false, true)] {
        let (world, cloud) = world();
        world.set_record("p4", "10.72.0.10", POD, "u-1", None);
        let nic =
            json!({"interface": "net1", "ipv4": "10.72.0.10/24", "ipv4Pool": "p4", "vlan": vlan});
        let nics = if listed { json!([nic]) } else { json!([]) };
        world.set_endpoint(POD, "u-1", "n1", nics);
        world.store.remove_pod(&object_key(POD));
        // The first call fails: record and endpoint stay.
        cloud.fail_release(503);
        for _ in 0..2 {
            world.del(&request()).await.unwrap();
        }
        let calls = cloud.released();
        assert_eq!(calls.len(), if told { 2 } else { 0 }, "{vlan} {listed}");
        for call in calls {
            let ip = call.ip_address.to_string();
            assert_eq!((call.node_name.as_str(), ip.as_str()), (NODE, "10.72.0.10"));
        }
        assert!(world.records("p4").is_empty(), "{vlan} {listed}");
        assert_eq!(world.endpoint_uid(POD), None);
    }
}
