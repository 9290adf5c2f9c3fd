//! Whether the parts of a topology file fit together: what does not would be found by the provider
//! and told as its fault. Pure.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use spiderpool_api::value::Mac;
use spiderpool_ipam::pool::{Mode, Pool};
use spiderpool_ipam::range::IpRange;
use spiderpool_ipam::range_set::RangeSet;

use super::Parent;

/// The first contradiction. Names both sides.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UnfitError {
    /// Not a pool at all; the reader's words, which name it.
    #[error("{0}")]
    Pool(String),
    /// Nobody could name it.
    #[error("{0} has no name")]
    NoName(&'static str),
    /// No MAC of a NIC.
    #[error("node {node}: no NIC has the MAC {mac}")]
    Group {
        /// Whose.
        node: String,
        /// As written.
        mac: Mac,
    },
    /// A NIC is in two machines.
    #[error("nodes {first} and {second} have the same parent NIC {mac}")]
    OneNic {
        /// The one.
        first: String,
        /// The other.
        second: String,
        /// As written.
        mac: Mac,
    },
    /// `--node` names a node that is not in the file.
    #[error("it has no parent NIC of node {0}: write one, or name it with --node {0}=MAC")]
    NoParent(String),
    /// Two pools have one name.
    #[error("pool {0} is listed twice")]
    Twice(String),
    /// Nothing can be tested with it.
    #[error("pool {0} has no ips")]
    Empty(String),
    /// Addresses of another network.
    #[error("pool {pool}: {range} is not in its subnet {subnet}")]
    Outside {
        /// The pool.
        pool: String,
        /// The first that is not.
        range: IpRange,
        /// As written.
        subnet: IpNet,
    },
    /// Written with an address of a machine in it; admission refuses it of a pool.
    #[error("pool {pool}: subnet {subnet} is not in canonical form: write {}", subnet.trunc())]
    Canonical {
        /// The pool.
        pool: String,
        /// As written.
        subnet: IpNet,
    },
    /// Subnets are the same or apart.
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
    /// An address is of two pools.
    #[error("pools {first} and {second} both have {address}")]
    Shared {
        /// The one.
        first: String,
        /// The other.
        second: String,
        /// The lowest that both have.
        address: IpAddr,
    },
    /// A prewarm pool of nobody.
    #[error("pool {pool}: its node {node:?} has no parent NIC")]
    Node {
        /// The pool.
        pool: String,
        /// As written.
        node: String,
    },
    /// The pair is not there.
    #[error("pool {pool}: there is no pool {pair} to be its pair")]
    NoPair {
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
    /// A pair has one pool of each family.
    #[error("pools {first} and {second} are a pair, and both are {family}")]
    OneFamily {
        /// The one.
        first: String,
        /// The other.
        second: String,
        /// Of both.
        family: spiderpool_ipam::range::Family,
    },
    /// A pair's sub-ENIs are in one place.
    #[error("pools {first} and {second} are a pair, and not of the same node")]
    TwoPlaces {
        /// The one.
        first: String,
        /// The other.
        second: String,
    },
}

type Fit = Result<(), UnfitError>;

pub(super) fn parents(parents: &[Parent]) -> Fit {
    let mut known: BTreeMap<Mac, &str> = BTreeMap::new();
    for Parent { node, mac } in parents {
        if node.is_empty() {
            return Err(UnfitError::NoName("a parent's node"));
        }
        if !mac.is_unicast() {
            let node = node.clone();
            return Err(UnfitError::Group { node, mac: *mac });
        }
        if let Some(first) = known.insert(*mac, node) {
            return Err(UnfitError::OneNic {
                first: first.to_owned(),
                second: node.clone(),
                mac: *mac,
            });
        }
    }
    Ok(())
}

pub(super) fn pools(pools: &[Arc<Pool>]) -> Fit {
    let mut known: BTreeMap<&str, &Pool> = BTreeMap::new();
    for pool in pools {
        if pool.name.is_empty() {
            return Err(UnfitError::NoName("a pool"));
        }
        if known.insert(&pool.name, pool).is_some() {
            return Err(UnfitError::Twice(pool.name.clone()));
        }
        addresses(pool)?;
    }
    for pool in pools {
        if let Some(pair) = &pool.pair {
            paired(pool, pair, &known)?;
        }
    }
    for (at, first) in pools.iter().enumerate() {
        for second in pools.iter().skip(at + 1) {
            apart(first, second)?;
        }
    }
    Ok(())
}

fn apart(first: &Pool, second: &Pool) -> Fit {
    let names = || (first.name.clone(), second.name.clone());
    let (one, other) = (first.subnet, second.subnet);
    if one != other && (one.contains(&other) || other.contains(&one)) {
        let (first, second) = names();
        return Err(UnfitError::Subnets {
            first,
            second,
            one,
            other,
        });
    }
    match first.usable.intersect(&second.usable).first() {
        None => Ok(()),
        Some(address) => {
            let (first, second) = names();
            Err(UnfitError::Shared {
                first,
                second,
                address,
            })
        }
    }
}

fn addresses(pool: &Pool) -> Fit {
    if pool.subnet.trunc() != pool.subnet {
        let (pool, subnet) = (pool.name.clone(), pool.subnet);
        return Err(UnfitError::Canonical { pool, subnet });
    }
    if pool.usable.is_empty() {
        return Err(UnfitError::Empty(pool.name.clone()));
    }
    let whole: RangeSet = [IpRange::of_net(pool.subnet)].into_iter().collect();
    let outside = pool.usable.subtract(&whole);
    match outside.ranges().first() {
        None => Ok(()),
        Some(range) => Err(UnfitError::Outside {
            pool: pool.name.clone(),
            range: *range,
            subnet: pool.subnet,
        }),
    }
}

fn paired(pool: &Pool, pair: &str, known: &BTreeMap<&str, &Pool>) -> Fit {
    let (name, pair) = (pool.name.clone(), pair.to_owned());
    let Some(other) = known.get(pair.as_str()) else {
        return Err(UnfitError::NoPair { pool: name, pair });
    };
    if other.pair.as_ref() != Some(&name) {
        let (pool, named) = (name, other.pair.clone());
        return Err(UnfitError::OneSided { pool, pair, named });
    }
    if other.family == pool.family {
        return Err(UnfitError::OneFamily {
            first: name,
            second: pair,
            family: pool.family,
        });
    }
    if other.mode != pool.mode {
        return Err(UnfitError::TwoPlaces {
            first: name,
            second: pair,
        });
    }
    Ok(())
}

/// Whether each prewarm pool is of a node that is known.
pub(super) fn nodes_of_pools(pools: &[Arc<Pool>], is_known: impl Fn(&str) -> bool) -> Fit {
    let lost = pools.iter().find_map(|pool| match &pool.mode {
        Mode::Prewarm { node } if !is_known(node) => Some(UnfitError::Node {
            pool: pool.name.clone(),
            node: node.clone(),
        }),
        _ => None,
    });
    lost.map_or(Ok(()), Err)
}
