//! Pools with subnets, parents, each other and the bindings made for them. Pure.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use spiderpool_api::value::Mac;

use crate::ranges::{self, Ranges};
use crate::topology::{Binding, PoolSpec, Topology};

/// The first contradiction of the pools. Names both sides.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PoolsError {
    /// Nobody could name it.
    #[error("a pool has no name")]
    NoName,
    /// Two pools have one name.
    #[error("pool {0} is listed twice")]
    Twice(String),
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
    /// The cloud has no such network.
    #[error("pool {pool}: its subnet {subnet} is in none of the subnets")]
    Subnet {
        /// The pool.
        pool: String,
        /// As written.
        subnet: IpNet,
    },
    /// Subnets of pools are the same or apart.
    #[error("pools {first} and {second} have the subnets {one} and {other}, which overlap")]
    Subnets {
        /// The one.
        first: String,
        /// The other.
        second: String,
        /// Of the first.
        one: IpNet,
        /// Of the second.
        other: IpNet,
    },
    /// A sub-ENI cannot have it.
    #[error("pool {pool}: {ip} is its subnet's gateway")]
    Gateway {
        /// The pool.
        pool: String,
        /// The address.
        ip: IpAddr,
    },
    /// An address is of two pools.
    #[error("pools {first} and {second} both have {ip}")]
    Shared {
        /// The one.
        first: String,
        /// The other.
        second: String,
        /// The lowest that both have.
        ip: IpAddr,
    },
    /// A prewarm pool of nobody.
    #[error("pool {pool}: no parent NIC is of node {node:?}")]
    Node {
        /// The pool.
        pool: String,
        /// As written.
        node: String,
    },
    /// A pair that is none.
    #[error("pool {pool}: its pair {pair:?} is not a pool of the other family")]
    Pair {
        /// The pool.
        pool: String,
        /// As written.
        pair: String,
    },
    /// The other pool says otherwise.
    #[error("pool {pool} names {pair} as its pair, and {pair} names {}", .named.as_deref().unwrap_or("none"))]
    OneSided {
        /// The pool.
        pool: String,
        /// As written.
        pair: String,
        /// What that one names.
        named: Option<String>,
    },
    /// A pair's sub-ENIs are in one place.
    #[error("pools {first} and {second} are a pair, and not of the same node")]
    TwoPlaces {
        /// The one.
        first: String,
        /// The other.
        second: String,
    },
    /// A sub-ENI made for a pool that is not there.
    #[error("sub-ENI {mac}: there is no pool {pool}")]
    BindingPool {
        /// The sub-ENI.
        mac: Mac,
        /// As written.
        pool: String,
    },
    /// A sub-ENI with an address of others.
    #[error("sub-ENI {mac}: {ip} is not an address of its pool {pool}")]
    BindingAddress {
        /// The sub-ENI.
        mac: Mac,
        /// As written.
        ip: IpAddr,
        /// As written.
        pool: String,
    },
    /// A sub-ENI of a prewarm pool elsewhere.
    #[error("sub-ENI {mac} is on node {on}, its pool {pool} is of node {node}")]
    BindingNode {
        /// The sub-ENI.
        mac: Mac,
        /// Of its parent NIC.
        on: String,
        /// As written.
        pool: String,
        /// Of the pool.
        node: String,
    },
}

type Fit = Result<(), PoolsError>;

struct Known<'a> {
    topology: &'a Topology,
    pools: BTreeMap<&'a str, (&'a PoolSpec, Ranges)>,
}

pub(super) fn check(topology: &Topology) -> Fit {
    let mut known = Known {
        topology,
        pools: BTreeMap::new(),
    };
    for pool in &topology.pools {
        if pool.name.is_empty() {
            return Err(PoolsError::NoName);
        }
        let ranges = Ranges::new(pool.ips.iter().map(String::as_str), []);
        if known.pools.insert(&pool.name, (pool, ranges)).is_some() {
            return Err(PoolsError::Twice(pool.name.clone()));
        }
    }
    for pool in &topology.pools {
        known.addresses(pool)?;
        known.place(pool)?;
        known.pair(pool)?;
    }
    known.apart()?;
    // else they are in an API
    if !topology.pools.is_empty() {
        topology
            .bindings
            .iter()
            .try_for_each(|one| known.binding(one))?;
    }
    Ok(())
}

impl Known<'_> {
    fn addresses(&self, pool: &PoolSpec) -> Fit {
        let name = || pool.name.clone();
        if pool.ips.is_empty() {
            return Err(PoolsError::NoAddresses(name()));
        }
        let lies_in = |item: &str| {
            ranges::ends(item)
                .is_some_and(|(from, to)| pool.subnet.contains(&from) && pool.subnet.contains(&to))
        };
        if let Some(item) = pool.ips.iter().find(|item| !lies_in(item)) {
            return Err(PoolsError::Range {
                pool: name(),
                item: item.clone(),
                subnet: pool.subnet,
            });
        }
        if !self.topology.nets().any(|net| net.contains(&pool.subnet)) {
            let (pool, subnet) = (name(), pool.subnet);
            return Err(PoolsError::Subnet { pool, subnet });
        }
        let own = self.pools.get(pool.name.as_str());
        let mut gateways = self.topology.subnets.iter().flat_map(|subnet| {
            let v4 = subnet.gateway_ipv4.map(IpAddr::V4);
            v4.into_iter().chain(subnet.gateway_ipv6.map(IpAddr::V6))
        });
        let taken = gateways.find(|ip| own.is_some_and(|(_, own)| own.contains(*ip)));
        taken.map_or(Ok(()), |ip| Err(PoolsError::Gateway { pool: name(), ip }))
    }

    fn place(&self, pool: &PoolSpec) -> Fit {
        let mut parents = self.topology.parents.iter();
        match &pool.node {
            Some(node) if !parents.any(|parent| parent.node == *node) => Err(PoolsError::Node {
                pool: pool.name.clone(),
                node: node.clone(),
            }),
            _ => Ok(()),
        }
    }

    fn pair(&self, pool: &PoolSpec) -> Fit {
        let Some(pair) = &pool.pair else {
            return Ok(());
        };
        let (name, pair) = (pool.name.clone(), pair.clone());
        let is_v4 = |net: IpNet| matches!(net, IpNet::V4(_));
        let other = self.pools.get(pair.as_str()).map(|(other, _)| *other);
        let other = other.filter(|other| is_v4(other.subnet) != is_v4(pool.subnet));
        let Some(other) = other else {
            return Err(PoolsError::Pair { pool: name, pair });
        };
        if other.pair.as_ref() != Some(&pool.name) {
            let (pool, named) = (name, other.pair.clone());
            return Err(PoolsError::OneSided { pool, pair, named });
        }
        if other.node != pool.node {
            let (first, second) = (name, pair);
            return Err(PoolsError::TwoPlaces { first, second });
        }
        Ok(())
    }

    fn apart(&self) -> Fit {
        let pools: Vec<_> = self.pools.values().collect();
        for (at, (first, ranges)) in pools.iter().enumerate() {
            for (second, others) in pools.iter().skip(at + 1) {
                let (one, other) = (first.subnet, second.subnet);
                if one != other && (one.contains(&other) || other.contains(&one)) {
                    return Err(PoolsError::Subnets {
                        first: first.name.clone(),
                        second: second.name.clone(),
                        one,
                        other,
                    });
                }
                if let Some(ip) = ranges.first_shared(others) {
                    let (first, second) = (first.name.clone(), second.name.clone());
                    return Err(PoolsError::Shared { first, second, ip });
                }
            }
        }
        Ok(())
    }

    /// Its addresses are of its pool and, of a pair, of that one's partner.
    fn binding(&self, binding: &Binding) -> Fit {
        let (mac, Some(name)) = (binding.mac, &binding.pool) else {
            return Ok(());
        };
        let lost = || PoolsError::BindingPool {
            mac,
            pool: name.clone(),
        };
        let (pool, own) = self.pools.get(name.as_str()).ok_or_else(lost)?;
        let pair = pool
            .pair
            .as_ref()
            .and_then(|pair| self.pools.get(pair.as_str()));
        let is_of_it =
            |ip: &IpAddr| own.contains(*ip) || pair.is_some_and(|(_, pair)| pair.contains(*ip));
        if let Some(ip) = binding.addresses().find(|ip| !is_of_it(ip)) {
            let pool = name.clone();
            return Err(PoolsError::BindingAddress { mac, ip, pool });
        }
        let mut parents = self.topology.parents.iter();
        let parent = parents.find(|parent| parent.mac == binding.parent);
        let on = parent
            .map(|parent| parent.node.as_str())
            .unwrap_or_default();
        match &pool.node {
            Some(node) if node != on => Err(PoolsError::BindingNode {
                mac,
                on: on.to_owned(),
                pool: name.clone(),
                node: node.clone(),
            }),
            _ => Ok(()),
        }
    }
}
