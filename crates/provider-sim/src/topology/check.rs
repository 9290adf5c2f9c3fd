//! Whether the parts of a topology fit together: parents and subnets with each other, bindings as the
//! fabric needs them, pools as the provider does. Pure.

mod pools;

use std::collections::BTreeSet;

use ipnet::IpNet;

use super::Topology;
use crate::fabric::table::{Table, TableError};

pub use pools::PoolsError;

/// The first contradiction of a topology. Names both sides.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnfitError {
    /// Nobody could name it.
    #[error("the node of parent NIC {0} has no name")]
    NoNode(spiderpool_api::value::Mac),
    /// Written with an address of a machine in it.
    #[error("subnet {0} is not in canonical form: write {canonical}", canonical = .0.trunc())]
    Canonical(IpNet),
    /// An address would be of two subnets.
    #[error("subnets {first} and {second} overlap")]
    Subnets {
        /// The one.
        first: IpNet,
        /// The other.
        second: IpNet,
    },
    /// Of parents, subnets and bindings.
    #[error(transparent)]
    Table(#[from] TableError),
    /// More than fits.
    #[error("parent NIC {parent} has {bound} bindings, its subEniLimit is {limit}")]
    Limit {
        /// The parent.
        parent: spiderpool_api::value::Mac,
        /// Of the file.
        bound: usize,
        /// Of the parent.
        limit: usize,
    },
    /// Of pools.
    #[error(transparent)]
    Pools(#[from] PoolsError),
}

impl Topology {
    /// Whether its parts fit together.
    ///
    /// # Errors
    /// [`UnfitError`] for the first contradiction.
    pub fn check(&self) -> Result<(), UnfitError> {
        if let Some(parent) = self.parents.iter().find(|parent| parent.node.is_empty()) {
            return Err(UnfitError::NoNode(parent.mac));
        }
        self.check_subnets()?;
        Table::build(self, &self.bindings, BTreeSet::new())?;
        self.check_limits()?;
        pools::check(self)?;
        Ok(())
    }

    fn check_subnets(&self) -> Result<(), UnfitError> {
        let of_pools = self.pools.iter().map(|pool| pool.subnet);
        let mut all = self.nets().chain(of_pools);
        if let Some(odd) = all.find(|net| net.trunc() != *net) {
            return Err(UnfitError::Canonical(odd));
        }
        let mut known: Vec<IpNet> = Vec::new();
        for second in self.nets() {
            let overlaps = |first: &&IpNet| first.contains(&second) || second.contains(*first);
            if let Some(first) = known.iter().find(overlaps) {
                let first = *first;
                return Err(UnfitError::Subnets { first, second });
            }
            known.push(second);
        }
        Ok(())
    }

    /// The ranges of its subnets.
    fn nets(&self) -> impl Iterator<Item = IpNet> {
        self.subnets.iter().flat_map(|subnet| {
            let v4 = subnet.ipv4.map(IpNet::V4);
            v4.into_iter().chain(subnet.ipv6.map(IpNet::V6))
        })
    }

    /// A binding takes its place whatever its state.
    fn check_limits(&self) -> Result<(), UnfitError> {
        for parent in &self.parents {
            let bindings = self.bindings.iter();
            let bound = bindings.filter(|binding| binding.parent == parent.mac);
            let (bound, limit) = (bound.count(), parent.sub_eni_limit);
            if bound > limit {
                let parent = parent.mac;
                return Err(UnfitError::Limit {
                    parent,
                    bound,
                    limit,
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
parents: [{node: n1, mac: "fa:16:3e:01:00:01", ifname: p1}, {node: n2, mac: "fa:16:3e:01:00:02", ifname: p2}]
subnets: [{ipv4: 10.72.0.0/24, ipv6: "fd72::/64", gatewayIpv4: 10.72.0.1, gatewayMac: "fa:16:3e:ff:ff:fe"}]
gateway: {ifname: gw0}
pools:
  - {name: p4, subnet: 10.72.0.0/24, ips: [10.72.0.20-10.72.0.24], pair: p6}
  - {name: p6, subnet: "fd72::/64", ips: ["fd72::20"], pair: p4}
  - {name: w, subnet: 10.72.0.0/24, ips: [10.72.0.30], node: n1}
bindings:
  - {parent: "fa:16:3e:01:00:01", vlan: 100, mac: "fa:16:3e:00:00:0a", ipv4: 10.72.0.30, pool: w}
  - {parent: "fa:16:3e:01:00:02", vlan: 101, mac: "fa:16:3e:00:00:0b", ipv4: 10.72.0.20, ipv6: "fd72::20", pool: p4}
  - {parent: "fa:16:3e:01:00:02", vlan: 102, mac: "fa:16:3e:00:00:0c", ipv4: 10.72.0.99}
"#;

    fn judged(text: &str) -> Result<(), String> {
        let topology: Topology = serde_saphyr::from_str(text).unwrap();
        topology.check().map_err(|error| error.to_string())
    }

    #[test]
    #[rustfmt::skip] // a case a line
    fn each_contradiction_is_named() {
        assert_eq!(judged(GOOD), Ok(()));
        for (from, to, text) in [
            ("node: n1, mac", "node: \"\", mac", "the node of parent NIC fa:16:3e:01:00:01 has no name"),
            ("gatewayMac: \"fa:16:3e:ff:ff:fe\"}]", "gatewayMac: \"fa:16:3e:ff:ff:fe\"}, {ipv4: 10.72.0.128/25, gatewayMac: \"fa:16:3e:ff:ff:fe\"}]", "subnets 10.72.0.0/24 and 10.72.0.128/25 overlap"),
            ("ifname: p1}", "ifname: p1, subEniLimit: 0}", "parent NIC fa:16:3e:01:00:01 has 1 bindings, its subEniLimit is 0"),
            ("{name: w,", "{name: \"\",", "a pool has no name"),
            ("{name: w,", "{name: p4,", "pool p4 is listed twice"),
            ("10.72.0.0/24, ips: [10.72.0.30]", "10.0.0.0/8, ips: [10.72.0.30]", "pool w: its subnet 10.0.0.0/8 is in none of the subnets"),
            ("10.72.0.0/24, ips: [10.72.0.30]", "10.73.0.0/24, ips: [10.73.0.30]", "pool w: its subnet 10.73.0.0/24 is in none of the subnets"),
            ("10.72.0.0/24, ips: [10.72.0.30]", "10.72.0.0/26, ips: [10.72.0.30]", "pools p4 and w have the subnets 10.72.0.0/24 and 10.72.0.0/26, which overlap"),
            ("ipv4: 10.72.0.0/24,", "ipv4: 10.72.0.9/24,", "subnet 10.72.0.9/24 is not in canonical form: write 10.72.0.0/24"),
            ("10.72.0.0/24, ips: [10.72.0.30]", "10.72.0.9/24, ips: [10.72.0.30]", "subnet 10.72.0.9/24 is not in canonical form: write 10.72.0.0/24"),
            ("[10.72.0.30]", "[10.72.0.1-10.72.0.3]", "pool w: 10.72.0.1 is its subnet's gateway"),
            ("[10.72.0.30]", "[10.72.0.30, 10.72.0.23-10.72.0.26]", "pools p4 and w both have 10.72.0.23"),
            (", pair: p4", "", "pool p4 names p6 as its pair, and p6 names none"),
            ("pair: p4", "pair: w", "pool p4 names p6 as its pair, and p6 names w"),
            ("pair: p6", "pair: p6, node: n1", "pools p4 and p6 are a pair, and not of the same node"),
            ("ipv4: 10.72.0.30,", "ipv4: 10.72.0.31,", "sub-ENI fa:16:3e:00:00:0a: 10.72.0.31 is not an address of its pool w"),
            ("ipv4: 10.72.0.30,", "ipv4: 10.72.0.30, ipv6: \"fd72::9\",", "sub-ENI fa:16:3e:00:00:0a: fd72::9 is not an address of its pool w"),
            ("bindings:\n  - {parent: \"fa:16:3e:01:00:01\"", "bindings:\n  - {parent: \"fa:16:3e:01:00:02\"", "sub-ENI fa:16:3e:00:00:0a is on node n2, its pool w is of node n1"),
            ("ips: [10.72.0.30]", "ips: []", "pool w has no ips"),
            ("[10.72.0.30]", "[10.72.0.30/32]", "pool w: \"10.72.0.30/32\" is neither an address nor a range of subnet 10.72.0.0/24"),
            ("[10.72.0.30]", "[10.73.0.30]", "pool w: \"10.73.0.30\" is neither an address nor a range of subnet 10.72.0.0/24"),
            ("20-10.72.0.24", "24-10.72.0.20", "pool p4: \"10.72.0.24-10.72.0.20\" is neither an address nor a range of subnet 10.72.0.0/24"),
            ("node: n1}", "node: n3}", "pool w: no parent NIC is of node \"n3\""),
            ("pair: p6", "pair: w", "pool p4: its pair \"w\" is not a pool of the other family"),
            ("pair: p6", "pair: p7", "pool p4: its pair \"p7\" is not a pool of the other family"),
            ("pool: w}", "pool: v}", "sub-ENI fa:16:3e:00:00:0a: there is no pool v"),
            ("ipv4: 10.72.0.30,", "ipv4: 10.72.0.1,", "sub-ENI fa:16:3e:00:00:0a: address 10.72.0.1 is a gateway's"),
            ("gatewayIpv4: 10.72.0.1", "gatewayIpv4: 10.9.0.1", "gateway 10.9.0.1 is not in the range of its subnet"),
        ] {
            assert!(GOOD.contains(from), "{from}");
            assert_eq!(judged(&GOOD.replacen(from, to, 1)), Err(text.to_owned()));
        }
        // without pools of its own, a binding's pool is one of the API's
        let (head, rest) = GOOD.split_once("pools:\n").unwrap();
        let (_, bindings) = rest.split_once("bindings:").unwrap();
        assert_eq!(judged(&format!("{head}bindings:{bindings}")), Ok(()));
    }
}
