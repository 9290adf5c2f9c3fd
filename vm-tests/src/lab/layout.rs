//! The lab as data: nodes, subnets, sub-ENIs, and what follows from them: the fabric's topology,
//! the pools, the CNI configuration. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use spiderpool_api::names;
use spiderpool_api::value::{Mac, VlanId};

/// Name of the parent NIC on every node.
pub const PARENT: &str = "eth1";
/// Name of the gateway's NIC.
pub const GATEWAY_NIC: &str = "eth0";
/// The fabric's end of the wire to the gateway.
pub const GATEWAY_PORT: &str = "gw";
/// Gateway of the IPv4 subnet.
pub const GATEWAY_V4: Ipv4Addr = Ipv4Addr::new(172, 91, 0, 1);
/// Gateway of the IPv6 subnet.
pub const GATEWAY_V6: Ipv6Addr = Ipv6Addr::new(0xfd91, 0, 0, 0, 0, 0, 0, 1);
/// IPv4 subnet of all pools.
pub const SUBNET_V4: &str = "172.91.0.0/24";
/// IPv6 subnet of all pools.
pub const SUBNET_V6: &str = "fd91::/64";
/// MAC of the gateway's NIC.
pub const GATEWAY_MAC: Mac = Mac::new([0xfa, 0x16, 0x3e, 0xff, 0xff, 0xfe]);

/// Lowest last octet of the first node.
const FIRST_OCTET: u8 = 100;
/// Octets a node takes: the lower half for its IPv4 pool, the upper half for its pair.
const PER_NODE: u8 = 40;
/// First word of the global pools' names.
const GLOBAL: &str = "global";
/// Name of the global IPv4 pool.
pub const GLOBAL_POOL: &str = "global-pool";
/// Lowest last octet of the global pool.
const FIRST_GLOBAL: u8 = 20;
/// Lowest last octet of the global pair.
const FIRST_GLOBAL_PAIR: u8 = 60;
/// VLAN ids start here on *every* parent: they are unique per parent only.
const FIRST_VLAN: i64 = 301;

/// One sub-ENI that is attached from the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubEni {
    /// IPv4 address.
    pub ipv4: Ipv4Addr,
    /// IPv6 address of a pair.
    pub ipv6: Option<Ipv6Addr>,
    /// Its MAC.
    pub mac: Mac,
    /// Its VLAN on the node's parent NIC.
    pub vlan: VlanId,
    /// IPv4 pool it belongs to.
    pub pool: String,
}

/// One node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodePlan {
    /// Node name.
    pub name: String,
    /// MAC of its parent NIC.
    pub parent_mac: Mac,
    /// The fabric's end of its wire.
    pub port: String,
    /// Its sub-ENIs: first those of the IPv4 pool, then the pairs.
    pub sub_enis: Vec<SubEni>,
}

/// Which addresses a Pod asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stack {
    /// From the node's IPv4 pool.
    V4,
    /// From the node's pair.
    Dual,
    /// From the global IPv4 pool of a cloud with a provider.
    Global,
    /// From the global pair of a cloud with a provider.
    GlobalDual,
}

impl NodePlan {
    /// Node number `index`, from 1, with `count` sub-ENIs of each kind.
    ///
    /// # Errors
    /// More nodes or sub-ENIs than the subnet holds.
    pub fn new(index: u8, count: u8) -> Result<Self> {
        let name = format!("node-{index}");
        let half = PER_NODE / 2;
        anyhow::ensure!(
            count <= half,
            "at most {half} sub-ENIs of a kind, not {count}"
        );
        let base = index
            .checked_sub(1)
            .and_then(|before| before.checked_mul(PER_NODE))
            .and_then(|offset| offset.checked_add(FIRST_OCTET))
            .filter(|base| *base <= u8::MAX - PER_NODE)
            .with_context(|| format!("there is no place for node number {index}"))?;
        let single = (0..count).map(|k| (base + k, false));
        let paired = (0..count).map(|k| (base + half + k, true));
        let sub_enis = single
            .chain(paired)
            .map(|(octet, pair)| sub_eni(&name, octet, base, pair))
            .collect::<Result<_>>()?;
        Ok(Self {
            parent_mac: Mac::new([0xfa, 0x16, 0x3e, 0x01, 0x00, index]),
            port: format!("port-{index}"),
            name,
            sub_enis,
        })
    }

    /// Name of its IPv4 pool.
    #[must_use]
    pub fn pool(&self) -> String {
        pool_name(&self.name)
    }

    /// Names of its pair, IPv4 first.
    #[must_use]
    pub fn pair(&self) -> (String, String) {
        pair_names(&self.name)
    }

    /// The sub-ENI with this IPv4 address.
    ///
    /// # Errors
    /// There is none.
    pub fn sub_eni(&self, ipv4: Ipv4Addr) -> Result<&SubEni> {
        self.sub_enis
            .iter()
            .find(|sub| sub.ipv4 == ipv4)
            .with_context(|| format!("{ipv4} is no sub-ENI of {}", self.name))
    }

    /// The sub-ENIs of one IPv4 pool.
    pub fn of_pool<'a>(&'a self, pool: &'a str) -> impl Iterator<Item = &'a SubEni> {
        self.sub_enis.iter().filter(move |sub| sub.pool == pool)
    }

    /// The pools, as an operator writes them.
    #[must_use]
    pub fn pools(&self) -> Vec<Value> {
        let (v4, v6) = self.pair();
        let single = self.pool();
        let mut pools = Vec::new();
        let ips: Vec<_> = self
            .of_pool(&single)
            .map(|sub| sub.ipv4.to_string())
            .collect();
        let node = Some(self.name.as_str());
        if !ips.is_empty() {
            pools.push(pool_object(&single, GATEWAY_V4.into(), ips, node, None));
        }
        let ips: Vec<_> = self.of_pool(&v4).map(|sub| sub.ipv4.to_string()).collect();
        if !ips.is_empty() {
            pools.push(pool_object(&v4, GATEWAY_V4.into(), ips, node, Some(&v6)));
            let ips = self
                .of_pool(&v4)
                .filter_map(|sub| sub.ipv6)
                .map(|ip| ip.to_string());
            let ips = ips.collect();
            pools.push(pool_object(&v6, GATEWAY_V6.into(), ips, node, Some(&v4)));
        }
        pools
    }

    /// The CNI configuration of the `eni-vlan` plugin, pre-flight on.
    #[must_use]
    pub fn conf(&self, stack: Stack, socket: &Path, log: &Path) -> Value {
        let ipam = match stack {
            Stack::V4 => json!({ "default_ipv4_ippool": [self.pool()] }),
            Stack::Dual => pair_conf(&self.pair()),
            Stack::Global => json!({ "default_ipv4_ippool": [GLOBAL_POOL] }),
            Stack::GlobalDual => pair_conf(&pair_names(GLOBAL)),
        };
        let mut conf = json!({
            "cniVersion": "1.1.0",
            "name": "lab",
            "type": names::PLUGIN_ENI_VLAN,
            "master": PARENT,
            "validateIaasNetConfig": true,
            "logOptions": { "logFile": log },
            "ipam": ipam,
        });
        if let Some(ipam) = conf.pointer_mut("/ipam").and_then(Value::as_object_mut) {
            ipam.insert("type".to_owned(), names::PLUGIN_IPAM.into());
            ipam.insert("ipam_unix_socket_path".to_owned(), json!(socket));
        }
        conf
    }
}

fn pair_conf((v4, v6): &(String, String)) -> Value {
    json!({ "default_ipv4_ippool": [v4], "default_ipv6_ippool": [v6] })
}

/// A pool of the provider's; without node it is a global one.
fn pool_object(
    name: &str,
    gateway: IpAddr,
    ips: Vec<String>,
    node: Option<&str>,
    pair: Option<&str>,
) -> Value {
    let subnet = if gateway.is_ipv4() {
        SUBNET_V4
    } else {
        SUBNET_V6
    };
    let mut annotations = json!({ names::IAAS_PROVIDER: "lab", names::PARENT_NIC: PARENT });
    if let (Some(pair), Some(map)) = (pair, annotations.as_object_mut()) {
        map.insert(names::PAIR_POOL.to_owned(), pair.into());
    }
    let nodes: Vec<_> = node.into_iter().collect();
    json!({
        "apiVersion": format!("{}/{}", names::GROUP, names::VERSION),
        "kind": "SpiderIPPool",
        "metadata": { "name": name, "annotations": annotations },
        "spec": {
            "subnet": subnet,
            "ips": ips,
            "gateway": gateway.to_string(),
            "nodeName": nodes,
        },
    })
}

/// The global pools: `singles` addresses for themselves and `pairs` pairs.
#[must_use]
pub fn global_pools(singles: u8, pairs: u8) -> Vec<Value> {
    let [a, b, c, _] = GATEWAY_V4.octets();
    let v4 = |octet: u8| Ipv4Addr::new(a, b, c, octet).to_string();
    let v6 = |octet: u8| Ipv6Addr::new(0xfd91, 0, 0, 0, 0, 0, 0, octet.into()).to_string();
    let range = |from: u8, count: u8| from..from.saturating_add(count);
    let mut pools = Vec::new();
    if singles > 0 {
        let ips = range(FIRST_GLOBAL, singles).map(v4).collect();
        pools.push(pool_object(GLOBAL_POOL, GATEWAY_V4.into(), ips, None, None));
    }
    if pairs > 0 {
        let (name4, name6) = pair_names(GLOBAL);
        let octets = range(FIRST_GLOBAL_PAIR, pairs);
        let (ips4, ips6) = octets.map(|octet| (v4(octet), v6(octet))).unzip();
        pools.push(pool_object(
            &name4,
            GATEWAY_V4.into(),
            ips4,
            None,
            Some(&name6),
        ));
        pools.push(pool_object(
            &name6,
            GATEWAY_V6.into(),
            ips6,
            None,
            Some(&name4),
        ));
    }
    pools
}

fn sub_eni(node: &str, octet: u8, base: u8, pair: bool) -> Result<SubEni> {
    let [a, b, c, _] = GATEWAY_V4.octets();
    Ok(SubEni {
        ipv4: Ipv4Addr::new(a, b, c, octet),
        ipv6: pair.then(|| Ipv6Addr::new(0xfd91, 0, 0, 0, 0, 0, 0, u16::from(octet))),
        mac: Mac::new([0xfa, 0x16, 0x3e, 0x00, 0x01, octet]),
        vlan: VlanId::try_from(FIRST_VLAN + i64::from(octet - base))?,
        pool: if pair {
            pair_names(node).0
        } else {
            pool_name(node)
        },
    })
}

fn pool_name(node: &str) -> String {
    format!("{node}-pool")
}

fn pair_names(node: &str) -> (String, String) {
    (format!("{node}-pair-v4"), format!("{node}-pair-v6"))
}

/// The fabric's topology file, with these sub-ENIs attached from the start. JSON, which is YAML too.
#[must_use]
pub fn topology(nodes: &[NodePlan], bindings: Vec<Value>, answer_delay_ms: u64) -> Value {
    let parents: Vec<_> = nodes
        .iter()
        .map(|node| json!({"node": node.name, "mac": node.parent_mac, "ifname": node.port}))
        .collect();
    json!({
        "parents": parents,
        "subnets": [{
            "ipv4": SUBNET_V4,
            "ipv6": SUBNET_V6,
            "gatewayIpv4": GATEWAY_V4,
            "gatewayIpv6": GATEWAY_V6,
            "gatewayMac": GATEWAY_MAC,
        }],
        "gateway": { "ifname": GATEWAY_PORT },
        "answerDelayMs": answer_delay_ms,
        "bindings": bindings,
    })
}

/// The sub-ENIs as the fabric has them bound.
#[must_use]
pub fn bindings(nodes: &[NodePlan]) -> Vec<Value> {
    let mut bindings = Vec::new();
    for node in nodes {
        for sub in &node.sub_enis {
            let mut binding = json!({
                "parent": node.parent_mac,
                "vlan": sub.vlan,
                "mac": sub.mac,
                "ipv4": sub.ipv4,
                "pool": sub.pool,
            });
            if let (Some(ipv6), Some(map)) = (sub.ipv6, binding.as_object_mut()) {
                map.insert("ipv6".to_owned(), json!(ipv6));
            }
            bindings.push(binding);
        }
    }
    bindings
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn nodes_share_vlans_and_nothing_else() {
        let nodes = [NodePlan::new(1, 20).unwrap(), NodePlan::new(2, 20).unwrap()];
        let all: Vec<_> = nodes.iter().flat_map(|node| &node.sub_enis).collect();
        let macs: BTreeSet<_> = all.iter().map(|sub| sub.mac).collect();
        let v4: BTreeSet<_> = all.iter().map(|sub| sub.ipv4).collect();
        let v6: BTreeSet<_> = all.iter().filter_map(|sub| sub.ipv6).collect();
        assert_eq!((macs.len(), v4.len(), v6.len()), (80, 80, 40));
        let vlans: BTreeSet<_> = nodes[0].sub_enis.iter().map(|sub| sub.vlan).collect();
        assert_eq!(vlans.len(), 40);
        let others: BTreeSet<_> = nodes[1].sub_enis.iter().map(|sub| sub.vlan).collect();
        assert_eq!(vlans, others);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        assert!(NodePlan::new(1, 21).is_err());
        for index in [0, 5, 255] {
            assert!(NodePlan::new(index, 1).is_err(), "{index}");
        }
    }

    #[test]
    fn global_pools_name_no_node_and_share_no_address_with_those_of_nodes() {
        let mut pools = global_pools(20, 20);
        pools.extend(NodePlan::new(1, 20).unwrap().pools());
        let of_global = |pool: &Value| pool["spec"]["nodeName"] == json!([]);
        assert_eq!(pools.iter().filter(|pool| of_global(pool)).count(), 3);
        let mut ips: Vec<_> = pools
            .iter()
            .flat_map(|pool| pool["spec"]["ips"].as_array().unwrap())
            .collect();
        let all = ips.len();
        ips.sort_by_key(|ip| ip.to_string());
        ips.dedup();
        assert_eq!(ips.len(), all);
        assert!(global_pools(0, 0).is_empty());
    }

    #[test]
    fn a_pair_names_both_pools_and_the_v6_pool_holds_the_partners() {
        let node = NodePlan::new(1, 2).unwrap();
        let pools = node.pools();
        let names: Vec<_> = pools
            .iter()
            .map(|pool| pool["metadata"]["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["node-1-pool", "node-1-pair-v4", "node-1-pair-v6"]);
        assert_eq!(
            pools[1]["metadata"]["annotations"][names::PAIR_POOL],
            "node-1-pair-v6"
        );
        assert_eq!(pools[2]["spec"]["ips"], json!(["fd91::78", "fd91::79"]));
        let nodes = std::slice::from_ref(&node);
        let topology = topology(nodes, bindings(nodes), 48);
        assert_eq!(topology["bindings"][2]["ipv6"], "fd91::78");
        assert_eq!(topology["bindings"][2]["pool"], "node-1-pair-v4");
    }
}
