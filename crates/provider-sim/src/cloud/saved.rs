//! Whether what a file remembers of the cloud can be: a person may have written it, or taken it from
//! another topology. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use spiderpool_api::value::{Mac, VlanId};

use super::{Attachment, Saved, SubEni};
use crate::topology::Topology;

/// The first contradiction. Names both sides.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SavedError {
    /// Sub-ENIs are told apart by it.
    #[error("two sub-ENIs have the MAC {0}")]
    MacTwice(Mac),
    /// A sub-ENI would be taken for a machine's or a gateway's NIC.
    #[error("sub-ENI {0} has the MAC of a parent NIC or a gateway, or a group's")]
    ForeignMac(Mac),
    /// There is nothing to ask for it by.
    #[error("sub-ENI {0} has no address")]
    NoAddress(Mac),
    /// One address in two places.
    #[error("sub-ENIs {first} and {second} both have {ip}")]
    AddressTwice {
        /// The one.
        first: Mac,
        /// The other.
        second: Mac,
        /// Of both.
        ip: IpAddr,
    },
    /// Frames of two sub-ENIs could not be told apart.
    #[error("sub-ENIs {first} and {second} both have VLAN {vlan} of parent NIC {parent}")]
    VlanTwice {
        /// The one.
        first: Mac,
        /// The other.
        second: Mac,
        /// Of both.
        vlan: VlanId,
        /// Of both.
        parent: Mac,
    },
    /// Of another topology.
    #[error("sub-ENI {mac}: {ip} is in none of the topology's subnets, or a gateway's")]
    Address {
        /// The sub-ENI.
        mac: Mac,
        /// As remembered.
        ip: IpAddr,
    },
    /// Of another topology.
    #[error("sub-ENI {mac} hangs on parent NIC {parent}, which the topology lacks")]
    NoParent {
        /// The sub-ENI.
        mac: Mac,
        /// As remembered.
        parent: Mac,
    },
}

impl Saved {
    /// Whether it is the cloud of a topology.
    ///
    /// # Errors
    /// [`SavedError`] for the first contradiction.
    pub fn check(&self, topology: &Topology) -> Result<(), SavedError> {
        let mut known = Known {
            topology,
            macs: BTreeSet::new(),
            addresses: BTreeMap::new(),
            vlans: BTreeMap::new(),
        };
        self.sub_enis.iter().try_for_each(|one| {
            known.mac(one.mac)?;
            known.addresses(one)?;
            known.place(one)
        })
    }
}

/// What has been met so far.
struct Known<'a> {
    topology: &'a Topology,
    macs: BTreeSet<Mac>,
    addresses: BTreeMap<IpAddr, Mac>,
    vlans: BTreeMap<(Mac, VlanId), Mac>,
}

impl Known<'_> {
    fn has_parent(&self, mac: Mac) -> bool {
        self.topology.parents.iter().any(|parent| parent.mac == mac)
    }

    fn mac(&mut self, mac: Mac) -> Result<(), SavedError> {
        let mut subnets = self.topology.subnets.iter();
        let is_foreign = self.has_parent(mac) || subnets.any(|subnet| subnet.gateway_mac == mac);
        if is_foreign || !mac.is_unicast() {
            return Err(SavedError::ForeignMac(mac));
        }
        match self.macs.insert(mac) {
            true => Ok(()),
            false => Err(SavedError::MacTwice(mac)),
        }
    }

    fn addresses(&mut self, sub_eni: &SubEni) -> Result<(), SavedError> {
        let mac = sub_eni.mac;
        if sub_eni.address().is_none() {
            return Err(SavedError::NoAddress(mac));
        }
        for ip in sub_eni.addresses() {
            let mut subnets = self.topology.subnets.iter();
            if !subnets.any(|subnet| subnet.contains(ip) && !subnet.is_gateway(ip)) {
                return Err(SavedError::Address { mac, ip });
            }
            if let Some(first) = self.addresses.insert(ip, mac) {
                let second = mac;
                return Err(SavedError::AddressTwice { first, second, ip });
            }
        }
        Ok(())
    }

    fn place(&mut self, sub_eni: &SubEni) -> Result<(), SavedError> {
        let mac = sub_eni.mac;
        let Some(Attachment { parent, vlan }) = sub_eni.state.attachment() else {
            return Ok(());
        };
        if !self.has_parent(parent) {
            return Err(SavedError::NoParent { mac, parent });
        }
        match self.vlans.insert((parent, vlan), mac) {
            None => Ok(()),
            Some(first) => Err(SavedError::VlanTwice {
                first,
                second: mac,
                vlan,
                parent,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOPOLOGY: &str = r#"
parents: [{node: n1, mac: "fa:16:3e:01:00:01", ifname: p1}]
subnets: [{ipv4: 10.72.0.0/24, ipv6: "fd72::/64", gatewayIpv4: 10.72.0.1, gatewayMac: "fa:16:3e:ff:ff:fe"}]
gateway: {ifname: gw0}
"#;
    const GOOD: &str = r#"{"quarantine":[],"subEnis":[
        {"mac":"fa:16:3e:00:00:0a","ipv4":"10.72.0.10","pool":"g","state":{"phase":"bound","parent":"fa:16:3e:01:00:01","vlan":7}},
        {"mac":"fa:16:3e:00:00:0b","ipv4":"10.72.0.11","pool":"g","state":{"phase":"detaching","parent":"fa:16:3e:01:00:01","vlan":8}},
        {"mac":"fa:16:3e:00:00:0c","ipv4":"10.72.0.12","ipv6":"fd72::c","pool":"p4","state":{"phase":"unbound"}}]}"#;

    #[test]
    #[rustfmt::skip] // a case a line
    fn each_contradiction_names_both_sides() {
        let topology: Topology = serde_saphyr::from_str(TOPOLOGY).unwrap();
        let judged = |text: &str| {
            let saved: Saved = serde_json::from_str(text).unwrap();
            saved.check(&topology).map_err(|error| error.to_string())
        };
        assert_eq!(judged(GOOD), Ok(()));
        for (from, to, text) in [
            ("00:0b", "00:0a", "two sub-ENIs have the MAC fa:16:3e:00:00:0a"),
            ("\"mac\":\"fa:16:3e:00:00:0b", "\"mac\":\"fa:16:3e:01:00:01", "sub-ENI fa:16:3e:01:00:01 has the MAC of a parent NIC or a gateway, or a group's"),
            ("fa:16:3e:00:00:0c", "fa:16:3e:ff:ff:fe", "sub-ENI fa:16:3e:ff:ff:fe has the MAC of a parent NIC or a gateway, or a group's"),
            ("fa:16:3e:00:00:0c", "01:00:5e:00:00:01", "sub-ENI 01:00:5e:00:00:01 has the MAC of a parent NIC or a gateway, or a group's"),
            ("\"ipv4\":\"10.72.0.11\",", "", "sub-ENI fa:16:3e:00:00:0b has no address"),
            ("10.72.0.12", "11.0.0.12", "sub-ENI fa:16:3e:00:00:0c: 11.0.0.12 is in none of the topology's subnets, or a gateway's"),
            ("10.72.0.12", "10.72.0.1", "sub-ENI fa:16:3e:00:00:0c: 10.72.0.1 is in none of the topology's subnets, or a gateway's"),
            ("10.72.0.12", "10.72.0.10", "sub-ENIs fa:16:3e:00:00:0a and fa:16:3e:00:00:0c both have 10.72.0.10"),
            ("\"vlan\":8", "\"vlan\":7", "sub-ENIs fa:16:3e:00:00:0a and fa:16:3e:00:00:0b both have VLAN 7 of parent NIC fa:16:3e:01:00:01"),
            ("\"parent\":\"fa:16:3e:01:00:01\",\"vlan\":8", "\"parent\":\"fa:16:3e:01:00:09\",\"vlan\":8", "sub-ENI fa:16:3e:00:00:0b hangs on parent NIC fa:16:3e:01:00:09, which the topology lacks"),
        ] {
            assert!(GOOD.contains(from), "{from}");
            assert_eq!(judged(&GOOD.replacen(from, to, 1)), Err(text.to_owned()));
        }
    }
}
