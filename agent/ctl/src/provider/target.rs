//! What a provider is tested with: one pool of each kind, free addresses of it, nodes with their
//! parent NICs. Chosen from pools as agents see them; pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use ipnet::IpNet;
use serde_json::{Value, json};
use spiderpool_api::ip_meta::{Entry, EntryState, Metadata};
use spiderpool_api::value::Mac;
use spiderpool_ipam::pool::{Mode, Pool};
use spiderpool_ipam::range::{Family, IpRange};
use spiderpool_ipam::range_set::RangeSet;

/// Addresses of a global pool that are used at most.
const GLOBAL: usize = 6;
/// Pairs that are used at most.
const PAIRS: usize = 2;
/// Addresses looked at to find those.
const LOOKED_AT: usize = 512;

/// A node and the NIC its sub-ENIs hang on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) parent: Mac,
}

/// A single-stack global pool.
#[derive(Debug, Clone)]
pub(crate) struct Global {
    pub(crate) pool: String,
    pub(crate) subnet: IpNet,
    pub(crate) nodes: Vec<Node>,
    pub(crate) free: Vec<Ipv4Addr>,
    /// An address of the subnet that no pool has.
    pub(crate) outside: Option<Ipv4Addr>,
}

/// A pair of global pools.
#[derive(Debug, Clone)]
pub(crate) struct Pair {
    pub(crate) v4_pool: String,
    pub(crate) v6_pool: String,
    pub(crate) subnet: IpNet,
    pub(crate) nodes: Vec<Node>,
    pub(crate) free: Vec<(Ipv4Addr, Ipv6Addr)>,
}

/// A prewarm pool; of a pair its IPv4 side.
#[derive(Debug, Clone)]
pub(crate) struct Prewarm {
    pub(crate) pool: String,
    pub(crate) subnet: IpNet,
    pub(crate) node: String,
    pub(crate) parent: Option<Mac>,
    /// Ready and free.
    pub(crate) free: Option<Ipv4Addr>,
    /// The sibling pool and the address's partner, of a pair.
    pub(crate) partner: Option<(String, Ipv6Addr)>,
}

/// All of it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Target {
    pub(crate) global: Option<Global>,
    pub(crate) pair: Option<Pair>,
    pub(crate) prewarm: Option<Prewarm>,
}

/// The pools a target is chosen from.
pub(crate) struct Choice<'a> {
    /// Those that may be used, in order of preference.
    pub(crate) named: &'a [Arc<Pool>],
    /// All there are: an address outside of the pools is outside of all of them.
    pub(crate) all: &'a [Arc<Pool>],
    /// Never touched: reservations.
    pub(crate) reserved: RangeSet,
    /// The nodes for a global pool.
    pub(crate) nodes: &'a dyn Fn(&Pool) -> Vec<Node>,
}

impl Target {
    /// The first pool of each kind.
    pub(crate) fn choose(choice: &Choice<'_>) -> Self {
        let mut target = Self::default();
        let named = choice.named.iter();
        for pool in named.filter(|pool| pool.family == Family::V4) {
            let sibling = choice.sibling(pool);
            match (&pool.mode, sibling) {
                (Mode::Global, None) if target.global.is_none() => {
                    target.global = Some(choice.global(pool));
                }
                (Mode::Global, Some(sibling)) if target.pair.is_none() => {
                    target.pair = Some(choice.pair(pool, sibling));
                }
                (Mode::Prewarm { node }, sibling) if target.prewarm.is_none() => {
                    target.prewarm = Some(choice.prewarm(pool, node, sibling));
                }
                _ => {}
            }
        }
        target
    }

    /// Pool and subnet that release an address of a global pool.
    pub(crate) fn home(&self, ip: IpAddr) -> Option<(String, Option<IpNet>)> {
        let single = self.global.iter().filter(|global| {
            let mut free = global.free.iter();
            free.any(|one| IpAddr::V4(*one) == ip)
        });
        let single = single.map(|global| (global.pool.clone(), Some(global.subnet)));
        let pair = self.pair.iter().filter(|pair| {
            let mut free = pair.free.iter();
            free.any(|(v4, v6)| IpAddr::V4(*v4) == ip || IpAddr::V6(*v6) == ip)
        });
        let mut all = single.chain(pair.map(|pair| (pair.v4_pool.clone(), Some(pair.subnet))));
        all.next()
    }

    /// Pools and addresses that are touched.
    pub(crate) fn addresses(&self) -> Vec<(String, IpAddr)> {
        let mut all = Vec::new();
        if let Some(global) = &self.global {
            let free = global.free.iter();
            all.extend(free.map(|ip| (global.pool.clone(), IpAddr::V4(*ip))));
        }
        for (v4, v6) in self.pair.iter().flat_map(|pair| &pair.free) {
            let pair = self.pair.as_ref();
            all.extend(pair.map(|pair| (pair.v4_pool.clone(), IpAddr::V4(*v4))));
            all.extend(pair.map(|pair| (pair.v6_pool.clone(), IpAddr::V6(*v6))));
        }
        if let Some(prewarm) = &self.prewarm {
            let free = prewarm.free.iter();
            all.extend(free.map(|ip| (prewarm.pool.clone(), IpAddr::V4(*ip))));
            let partner = prewarm.partner.iter();
            all.extend(partner.map(|(pool, ip)| (pool.clone(), IpAddr::V6(*ip))));
        }
        all
    }
}

impl Global {
    /// The item for one address on a node.
    pub(crate) fn item(&self, ip: Ipv4Addr, node: &Node) -> Value {
        json!({ "parentNicMac": node.parent, "subnet": self.subnet, "ipv4Address": ip,
            "ipv4PoolName": self.pool })
    }
}

impl Pair {
    /// The item for one pair on a node.
    pub(crate) fn item(&self, (v4, v6): (Ipv4Addr, Ipv6Addr), node: &Node) -> Value {
        json!({ "parentNicMac": node.parent, "subnet": self.subnet, "ipv4Address": v4,
            "ipv6Address": v6, "ipv4PoolName": self.v4_pool, "ipv6PoolName": self.v6_pool })
    }
}

impl Choice<'_> {
    fn sibling(&self, pool: &Pool) -> Option<&Arc<Pool>> {
        let name = pool.pair.as_ref()?;
        let mut others = self.all.iter();
        others.find(|other| other.name == *name && other.pair.as_ref() == Some(&pool.name))
    }

    /// Neither claimed nor reserved nor the gateway's.
    fn free(&self, pool: &Pool) -> RangeSet {
        let gateway: RangeSet = pool.gateway.map(IpRange::single).into_iter().collect();
        let never = self.reserved.union(&gateway).union(&pool.taken());
        pool.usable.subtract(&never)
    }

    fn global(&self, pool: &Pool) -> Global {
        let metadata = metadata(pool);
        let unknown = |ip: &IpAddr| metadata.is_none_or(|known| !known.entries.contains_key(ip));
        // agents take the lowest first; what the provider has no sub-ENI for disturbs nobody
        let (fresh, cached): (Vec<_>, Vec<_>) =
            highest(&self.free(pool)).into_iter().partition(unknown);
        let stays = |ip: &IpAddr| metadata.is_none_or(|known| !is_leaving(known.entries.get(ip)));
        let free = fresh.into_iter().chain(cached.into_iter().filter(stays));
        Global {
            pool: pool.name.clone(),
            subnet: pool.subnet,
            nodes: (self.nodes)(pool),
            free: free.filter_map(v4).take(GLOBAL).collect(),
            outside: self.outside(pool),
        }
    }

    fn pair(&self, pool: &Pool, sibling: &Pool) -> Pair {
        let metadata = metadata(pool);
        let entry = |ip: &IpAddr| metadata.and_then(|known| known.entries.get(ip));
        let partners = self.free(sibling);
        let locked = metadata
            .into_iter()
            .flat_map(|known| known.entries.values());
        let locked = locked.filter_map(|entry| entry.ipv6.map(IpAddr::V6));
        let unlocked = partners.subtract(&locked.map(IpRange::single).collect());
        let candidates = highest(&self.free(pool));
        let (fresh, cached): (Vec<_>, Vec<_>) =
            candidates.into_iter().partition(|ip| entry(ip).is_none());
        let fresh = fresh.into_iter().filter_map(v4);
        let fresh = fresh.zip(highest(&unlocked).into_iter().filter_map(v6));
        let kept = cached.into_iter().filter_map(|ip| {
            let v6 = entry(&ip).filter(|entry| !is_leaving(Some(entry)))?.ipv6?;
            Some((v4(ip)?, v6)).filter(|_| partners.contains(v6.into()))
        });
        let free = fresh.chain(kept).take(PAIRS).collect();
        Pair {
            v4_pool: pool.name.clone(),
            v6_pool: sibling.name.clone(),
            subnet: pool.subnet,
            nodes: (self.nodes)(pool),
            free,
        }
    }

    fn prewarm(&self, pool: &Pool, node: &str, sibling: Option<&Arc<Pool>>) -> Prewarm {
        let metadata = metadata(pool);
        let ready = |ip: &IpAddr| match metadata.map(|known| known.entries.get(ip)) {
            None => pool.metadata.is_none(),
            Some(entry) => entry.is_some_and(is_attached),
        };
        let free = highest(&self.free(pool)).into_iter().find(ready);
        let entry = free.and_then(|ip| metadata?.entries.get(&ip));
        let partner = entry.and_then(|entry| Some((sibling?.name.clone(), entry.ipv6?)));
        Prewarm {
            pool: pool.name.clone(),
            subnet: pool.subnet,
            node: node.to_owned(),
            parent: pool.parent_mac,
            free: free.and_then(v4),
            partner,
        }
    }

    /// Of the subnet, in no pool, and not at its ends.
    fn outside(&self, pool: &Pool) -> Option<Ipv4Addr> {
        let ends = [pool.subnet.network(), pool.subnet.broadcast()];
        let mut taken: RangeSet = ends.into_iter().map(IpRange::single).collect();
        taken = taken.union(&pool.gateway.map(IpRange::single).into_iter().collect());
        for other in self.all {
            taken = taken.union(&other.usable).union(&other.taken());
        }
        let whole: RangeSet = [IpRange::of_net(pool.subnet)].into_iter().collect();
        let left = whole.subtract(&taken).subtract(&self.reserved);
        left.ranges().last().map(|range| range.last()).and_then(v4)
    }
}

/// What the provider has published, if it can be used.
fn metadata(pool: &Pool) -> Option<&Metadata> {
    let ready = pool.metadata.as_ref()?.as_ref().ok()?;
    Some(ready.as_ref())
}

const fn is_attached(entry: &Entry) -> bool {
    matches!(entry.state, EntryState::Attached { .. })
}

fn is_leaving(entry: Option<&Entry>) -> bool {
    entry.is_some_and(|entry| matches!(entry.state, EntryState::Reclaiming { .. }))
}

/// The highest addresses, descending.
fn highest(set: &RangeSet) -> Vec<IpAddr> {
    let mut left = set.clone();
    let mut found = Vec::new();
    while let (Some(range), true) = (left.ranges().last(), found.len() < LOOKED_AT) {
        let last = range.last();
        found.push(last);
        left = left.subtract(&[IpRange::single(last)].into_iter().collect());
    }
    found
}

const fn v4(ip: IpAddr) -> Option<Ipv4Addr> {
    match ip {
        IpAddr::V4(ip) => Some(ip),
        IpAddr::V6(_) => None,
    }
}

const fn v6(ip: IpAddr) -> Option<Ipv6Addr> {
    match ip {
        IpAddr::V6(ip) => Some(ip),
        IpAddr::V4(_) => None,
    }
}
