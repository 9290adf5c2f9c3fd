//! Changes of the cloud's table. Each operation has a beginning and an end; the time between them
//! is the cloud's latency, in which others see it under way. A refused beginning changes nothing.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use spiderpool_api::value::{Mac, VlanId};

use super::{Attachment, Cloud, State, SubEni};

/// What can be asked of the cloud.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// Make a sub-ENI.
    Create,
    /// Attach one to a parent NIC.
    Attach,
    /// Detach one.
    Detach,
    /// Remove one.
    Delete,
    /// Give one another IPv6 address.
    Update,
}

/// The cloud refuses. Names the object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CloudError {
    /// No such sub-ENI.
    #[error("there is no sub-ENI {0}")]
    UnknownSubEni(Mac),
    /// No such parent NIC.
    #[error("there is no parent NIC {0}")]
    UnknownParent(Mac),
    /// A sub-ENI needs an address.
    #[error("a sub-ENI needs an address")]
    NoAddress,
    /// No subnet has the address, or not the one of its partner.
    #[error("no cloud subnet holds {0} together with its partner")]
    NoSubnet(IpAddr),
    /// Another sub-ENI has it.
    #[error("{ip} belongs to sub-ENI {mac}")]
    AddressInUse {
        /// The address.
        ip: IpAddr,
        /// Whose it is.
        mac: Mac,
    },
    /// The parent carries no more.
    #[error("parent NIC {parent} carries {attached} of {limit} sub-ENIs")]
    Capacity {
        /// The parent NIC.
        parent: Mac,
        /// How many it may carry.
        limit: usize,
        /// How many it carries.
        attached: usize,
    },
    /// All VLANs are used or in quarantine.
    #[error("parent NIC {0} has no free VLAN")]
    NoVlan(Mac),
    /// All MACs of the prefix are used up.
    #[error("the cloud has no free MAC")]
    NoMac,
    /// Not from where it is.
    #[error("sub-ENI {mac} is {state:?}: it cannot be changed by {operation:?}")]
    State {
        /// The sub-ENI.
        mac: Mac,
        /// Where it is.
        state: State,
        /// What was asked.
        operation: Operation,
    },
}

impl Cloud {
    /// Begins to make a sub-ENI; returns its MAC.
    ///
    /// # Errors
    /// [`CloudError`].
    pub fn begin_create(
        &mut self,
        ipv4: Option<Ipv4Addr>,
        ipv6: Option<Ipv6Addr>,
        pool: &str,
    ) -> Result<Mac, CloudError> {
        let addresses = ipv4.map(IpAddr::V4).into_iter();
        let addresses: Vec<IpAddr> = addresses.chain(ipv6.map(IpAddr::V6)).collect();
        let first = *addresses.first().ok_or(CloudError::NoAddress)?;
        for ip in &addresses {
            self.check_free(first, *ip)?;
        }
        let mac = self.new_mac()?;
        self.count(Operation::Create);
        self.insert(SubEni {
            mac,
            ipv4,
            ipv6,
            pool: pool.to_owned(),
            state: State::Creating,
            last_vlan: None,
        });
        Ok(mac)
    }

    /// Begins to attach a sub-ENI; returns the VLAN it will have.
    ///
    /// # Errors
    /// [`CloudError`].
    pub fn begin_attach(
        &mut self,
        mac: Mac,
        parent: Mac,
        now: Duration,
    ) -> Result<VlanId, CloudError> {
        self.expect(mac, Operation::Attach, |state| *state == State::Unbound)?;
        let limit = self.limit_of(parent);
        let limit = limit.ok_or(CloudError::UnknownParent(parent))?;
        let attached = self.attached_to(parent);
        if attached >= limit {
            return Err(CloudError::Capacity {
                parent,
                limit,
                attached,
            });
        }
        let vlan = self.new_vlan(mac, parent, now)?;
        self.count(Operation::Attach);
        self.set(mac, State::Attaching(Attachment { parent, vlan }));
        if let Some(sub_eni) = self.sub_enis.get_mut(&mac) {
            sub_eni.last_vlan = Some(vlan);
        }
        Ok(vlan)
    }

    /// Begins to detach a sub-ENI: from now on its frames do not pass.
    ///
    /// # Errors
    /// [`CloudError`].
    pub fn begin_detach(&mut self, mac: Mac) -> Result<(), CloudError> {
        let state = self.expect(mac, Operation::Detach, |state| {
            matches!(state, State::Bound(_))
        })?;
        self.count(Operation::Detach);
        if let State::Bound(at) = state {
            self.set(mac, State::Detaching(at));
        }
        Ok(())
    }

    /// Gives a settled sub-ENI another IPv6 address, or none; MAC and VLAN stay. Done at once: for
    /// the time it takes, others see it done.
    ///
    /// # Errors
    /// [`CloudError`].
    pub fn update(&mut self, mac: Mac, ipv6: Option<Ipv6Addr>) -> Result<(), CloudError> {
        self.expect(mac, Operation::Update, |state| {
            matches!(state, State::Unbound | State::Bound(_))
        })?;
        let ipv4 = self.get(mac).and_then(|sub_eni| sub_eni.ipv4);
        let first = ipv4.ok_or(CloudError::NoAddress)?;
        if let Some(ipv6) = ipv6 {
            self.check_free(first.into(), ipv6.into())?;
        }
        self.count(Operation::Update);
        if let Some(sub_eni) = self.sub_enis.get_mut(&mac) {
            sub_eni.ipv6 = ipv6;
        }
        Ok(())
    }

    /// Whether nobody has an address, and the subnet of `first` holds it.
    fn check_free(&self, first: IpAddr, ip: IpAddr) -> Result<(), CloudError> {
        let subnet = self.subnet_of(first).filter(|subnet| subnet.contains(ip));
        let subnet = subnet.ok_or(CloudError::NoSubnet(ip))?;
        if subnet.is_gateway(ip) {
            return Err(CloudError::NoSubnet(ip));
        }
        match self.by_address(ip) {
            Some(other) => Err(CloudError::AddressInUse { ip, mac: other.mac }),
            None => Ok(()),
        }
    }

    /// Begins to remove a sub-ENI that is attached nowhere.
    ///
    /// # Errors
    /// [`CloudError`].
    pub fn begin_delete(&mut self, mac: Mac) -> Result<(), CloudError> {
        self.expect(mac, Operation::Delete, |state| *state == State::Unbound)?;
        self.count(Operation::Delete);
        self.set(mac, State::Deleting);
        Ok(())
    }

    /// Ends what a sub-ENI is in the middle of; returns it, or `None` once it is gone. Nothing
    /// happens when nothing is under way.
    pub fn finish(&mut self, mac: Mac, now: Duration) -> Option<&SubEni> {
        let next = match self.sub_enis.get(&mac)?.state {
            State::Creating => State::Unbound,
            State::Attaching(at) => State::Bound(at),
            State::Detaching(at) => {
                let until = now.saturating_add(self.quarantine_time);
                self.quarantine.insert((at.parent, at.vlan), until);
                State::Unbound
            }
            State::Deleting => {
                self.sub_enis.remove(&mac);
                return None;
            }
            settled @ (State::Unbound | State::Bound(_)) => settled,
        };
        self.set(mac, next);
        self.sub_enis.get(&mac)
    }

    /// How many VLANs of a parent are taken by attachments.
    #[must_use]
    pub fn attached_to(&self, parent: Mac) -> usize {
        let at = |sub_eni: &&SubEni| {
            sub_eni
                .state
                .attachment()
                .is_some_and(|at| at.parent == parent)
        };
        self.sub_enis.values().filter(at).count()
    }

    fn expect(
        &self,
        mac: Mac,
        operation: Operation,
        fits: impl Fn(&State) -> bool,
    ) -> Result<State, CloudError> {
        let sub_eni = self.get(mac).ok_or(CloudError::UnknownSubEni(mac))?;
        let state = sub_eni.state;
        if fits(&state) {
            return Ok(state);
        }
        Err(CloudError::State {
            mac,
            state,
            operation,
        })
    }

    fn set(&mut self, mac: Mac, state: State) {
        if let Some(sub_eni) = self.sub_enis.get_mut(&mac) {
            sub_eni.state = state;
        }
    }

    fn count(&mut self, operation: Operation) {
        *self.calls.entry(operation).or_default() += 1;
    }

    /// fa:16:3e and three octets by chance, never used before (P2).
    fn new_mac(&mut self) -> Result<Mac, CloudError> {
        for _ in 0..1_000 {
            let mut octets = [0xfa, 0x16, 0x3e, 0, 0, 0];
            for octet in octets.iter_mut().skip(3) {
                *octet = self.chance.u8(..);
            }
            let mac = Mac::new(octets);
            if !self.used.contains(&mac) {
                return Ok(mac);
            }
        }
        Err(CloudError::NoMac)
    }

    /// 2-4094, unused on the whole node, not in quarantine on the parent, not the one it had (P1).
    fn new_vlan(&mut self, mac: Mac, parent: Mac, now: Duration) -> Result<VlanId, CloudError> {
        self.quarantine.retain(|_, until| *until > now);
        let node = self.node_of(parent);
        let on_node = |at: Attachment| self.node_of(at.parent) == node;
        let attachments = self.sub_enis.values().filter_map(|s| s.state.attachment());
        let attachments = attachments.filter(|at| on_node(*at));
        let mut taken: BTreeSet<VlanId> = attachments.map(|at| at.vlan).collect();
        taken.extend(self.get(mac).and_then(|sub_eni| sub_eni.last_vlan));
        let start = self.chance.i64(2..=4094);
        (start..=4094)
            .chain(2..start)
            .filter_map(|id| VlanId::try_from(id).ok())
            .find(|vlan| !taken.contains(vlan) && !self.quarantine.contains_key(&(parent, *vlan)))
            .ok_or(CloudError::NoVlan(parent))
    }
}
