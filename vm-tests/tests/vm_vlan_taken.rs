//! A VLAN id is free once per master over all namespaces: a dead sandbox's link makes way for the
//! next Pod, a live Pod's link does not.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "functions that tests share fail as tests do"
)]

use serde_json::{Value, json};
use spiderpool_netops::rtnl::VlanSpec;
use vm_tests::lab::api_client::records;
use vm_tests::lab::layout::{self, PARENT};
use vm_tests::lab::namespace::in_netns;
use vm_tests::lab::{Cloud, LabSpec, Node, Pod, Stack, leaks, writes};

/// A Pod object and its first sandbox.
fn new_pod(cloud: &Cloud, node: &Node, name: &str) -> Pod {
    let uid = writes::create_pod(node, name).unwrap();
    writes::sandbox(cloud, name, name, &uid).unwrap()
}

/// The cloud gives the second sub-ENI of the IPv4 pool the VLAN of the first.
fn reuse_vlan(cloud: &Cloud, node: &Node) {
    let [first, second] = &node.plan.sub_enis[..2] else {
        panic!("two sub-ENIs")
    };
    let mut bindings = layout::bindings(std::slice::from_ref(&node.plan));
    bindings[0]["state"] = json!("unbound");
    bindings[0]["vlan"] = json!(4000);
    bindings[1]["vlan"] = json!(first.vlan);
    cloud.fabric.replace_bindings(&bindings).unwrap();
    let entry = json!({ "mac": second.mac, "vlan": first.vlan });
    writes::publish_entries(node, &json!({ second.ipv4.to_string(): entry })).unwrap();
}

#[test]
#[ignore = "vm level"]
fn an_older_sandbox_of_the_same_pod_makes_way() {
    let cloud = Cloud::start(&LabSpec::for_test(1, 1).unwrap()).unwrap();
    let node = cloud.node(0).unwrap();
    let conf = node.conf(Stack::V4);
    let old = new_pod(&cloud, node, "db-0");
    old.attach(node, &conf).unwrap();
    let object = writes::pod_object(node, "db-0").unwrap().unwrap();
    let uid = object["metadata"]["uid"].as_str().unwrap();
    let new = writes::sandbox(&cloud, "db-0-again", "db-0", uid).unwrap();
    let (result, _) = new.attach(node, &conf).unwrap();
    assert_eq!(result.sub_eni.unwrap().mac, node.plan.sub_enis[0].mac);
    assert!(old.nic().unwrap().is_none() && new.nic().unwrap().is_some());
    // The late DEL of the old sandbox touches only what is its own, even when the Pod is gone.
    writes::delete_pod(node, "db-0").unwrap();
    old.release(node, &conf).unwrap();
    assert!(new.nic().unwrap().is_some());
    assert_eq!(node.attachments().unwrap().len(), 1);
    let pool = node.api().unwrap().pool(&node.plan.pool()).unwrap();
    let record = &records(&pool).unwrap()[node.plan.sub_enis[0].ipv4.to_string()];
    assert_eq!(record["podUid"], json!(uid));
    new.release(node, &conf).unwrap();
    assert_eq!(
        leaks::find(&cloud, &[&old, &new]).unwrap(),
        Vec::<String>::new()
    );
}

#[test]
#[ignore = "vm level"]
fn a_dead_pods_link_makes_way() {
    let cloud = Cloud::start(&LabSpec::for_test(1, 2).unwrap()).unwrap();
    let node = cloud.node(0).unwrap();
    let conf = node.conf(Stack::V4);
    let dead = new_pod(&cloud, node, "gone-0");
    dead.attach(node, &conf).unwrap();
    writes::delete_pod(node, "gone-0").unwrap();
    reuse_vlan(&cloud, node);
    let next = new_pod(&cloud, node, "next-0");
    next.attach(node, &conf).unwrap();
    assert!(dead.nic().unwrap().is_none());
    let nic = next.nic().unwrap().unwrap();
    assert_eq!(nic.link.mac, Some(node.plan.sub_enis[1].mac));
    dead.release(node, &conf).unwrap();
    assert!(
        next.nic().unwrap().is_some(),
        "the late DEL leaves the new link alone"
    );
    writes::delete_pod(node, "next-0").unwrap();
    next.release(node, &conf).unwrap();
    assert_eq!(
        leaks::find(&cloud, &[&dead, &next]).unwrap(),
        Vec::<String>::new()
    );
}

#[test]
#[ignore = "vm level"]
fn a_live_pods_link_is_105_with_its_name() {
    let cloud = Cloud::start(&LabSpec::for_test(1, 2).unwrap()).unwrap();
    let node = cloud.node(0).unwrap();
    let conf = node.conf(Stack::V4);
    let live = new_pod(&cloud, node, "live-0");
    live.attach(node, &conf).unwrap();
    let before = live.nic().unwrap();
    reuse_vlan(&cloud, node);
    let next = new_pod(&cloud, node, "next-0");
    let error = node
        .run_one(&next.call(node, "ADD", &conf))
        .unwrap()
        .error()
        .unwrap();
    assert_eq!(error.code, 105, "{error:?}");
    let text = format!("{} {}", error.msg, error.details);
    let vlan = node.plan.sub_enis[0].vlan.to_string();
    for word in ["shop/live-0", PARENT, &vlan] {
        assert!(text.contains(word), "{word} in {text}");
    }
    assert_eq!(live.nic().unwrap(), before, "the live link is untouched");
    assert!(next.nic().unwrap().is_none());
    assert_eq!(node.attachments().unwrap().len(), 1);
}

#[test]
#[ignore = "vm level"]
fn a_link_of_nobody_is_105_and_stays() {
    let cloud = Cloud::start(&LabSpec::for_test(1, 1).unwrap()).unwrap();
    let node = cloud.node(0).unwrap();
    let (stranger, pod) = (cloud.pod("stranger").unwrap(), cloud.pod("late").unwrap());
    let sub = &node.plan.sub_enis[0];
    in_netns(node.netns(), async |rtnl| {
        let parent = rtnl.link_by_name(PARENT).await?.unwrap();
        let spec = VlanSpec {
            name: "by-hand",
            parent: parent.ifindex,
            vlan: sub.vlan,
            mac: sub.mac,
            mtu: parent.mtu,
            target: stranger.netns(),
        };
        Ok(rtnl.add_vlan(&spec).await?)
    })
    .unwrap();
    let conf = node.conf(Stack::V4);
    let error = node
        .run_one(&pod.call(node, "ADD", &conf))
        .unwrap()
        .error()
        .unwrap();
    assert_eq!(error.code, 105, "{error:?}");
    let text = format!("{} {}", error.msg, error.details);
    let path = stranger.netns_path().to_str().unwrap();
    assert!(text.contains("by-hand") && text.contains(path), "{text}");
    let links = vm_tests::lab::inspect::links(stranger.netns()).unwrap();
    assert_eq!(links.len(), 1, "not ours to delete");
    let none: Value = pod
        .nic()
        .unwrap()
        .map_or(Value::Null, |nic| json!(nic.link.name));
    assert_eq!(none, Value::Null);
}
