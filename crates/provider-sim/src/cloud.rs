//! The cloud's own table: which sub-ENIs exist and what they are attached to. Pure: the caller
//! gives the time, chance comes from a seed.
//!
//! The provider's memory is another table; it may be lost, this one may not. The fabric forwards
//! by [`Cloud::bindings`]. Changes are in [`change`], invariants in [`audit`], what a
//! file may remember in [`saved`].

pub mod audit;
pub mod change;
pub mod saved;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use spiderpool_api::value::{Mac, VlanId};

use crate::topology::{Binding, BindingState, Subnet, Topology};

pub use self::change::{CloudError, Operation};

/// How long a VLAN stays unused on a parent after a detach, unless settings say otherwise (P1).
pub const QUARANTINE: Duration = Duration::from_secs(30);

/// The table.
#[derive(Debug)]
pub struct Cloud {
    parents: BTreeMap<Mac, ParentNic>,
    subnets: Vec<Subnet>,
    sub_enis: BTreeMap<Mac, SubEni>,
    /// MACs ever given out: a new sub-ENI never looks like a deleted one.
    used: BTreeSet<Mac>,
    quarantine: BTreeMap<(Mac, VlanId), Duration>,
    quarantine_time: Duration,
    calls: BTreeMap<Operation, u64>,
    chance: fastrand::Rng,
}

/// A wire to a node.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ParentNic {
    node: String,
    limit: usize,
}

/// One sub-ENI.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SubEni {
    /// Fixed for its life.
    pub mac: Mac,
    /// Its IPv4 address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv4: Option<Ipv4Addr>,
    /// Its IPv6 address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv6: Option<Ipv6Addr>,
    /// The provider's tag: pool it was made for.
    pub pool: String,
    /// How far it is.
    pub state: State,
    /// VLAN of its last attachment: the next one differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_vlan: Option<VlanId>,
}

/// Where a sub-ENI is on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "phase")]
pub enum State {
    /// The cloud is making it.
    Creating,
    /// Made, attached nowhere.
    Unbound,
    /// The cloud is attaching it.
    Attaching(Attachment),
    /// Its frames pass.
    Bound(Attachment),
    /// The cloud is detaching it; its frames no longer pass.
    Detaching(Attachment),
    /// The cloud is deleting it.
    Deleting,
}

/// A place on a parent NIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// The parent NIC.
    pub parent: Mac,
    /// The VLAN there.
    pub vlan: VlanId,
}

impl State {
    /// The attachment the cloud holds a VLAN for.
    #[must_use]
    pub const fn attachment(&self) -> Option<Attachment> {
        match self {
            Self::Attaching(at) | Self::Bound(at) | Self::Detaching(at) => Some(*at),
            Self::Creating | Self::Unbound | Self::Deleting => None,
        }
    }
}

impl SubEni {
    /// The address it is known by: the IPv4 one if there is one.
    #[must_use]
    pub fn address(&self) -> Option<IpAddr> {
        self.ipv4.map(IpAddr::V4).or(self.ipv6.map(IpAddr::V6))
    }

    /// Its addresses, IPv4 first.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> + use<> {
        let v4 = self.ipv4.map(IpAddr::V4).into_iter();
        v4.chain(self.ipv6.map(IpAddr::V6))
    }

    /// Whether it has this address.
    #[must_use]
    pub fn has(&self, ip: IpAddr) -> bool {
        match ip {
            IpAddr::V4(ip) => self.ipv4 == Some(ip),
            IpAddr::V6(ip) => self.ipv6 == Some(ip),
        }
    }
}

/// What survives a restart of the simulator.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Saved {
    sub_enis: Vec<SubEni>,
    /// VLANs that may still be in use by frames on their way.
    quarantine: Vec<Attachment>,
}

impl Cloud {
    /// The cloud of a topology, with its bindings as sub-ENIs.
    #[must_use]
    pub fn new(topology: &Topology, seed: u64) -> Self {
        let mut cloud = Self {
            parents: BTreeMap::new(),
            subnets: Vec::new(),
            sub_enis: BTreeMap::new(),
            used: BTreeSet::new(),
            quarantine: BTreeMap::new(),
            quarantine_time: QUARANTINE,
            calls: BTreeMap::new(),
            chance: fastrand::Rng::with_seed(seed),
        };
        cloud.rewire(topology);
        for binding in &topology.bindings {
            let at = Attachment {
                parent: binding.parent,
                vlan: binding.vlan,
            };
            cloud.insert(SubEni {
                mac: binding.mac,
                ipv4: binding.ipv4,
                ipv6: binding.ipv6,
                pool: binding.pool.clone().unwrap_or_default(),
                state: match binding.state {
                    BindingState::Bound => State::Bound(at),
                    BindingState::Detaching | BindingState::Unbound => State::Unbound,
                },
                last_vlan: Some(binding.vlan),
            });
        }
        cloud
    }

    /// Another quarantine for VLANs that are detached from now on.
    pub const fn quarantine_for(&mut self, time: Duration) {
        self.quarantine_time = time;
    }

    /// Takes over nodes, parents, limits and subnets; sub-ENIs stay.
    pub fn rewire(&mut self, topology: &Topology) {
        let parents = topology.parents.iter().map(|parent| {
            let nic = ParentNic {
                node: parent.node.clone(),
                limit: parent.sub_eni_limit,
            };
            (parent.mac, nic)
        });
        self.parents = parents.collect();
        self.subnets.clone_from(&topology.subnets);
        let gateways = topology.subnets.iter().map(|subnet| subnet.gateway_mac);
        self.used.extend(gateways);
        self.used.extend(self.parents.keys());
    }

    /// What to write down.
    #[must_use]
    pub fn saved(&self) -> Saved {
        let quarantine = self.quarantine.keys();
        Saved {
            sub_enis: self.sub_enis.values().cloned().collect(),
            quarantine: quarantine
                .map(|&(parent, vlan)| Attachment { parent, vlan })
                .collect(),
        }
    }

    /// Takes back what was written down. What was under way has come to nothing; its VLAN and
    /// those in quarantine stay unused for another term from `now`.
    pub fn restore(&mut self, saved: Saved, now: Duration) {
        self.sub_enis.clear();
        let until = now.saturating_add(self.quarantine_time);
        for at in saved.quarantine {
            self.quarantine.insert((at.parent, at.vlan), until);
        }
        for mut sub_eni in saved.sub_enis {
            match sub_eni.state {
                State::Creating | State::Deleting => continue,
                State::Attaching(at) | State::Detaching(at) => {
                    self.quarantine.insert((at.parent, at.vlan), until);
                    sub_eni.state = State::Unbound;
                }
                State::Unbound | State::Bound(_) => {}
            }
            self.insert(sub_eni);
        }
    }

    fn insert(&mut self, sub_eni: SubEni) {
        self.used.insert(sub_eni.mac);
        self.sub_enis.insert(sub_eni.mac, sub_eni);
    }

    /// All sub-ENIs by MAC.
    pub fn sub_enis(&self) -> impl Iterator<Item = &SubEni> {
        self.sub_enis.values()
    }

    /// One sub-ENI.
    #[must_use]
    pub fn get(&self, mac: Mac) -> Option<&SubEni> {
        self.sub_enis.get(&mac)
    }

    /// The sub-ENI that has an address.
    #[must_use]
    pub fn by_address(&self, ip: IpAddr) -> Option<&SubEni> {
        self.sub_enis.values().find(|sub_eni| sub_eni.has(ip))
    }

    /// The node of a parent NIC.
    #[must_use]
    pub fn node_of(&self, parent: Mac) -> Option<&str> {
        self.parents.get(&parent).map(|nic| nic.node.as_str())
    }

    /// How many sub-ENIs a parent NIC carries at most.
    #[must_use]
    pub fn limit_of(&self, parent: Mac) -> Option<usize> {
        self.parents.get(&parent).map(|nic| nic.limit)
    }

    /// The subnet of an address.
    #[must_use]
    pub fn subnet_of(&self, ip: IpAddr) -> Option<&Subnet> {
        self.subnets.iter().find(|subnet| subnet.contains(ip))
    }

    /// How often each operation was begun.
    #[must_use]
    pub const fn calls(&self) -> &BTreeMap<Operation, u64> {
        &self.calls
    }

    /// What the fabric forwards by.
    #[must_use]
    pub fn bindings(&self) -> Vec<Binding> {
        let attached = self.sub_enis.values().filter_map(|sub_eni| {
            let state = match sub_eni.state {
                State::Bound(_) => BindingState::Bound,
                State::Detaching(_) => BindingState::Detaching,
                _ => BindingState::Unbound,
            };
            let at = sub_eni.state.attachment()?;
            Some(Binding {
                parent: at.parent,
                vlan: at.vlan,
                mac: sub_eni.mac,
                ipv4: sub_eni.ipv4,
                ipv6: sub_eni.ipv6,
                pool: Some(sub_eni.pool.clone()),
                state,
            })
        });
        attached.collect()
    }
}

#[cfg(test)]
mod tests;
