//! Whether what a file remembers of the cloud can be: a person may have written it, or taken it from
//! another topology. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use spiderpool_api::value::{Mac, VlanId};

use super::Saved;
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
        let parents: BTreeSet<Mac> = topology.parents.iter().map(|parent| parent.mac).collect();
        let gateways: BTreeSet<Mac> = topology.subnets.iter().map(|one| one.gateway_mac).collect();
        let (mut macs, mut vlans) = (BTreeSet::new(), BTreeMap::new());
        let mut addresses: BTreeMap<IpAddr, Mac> = BTreeMap::new();
        for sub_eni in &self.sub_enis {
            let mac = sub_eni.mac;
            if !macs.insert(mac) {
                return Err(SavedError::MacTwice(mac));
            }
            if !mac.is_unicast() || parents.contains(&mac) || gateways.contains(&mac) {
                return Err(SavedError::ForeignMac(mac));
            }
            if sub_eni.address().is_none() {
                return Err(SavedError::NoAddress(mac));
            }
            for ip in sub_eni.addresses() {
                if let Some(first) = addresses.insert(ip, mac) {
                    return Err(SavedError::AddressTwice {
                        first,
                        second: mac,
                        ip,
                    });
                }
            }
            let Some(at) = sub_eni.state.attachment() else {
                continue;
            };
            let (parent, vlan) = (at.parent, at.vlan);
            if !parents.contains(&parent) {
                return Err(SavedError::NoParent { mac, parent });
            }
            if let Some(first) = vlans.insert((parent, vlan), mac) {
                return Err(SavedError::VlanTwice {
                    first,
                    second: mac,
                    vlan,
                    parent,
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOPOLOGY: &str = r#"
parents: [{node: n1, mac: "fa:16:3e:01:00:01", ifname: p1}]
subnets: [{ipv4: 10.72.0.0/24, gatewayIpv4: 10.72.0.1, gatewayMac: "fa:16:3e:ff:ff:fe"}]
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
            ("10.72.0.12", "10.72.0.10", "sub-ENIs fa:16:3e:00:00:0a and fa:16:3e:00:00:0c both have 10.72.0.10"),
            ("\"vlan\":8", "\"vlan\":7", "sub-ENIs fa:16:3e:00:00:0a and fa:16:3e:00:00:0b both have VLAN 7 of parent NIC fa:16:3e:01:00:01"),
            ("\"parent\":\"fa:16:3e:01:00:01\",\"vlan\":8", "\"parent\":\"fa:16:3e:01:00:09\",\"vlan\":8", "sub-ENI fa:16:3e:00:00:0b hangs on parent NIC fa:16:3e:01:00:09, which the topology lacks"),
        ] {
            assert!(GOOD.contains(from), "{from}");
            assert_eq!(judged(&GOOD.replacen(from, to, 1)), Err(text.to_owned()));
        }
    }
}
