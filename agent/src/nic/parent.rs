//! The parent NIC: found, fit for a sub-ENI, and whether a VLAN link hangs on it.

use spiderpool_api::value::{IfName, Mac};
use spiderpool_netops::netns::Netns;
use spiderpool_netops::rtnl::{Link, LinkKind, Rtnl, RtnlError};

use super::{MasterInfo, NicError};

/// Finds the parent NIC in the host namespace and sets it up when it is down.
pub(super) async fn find(host: &Rtnl, master: &IfName) -> Result<MasterInfo, NicError> {
    let failed = |source| NicError::Netlink {
        doing: "looking at the master",
        source,
    };
    let found = host.link_by_name(master.as_str()).await.map_err(failed)?;
    let missing = || NicError::MasterMissing {
        master: master.clone(),
    };
    let link = found.ok_or_else(missing)?;
    if link.kind == LinkKind::Vlan {
        return Err(NicError::MasterIsVlan {
            master: master.clone(),
        });
    }
    // Without an Ethernet address (lo, a tunnel) there is nothing a VLAN could run on.
    let mac = link
        .mac
        .filter(|mac| mac.is_unicast())
        .ok_or_else(missing)?;
    if !link.up {
        let failed = |source| NicError::Netlink {
            doing: "setting the master up",
            source,
        };
        host.set_up(link.ifindex).await.map_err(failed)?;
    }
    Ok(MasterInfo {
        ifindex: link.ifindex,
        mac,
        permanent_mac: link.permanent_mac,
        mtu: link.mtu,
    })
}

/// Refuses a parent NIC that is not the one the sub-ENI belongs to.
pub(super) fn require_mac(
    master: &IfName,
    found: &MasterInfo,
    expected: Option<Mac>,
) -> Result<(), NicError> {
    match expected {
        Some(expected) if found.mac != expected && found.permanent_mac != Some(expected) => {
            Err(NicError::ParentMacMismatch {
                master: master.clone(),
                expected,
                mac: found.mac,
                permanent: found.permanent_mac,
            })
        }
        _ => Ok(()),
    }
}

/// Refuses a sub-ENI with the MAC of its parent NIC.
pub(super) fn require_own_mac(
    master: &IfName,
    found: &MasterInfo,
    mac: Mac,
) -> Result<(), NicError> {
    if mac == found.mac || found.permanent_mac == Some(mac) {
        let master = master.clone();
        return Err(NicError::MacOfMaster { master, mac });
    }
    Ok(())
}

/// The MTU the NIC gets: the configured one, or the parent's.
pub(super) fn effective_mtu(
    master: &IfName,
    found: &MasterInfo,
    mtu: Option<u32>,
) -> Result<u32, NicError> {
    match mtu {
        None | Some(0) => Ok(found.mtu),
        Some(mtu) if mtu > found.mtu => Err(NicError::MtuAboveMaster {
            master: master.clone(),
            mtu,
            limit: found.mtu,
        }),
        Some(mtu) => Ok(mtu),
    }
}

/// Whether a link of the namespace `pod` is connected to hangs on link `master` of `host`.
/// Indexes repeat between namespaces, so the parent's namespace is compared too.
pub(super) async fn is_under(
    pod: &Rtnl,
    pod_netns: &Netns,
    link: &Link,
    host: &Netns,
    master: u32,
) -> Result<bool, RtnlError> {
    if link.parent != Some(master) {
        return Ok(false);
    }
    match link.parent_nsid {
        None => Ok(pod_netns.id() == host.id()),
        Some(nsid) => Ok(pod.nsid_of(host).await? == Some(nsid)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info() -> MasterInfo {
        let permanent_mac = Some(Mac::new([2, 0, 0, 0, 0, 2]));
        MasterInfo {
            ifindex: 2,
            mac: Mac::new([2, 0, 0, 0, 0, 1]),
            permanent_mac,
            mtu: 1500,
        }
    }

    #[test]
    fn current_and_permanent_mac_both_prove_the_parent() {
        let eth1 = "eth1".parse().unwrap();
        for (last, fits) in [(1, true), (2, true), (3, false)] {
            let expected = Some(Mac::new([2, 0, 0, 0, 0, last]));
            assert_eq!(
                require_mac(&eth1, &info(), expected).is_ok(),
                fits,
                "{last}"
            );
        }
        assert!(require_mac(&eth1, &info(), None).is_ok());
        let error = require_mac(&eth1, &info(), Some(Mac::BROADCAST)).unwrap_err();
        assert_eq!(error.code(), 106);
        for part in [
            "eth1",
            "02:00:00:00:00:01",
            "02:00:00:00:00:02",
            "ff:ff:ff:ff:ff:ff",
        ] {
            assert!(error.to_string().contains(part), "{error}");
        }
    }

    #[test]
    fn a_sub_eni_has_no_mac_of_its_parent() {
        let eth1 = "eth1".parse().unwrap();
        for (last, fits) in [(1, false), (2, false), (3, true)] {
            let mac = Mac::new([2, 0, 0, 0, 0, last]);
            let judged = require_own_mac(&eth1, &info(), mac);
            assert_eq!(judged.is_ok(), fits, "{last}");
            if let Err(error) = judged {
                assert_eq!(error.code(), 106);
                assert!(error.to_string().contains(&mac.to_string()), "{error}");
            }
        }
    }

    #[test]
    fn mtu_is_the_parents_unless_a_smaller_one_is_set() {
        let eth1 = "eth1".parse().unwrap();
        for (asked, given) in [
            (None, 1500),
            (Some(0), 1500),
            (Some(1400), 1400),
            (Some(1500), 1500),
        ] {
            assert_eq!(effective_mtu(&eth1, &info(), asked).unwrap(), given);
        }
        let error = effective_mtu(&eth1, &info(), Some(1501)).unwrap_err();
        assert_eq!(
            (error.code(), error.to_string().contains("1501")),
            (7, true),
            "{error}"
        );
    }
}
