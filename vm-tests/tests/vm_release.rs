//! Release never fails on what is gone, frees once, and touches only what is its own: cases B19,
//! B20 and the node's part of B33.
#![expect(
    clippy::unwrap_used,
    reason = "functions that tests share fail as tests do"
)]

use std::net::IpAddr;
use std::time::Duration;

use serde_json::{Value, json};
use vm_tests::lab::api_client::records;
use vm_tests::lab::cni_call::CniCall;
use vm_tests::lab::layout::{self, GATEWAY_V4, PARENT};
use vm_tests::lab::node::IFNAME;
use vm_tests::lab::{Cloud, LabSpec, Node, Pod, Stack, inspect, leaks, peers, wait, writes};

/// The agent replays the spool at its start.
const REPLAY: Duration = Duration::from_secs(20);

fn records_of(node: &Node) -> Value {
    records(&node.api().unwrap().pool(&node.plan.pool()).unwrap()).unwrap()
}

fn nothing_left(cloud: &Cloud, pods: &[&Pod]) {
    assert_eq!(leaks::find(cloud, pods).unwrap(), Vec::<String>::new());
}

#[test]
#[ignore = "vm level"]
fn b19_a_late_del_leaves_the_next_pod_of_that_vlan_alone() {
    let cloud = Cloud::start(&LabSpec::for_test(1, 2).unwrap()).unwrap();
    let node = cloud.node(0).unwrap();
    let conf = node.conf(Stack::V4);
    let [first, second] = &node.plan.sub_enis[..2] else {
        panic!("two sub-ENIs")
    };
    let uid_a = writes::create_pod(node, "a").unwrap();
    let a = writes::sandbox(&cloud, "c-1", "a", &uid_a).unwrap();
    a.attach(node, &conf).unwrap();
    let late = CniCall {
        netns: String::new(),
        ..a.call(node, "DEL", &conf)
    };
    // The sandbox is destroyed without a DEL, and the cloud gives the VLAN to another sub-ENI.
    drop(a);
    writes::delete_pod(node, "a").unwrap();
    let mut bindings = layout::bindings(std::slice::from_ref(&node.plan));
    bindings[0]["vlan"] = json!(4000);
    bindings[1]["vlan"] = json!(first.vlan);
    cloud.fabric.replace_bindings(&bindings).unwrap();
    let entry = json!({ "mac": second.mac, "vlan": first.vlan });
    writes::publish_entries(node, &json!({ second.ipv4.to_string(): entry })).unwrap();
    let uid_b = writes::create_pod(node, "b").unwrap();
    let b = writes::sandbox(&cloud, "c-2", "b", &uid_b).unwrap();
    b.attach(node, &conf).unwrap();
    let before = b.nic().unwrap();
    assert_eq!(before.as_ref().unwrap().link.vlan, Some(first.vlan));

    for _ in 0..2 {
        node.run_one(&late).unwrap().silent().unwrap();
        assert_eq!(b.nic().unwrap(), before, "link, addresses and routes");
        let to: IpAddr = GATEWAY_V4.into();
        let ping = peers::ping(b.netns(), to, 3, Duration::from_secs(2)).unwrap();
        assert!(ping.complete(), "{ping:?}");
        let records = records_of(node);
        assert_eq!(records.as_object().unwrap().len(), 1, "{records}");
        assert_eq!(records[second.ipv4.to_string()]["podUid"], json!(uid_b));
    }
    writes::delete_pod(node, "b").unwrap();
    b.release(node, &conf).unwrap();
    nothing_left(&cloud, &[&b]);
}

/// A good ADD, then `disturb`, then DEL twice: silent both times, address free, nothing left.
fn released_after(disturb: impl FnOnce(&Node, &Pod, &mut CniCall)) {
    let cloud = Cloud::start(&LabSpec::for_test(1, 1).unwrap()).unwrap();
    let node = cloud.node(0).unwrap();
    let pod = cloud.pod("b20").unwrap();
    let conf = node.conf(Stack::V4);
    pod.attach(node, &conf).unwrap();
    let mut del = pod.call(node, "DEL", &conf);
    disturb(node, &pod, &mut del);
    node.run_one(&del).unwrap().silent().unwrap();
    assert_eq!(records_of(node), json!({}));
    node.run_one(&del).unwrap().silent().unwrap();
    nothing_left(&cloud, &[&pod]);
}

#[test]
#[ignore = "vm level"]
fn b20_a_normal_del_twice() {
    released_after(|_, _, _| {});
}

#[test]
#[ignore = "vm level"]
fn b20_b_the_netns_file_is_missing() {
    released_after(|_, _, del| del.netns = "/var/run/netns/no-such-sandbox".to_owned());
}

#[test]
#[ignore = "vm level"]
fn b20_c_the_netns_is_empty() {
    released_after(|_, _, del| del.netns = String::new());
}

#[test]
#[ignore = "vm level"]
fn b20_d_the_link_was_deleted_by_hand() {
    released_after(|_, pod, _| inspect::delete_link(pod.netns(), IFNAME).unwrap());
}

#[test]
#[ignore = "vm level"]
fn b20_e_the_master_was_removed_from_the_node() {
    released_after(|node, pod, _| {
        inspect::delete_link(node.netns(), PARENT).unwrap();
        assert!(
            pod.nic().unwrap().is_none(),
            "a VLAN link goes with its master"
        );
    });
}

#[test]
#[ignore = "vm level"]
fn b20_f_there_was_no_add() {
    let cloud = Cloud::start(&LabSpec::for_test(1, 1).unwrap()).unwrap();
    let node = cloud.node(0).unwrap();
    let pod = cloud.pod("never").unwrap();
    pod.release(node, &node.conf(Stack::V4)).unwrap();
    pod.release(node, &node.conf(Stack::Dual)).unwrap();
    nothing_left(&cloud, &[&pod]);
}

#[test]
#[ignore = "vm level"]
fn b20_g_without_an_agent_a_del_is_spooled_and_replayed() {
    let mut cloud = Cloud::start(&LabSpec::for_test(1, 1).unwrap()).unwrap();
    let pod = cloud.pod("spooled").unwrap();
    let conf = cloud.node(0).unwrap().conf(Stack::V4);
    pod.attach(cloud.node(0).unwrap(), &conf).unwrap();
    cloud.nodes[0].kill_agent().unwrap();
    let node = cloud.node(0).unwrap();
    let outcome = node.run_one(&pod.call(node, "DEL", &conf)).unwrap();
    outcome.silent().unwrap();
    assert!(
        outcome.elapsed < Duration::from_secs(10),
        "{:?}",
        outcome.elapsed
    );
    assert_eq!(inspect::file_names(&node.spool_dir()).unwrap().len(), 1);
    cloud.nodes[0].start_agent().unwrap();
    let node = cloud.node(0).unwrap();
    wait::until(REPLAY, "the replay of the spool", || {
        Ok(inspect::file_names(&node.spool_dir())?
            .is_empty()
            .then_some(()))
    })
    .unwrap();
    nothing_left(&cloud, &[&pod]);
}

#[test]
#[ignore = "vm level"]
fn b20_g_a_spool_that_cannot_be_written_is_code_11() {
    let mut cloud = Cloud::start(&LabSpec::for_test(1, 1).unwrap()).unwrap();
    let pod = cloud.pod("unspooled").unwrap();
    let conf = cloud.node(0).unwrap().conf(Stack::V4);
    pod.attach(cloud.node(0).unwrap(), &conf).unwrap();
    cloud.nodes[0].kill_agent().unwrap();
    let node = cloud.node(0).unwrap();
    // root writes through permissions: a file in the folder's place stops it
    let aside = node.run_dir().join("aside");
    std::fs::rename(node.spool_dir(), &aside).unwrap();
    std::fs::write(node.spool_dir(), "").unwrap();
    let error = node
        .run_one(&pod.call(node, "DEL", &conf))
        .unwrap()
        .error()
        .unwrap();
    assert_eq!(error.code, 11, "{error:?}");
    std::fs::remove_file(node.spool_dir()).unwrap();
    std::fs::rename(&aside, node.spool_dir()).unwrap();
    cloud.nodes[0].start_agent().unwrap();
    pod.release(cloud.node(0).unwrap(), &conf).unwrap();
    nothing_left(&cloud, &[&pod]);
}

#[test]
#[ignore = "vm level"]
fn many_dels_at_once_are_all_silent() {
    let cloud = Cloud::start(&LabSpec::for_test(1, 2).unwrap()).unwrap();
    let node = cloud.node(0).unwrap();
    let (gone, stays) = (cloud.pod("gone").unwrap(), cloud.pod("stays").unwrap());
    let conf = node.conf(Stack::Dual);
    gone.attach(node, &conf).unwrap();
    stays.attach(node, &conf).unwrap();
    let before = stays.nic().unwrap();
    let calls = vec![gone.call(node, "DEL", &conf); 6];
    for outcome in node.run(&calls).unwrap() {
        outcome.silent().unwrap();
    }
    assert!(gone.nic().unwrap().is_none());
    assert_eq!(stays.nic().unwrap(), before);
    assert_eq!(node.attachments().unwrap().len(), 1);
    stays.release(node, &conf).unwrap();
    nothing_left(&cloud, &[&gone, &stays]);
}

#[test]
#[ignore = "vm level"]
fn b33_a_thin_del_of_a_pod_that_is_gone_frees_its_address() {
    let cloud = Cloud::start(&LabSpec::for_test(1, 1).unwrap()).unwrap();
    let node = cloud.node(0).unwrap();
    let conf = node.conf(Stack::V4);
    let uid = writes::create_pod(node, "web-1").unwrap();
    let pod = writes::sandbox(&cloud, "c-1", "web-1", &uid).unwrap();
    pod.attach(node, &conf).unwrap();
    writes::delete_pod(node, "web-1").unwrap();
    // A newer Pod of the same name lives; its UID is not the one that leaves.
    let newer = writes::create_pod(node, "web-1").unwrap();
    let thin = json!({ "cniVersion": "0.3.1", "name": "lab", "type": "x", "ipam": {
        "type": "spiderpool", "ipam_unix_socket_path": node.socket() } });
    let del = CniCall {
        netns: String::new(),
        args: format!("K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-1;K8S_POD_UID={uid}"),
        stdin: thin.to_string(),
        ..pod.call(node, "DEL", &conf)
    };
    node.run_one(&del).unwrap().silent().unwrap();
    assert_eq!(records_of(node), json!({}));
    assert!(
        pod.nic().unwrap().is_none(),
        "the link goes first, with or without CNI_NETNS"
    );
    let living = writes::pod_object(node, "web-1").unwrap().unwrap();
    assert_eq!(
        living["metadata"]["uid"],
        json!(newer),
        "not ours to delete"
    );
    writes::delete_pod(node, "web-1").unwrap();
    nothing_left(&cloud, &[&pod]);
}

#[test]
#[ignore = "vm level"]
fn b33_a_del_that_names_no_uid_and_no_file_frees_nothing() {
    let cloud = Cloud::start(&LabSpec::for_test(1, 1).unwrap()).unwrap();
    let node = cloud.node(0).unwrap();
    let conf = node.conf(Stack::V4);
    let uid = writes::create_pod(node, "web-1").unwrap();
    let pod = writes::sandbox(&cloud, "c-1", "web-1", &uid).unwrap();
    pod.attach(node, &conf).unwrap();
    let before = records_of(node);
    let del = CniCall {
        netns: String::new(),
        container_id: "c-unknown".to_owned(),
        args: "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-1".to_owned(),
        ..pod.call(node, "DEL", &conf)
    };
    node.run_one(&del).unwrap().silent().unwrap();
    assert_eq!(records_of(node), before);
    assert!(pod.nic().unwrap().is_some());
    writes::delete_pod(node, "web-1").unwrap();
    pod.release(node, &conf).unwrap();
    nothing_left(&cloud, &[&pod]);
}
