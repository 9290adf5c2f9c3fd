//! Pre-flight fails closed: an address the fabric holds back does not reach a Pod.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "functions that tests share fail as tests do"
)]

use std::net::IpAddr;

use serde_json::Value;
use vm_tests::lab::api_client::{ENDPOINTS, records};
use vm_tests::lab::cni_call::with_key;
use vm_tests::lab::layout::{GATEWAY_V4, GATEWAY_V6, PARENT, SubEni};
use vm_tests::lab::{Cloud, LabSpec, Node, Stack, leaks};

/// Attempts and their length for the failing attach: short, all the same.
const RETRIES: u32 = 2;
const TIMEOUT_MS: u32 = 150;

/// An address the fabric holds back, and whose it is.
struct Held<'a> {
    sub: &'a SubEni,
    ip: IpAddr,
    gateway: IpAddr,
}

/// What the text of the failure must name.
fn names_everything(text: &str, held: &Held<'_>) {
    for word in [
        held.gateway.to_string(),
        held.ip.to_string(),
        held.sub.mac.to_string(),
        held.sub.vlan.to_string(),
        PARENT.to_owned(),
        format!("{RETRIES} attempts"),
    ] {
        assert!(text.contains(&word), "{word} in {text}");
    }
}

fn record(node: &Node, sub: &SubEni) -> Value {
    let pool = node.api().unwrap().pool(&sub.pool).unwrap();
    records(&pool).unwrap()[sub.ipv4.to_string()].clone()
}

/// Fails closed, keeps the claim, and meets the same triple once the fabric lets it through.
fn fails_closed(cloud: &Cloud, stack: Stack, held: &Held<'_>) {
    let node = cloud.node(0).unwrap();
    cloud.fabric.hold(held.ip).unwrap();
    let conf = with_key(&node.conf(stack), "validationRetries", RETRIES.into());
    let conf = with_key(&conf, "validationTimeoutMs", TIMEOUT_MS.into());
    let pod = cloud.pod("held").unwrap();
    let call = pod.call(node, "ADD", &conf);
    let error = node.run_one(&call).unwrap().error().unwrap();
    assert_eq!(error.code, 103, "{error:?}");
    names_everything(&format!("{} {}", error.msg, error.details), held);

    assert!(pod.nic().unwrap().is_none(), "the link is gone");
    assert_eq!(node.attachments().unwrap(), Vec::<String>::new());
    let claim = record(node, held.sub);
    assert!(claim["podUid"].is_string(), "the claim stays: {claim}");
    let endpoints = node.api().unwrap().list(ENDPOINTS).unwrap();
    assert_eq!(endpoints.len(), 1, "the endpoint stays");

    cloud.fabric.unhold(held.ip).unwrap();
    let (result, _) = pod.attach(node, &conf).unwrap();
    let sub_eni = result.sub_eni.unwrap();
    let ipv4: IpAddr = held.sub.ipv4.into();
    assert!(result.ips.iter().any(|ip| ip.address.addr() == ipv4));
    let triple = (held.sub.mac, held.sub.vlan);
    assert_eq!((sub_eni.mac, sub_eni.vlan), triple, "the same triple");
    assert_eq!(record(node, held.sub), claim);
    pod.release(node, &conf).unwrap();
    let left = leaks::find(cloud, &[&pod]).unwrap();
    // What the fabric held back is in its count of drops, and only that.
    let left: Vec<_> = left.iter().filter(|leak| !leak.contains("held")).collect();
    assert_eq!(left, Vec::<&String>::new());
}

#[test]
#[ignore = "vm level"]
fn a_held_ipv4_address_fails_with_103_and_the_retry_meets_the_same_triple() {
    let cloud = Cloud::start(&LabSpec::for_test(1, 2).unwrap()).unwrap();
    let sub = &cloud.node(0).unwrap().plan.sub_enis[0];
    let held = Held {
        sub,
        ip: sub.ipv4.into(),
        gateway: GATEWAY_V4.into(),
    };
    fails_closed(&cloud, Stack::V4, &held);
}

#[test]
#[ignore = "vm level"]
fn one_held_family_of_a_pair_fails_the_attach() {
    let cloud = Cloud::start(&LabSpec::for_test(1, 2).unwrap()).unwrap();
    let sub = &cloud.node(0).unwrap().plan.sub_enis[2];
    let held = Held {
        sub,
        ip: sub.ipv6.unwrap().into(),
        gateway: GATEWAY_V6.into(),
    };
    fails_closed(&cloud, Stack::Dual, &held);
}

#[test]
#[ignore = "vm level"]
fn without_validation_a_held_address_is_attached() {
    let cloud = Cloud::start(&LabSpec::for_test(1, 1).unwrap()).unwrap();
    let node = cloud.node(0).unwrap();
    cloud
        .fabric
        .hold(node.plan.sub_enis[0].ipv4.into())
        .unwrap();
    let pod = cloud.pod("trusting").unwrap();
    let conf = with_key(&node.conf(Stack::V4), "validateIaasNetConfig", false.into());
    pod.attach(node, &conf).unwrap();
    let report = node.attach_reports().into_iter().last().unwrap();
    assert!(report.preflight.is_empty(), "{report:?}");
    pod.release(node, &conf).unwrap();
}

#[test]
#[ignore = "vm level"]
fn after_five_failures_in_a_row_another_address_is_taken() {
    let cloud = Cloud::start(&LabSpec::for_test(1, 2).unwrap()).unwrap();
    let node = cloud.node(0).unwrap();
    let [bad, good] = &node.plan.sub_enis[..2] else {
        panic!("two sub-ENIs")
    };
    cloud.fabric.hold(bad.ipv4.into()).unwrap();
    let conf = with_key(&node.conf(Stack::V4), "validationRetries", 1.into());
    let conf = with_key(&conf, "validationTimeoutMs", TIMEOUT_MS.into());
    let pod = cloud.pod("unlucky").unwrap();
    let call = pod.call(node, "ADD", &conf);
    for attempt in 1..=5 {
        let error = node.run_one(&call).unwrap().error().unwrap();
        assert_eq!(error.code, 103, "attempt {attempt}: {error:?}");
    }
    assert_eq!(record(node, bad), Value::Null, "released");
    let (result, _) = pod.attach(node, &conf).unwrap();
    assert_eq!(result.sub_eni.unwrap().mac, good.mac);
    pod.release(node, &conf).unwrap();
    assert_eq!(record(node, good), Value::Null);
}
