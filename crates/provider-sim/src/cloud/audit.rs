//! What must always hold of the cloud's table. An empty list is good.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::{Cloud, State};

impl Cloud {
    /// All violations, each naming its objects. At rest nothing may be under way.
    #[must_use]
    pub fn audit(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut addresses: BTreeMap<IpAddr, _> = BTreeMap::new();
        let mut vlans = BTreeMap::new();
        for sub_eni in self.sub_enis.values() {
            let mac = sub_eni.mac;
            for ip in sub_eni.addresses() {
                if let Some(other) = addresses.insert(ip, mac) {
                    found.push(format!("{ip} belongs to sub-ENIs {other} and {mac}"));
                }
            }
            if self.parents.contains_key(&mac) {
                found.push(format!("sub-ENI {mac} has the MAC of a parent NIC"));
            }
            if !matches!(sub_eni.state, State::Unbound | State::Bound(_)) {
                found.push(format!("sub-ENI {mac} is stuck: {:?}", sub_eni.state));
            }
            let Some(at) = sub_eni.state.attachment() else {
                continue;
            };
            let (parent, vlan) = (at.parent, at.vlan);
            if !self.parents.contains_key(&parent) {
                found.push(format!(
                    "sub-ENI {mac} is attached to {parent}, which does not exist"
                ));
            }
            if let Some(other) = vlans.insert((parent, vlan), mac) {
                found.push(format!(
                    "VLAN {vlan} of {parent} is used by {other} and {mac}"
                ));
            }
            if self.quarantine.contains_key(&(parent, vlan)) {
                // expired terms are dropped only when a VLAN is looked for, always before use
                found.push(format!(
                    "VLAN {vlan} of {parent} is used by {mac} in its quarantine"
                ));
            }
        }
        for (parent, nic) in &self.parents {
            let attached = self.attached_to(*parent);
            if attached > nic.limit {
                let limit = nic.limit;
                found.push(format!(
                    "parent NIC {parent} carries {attached} of {limit} sub-ENIs"
                ));
            }
        }
        found
    }
}
