//! What cannot succeed is refused with the specified code and a text that names the cause, and
//! leaves nothing behind.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "functions that tests share fail as tests do"
)]

use serde_json::{Value, json};
use spiderpool_netops::rtnl::VethSpec;
use vm_tests::lab::cni_call::{CniCall, with_key};
use vm_tests::lab::layout::{self, PARENT};
use vm_tests::lab::namespace::{connect, in_netns};
use vm_tests::lab::node::IFNAME;
use vm_tests::lab::{Cloud, LabSpec, Node, Pod, Stack, inspect, leaks, writes};

/// Runs a call that must fail, and checks what it says and that nothing is left of it.
fn refused(cloud: &Cloud, node: &Node, pod: &Pod, call: &CniCall, code: u32, words: &[&str]) {
    let error = node.run_one(call).unwrap().error().unwrap();
    assert_eq!(error.code, code, "{error:?}");
    let text = format!("{} {}", error.msg, error.details);
    for word in words {
        assert!(text.contains(word), "{word:?} in {text}");
    }
    assert_eq!(
        node.attachments().unwrap(),
        Vec::<String>::new(),
        "{call:?}"
    );
    let del = CniCall {
        command: "DEL".to_owned(),
        stdin: node.conf(Stack::V4).to_string(),
        ..call.clone()
    };
    node.run_one(&del).unwrap().silent().unwrap();
    let left = leaks::find(cloud, &[pod]).unwrap();
    assert_eq!(left, Vec::<String>::new(), "{call:?}");
}

#[test]
#[ignore = "vm level"]
fn configurations_that_cannot_work() {
    let cloud = Cloud::start(&LabSpec::for_test(1, 1).unwrap()).unwrap();
    let node = cloud.node(0).unwrap();
    let pod = cloud.pod("refused").unwrap();
    let conf = node.conf(Stack::V4);
    let cases: &[(&str, Value, u32, &[&str])] = &[
        ("master", json!("nope0"), 106, &["nope0"]),
        ("master", Value::Null, 7, &["master"]),
        ("master", json!("a name that is too long"), 7, &["master"]),
        ("master", json!(5), 6, &["master"]),
        ("mtu", json!(9000), 7, &["9000", "1500", PARENT]),
        ("mtu", json!(true), 6, &["mtu"]),
        ("mtu", json!(-1), 7, &["mtu"]),
        ("validationRetries", json!(21), 7, &["validationRetries"]),
        ("vlanId", json!(5), 7, &["vlanId"]),
        ("linkInContainer", json!(true), 7, &["linkInContainer"]),
        ("cniVersion", json!("9.9.9"), 1, &["9.9.9", "1.1.0"]),
        ("cniVersion", json!(1), 6, &["cniVersion"]),
        ("ipam", json!("x"), 6, &["ipam"]),
    ];
    for (key, value, code, words) in cases {
        let call = pod.call(node, "ADD", &with_key(&conf, key, value.clone()));
        refused(&cloud, node, &pod, &call, *code, words);
    }
}

#[test]
#[ignore = "vm level"]
fn environments_that_cannot_work() {
    let cloud = Cloud::start(&LabSpec::for_test(1, 1).unwrap()).unwrap();
    let node = cloud.node(0).unwrap();
    let pod = cloud.pod("refused").unwrap();
    let good = pod.call(node, "ADD", &node.conf(Stack::V4));
    let bad_json = CniCall {
        stdin: "{\"cniVersion\":".to_owned(),
        ..good.clone()
    };
    refused(&cloud, node, &pod, &bad_json, 6, &[]);
    let no_netns = CniCall {
        netns: "/var/run/netns/nobody".to_owned(),
        ..good.clone()
    };
    refused(&cloud, node, &pod, &no_netns, 4, &["/var/run/netns/nobody"]);
    let long_name = CniCall {
        ifname: "sixteen-chars-xy".to_owned(),
        ..good.clone()
    };
    let error = node.run_one(&long_name).unwrap().error().unwrap();
    assert!(error.code == 7 || error.code == 4, "{error:?}");
    assert!(
        format!("{} {}", error.msg, error.details).contains("sixteen-chars-xy"),
        "{error:?}"
    );
    assert_eq!(leaks::find(&cloud, &[&pod]).unwrap(), Vec::<String>::new());
}

#[test]
#[ignore = "vm level"]
fn a_taken_name_and_a_foreign_master() {
    let cloud = Cloud::start(&LabSpec::for_test(1, 1).unwrap()).unwrap();
    let node = cloud.node(0).unwrap();
    let pod = cloud.pod("refused").unwrap();
    let conf = node.conf(Stack::V4);
    let veth = |name, peer| VethSpec {
        name,
        peer,
        peer_target: None,
        mac: None,
        peer_mac: None,
    };
    connect(pod.netns(), &veth(IFNAME, "other"), pod.netns()).unwrap();
    let error = node
        .run_one(&pod.call(node, "ADD", &conf))
        .unwrap()
        .error()
        .unwrap();
    assert_eq!(error.code, 107, "{error:?}");
    assert!(error.msg.contains(IFNAME), "{error:?}");
    let still = inspect::link(pod.netns(), IFNAME).unwrap();
    assert!(still.is_some(), "the foreign link stays");
    // A DEL must not take a link away that is not the attachment's.
    pod.release(node, &conf).unwrap();
    assert!(inspect::link(pod.netns(), IFNAME).unwrap().is_some());
    inspect::delete_link(pod.netns(), IFNAME).unwrap();

    // The pool's sub-ENIs belong to eth1; another NIC of the node has another MAC.
    connect(node.netns(), &veth("eth2", "peer2"), node.netns()).unwrap();
    let call = pod.call(node, "ADD", &with_key(&conf, "master", "eth2".into()));
    let error = node.run_one(&call).unwrap().error().unwrap();
    assert_eq!(error.code, 106, "{error:?}");
    assert!(
        format!("{} {}", error.msg, error.details).contains("eth2"),
        "{error:?}"
    );
    inspect::delete_link(node.netns(), "eth2").unwrap();
    pod.release(node, &conf).unwrap();
    assert_eq!(leaks::find(&cloud, &[&pod]).unwrap(), Vec::<String>::new());
}

/// Publishes one entry for the node's IPv4 pool, as the provider would.
fn publish_entry(node: &Node, entry: &Value) {
    let key = node.plan.sub_enis[0].ipv4.to_string();
    writes::publish_entries(node, &json!({ key: entry })).unwrap();
}

#[test]
#[ignore = "vm level"]
fn impossible_vlans_and_macs_in_the_metadata() {
    let cloud = Cloud::start(&LabSpec::for_test(1, 1).unwrap()).unwrap();
    let node = cloud.node(0).unwrap();
    let sub = &node.plan.sub_enis[0];
    let pod = cloud.pod("refused").unwrap();
    let conf = node.conf(Stack::V4);
    let call = pod.call(node, "ADD", &conf);
    for vlan in [0, -1, 4095, 4096, 70_000] {
        publish_entry(node, &json!({ "mac": sub.mac, "vlan": vlan }));
        refused(&cloud, node, &pod, &call, 100, &[&node.plan.pool()]);
    }
    for mac in ["", "fa:16:3e:00:71", "01:00:5e:00:00:01"] {
        publish_entry(node, &json!({ "mac": mac, "vlan": 101 }));
        refused(&cloud, node, &pod, &call, 100, &[&node.plan.pool()]);
    }
    // The ends of the range are links like any other.
    for vlan in [1, 4094] {
        let mut bindings = layout::bindings(std::slice::from_ref(&node.plan));
        bindings[0]["vlan"] = json!(vlan);
        cloud.fabric.replace_bindings(&bindings).unwrap();
        publish_entry(node, &json!({ "mac": sub.mac, "vlan": vlan }));
        pod.attach(node, &conf).unwrap();
        let id = pod.nic().unwrap().unwrap().link.vlan.unwrap();
        assert_eq!(i64::from(id.get()), vlan);
        pod.release(node, &conf).unwrap();
    }
    assert_eq!(leaks::find(&cloud, &[&pod]).unwrap(), Vec::<String>::new());
}

#[test]
#[ignore = "vm level"]
fn a_master_that_is_down_is_set_up() {
    let cloud = Cloud::start(&LabSpec::for_test(1, 1).unwrap()).unwrap();
    let node = cloud.node(0).unwrap();
    let parent = inspect::link(node.netns(), PARENT).unwrap().unwrap().link;
    in_netns(node.netns(), async |rtnl| {
        Ok(rtnl.set_down(parent.ifindex).await?)
    })
    .unwrap();
    let pod = cloud.pod("awake").unwrap();
    let conf = node.conf(Stack::V4);
    pod.attach(node, &conf).unwrap();
    assert!(
        inspect::link(node.netns(), PARENT)
            .unwrap()
            .unwrap()
            .link
            .up
    );
    pod.release(node, &conf).unwrap();
}
