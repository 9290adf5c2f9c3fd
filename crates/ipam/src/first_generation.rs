//! What differs under the first generation of the provider contract (`serverUrl` without a service;
//! spec ipam 7.5, iaas Q8): the NIC's configuration decides whether a provider is involved, pools
//! are all plain ([`crate::pool::Pool::unmarked`]), and only IPv4 is bound.

use std::time::Duration;

use ipnet::Ipv4Net;

use crate::plan::{AllocatedIp, Allocation};

/// What the provider may take at worst: with less left it is not called, as its work would outlive
/// the call.
pub const WORST_CASE: Duration = Duration::from_secs(48);

/// Whether a NIC of this `SpiderMultusConfig` is a sub-ENI: of type `vlan`, without `vlanID`. The
/// id 0 is one that was given.
#[must_use]
pub fn is_sub_eni(cni_type: &str, vlan_id: Option<i64>) -> bool {
    cni_type == "vlan" && vlan_id.is_none()
}

/// Why the provider is not called.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallRefused {
    /// Too little time.
    #[error(
        "parent budget insufficient: {}s remaining is less than provider worst-case {}s",
        .0.as_secs(),
        WORST_CASE.as_secs()
    )]
    Budget(Duration),
    /// The sub-ENI would carry something else than one IPv4 address.
    #[error(
        "NIC {nic} has {has}, and an IaaS Network Provider of contract version 1 binds IPv4 addresses only: name IPv4 pools alone"
    )]
    Families {
        /// Interface name.
        nic: String,
        /// Its addresses.
        has: String,
    },
}

/// The address to bind for a sub-ENI, and to release later: one call each, the provider first,
/// then the pool.
///
/// # Errors
/// [`CallRefused::Families`] for anything but one IPv4 address.
pub fn address_of(allocation: &Allocation) -> Result<(Ipv4Net, &AllocatedIp), CallRefused> {
    if let [ip] = allocation.ips.as_slice()
        && let ipnet::IpNet::V4(net) = ip.address
    {
        return Ok((net, ip));
    }
    let has: Vec<String> = allocation
        .ips
        .iter()
        .map(|ip| ip.address.to_string())
        .collect();
    Err(CallRefused::Families {
        nic: allocation.nic.clone(),
        has: if has.is_empty() {
            "no address".to_owned()
        } else {
            has.join(" and ")
        },
    })
}

/// Whether there is time for a call.
///
/// # Errors
/// [`CallRefused::Budget`].
pub fn check_budget(remaining: Duration) -> Result<(), CallRefused> {
    if remaining < WORST_CASE {
        Err(CallRefused::Budget(remaining))
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixture::{iaas, pool, snapshot, who};
    use crate::pick::{Path, Rules, pick};

    #[test]
    fn the_configuration_decides_which_nics_are_sub_enis() {
        for (cni_type, vlan_id, want) in [
            ("vlan", None, true),
            ("vlan", Some(0), false),
            ("vlan", Some(100), false),
            ("macvlan", None, false),
        ] {
            assert_eq!(
                is_sub_eni(cni_type, vlan_id),
                want,
                "{cni_type} {vlan_id:?}"
            );
        }
    }

    #[test]
    fn a_call_needs_48_seconds() {
        assert_eq!(check_budget(Duration::from_secs(48)), Ok(()));
        let text = check_budget(Duration::from_millis(47_999)).unwrap_err();
        assert_eq!(
            text.to_string(),
            "parent budget insufficient: 47s remaining is less than provider worst-case 48s"
        );
    }

    #[test]
    fn only_one_ipv4_address_is_bound() {
        let nic = |addresses: &[&str]| Allocation {
            nic: "eth0".into(),
            ips: addresses
                .iter()
                .map(|address| AllocatedIp {
                    address: address.parse().unwrap(),
                    pool: "p".into(),
                    gateway: None,
                })
                .collect(),
            routes: vec![],
            clean_gateway: false,
            vlan: None,
            mac: None,
        };
        let one = nic(&["10.0.0.10/24"]);
        assert_eq!(address_of(&one).unwrap().0.to_string(), "10.0.0.10/24");
        for (addresses, part) in [
            (vec!["fd00::1/64"], "fd00::1/64"),
            (
                vec!["10.0.0.10/24", "fd00::1/64"],
                "10.0.0.10/24 and fd00::1/64",
            ),
            (vec![], "no address"),
        ] {
            let text = address_of(&nic(&addresses)).unwrap_err().to_string();
            assert!(text.contains(part) && text.contains("eth0"), "{text}");
        }
    }

    #[test]
    fn marks_metadata_and_pairs_of_pools_do_not_count() {
        let mut marked = iaas("g", &["10.0.0.10-10.0.0.12"], None, &json!({}));
        marked["metadata"]["annotations"]["ipam.spidernet.io/pair-pool"] = json!("g6");
        let plain = pool(&marked).unmarked();
        assert!(!plain.is_iaas() && plain.pair.is_none() && plain.metadata.is_none());
        let pick = pick(&plain, None, &who("a", "eth0", "n1"), &Rules::default()).unwrap();
        assert_eq!(
            (pick.address.to_string().as_str(), pick.path),
            ("10.0.0.10", Path::Plain)
        );
        // With a plain pool beside it neither is dropped: there are no classes.
        let mut now = snapshot(&[]);
        let other = pool(&crate::fixture::object("p", "10.2.0.0/24", &["10.2.0.10"]));
        now.pools = vec![plain.into(), other.into()];
        let request = crate::candidates::Request {
            ipv4_pools: vec!["p".into(), "g".into()],
            ..crate::candidates::Request::new(spiderpool_api::cni_conf::Plugin::EniVlan, "eth0")
        };
        let selection = crate::candidates::select(&now, &request).unwrap();
        assert_eq!(selection.dropped, []);
        assert_eq!(selection.nics[0].families[0].candidates.len(), 2);
    }
}
