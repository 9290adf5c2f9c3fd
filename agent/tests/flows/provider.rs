//! ADD with a provider: when it is called, and with what.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::{BoxFuture, join_all};
use serde_json::{Value, json};
use spiderpool_agent::flow::error::Failure;
use spiderpool_agent::store::memory::pool_json;
use spiderpool_api::provider::{AllocateRequest, ReleaseRequest};
use spiderpool_iaas::check::Bound;
use spiderpool_iaas::error::CallError;
use spiderpool_iaas::fake::FakeProvider;
use spiderpool_iaas::provider::Provider;
use tokio::time::Instant;

use crate::world::{MASTER_MAC, NODE, Request, World, addresses, object_key};

/// The scripted provider, with what callers grant it.
#[derive(Default)]
pub(crate) struct Cloud {
    pub(crate) fake: FakeProvider,
    budgets: Mutex<Vec<Duration>>,
}

impl Cloud {
    /// Time each call was granted.
    pub(crate) fn budgets(&self) -> Vec<Duration> {
        self.budgets.lock().unwrap().clone()
    }

    fn note(&self, parent: Option<Instant>) {
        let left = parent.unwrap().saturating_duration_since(Instant::now());
        self.budgets.lock().unwrap().push(left);
    }
}

impl Provider for Cloud {
    fn allocate<'a>(
        &'a self,
        request: &'a AllocateRequest,
        parent: Option<Instant>,
    ) -> BoxFuture<'a, Result<Vec<Bound>, CallError>> {
        self.note(parent);
        self.fake.allocate(request, parent)
    }

    fn release<'a>(
        &'a self,
        request: &'a ReleaseRequest,
        parent: Option<Instant>,
    ) -> BoxFuture<'a, Result<(), CallError>> {
        self.note(parent);
        self.fake.release(request, parent)
    }
}

pub(crate) fn world() -> (World, Arc<Cloud>) {
    let cloud = Arc::new(Cloud::default());
    let world = World::with_provider(Arc::clone(&cloud) as _);
    world.pod("shop/web-0", "u-1");
    (world, cloud)
}

/// Metadata entry of a sub-ENI; `node` is empty for an unattached one.
pub(crate) fn entry(vlan: i64, node: &str) -> Value {
    let mac = format!("fa:16:3e:09:00:{vlan:02x}");
    if node.is_empty() {
        json!({"mac": mac, "vlan": -1})
    } else {
        json!({"mac": mac, "vlan": vlan, "node": node})
    }
}

pub(crate) fn global(world: &World, name: &str, ips: &[&str], entries: &Value) {
    let mut raw = pool_json(name, "10.72.0.0/24", ips);
    raw["metadata"]["annotations"] = json!({"ipam.spidernet.io/iaas-provider": "lab"});
    raw["spec"]["gateway"] = json!("10.72.0.1");
    let metadata = json!({"scope": "", "ips": entries}).to_string();
    raw["status"]["ipMetaData"] = json!({"observedGeneration": 1, "metadata": metadata});
    world.store.set_pool(raw).unwrap();
}

/// The global pool p4 of 10.72.0.0/24 and its sibling p6.
pub(crate) fn global_pair(world: &World, ips: &[&str], v6: &[&str], entries: &Value) {
    global(world, "p4", ips, entries);
    annotate(world, "p4", "ipam.spidernet.io/pair-pool", "p6");
    let mut raw = pool_json("p6", "fd72::/64", v6);
    raw["metadata"]["annotations"] =
        json!({"ipam.spidernet.io/iaas-provider": "lab", "ipam.spidernet.io/pair-pool": "p4"});
    world.store.set_pool(raw).unwrap();
}

pub(crate) fn annotate(world: &World, pool: &str, key: &str, value: &str) {
    let mut raw = world.store.current_pool(pool).unwrap().raw().clone();
    raw["metadata"]["annotations"][key] = json!(value);
    world.store.set_pool(raw).unwrap();
}

pub(crate) fn request() -> Request {
    Request::eni("c-1", "/ns/a", "net1").pod("shop/web-0", "u-1")
}

pub(crate) fn text(failure: &Failure) -> String {
    format!("{}: {}", failure.msg, failure.details)
}

#[tokio::test]
async fn a_hit_never_calls() {
    let (world, cloud) = world();
    global(
        &world,
        "p4",
        &["10.72.0.10-10.72.0.12"],
        &json!({"10.72.0.11": entry(7, NODE)}),
    );
    let result = world.add(&request()).await.unwrap();
    assert_eq!(addresses(&result), ["10.72.0.11/24"]);
    assert_eq!(world.nic.link("/ns/a", "net1").unwrap().vlan.get(), 7);
    assert!(cloud.fake.allocated().is_empty());
}

#[tokio::test]
async fn a_cold_address_costs_one_call_that_says_everything() {
    for (entries, address) in [
        (json!({}), "10.72.0.10"),
        (json!({"10.72.0.10": entry(0, "")}), "10.72.0.10"),
        (
            json!({"10.72.0.10": entry(5, "n2"), "10.72.0.11": entry(6, "n2"), "10.72.0.12": entry(7, "n2")}),
            "10.72.0.10",
        ),
    ] {
        let (world, cloud) = world();
        global(&world, "p4", &["10.72.0.10-10.72.0.12"], &entries);
        let result = world.call(request().build("ADD")).await.unwrap().unwrap();
        assert_eq!(result["ips"][0]["address"], format!("{address}/24"));
        let [call] = cloud.fake.allocated().try_into().unwrap();
        let want = json!({"podName": "web-0", "podNamespace": "shop", "podUID": "u-1", "nodeName": "n1",
            "subEniRequests": [{"parentNicMac": MASTER_MAC, "subnet": "10.72.0.0/24",
                "ipv4Address": address, "ipv4PoolName": "p4"}]});
        assert_eq!(serde_json::to_value(call).unwrap(), want);
        // VLAN and MAC of the answer are in link, result and endpoint.
        let link = world.nic.link("/ns/a", "net1").unwrap();
        let sub_eni = &result["spidernet.io/sub-eni"];
        assert_eq!(
            (link.vlan.get(), link.mac.to_string().as_str()),
            (1, "fa:16:3e:00:00:01")
        );
        assert_eq!(sub_eni["vlan"], 1);
        assert_eq!(sub_eni["parentMac"], MASTER_MAC);
        let endpoint = world
            .store
            .current_endpoint(&object_key("shop/web-0"))
            .unwrap();
        let detail = &endpoint.status.current.ips[0];
        assert_eq!(
            (detail.vlan, detail.mac.as_deref()),
            (1, Some("fa:16:3e:00:00:01"))
        );
        let budget = cloud.budgets()[0];
        assert!(budget > Duration::from_secs(90) && budget <= Duration::from_secs(97));
    }
}

#[tokio::test]
async fn check_right_after_add_needs_no_publication() {
    let (world, cloud) = world();
    global(&world, "p4", &["10.72.0.10"], &json!({}));
    let result = world.call(request().build("ADD")).await.unwrap().unwrap();
    let check = request().conf("prevResult", result);
    world.call(check.build("CHECK")).await.unwrap();
    assert_eq!(cloud.fake.allocated().len(), 1);
}

#[tokio::test]
async fn a_recorded_address_whose_sub_eni_moved_is_called_for_again() {
    let (world, cloud) = world();
    let ips = &["10.72.0.10-10.72.0.12"];
    global(&world, "p4", ips, &json!({"10.72.0.11": entry(7, NODE)}));
    world.add(&request()).await.unwrap();
    let records = world.records("p4");
    global(&world, "p4", ips, &json!({"10.72.0.11": entry(9, "n2")}));
    world.set_record("p4", "10.72.0.11", "shop/web-0", "u-1", Some("net1"));
    let next = request().set("containerID", "c-2").set("netns", "/ns/b");
    // What an earlier call was answered with is not this one's to give back.
    cloud.fake.fail(500);
    world.add(&next).await.unwrap_err();
    assert_eq!(world.records("p4"), records);
    let result = world.add(&next).await.unwrap();
    assert_eq!(addresses(&result), ["10.72.0.11/24"]);
    assert_eq!(cloud.fake.allocated().len(), 2);
    assert_eq!(world.nic.link("/ns/b", "net1").unwrap().vlan.get(), 1);
}

#[tokio::test]
async fn a_lost_record_of_a_cold_address_is_claimed_and_called_for() {
    let (world, cloud) = world();
    let ips = &["10.72.0.10-10.72.0.12"];
    global(&world, "p4", ips, &json!({"10.72.0.11": entry(7, NODE)}));
    world.add(&request()).await.unwrap();
    global(&world, "p4", ips, &json!({"10.72.0.11": entry(9, "n2")}));
    let next = request().set("containerID", "c-2").set("netns", "/ns/b");
    let result = world.add(&next).await.unwrap();
    assert_eq!(addresses(&result), ["10.72.0.11/24"]);
    assert_eq!(cloud.fake.allocated().len(), 1);
    let endpoint = world
        .store
        .current_endpoint(&object_key("shop/web-0"))
        .unwrap();
    assert_eq!(endpoint.status.current.ips[0].vlan, 1);
}

#[tokio::test]
async fn a_cold_pair_is_one_item_and_both_or_none() {
    let (world, cloud) = world();
    global_pair(&world, &["10.72.0.10"], &["fd72::10-fd72::1f"], &json!({}));
    cloud.fake.fail(503);
    world.add(&request()).await.unwrap_err();
    assert!(world.records("p4").is_empty() && world.records("p6").is_empty());
    let result = world.add(&request()).await.unwrap();
    assert_eq!(addresses(&result), ["10.72.0.10/24", "fd72::10/64"]);
    let call = serde_json::to_value(&cloud.fake.allocated()[1]).unwrap();
    let want = json!([{"parentNicMac": MASTER_MAC, "subnet": "10.72.0.0/24",
        "ipv4Address": "10.72.0.10", "ipv6Address": "fd72::10",
        "ipv4PoolName": "p4", "ipv6PoolName": "p6"}]);
    assert_eq!(call["subEniRequests"], want);
    world.store.remove_pod(&object_key("shop/web-0"));
    world.del(&request()).await.unwrap();
    assert!(world.records("p4").is_empty() && world.records("p6").is_empty());
    assert!(cloud.fake.released().is_empty());
    // No partner left: no address at all.
    world.set_record("p6", "fd72::10", "x/y", "u-9", Some("net1"));
    global_pair(
        &world,
        &["10.72.0.10"],
        &["fd72::10"],
        &json!({"10.72.0.11": {"ipv6": "fd72::10"}}),
    );
    world.pod("shop/web-1", "u-2");
    let other = Request::eni("c-2", "/ns/b", "net1").pod("shop/web-1", "u-2");
    let failure = world.add(&other).await.unwrap_err();
    assert!(text(&failure).contains("used out"), "{failure:?}");
    assert!(world.records("p4").is_empty());
}

fn crowd(world: &World, count: usize) -> Vec<Request> {
    let one = |index: usize| {
        let (key, uid) = (format!("shop/web-{index}"), format!("u-{index}"));
        world.pod(&key, &uid);
        world
            .nic
            .add_netns(&format!("/ns/{index}"), 200 + index as u64);
        Request::eni(&format!("c-{index}"), &format!("/ns/{index}"), "net1").pod(&key, &uid)
    };
    (0..count).map(one).collect()
}

#[tokio::test(start_paused = true)]
async fn twenty_pods_at_once_get_twenty_sub_enis_with_a_call_each() {
    for paired in [false, true] {
        let (world, cloud) = world();
        let ips = ["10.72.0.10-10.72.0.40"];
        if paired {
            global_pair(&world, &ips, &["fd72::10-fd72::40"], &json!({}));
        } else {
            global(&world, "p4", &ips, &json!({}));
        }
        world.store.set_delay(Duration::from_millis(5));
        let requests = crowd(&world, 20);
        let results = join_all(requests.iter().map(|request| world.add(request))).await;
        let given: Vec<String> = results
            .into_iter()
            .flat_map(|result| addresses(&result.unwrap()))
            .collect();
        let each = if paired { 2 } else { 1 };
        assert_eq!(given.len(), 20 * each);
        assert_eq!(given.iter().collect::<BTreeSet<_>>().len(), 20 * each);
        assert_eq!(world.records("p4").len(), 20);
        assert_eq!(cloud.fake.allocated().len(), 20);
        assert!(
            cloud
                .fake
                .allocated()
                .iter()
                .all(|call| call.sub_eni_requests.len() == 1)
        );
    }
}

#[tokio::test]
async fn a_partner_taken_by_another_node_costs_another_partner_only() {
    let (world, cloud) = world();
    global_pair(&world, &["10.72.0.10"], &["fd72::10-fd72::1f"], &json!({}));
    let foreign: spiderpool_api::allocation::Record =
        serde_json::from_value(json!({"pod": "x/y", "podUid": "u-9", "nic": "net1"})).unwrap();
    world.store.conflict(
        "p6",
        Box::new(move |records| {
            records.insert("fd72::10".parse().unwrap(), foreign);
        }),
    );
    let result = world.add(&request()).await.unwrap();
    assert_eq!(addresses(&result), ["10.72.0.10/24", "fd72::11/64"]);
    assert_eq!(cloud.fake.allocated().len(), 1);
}

/// Two NICs, one ready and one not: only that one is asked for, and only it is given back.
#[tokio::test]
async fn mixed_nics_ask_for_the_cold_one() {
    let (world, cloud) = world();
    world.prewarm_pool("pw", "172.91.0.0/24", &[("172.91.0.100", 301)]);
    global(&world, "g", &["10.72.0.10"], &json!({}));
    annotate(&world, "g", "ipam.spidernet.io/parent-nic", "eth1");
    let choice =
        json!([{"interface": "net1", "ipv4": ["pw"]}, {"interface": "net2", "ipv4": ["g"]}]);
    let note = choice.to_string();
    world.annotated_pod("shop/web-0", "u-1", &[("ipam.spidernet.io/ippools", &note)]);
    cloud.fake.fail(500);
    world.add(&request()).await.unwrap_err();
    assert_eq!(world.records("pw"), ["172.91.0.100 u-1"]);
    assert!(world.records("g").is_empty());
    world.add(&request()).await.unwrap();
    let calls = cloud.fake.allocated();
    assert_eq!((calls.len(), calls[1].sub_eni_requests.len()), (2, 1));
    let second = Request::eni("c-1", "/ns/a", "net2").pod("shop/web-0", "u-1");
    let result = world.add(&second).await.unwrap();
    assert_eq!(addresses(&result), ["10.72.0.10/24"]);
}
