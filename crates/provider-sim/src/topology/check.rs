//! Whether the parts of a topology fit together: bindings as the fabric needs them, pools as the
//! provider does. Pure.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;

use super::{PoolSpec, Topology};
use crate::fabric::table::{Table, TableError};
use crate::ranges;

/// The first contradiction of a topology.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnfitError {
    /// Of parents, subnets and bindings.
    #[error(transparent)]
    Table(#[from] TableError),
    /// Two pools have one name.
    #[error("pool {0} is listed twice")]
    PoolTwice(String),
    /// A pool has no address at all.
    #[error("pool {0} has no ips")]
    NoAddresses(String),
    /// An item of a pool.
    #[error("pool {pool}: {item:?} is neither an address nor a range of subnet {subnet}")]
    Range {
        /// The pool.
        pool: String,
        /// As written.
        item: String,
        /// What it has to lie in.
        subnet: IpNet,
    },
    /// A prewarm pool of nobody.
    #[error("pool {pool}: no parent NIC is of node {node}")]
    Node {
        /// The pool.
        pool: String,
        /// As written.
        node: String,
    },
    /// A pair that is none.
    #[error("pool {pool}: its pair {pair} is not a pool of the other family")]
    Pair {
        /// The pool.
        pool: String,
        /// As written.
        pair: String,
    },
    /// A sub-ENI made for a pool that is not there.
    #[error("sub-ENI {mac}: there is no pool {pool}")]
    BindingPool {
        /// The sub-ENI.
        mac: spiderpool_api::value::Mac,
        /// As written.
        pool: String,
    },
}

impl Topology {
    /// Whether its parts fit together.
    ///
    /// # Errors
    /// [`UnfitError`] for the first contradiction.
    pub fn check(&self) -> Result<(), UnfitError> {
        Table::build(self, &self.bindings, BTreeSet::new())?;
        let mut pools = BTreeMap::new();
        for pool in &self.pools {
            if pools.insert(pool.name.as_str(), pool).is_some() {
                return Err(UnfitError::PoolTwice(pool.name.clone()));
            }
        }
        for pool in &self.pools {
            self.check_pool(pool, &pools)?;
        }
        self.check_pools_of_bindings(&pools)
    }

    fn check_pool(
        &self,
        pool: &PoolSpec,
        pools: &BTreeMap<&str, &PoolSpec>,
    ) -> Result<(), UnfitError> {
        if pool.ips.is_empty() {
            return Err(UnfitError::NoAddresses(pool.name.clone()));
        }
        let lies_in = |item: &str| {
            ranges::ends(item)
                .is_some_and(|(from, to)| pool.subnet.contains(&from) && pool.subnet.contains(&to))
        };
        if let Some(item) = pool.ips.iter().find(|item| !lies_in(item)) {
            return Err(UnfitError::Range {
                pool: pool.name.clone(),
                item: item.clone(),
                subnet: pool.subnet,
            });
        }
        let known = |node: &str| self.parents.iter().any(|parent| parent.node == node);
        if let Some(node) = pool.node.as_ref().filter(|node| !known(node)) {
            return Err(UnfitError::Node {
                pool: pool.name.clone(),
                node: node.clone(),
            });
        }
        let is_v4 = |net: IpNet| matches!(net, IpNet::V4(_));
        let fits = |pair: &str| {
            let other = pools.get(pair);
            other.is_some_and(|other| is_v4(other.subnet) != is_v4(pool.subnet))
        };
        match pool.pair.as_ref().filter(|pair| !fits(pair)) {
            Some(pair) => Err(UnfitError::Pair {
                pool: pool.name.clone(),
                pair: pair.clone(),
            }),
            None => Ok(()),
        }
    }

    /// Only of a file that lists pools: else they are in an API.
    fn check_pools_of_bindings(&self, pools: &BTreeMap<&str, &PoolSpec>) -> Result<(), UnfitError> {
        let lost = self.bindings.iter().find_map(|binding| {
            let pool = binding.pool.as_ref()?;
            let lost = !pools.is_empty() && !pools.contains_key(pool.as_str());
            lost.then(|| UnfitError::BindingPool {
                mac: binding.mac,
                pool: pool.clone(),
            })
        });
        lost.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
parents: [{node: n1, mac: "fa:16:3e:01:00:01", ifname: p1}]
subnets: [{ipv4: 10.72.0.0/24, ipv6: "fd72::/64", gatewayIpv4: 10.72.0.1, gatewayMac: "fa:16:3e:ff:ff:fe"}]
gateway: {ifname: gw0}
pools:
  - {name: p4, subnet: 10.72.0.0/24, ips: [10.72.0.20-10.72.0.24], pair: p6}
  - {name: p6, subnet: "fd72::/64", ips: ["fd72::20"], pair: p4}
  - {name: w, subnet: 10.72.0.0/24, ips: [10.72.0.30], node: n1}
bindings:
  - {parent: "fa:16:3e:01:00:01", vlan: 100, mac: "fa:16:3e:00:00:0a", ipv4: 10.72.0.30, pool: w}
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
            ("{name: w,", "{name: p4,", "pool p4 is listed twice"),
            ("ips: [10.72.0.30]", "ips: []", "pool w has no ips"),
            ("[10.72.0.30]", "[10.72.0.30/32]", "pool w: \"10.72.0.30/32\" is neither an address nor a range of subnet 10.72.0.0/24"),
            ("[10.72.0.30]", "[10.73.0.30]", "pool w: \"10.73.0.30\" is neither an address nor a range of subnet 10.72.0.0/24"),
            ("20-10.72.0.24", "24-10.72.0.20", "pool p4: \"10.72.0.24-10.72.0.20\" is neither an address nor a range of subnet 10.72.0.0/24"),
            ("node: n1}", "node: n2}", "pool w: no parent NIC is of node n2"),
            ("pair: p6", "pair: w", "pool p4: its pair w is not a pool of the other family"),
            ("pair: p6", "pair: p7", "pool p4: its pair p7 is not a pool of the other family"),
            ("pool: w}", "pool: v}", "sub-ENI fa:16:3e:00:00:0a: there is no pool v"),
            ("ipv4: 10.72.0.30,", "ipv4: 10.72.0.1,", "sub-ENI fa:16:3e:00:00:0a: address 10.72.0.1 is bound twice or a gateway's"),
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
