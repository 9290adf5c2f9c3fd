//! The forwarding table: what is bound where. Pure and immutable; a change builds a new one.
//!
//! Owns the consistency rules of bindings. The verdict on a frame is in [`judge`].

mod judge;

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use spiderpool_api::value::{Mac, VlanId};

use crate::topology::{Binding, BindingState, Subnet, Topology};

pub use self::judge::Verdict;

/// Why bindings or subnets do not fit together. Names both sides.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// The parent is not in the topology.
    #[error("sub-ENI {mac}: parent NIC {parent} is not in the topology")]
    UnknownParent {
        /// The sub-ENI.
        mac: Mac,
        /// Its parent.
        parent: Mac,
    },
    /// Two parents or two sub-ENIs have one MAC, or it is a group address.
    #[error("MAC {mac} is used twice or is no unicast address")]
    Mac {
        /// The address.
        mac: Mac,
    },
    /// A VLAN is taken twice on one parent.
    #[error("sub-ENI {mac}: VLAN {vlan} of parent NIC {parent} is sub-ENI {by}'s")]
    Vlan {
        /// The second one.
        mac: Mac,
        /// The first one.
        by: Mac,
        /// The VLAN.
        vlan: VlanId,
        /// Their parent.
        parent: Mac,
    },
    /// A sub-ENI needs an address.
    #[error("sub-ENI {mac} has no address")]
    NoAddress {
        /// The sub-ENI.
        mac: Mac,
    },
    /// Bound twice.
    #[error("sub-ENI {mac}: address {ip} is sub-ENI {by}'s")]
    Taken {
        /// The second one.
        mac: Mac,
        /// The first one.
        by: Mac,
        /// The address.
        ip: IpAddr,
    },
    /// A gateway's.
    #[error("sub-ENI {mac}: address {ip} is a gateway's")]
    OfGateway {
        /// The sub-ENI.
        mac: Mac,
        /// The address.
        ip: IpAddr,
    },
    /// No subnet contains it, or not the one of its other family.
    #[error("sub-ENI {mac}: address {ip} is not in one subnet with its other addresses")]
    Subnet {
        /// The sub-ENI.
        mac: Mac,
        /// The address.
        ip: IpAddr,
    },
    /// The gateway address is missing from the subnet's range.
    #[error("gateway {ip} is not in the range of its subnet")]
    Gateway {
        /// The address.
        ip: IpAddr,
    },
}

/// A wire of the fabric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Port {
    /// To the network namespace that routes.
    Gateway,
    /// To a parent NIC, by its place in the topology.
    Parent(usize),
}

/// What is bound where, and what is held back.
#[derive(Debug, Clone)]
pub struct Table {
    parents: Vec<Mac>,
    subnets: Vec<Subnet>,
    entries: Vec<Entry>,
    by_vlan: HashMap<(usize, u16), usize>,
    by_mac: HashMap<Mac, usize>,
    by_ip: HashMap<IpAddr, usize>,
    held: BTreeSet<IpAddr>,
    allow_link_local: bool,
}

/// A binding with what the table found out about it.
#[derive(Debug, Clone)]
struct Entry {
    parent: usize,
    subnet: usize,
    vlan: VlanId,
    mac: Mac,
    ipv4: Option<Ipv4Addr>,
    ipv6: Option<Ipv6Addr>,
    state: BindingState,
}

impl Table {
    /// Builds the table of the parents and subnets of `topology` with other `bindings`. Addresses
    /// in `held` need not be bound.
    ///
    /// # Errors
    /// [`TableError`] for the first contradiction.
    pub fn build(
        topology: &Topology,
        bindings: &[Binding],
        held: BTreeSet<IpAddr>,
    ) -> Result<Self, TableError> {
        let mut table = Self {
            parents: topology.parents.iter().map(|parent| parent.mac).collect(),
            subnets: topology.subnets.clone(),
            entries: Vec::with_capacity(bindings.len()),
            by_vlan: HashMap::new(),
            by_mac: HashMap::new(),
            by_ip: HashMap::new(),
            held,
            allow_link_local: topology.allow_link_local,
        };
        let mut parents = BTreeSet::new();
        for mac in &table.parents {
            if !mac.is_unicast() || !parents.insert(*mac) {
                return Err(TableError::Mac { mac: *mac });
            }
        }
        table.subnets.iter().try_for_each(check_gateways)?;
        for binding in bindings {
            table.insert(binding)?;
        }
        Ok(table)
    }

    fn insert(&mut self, binding: &Binding) -> Result<(), TableError> {
        let mac = binding.mac;
        let parent = self
            .parents
            .iter()
            .position(|known| *known == binding.parent);
        let parent = parent.ok_or(TableError::UnknownParent {
            mac,
            parent: binding.parent,
        })?;
        let entry = Entry {
            parent,
            subnet: self.subnet_of(binding)?,
            vlan: binding.vlan,
            mac,
            ipv4: binding.ipv4,
            ipv6: binding.ipv6,
            state: binding.state,
        };
        let at = self.entries.len();
        let vlan = (parent, binding.vlan.get());
        let before = self.by_vlan.insert(vlan, at);
        if let Some(by) = self.mac_at(before) {
            return Err(TableError::Vlan {
                mac,
                by,
                vlan: binding.vlan,
                parent: binding.parent,
            });
        }
        let foreign = self.parents.contains(&mac) || self.is_gateway_mac(mac);
        if !mac.is_unicast() || foreign || self.by_mac.insert(mac, at).is_some() {
            return Err(TableError::Mac { mac });
        }
        for ip in binding.addresses() {
            if self.is_gateway_ip(ip) {
                return Err(TableError::OfGateway { mac, ip });
            }
            let before = self.by_ip.insert(ip, at);
            if let Some(by) = self.mac_at(before) {
                return Err(TableError::Taken { mac, by, ip });
            }
        }
        self.entries.push(entry);
        Ok(())
    }

    fn mac_at(&self, at: Option<usize>) -> Option<Mac> {
        Some(self.entries.get(at?)?.mac)
    }

    /// The one subnet that contains every address of the binding.
    fn subnet_of(&self, binding: &Binding) -> Result<usize, TableError> {
        let mac = binding.mac;
        let mut addresses = binding.addresses().peekable();
        let first = *addresses.peek().ok_or(TableError::NoAddress { mac })?;
        let found = self
            .subnets
            .iter()
            .position(|subnet| subnet.contains(first));
        let at = found.ok_or(TableError::Subnet { mac, ip: first })?;
        let outside = addresses.find(|ip| !self.subnets.get(at).is_some_and(|s| s.contains(*ip)));
        match outside {
            Some(ip) => Err(TableError::Subnet { mac, ip }),
            None => Ok(at),
        }
    }

    fn is_gateway_ip(&self, ip: IpAddr) -> bool {
        self.subnets.iter().any(|subnet| subnet.is_gateway(ip))
    }

    fn is_gateway_mac(&self, mac: Mac) -> bool {
        self.subnets.iter().any(|subnet| subnet.gateway_mac == mac)
    }
}

impl Subnet {
    /// Whether an address lies in it.
    pub(crate) fn contains(&self, ip: IpAddr) -> bool {
        match ip {
            IpAddr::V4(ip) => self.ipv4.is_some_and(|range| range.contains(&ip)),
            IpAddr::V6(ip) => self.ipv6.is_some_and(|range| range.contains(&ip)),
        }
    }

    /// Whether an address is its gateway's.
    pub(crate) fn is_gateway(&self, ip: IpAddr) -> bool {
        match ip {
            IpAddr::V4(ip) => self.gateway_ipv4 == Some(ip),
            IpAddr::V6(ip) => self.gateway_ipv6 == Some(ip),
        }
    }
}

fn check_gateways(subnet: &Subnet) -> Result<(), TableError> {
    let mac = subnet.gateway_mac;
    if !mac.is_unicast() {
        return Err(TableError::Mac { mac });
    }
    let v4 = subnet.gateway_ipv4.map(IpAddr::V4);
    let v6 = subnet.gateway_ipv6.map(IpAddr::V6);
    match v4.into_iter().chain(v6).find(|ip| !subnet.contains(*ip)) {
        Some(ip) => Err(TableError::Gateway { ip }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod build_tests;
#[cfg(test)]
mod judge_tests;
