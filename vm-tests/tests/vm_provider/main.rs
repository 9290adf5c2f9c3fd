//! Scenarios of the provider whose last word the fabric has: links, VLANs and frames (spec iaas 16,
//! 14, 25, 29, 67 and 69). The name of a test begins with the number of its scenario.
#![expect(
    clippy::unwrap_used,
    reason = "functions that tests share fail as tests do"
)]

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use vm_tests::lab::api_client::{POOLS, records};
use vm_tests::lab::cni_call::with_key;
use vm_tests::lab::layout::{GATEWAY_V4, GLOBAL_POOL};
use vm_tests::lab::{Cloud, LabSpec, Node, Pod, ProviderPlan, Stack, leaks, peers, wait, writes};

/// For what answers at once or never.
const LIMIT: Duration = Duration::from_secs(2);
const SOON: Duration = Duration::from_secs(20);

fn start(nodes: u8, sub_enis: u8, globals: u8) -> Cloud {
    let spec = LabSpec::for_test(nodes, sub_enis).unwrap();
    Cloud::start(&spec.with_provider(ProviderPlan::quick(globals, 0))).unwrap()
}

/// The audit is empty, the fabric has dropped what it was to drop, and nothing is left.
fn finish(cloud: &Cloud, pods: &[&Pod], drops: &BTreeMap<String, u64>) {
    let left = leaks::find_besides(cloud, pods, drops).unwrap();
    assert_eq!(left, Vec::<String>::new());
}

fn reaches_gateway(pod: &Pod) -> bool {
    let ping = peers::ping(pod.netns(), GATEWAY_V4.into(), 2, LIMIT);
    ping.unwrap().complete()
}

fn claims(node: &Node, pool: &str) -> Value {
    records(&node.api().unwrap().pool(pool).unwrap()).unwrap()
}

#[test]
#[ignore = "vm level"]
fn scenario_14_a_prewarmed_pod_has_its_entrys_link_and_reaches_the_gateway() {
    let cloud = start(1, 2, 0);
    let node = cloud.node(0).unwrap();
    let pod = writes::new_pod(&cloud, node, "a").unwrap();
    let (result, _) = pod.attach(node, &node.conf(Stack::V4)).unwrap();
    let ip = result.ips[0].address.addr().to_string();
    let pool = node.api().unwrap().pool(&node.plan.pool()).unwrap();
    let text = pool["status"]["ipMetaData"]["metadata"].as_str().unwrap();
    let metadata: Value = serde_json::from_str(text).unwrap();
    let entries = metadata["ips"].as_object().unwrap();
    assert_eq!(entries.keys().min(), Some(&ip), "the lowest");
    let nic = pod.nic().unwrap().unwrap().link;
    assert_eq!(json!(nic.mac), entries[&ip]["mac"]);
    assert_eq!(json!(nic.vlan), entries[&ip]["vlan"]);
    assert_eq!(cloud.provider().unwrap().allocate_calls().unwrap(), 0);
    assert!(reaches_gateway(&pod));
    writes::end_pod(node, &pod, &node.conf(Stack::V4)).unwrap();
    finish(&cloud, &[&pod], &BTreeMap::new());
}

#[test]
#[ignore = "vm level"]
fn scenario_25_without_a_provider_an_address_has_no_vlan() {
    let cloud = start(1, 1, 0);
    let node = cloud.node(0).unwrap();
    let plain = json!({ "apiVersion": "spiderpool.spidernet.io/v2beta1", "kind": "SpiderIPPool",
        "metadata": { "name": "plain" },
        "spec": { "subnet": "10.81.0.0/24", "ips": ["10.81.0.10"], "gateway": "10.81.0.1" } });
    node.api().unwrap().create(POOLS, &plain).unwrap();
    let mut conf = node.conf(Stack::V4);
    conf["ipam"]["default_ipv4_ippool"] = json!(["plain"]);
    let pod = writes::new_pod(&cloud, node, "a").unwrap();
    wait::until(SOON, "a refusal for want of a VLAN", || {
        let outcome = node.run_one(&pod.call(node, "ADD", &conf))?;
        let error = outcome.error()?;
        let text = format!("{} {}", error.msg, error.details);
        Ok(text.contains("VLAN").then_some(()))
    })
    .unwrap();
    assert_eq!(pod.nic().unwrap(), None);
    writes::end_pod(node, &pod, &conf).unwrap();
    assert_eq!(claims(node, "plain"), json!({}));
    finish(&cloud, &[&pod], &BTreeMap::new());
}

#[test]
#[ignore = "vm level"]
fn scenario_29_a_stolen_sub_eni_carries_frames_on_its_new_node_alone() {
    let cloud = start(2, 1, 1);
    let [n1, n2] = [0, 1].map(|index| cloud.node(index).unwrap());
    let first = writes::new_pod(&cloud, n1, "first").unwrap();
    first.attach(n1, &n1.conf(Stack::Global)).unwrap();
    assert!(reaches_gateway(&first));
    let before = first.nic().unwrap().unwrap().link;
    writes::end_pod(n1, &first, &n1.conf(Stack::Global)).unwrap();
    cloud.provider().unwrap().flush().unwrap();

    let second = writes::new_pod(&cloud, n2, "second").unwrap();
    second.attach(n2, &n2.conf(Stack::Global)).unwrap();
    assert!(reaches_gateway(&second));
    let after = second.nic().unwrap().unwrap().link;
    assert_eq!(after.mac, before.mac);
    assert_ne!(after.vlan, before.vlan);
    let sub_enis = cloud.provider().unwrap().sub_enis().unwrap();
    let mut of_pool = sub_enis.iter().filter(|sub| sub.pool == GLOBAL_POOL);
    let state = &of_pool.next().unwrap().state;
    assert_eq!(state.parent, Some(n2.plan.parent_mac));
    assert_eq!(state.vlan, after.vlan);
    writes::end_pod(n2, &second, &n2.conf(Stack::Global)).unwrap();
    finish(&cloud, &[&first, &second], &BTreeMap::new());
}

#[test]
#[ignore = "vm level"]
fn scenario_67_a_silent_gateway_fails_only_whoever_asks_first() {
    let cloud = start(1, 2, 0);
    let node = cloud.node(0).unwrap();
    let provider = cloud.provider().unwrap();
    let no_forward = json!([{ "kind": "no-forward" }]);
    provider.set_faults(&no_forward).unwrap();
    let checked = with_key(&node.conf(Stack::V4), "validationRetries", json!(2));
    let checked = with_key(&checked, "validationTimeoutMs", json!(100));
    let pod = writes::new_pod(&cloud, node, "checked").unwrap();
    let call = pod.call(node, "ADD", &checked);
    let held = |node: &Node| claims(node, &node.plan.pool());
    let mut triples = Vec::new();
    for _ in 0..2 {
        let outcome = node.run_one(&call).unwrap();
        assert!(outcome.elapsed >= Duration::from_millis(200), "{outcome:?}");
        let error = outcome.error().unwrap();
        assert_eq!(error.code, 103, "{error:?}");
        assert_eq!(pod.nic().unwrap(), None);
        triples.push(held(node));
    }
    assert_eq!(triples[0].as_object().unwrap().len(), 1);
    assert_eq!(triples[0], triples[1], "the claim is kept");

    // Nobody asks: the Pod starts and finds out by itself.
    let trusting = writes::new_pod(&cloud, node, "trusting").unwrap();
    let unchecked = with_key(&checked, "validateIaasNetConfig", json!(false));
    trusting.attach(node, &unchecked).unwrap();
    assert!(!reaches_gateway(&trusting));

    provider.set_faults(&json!([])).unwrap();
    let (result, _) = pod.attach(node, &checked).unwrap();
    let ip = result.ips[0].address.addr().to_string();
    assert!(triples[0].as_object().unwrap().contains_key(&ip), "{ip}");
    for pod in [&pod, &trusting] {
        assert!(reaches_gateway(pod));
        writes::end_pod(node, pod, &checked).unwrap();
    }
    // What was not forwarded was dropped on purpose.
    let drops = cloud.fabric.counts().unwrap().drops;
    let unbound = drops.get("unbound").copied().unwrap_or_default();
    assert!(unbound >= 4, "{drops:?}");
    let drops = BTreeMap::from([("unbound".to_owned(), unbound)]);
    finish(&cloud, &[&pod, &trusting], &drops);
}

/// As often one Pod follows another.
const REPLACED: usize = 100;

#[test]
#[ignore = "vm level"]
fn scenario_69_a_pod_that_replaces_another_never_meets_its_link() {
    let cloud = start(1, 1, 1);
    let node = cloud.node(0).unwrap();
    let conf = with_key(
        &node.conf(Stack::Global),
        "validateIaasNetConfig",
        json!(false),
    );
    let mut vlans = Vec::new();
    for turn in 0..REPLACED {
        let pod = writes::new_pod(&cloud, node, &format!("a-{turn}")).unwrap();
        pod.attach(node, &conf).unwrap();
        let vlan = pod.nic().unwrap().unwrap().link.vlan;
        vlans.push(vlan);
        writes::end_pod(node, &pod, &conf).unwrap();
        if turn == 0 {
            cloud.provider().unwrap().flush().unwrap();
        }
    }
    assert!(vlans.iter().all(|vlan| *vlan == vlans[0]), "{vlans:?}");
    assert!(!node.agent_log().contains("File exists"));
    assert_eq!(cloud.provider().unwrap().allocate_calls().unwrap(), 1);
    finish(&cloud, &[], &BTreeMap::new());
}
