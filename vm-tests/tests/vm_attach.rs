//! The main job: the real binaries attach a Pod, it reaches the gateway and a Pod of another
//! node, it is released, nothing is left.
#![expect(
    clippy::unwrap_used,
    reason = "functions that tests share fail as tests do"
)]

use std::net::IpAddr;
use std::time::Duration;

use serde_json::json;
use spiderpool_netops::rtnl::LinkKind;
use vm_tests::lab::api_client::records;
use vm_tests::lab::cni_call::with_key;
use vm_tests::lab::layout::{GATEWAY_V4, GATEWAY_V6, PARENT};
use vm_tests::lab::node::IFNAME;
use vm_tests::lab::{Cloud, LabSpec, Pod, Stack, inspect, leaks, peers, writes};

const LIMIT: Duration = Duration::from_secs(2);
const BYTES: u64 = 8 * 1024 * 1024;
/// Design: an attach after the claim needs no more netlink messages.
const MESSAGES: u64 = 15;

fn reach(cloud: &Cloud, from: &Pod, to: &Pod, addresses: &[IpAddr]) {
    let gateways: [IpAddr; 2] = [GATEWAY_V4.into(), GATEWAY_V6.into()];
    for gateway in gateways {
        let ping = peers::ping(from.netns(), gateway, 3, LIMIT).unwrap();
        assert!(ping.complete(), "{gateway}: {ping:?}");
        peers::tcp_echo(from.netns(), &cloud.gateway, gateway, BYTES).unwrap();
    }
    for address in addresses {
        let ping = peers::ping(from.netns(), *address, 3, LIMIT).unwrap();
        assert!(ping.complete(), "{address}: {ping:?}");
        peers::tcp_echo(from.netns(), to.netns(), *address, BYTES).unwrap();
    }
}

#[test]
#[ignore = "vm level"]
fn pods_of_two_nodes_reach_the_gateway_and_each_other_and_leave_nothing() {
    let cloud = Cloud::start(&LabSpec::for_test(2, 2).unwrap()).unwrap();
    let (one, two) = (cloud.node(0).unwrap(), cloud.node(1).unwrap());
    let (a, b) = (cloud.pod("web-0").unwrap(), cloud.pod("web-1").unwrap());
    let (conf_a, conf_b) = (one.conf(Stack::Dual), two.conf(Stack::Dual));
    let (result, _) = a.attach(one, &conf_a).unwrap();
    let (other, _) = b.attach(two, &conf_b).unwrap();
    let sub = &one.plan.sub_enis[2];
    let addresses: Vec<_> = result.ips.iter().map(|ip| ip.address.addr()).collect();
    assert_eq!(
        addresses,
        [IpAddr::from(sub.ipv4), sub.ipv6.unwrap().into()]
    );
    let sub_eni = result.sub_eni.as_ref().unwrap();
    assert_eq!((sub_eni.vlan, sub_eni.mac), (sub.vlan, sub.mac));
    assert_eq!(sub_eni.parent_mac, one.plan.parent_mac);
    assert_eq!(
        result.interfaces[0].sandbox,
        a.netns_path().to_str().unwrap()
    );

    let nic = a.nic().unwrap().unwrap();
    assert_eq!(nic.link.kind, LinkKind::Vlan);
    assert_eq!(
        (nic.link.vlan, nic.link.mac),
        (Some(sub.vlan), Some(sub.mac))
    );
    assert!(nic.link.up && nic.link.mtu == 1500, "{nic:?}");
    for gateway in [IpAddr::from(GATEWAY_V4), GATEWAY_V6.into()] {
        let default = nic
            .routes
            .iter()
            .any(|r| r.dst.prefix_len() == 0 && r.gateway == Some(gateway));
        assert!(default, "default route by {gateway}: {:?}", nic.routes);
    }
    assert_eq!(
        inspect::links(one.netns()).unwrap().len(),
        1,
        "eth1 is all the node has"
    );

    let others: Vec<_> = other.ips.iter().map(|ip| ip.address.addr()).collect();
    reach(&cloud, &a, &b, &others);
    reach(&cloud, &b, &a, &addresses);
    a.release(one, &conf_a).unwrap();
    b.release(two, &conf_b).unwrap();
    assert_eq!(
        leaks::find(&cloud, &[&a, &b]).unwrap(),
        Vec::<String>::new()
    );
}

#[test]
#[ignore = "vm level"]
fn an_attach_needs_few_netlink_messages_and_says_how_the_preflight_went() {
    let cloud = Cloud::start(&LabSpec::for_test(1, 1).unwrap()).unwrap();
    let node = cloud.node(0).unwrap();
    for (name, stack, families) in [("single", Stack::V4, 1), ("dual", Stack::Dual, 2)] {
        let pod = cloud.pod(name).unwrap();
        pod.attach(node, &node.conf(stack)).unwrap();
        let report = node.attach_reports().into_iter().last().unwrap();
        assert_eq!(report.pod, pod.object_name());
        assert!(
            (1..=MESSAGES).contains(&report.netlink_requests),
            "{report:?}"
        );
        assert_eq!(report.preflight.len(), families);
        for flight in &report.preflight {
            assert!(flight.result == "ok" && flight.attempts == 1, "{flight:?}");
            // The gateway of the lab takes 48 ms.
            assert!((40.0..500.0).contains(&flight.ms), "{flight:?}");
        }
        pod.release(node, &node.conf(stack)).unwrap();
    }
}

#[test]
#[ignore = "vm level"]
fn check_status_and_gc_follow_the_specification() {
    let cloud = Cloud::start(&LabSpec::for_test(1, 1).unwrap()).unwrap();
    let node = cloud.node(0).unwrap();
    let pod = cloud.pod("checked").unwrap();
    let conf = node.conf(Stack::Dual);
    node.run_one(&pod.call(node, "STATUS", &conf))
        .unwrap()
        .silent()
        .unwrap();
    let (_, outcome) = pod.attach(node, &conf).unwrap();
    let previous = serde_json::from_str(&outcome.stdout).unwrap();
    let with_result = with_key(&conf, "prevResult", previous);
    node.run_one(&pod.call(node, "CHECK", &with_result))
        .unwrap()
        .silent()
        .unwrap();

    // Nothing is said about what is valid: nothing may be freed.
    node.run_one(&pod.call(node, "GC", &conf))
        .unwrap()
        .silent()
        .unwrap();
    assert!(pod.nic().unwrap().is_some());
    let valid = json!([{ "containerID": pod.container_id, "ifname": IFNAME }]);
    let valid = with_key(&conf, "cni.dev/valid-attachments", valid);
    node.run_one(&pod.call(node, "GC", &valid))
        .unwrap()
        .silent()
        .unwrap();
    assert!(pod.nic().unwrap().is_some());

    inspect::delete_link(pod.netns(), IFNAME).unwrap();
    let error = node
        .run_one(&pod.call(node, "CHECK", &with_result))
        .unwrap()
        .error()
        .unwrap();
    assert_eq!(error.code, 100, "{error:?}");
    assert!(
        format!("{} {}", error.msg, error.details).contains(IFNAME),
        "{error:?}"
    );
    pod.release(node, &with_result).unwrap();

    inspect::delete_link(node.netns(), PARENT).unwrap();
    let error = node
        .run_one(&pod.call(node, "STATUS", &conf))
        .unwrap()
        .error()
        .unwrap();
    assert_eq!(error.code, 51, "{error:?}");
    assert!(error.details.contains(PARENT), "{error:?}");
}

#[test]
#[ignore = "vm level"]
fn a_pod_of_kubernetes_keeps_its_name_and_uid_on_the_record() {
    let cloud = Cloud::start(&LabSpec::for_test(1, 1).unwrap()).unwrap();
    let node = cloud.node(0).unwrap();
    let api = node.api().unwrap();
    let uid = writes::create_pod(node, "cart-0").unwrap();
    let pod = writes::sandbox(&cloud, "cart", "cart-0", &uid).unwrap();
    let conf = node.conf(Stack::V4);
    pod.attach(node, &conf).unwrap();
    let record = |api: &vm_tests::lab::api_client::ApiClient| {
        records(&api.pool(&node.plan.pool()).unwrap()).unwrap()
            [node.plan.sub_enis[0].ipv4.to_string()]
        .clone()
    };
    let owner = record(&api);
    assert_eq!(
        (&owner["pod"], &owner["podUid"]),
        (&json!("shop/cart-0"), &json!(uid))
    );

    // A rollback DEL of a Pod that lives releases nothing: the next ADD meets the same address.
    pod.release(node, &conf).unwrap();
    assert!(pod.nic().unwrap().is_none());
    assert_eq!(record(&api)["podUid"], json!(uid));
    pod.attach(node, &conf).unwrap();
    writes::delete_pod(node, "cart-0").unwrap();
    pod.release(node, &conf).unwrap();
    assert_eq!(leaks::find(&cloud, &[&pod]).unwrap(), Vec::<String>::new());
}
