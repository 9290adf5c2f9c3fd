//! The cluster a run begins with: nodes, pools of every class, the cloud they are of.

use std::sync::Arc;

use provider_sim::topology::{GatewayPort, Parent, Subnet, Topology};
use serde_json::{Value, json};

use crate::api::Kind;
use crate::node::Node;
use crate::scenario::Scenario;
use crate::world::World;

/// Sub-ENIs a parent NIC carries: so few that idle ones have to make room.
const PARENT_LIMIT: usize = 9;
/// The same under contract version 1, where nothing says which are idle: all addresses there are.
const PARENT_LIMIT_V1: usize = 40;

pub(crate) fn node_name(node: u8) -> String {
    format!("n{}", node + 1)
}

pub(crate) fn node_mac(node: u8) -> String {
    format!("fa:16:3e:00:00:{:02x}", node + 1)
}

/// Makes namespace, nodes and pools.
pub(crate) fn make(world: &Arc<World>, nodes: u8) -> Vec<Arc<Node>> {
    let namespace = json!({"metadata": {"name": "sim"}});
    world.create(Kind::Namespace, "sim", namespace);
    for pool in [
        plain("plain4", "10.1.0", 10, 15),
        spare(),
        plain6(),
        marked("glob", 3, (10, 15), None, None),
        marked("pair4", 4, (10, 13), None, Some("pair6")),
        half("pair6", 4, None, "pair4"),
        marked("warmp4-n1", 5, (10, 11), Some(0), Some("warmp6-n1")),
        half("warmp6-n1", 5, Some(0), "warmp4-n1"),
    ] {
        create_pool(world, pool);
    }
    let made = (0..nodes).map(|node| {
        let name = node_name(node);
        world.create(Kind::Node, &name, json!({"metadata": {"name": name}}));
        let third = 20 + node;
        let pool = marked(&format!("warm-{name}"), third, (10, 12), Some(node), None);
        create_pool(world, pool);
        Node::new(world, &name, &node_mac(node))
    });
    made.collect()
}

/// The pool that actions delete and make again.
pub(crate) fn spare() -> Value {
    plain("spare4", "10.2.0", 10, 12)
}

/// Makes a pool, without marks where none are to be.
pub(crate) fn create_pool(world: &World, mut pool: Value) {
    if world.scenario.first {
        pool["metadata"]["annotations"] = json!({});
        pool["status"] = Value::Null;
    }
    let name = pool["metadata"]["name"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    world.create(Kind::Pool, &name, pool);
}

fn plain(name: &str, net: &str, first: u8, last: u8) -> Value {
    json!({
        "metadata": {"name": name, "finalizers": ["spiderpool.spidernet.io"], "annotations": {}},
        "spec": {"subnet": format!("{net}.0/24"), "ips": [format!("{net}.{first}-{net}.{last}")],
            "ipVersion": 4, "gateway": format!("{net}.1")},
    })
}

fn plain6() -> Value {
    let mut pool = plain("plain6", "10.9.9", 1, 1);
    pool["spec"] = json!({"subnet": "fd01::/64", "ips": ["fd01::10-fd01::15"], "ipVersion": 6,
        "gateway": "fd01::1"});
    pool
}

/// A pool of the provider, of one node or of all.
fn marked(
    name: &str,
    third: u8,
    (first, last): (u8, u8),
    node: Option<u8>,
    pair: Option<&str>,
) -> Value {
    let mut pool = plain(name, &format!("10.100.{third}"), first, last);
    mark(&mut pool, node, pair);
    pool
}

/// The IPv6 side of a pair.
fn half(name: &str, third: u8, node: Option<u8>, pair: &str) -> Value {
    let mut pool = plain(name, "10.9.9", 1, 1);
    let net = format!("fd00:{third}");
    pool["spec"] = json!({"subnet": format!("{net}::/64"), "ips": [format!("{net}::10-{net}::15")],
        "ipVersion": 6, "gateway": format!("{net}::1")});
    mark(&mut pool, node, Some(pair));
    pool
}

fn mark(pool: &mut Value, node: Option<u8>, pair: Option<&str>) {
    let notes = &mut pool["metadata"]["annotations"];
    notes["ipam.spidernet.io/iaas-provider"] = "sim".into();
    notes["ipam.spidernet.io/parent-nic"] = "eth1".into();
    if let Some(pair) = pair {
        notes["ipam.spidernet.io/pair-pool"] = pair.into();
    }
    if let Some(node) = node {
        pool["spec"]["nodeName"] = json!([node_name(node)]);
        pool["status"] = json!({"parentNic": {"name": "eth1", "mac": node_mac(node)}});
    }
}

/// The cloud below: one parent NIC a node, a subnet for each pool of the provider.
pub(crate) fn topology(nodes: u8, scenario: Scenario) -> Topology {
    let parents = (0..nodes).map(|node| Parent {
        node: node_name(node),
        mac: node_mac(node).parse().unwrap(),
        ifname: "wire".parse().unwrap(),
        sub_eni_limit: if scenario.first {
            PARENT_LIMIT_V1
        } else {
            PARENT_LIMIT
        },
    });
    let net = |second: u8, third: u8, v6: bool| Subnet {
        ipv4: Some(format!("10.{second}.{third}.0/24").parse().unwrap()),
        ipv6: v6.then(|| format!("fd00:{third}::/64").parse().unwrap()),
        gateway_ipv4: Some(format!("10.{second}.{third}.1").parse().unwrap()),
        gateway_ipv6: v6.then(|| format!("fd00:{third}::1").parse().unwrap()),
        gateway_mac: "fa:16:3e:ff:00:01".parse().unwrap(),
    };
    let subnet = |third, v6| net(100, third, v6);
    let mut subnets = vec![subnet(3, false), subnet(4, true), subnet(5, true)];
    if scenario.first {
        // Any pool serves a sub-ENI.
        subnets.extend([net(1, 0, false), net(2, 0, false)]);
    }
    subnets.extend((0..nodes).map(|node| subnet(20 + node, false)));
    Topology {
        parents: parents.collect(),
        subnets,
        gateway: GatewayPort {
            ifname: "gateway".parse().unwrap(),
        },
        bindings: Vec::new(),
        pools: Vec::new(),
        answer_delay_ms: 0,
        allow_link_local: true,
        packet_log: 0,
    }
}
