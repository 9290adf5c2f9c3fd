//! What the provider remembers: the pools it is told of and the sub-ENIs it made. Pure.
//!
//! It may be lost at any time and is rebuilt from the cloud's tags (P17). Publications are made
//! from it, so what the cloud did is visible only after the provider learned of it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::cloud::{Cloud, State, SubEni};
use crate::pool::Pool;

/// Pools and sub-ENIs.
#[derive(Debug, Default)]
pub struct Memory {
    /// By name.
    pub pools: BTreeMap<String, Pool>,
    /// By the address a sub-ENI is known by.
    sub_enis: BTreeMap<IpAddr, SubEni>,
    /// Generations of a prewarm pool (and its sibling) whose addresses were all tried.
    pub prewarmed: BTreeMap<String, (i64, Option<i64>)>,
    /// Prewarm pools that lack sub-ENIs for another reason than a new generation.
    pub lacking: BTreeSet<String>,
    /// Addresses whose entry is held back: their sub-ENI is about to go.
    pub withdrawn: BTreeSet<IpAddr>,
    /// Pools that lost their marker and still have the provider's finalizer.
    pub abandoned: BTreeSet<String>,
    /// Sub-ENIs of global pools that are chosen to be detached.
    pub chosen: BTreeMap<IpAddr, Chosen>,
    /// Since when nobody claims what is there, as far as is known.
    resting: BTreeMap<IpAddr, Rest>,
    /// The wall clock's time at zero.
    pub epoch: Timestamp,
    /// How often it was lost: what was begun before knows that it ended.
    pub life: u64,
}

/// A choice for reclaim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chosen {
    /// When it was made: `detachTime`.
    pub at: Duration,
    /// Announced as being detached: no longer to be allocated.
    pub leaving: bool,
}

/// A sub-ENI nobody claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rest {
    attached: bool,
    since: Duration,
}

impl Memory {
    /// Forgets everything but the time.
    pub fn lose(&mut self) {
        *self = Self {
            epoch: self.epoch,
            life: self.life + 1,
            ..Self::default()
        };
    }

    /// Forgets the sub-ENIs and reads them off the cloud.
    pub fn rebuild(&mut self, cloud: &Cloud) {
        self.sub_enis.clear();
        self.prewarmed.clear();
        self.withdrawn.clear();
        self.lacking.clear();
        self.chosen.clear();
        self.resting.clear();
        for sub_eni in cloud.sub_enis() {
            self.learn(sub_eni);
        }
    }

    /// Takes in the state of a sub-ENI.
    pub fn learn(&mut self, sub_eni: &SubEni) {
        if let Some(ip) = sub_eni.address() {
            self.sub_enis.insert(ip, sub_eni.clone());
        }
    }

    /// Drops a sub-ENI that is gone.
    pub fn forget(&mut self, ip: IpAddr) {
        self.sub_enis.remove(&ip);
        self.withdrawn.remove(&ip);
        self.chosen.remove(&ip);
        self.resting.remove(&ip);
    }

    /// The sub-ENI with an address of either family.
    #[must_use]
    pub fn find(&self, ip: IpAddr) -> Option<&SubEni> {
        let by_key = self.sub_enis.get(&ip);
        by_key.or_else(|| self.sub_enis.values().find(|sub_eni| sub_eni.has(ip)))
    }

    /// All sub-ENIs of a pool.
    pub fn of_pool<'a>(&'a self, pool: &'a str) -> impl Iterator<Item = &'a SubEni> {
        self.sub_enis
            .values()
            .filter(move |sub_eni| sub_eni.pool == pool)
    }

    /// All sub-ENIs.
    pub fn all(&self) -> impl Iterator<Item = &SubEni> {
        self.sub_enis.values()
    }

    /// Whether one of its addresses is claimed, as far as is known.
    #[must_use]
    pub fn is_claimed(&self, sub_eni: &SubEni) -> bool {
        let mut pools = self.pools.values();
        pools.any(|pool| sub_eni.addresses().any(|ip| pool.claims.contains_key(&ip)))
    }

    /// Takes note of who rests. A claim ends rest and choice: the sub-ENI is used again.
    pub fn note_rest(&mut self, now: Duration) {
        let pools = self.pools.values();
        let claimed: BTreeSet<IpAddr> = pools.flat_map(|p| p.claims.keys().copied()).collect();
        for (key, sub_eni) in &self.sub_enis {
            if sub_eni.addresses().any(|ip| claimed.contains(&ip)) {
                self.resting.remove(key);
                if self.chosen.get(key).is_some_and(|chosen| !chosen.leaving) {
                    self.chosen.remove(key);
                }
                continue;
            }
            let attached = sub_eni.state.attachment().is_some();
            let new = Rest {
                attached,
                since: now,
            };
            let rest = self.resting.entry(*key).or_insert(new);
            if rest.attached != attached {
                *rest = new;
            }
        }
    }

    /// Since when nobody claims a sub-ENI in the state it is in.
    #[must_use]
    pub fn resting_since(&self, key: IpAddr) -> Option<Duration> {
        self.resting.get(&key).map(|rest| rest.since)
    }

    /// Lowest address of a pair's IPv6 pool that no sub-ENI has and nobody claims; none of a pool
    /// that is to go.
    #[must_use]
    pub fn free_partner(&self, sibling: &Pool, taken: &BTreeSet<Ipv6Addr>) -> Option<Ipv6Addr> {
        if sibling.deleting {
            return None;
        }
        let used: BTreeSet<Ipv6Addr> = self.all().filter_map(|sub_eni| sub_eni.ipv6).collect();
        let v6 = sibling.addresses.iter().filter_map(|ip| match ip {
            IpAddr::V6(ip) => Some(ip),
            IpAddr::V4(_) => None,
        });
        let claimed = |ip: &Ipv6Addr| sibling.claims.contains_key(&IpAddr::V6(*ip));
        let is_free = |ip: &Ipv6Addr| !used.contains(ip) && !taken.contains(ip) && !claimed(ip);
        let mut free = v6.filter(is_free);
        free.next()
    }

    fn is_leaving(&self, key: IpAddr) -> bool {
        self.chosen.get(&key).is_some_and(|chosen| chosen.leaving)
    }

    /// What has to be published for a pool now: number of entries and the text of the envelope.
    #[must_use]
    pub fn envelope(&self, pool: &Pool, cloud: &Cloud) -> (usize, String) {
        let mut entries = Map::new();
        for sub_eni in self.of_pool(&pool.name) {
            let Some(key) = sub_eni.address() else {
                continue;
            };
            let hidden = self.withdrawn.contains(&key) || !pool.addresses.contains(key);
            let entry = match &pool.node {
                _ if hidden => None,
                Some(_) => prewarm_entry(sub_eni),
                None => global_entry(sub_eni, cloud, self.is_leaving(key)),
            };
            if let Some(Value::Object(mut entry)) = entry {
                entry.insert("mac".to_owned(), json!(sub_eni.mac));
                if let (Some(chosen), true) = (self.chosen.get(&key), entry.contains_key("node")) {
                    let at = self.epoch + chosen.at;
                    entry.insert("detachTime".to_owned(), json!(at.to_string()));
                }
                if let (IpAddr::V4(_), Some(ipv6)) = (key, sub_eni.ipv6) {
                    entry.insert("ipv6".to_owned(), json!(ipv6));
                }
                entries.insert(key.to_string(), entry.into());
            }
        }
        let scope = pool.node.as_deref().unwrap_or_default();
        let count = entries.len();
        (count, json!({ "scope": scope, "ips": entries }).to_string())
    }
}

/// Existence is readiness: only what is attached has an entry.
fn prewarm_entry(sub_eni: &SubEni) -> Option<Value> {
    match sub_eni.state {
        State::Bound(at) => Some(json!({ "vlan": at.vlan })),
        State::Detaching(_) => Some(json!({ "vlan": -1, "status": "detaching" })),
        _ => None,
    }
}

/// A sub-ENI on its way to a node is published as free: whoever asks for it waits for its lock.
fn global_entry(sub_eni: &SubEni, cloud: &Cloud, leaving: bool) -> Option<Value> {
    match sub_eni.state {
        State::Bound(at) if !leaving => {
            let node = cloud.node_of(at.parent)?;
            Some(json!({ "vlan": at.vlan, "node": node, "status": "bound" }))
        }
        State::Bound(at) | State::Detaching(at) => {
            let node = cloud.node_of(at.parent)?;
            Some(json!({ "vlan": -1, "node": node, "status": "detaching" }))
        }
        // an entry goes after its sub-ENI: whoever asks meanwhile waits for its lock
        State::Unbound | State::Attaching(_) | State::Deleting => {
            Some(json!({ "status": "unbound" }))
        }
        State::Creating => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::Topology;
    use spiderpool_api::ip_meta::{EntryState, Metadata};

    const TOPOLOGY: &str = r#"
parents:
  - {node: n1, mac: "fa:16:3e:01:00:01", ifname: p1}
subnets: [{ipv4: 10.72.0.0/24, ipv6: "fd72::/64", gatewayMac: "fa:16:3e:ff:ff:fe"}]
gateway: {ifname: gw0}
pools:
  - {name: g, subnet: 10.72.0.0/24, ips: [10.72.0.10-10.72.0.20]}
  - {name: w, subnet: 10.72.0.0/24, ips: [10.72.0.30-10.72.0.40], node: n1, pair: w6}
  - {name: w6, subnet: "fd72::/64", ips: ["fd72::30-fd72::32"], node: n1, pair: w}
bindings:
  - {parent: "fa:16:3e:01:00:01", vlan: 7, mac: "fa:16:3e:00:00:0a", ipv4: 10.72.0.10, pool: g}
  - {parent: "fa:16:3e:01:00:01", vlan: 8, mac: "fa:16:3e:00:00:0b", ipv4: 10.72.0.11, pool: g}
  - {parent: "fa:16:3e:01:00:01", vlan: 9, mac: "fa:16:3e:00:00:0c", ipv4: 10.72.0.12, pool: g, state: unbound}
  - {parent: "fa:16:3e:01:00:01", vlan: 10, mac: "fa:16:3e:00:00:1e", ipv4: 10.72.0.30, ipv6: "fd72::30", pool: w}
  - {parent: "fa:16:3e:01:00:01", vlan: 11, mac: "fa:16:3e:00:00:1f", ipv4: 10.72.0.31, pool: w, state: unbound}
  - {parent: "fa:16:3e:01:00:01", vlan: 12, mac: "fa:16:3e:00:00:20", ipv4: 10.72.0.32, pool: w}
"#;

    fn read(memory: &Memory, cloud: &Cloud, pool: &str) -> Metadata {
        let (count, text) = memory.envelope(&memory.pools[pool], cloud);
        let read = Metadata::decode(&text).unwrap();
        assert_eq!((count, read.bad.len()), (read.entries.len(), 0), "{text}");
        read
    }

    #[test]
    fn what_is_published_is_what_the_agent_reads() {
        let topology: Topology = serde_saphyr::from_str(TOPOLOGY).unwrap();
        let mut cloud = Cloud::new(&topology, 1);
        let detaching = cloud.by_address("10.72.0.11".parse().unwrap()).unwrap().mac;
        cloud.begin_detach(detaching).unwrap();
        let mut memory = Memory::default();
        memory.rebuild(&cloud);
        for spec in &topology.pools {
            memory.pools.insert(spec.name.clone(), Pool::of_spec(spec));
        }
        let global = read(&memory, &cloud, "g");
        let states: Vec<_> = global.entries.values().map(|entry| &entry.state).collect();
        assert!(matches!(states[0], EntryState::Attached { node: Some(node), .. } if node == "n1"));
        assert!(matches!(states[1], EntryState::Reclaiming { .. }));
        assert!(matches!(states[2], EntryState::Unattached { mac: Some(_) }));
        memory.withdrawn.insert("10.72.0.32".parse().unwrap());
        let prewarm = read(&memory, &cloud, "w");
        assert_eq!((prewarm.scope.as_str(), prewarm.entries.len()), ("n1", 1));
        let pair = prewarm.entries.values().next().unwrap();
        assert_eq!(pair.ipv6, Some("fd72::30".parse().unwrap()));
        assert!(memory.pools["w6"].is_sibling());
        let free = memory.free_partner(&memory.pools["w6"], &BTreeSet::new());
        assert_eq!(free, Some("fd72::31".parse().unwrap()));
        // the detach ends, but the provider has not heard of it
        cloud.finish(detaching, Duration::ZERO);
        assert_eq!(read(&memory, &cloud, "g"), global);
    }
}
