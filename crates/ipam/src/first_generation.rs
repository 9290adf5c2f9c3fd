//! What differs under the first generation of the provider contract (`serverUrl` without a service;
//! spec ipam 7.5, iaas Q8): the NIC's configuration decides whether a provider is involved, pools
//! are all plain ([`crate::pool::Pool::unmarked`]), and only IPv4 is bound.

use crate::candidates::NicCandidates;
use crate::range::Family;

/// Whether a NIC of this `SpiderMultusConfig` is a sub-ENI: of type `vlan`, without `vlanID`. The
/// id 0 is one that was given.
#[must_use]
pub fn is_sub_eni(cni_type: &str, vlan_id: Option<i64>) -> bool {
    cni_type == "vlan" && vlan_id.is_none()
}

/// A sub-ENI would carry something else than one IPv4 address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "NIC {nic} draws from {families} pools, and an IaaS Network Provider of contract version 1 binds IPv4 addresses only: name IPv4 pools alone"
)]
pub struct NotIpv4 {
    /// Interface name.
    pub nic: String,
    /// What is named for it.
    pub families: String,
}

/// Judges what a sub-ENI would be given, before any claim.
///
/// # Errors
/// [`NotIpv4`].
pub fn check_families(nic: &NicCandidates) -> Result<(), NotIpv4> {
    let families: Vec<Family> = nic.families.iter().map(|family| family.family).collect();
    if families == [Family::V4] {
        return Ok(());
    }
    let texts: Vec<String> = families.iter().map(ToString::to_string).collect();
    Err(NotIpv4 {
        nic: nic.nic.clone(),
        families: texts.join(" and "),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::batch::{self, Op, Outcome};
    use crate::candidates::FamilyCandidates;
    use crate::fixture::{iaas, pool, snapshot, who};
    use crate::pick::{Claimant, Path, Rules, pick};
    use crate::plan::{self, EndpointWrite, Intent};
    use crate::pool::Pool;

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
    fn a_sub_eni_has_ipv4_alone() {
        let nic = |families: &[Family]| NicCandidates {
            nic: "net1".into(),
            clean_gateway: false,
            families: families
                .iter()
                .map(|family| FamilyCandidates {
                    family: *family,
                    candidates: Vec::new(),
                    refusals: Vec::new(),
                })
                .collect(),
        };
        assert_eq!(check_families(&nic(&[Family::V4])), Ok(()));
        for (families, part) in [
            (vec![Family::V6], "net1 draws from IPv6 pools"),
            (vec![Family::V4, Family::V6], "IPv4 and IPv6 pools"),
        ] {
            let text = check_families(&nic(&families)).unwrap_err().to_string();
            assert!(text.contains(part), "{text}");
        }
    }

    /// One NIC, from the claim to the release.
    #[test]
    fn its_record_tells_for_which_node_the_provider_was_asked() {
        let plain = pool(&crate::fixture::object("p", "10.2.0.0/24", &["10.2.0.10"]));
        let asks = Claimant {
            sub_eni: true,
            ..who("a", "net1", "n1")
        };
        let claim = |who: &Claimant| Op::Claim {
            who: who.clone(),
            pin: None,
        };
        let rules = Rules::default();
        let apply = |pool: &Pool, op: Op| batch::apply(pool, None, &rules, &[op]);
        let (address, paths) = ("10.2.0.10".parse().unwrap(), Path::ColdCreate);
        let path = |batch: &batch::Batch| match &batch.outcomes[0] {
            Ok(Outcome::Claimed(pick)) => pick.path,
            other => panic!("{other:?}"),
        };
        let first = apply(&plain, claim(&asks));
        assert_eq!(path(&first), paths);
        let held = plain.with_records(first.records);
        let record = held.records.get(address).unwrap();
        assert_eq!(record.node.as_deref(), Some("n1"));
        assert_eq!(
            crate::gc::how_to_release(&held, address, record, std::iter::empty()),
            crate::gc::How::ProviderFirst { half: None }
        );
        // The retry asks again; so does one that had been claimed along with another NIC.
        let again = apply(&held, claim(&asks));
        assert!(path(&again) == paths && !again.changed);
        let along = plain.with_records(apply(&plain, claim(&who("a", "net1", "n1"))).records);
        assert_eq!(along.records.get(address).unwrap().node, None);
        let own = apply(&along, claim(&asks));
        assert!(own.changed && own.records == held.records);
        // It goes alone, and only by name.
        let release = |addresses| Op::Release {
            uid: asks.uid.clone(),
            nic: None,
            addresses,
            by: None,
        };
        assert!(!apply(&held, release(None)).changed);
        assert!(apply(&held, release(Some(vec![address]))).changed);
    }

    #[test]
    fn a_nic_that_was_claimed_along_with_another_is_bound_by_its_own_add() {
        let plain = pool(&crate::fixture::object("p", "10.2.0.0/24", &["10.2.0.10"]));
        let records = json!({"10.2.0.10": {"pod": "shop/web-0", "podUid": "u-1", "nic": "net1"}});
        let mut now = snapshot(&[]);
        now.pools = vec![crate::fixture::with_records(&plain, &records).into()];
        let endpoint = |vlan: i64| {
            let status = json!({"current": {"uid": "u-1", "node": "n1", "ips": [
                {"interface": "net1", "ipv4": "10.2.0.10/24", "ipv4Pool": "p", "vlan": vlan}]},
                "ownerControllerType": "Pod", "ownerControllerName": "web-0"});
            serde_json::from_value(status).unwrap()
        };
        let intent = |now: &crate::facts::Snapshot| plan::plan_add(now, "net1").unwrap().intent;
        now.endpoint = Some(endpoint(0));
        assert!(matches!(intent(&now), Intent::Retrieve(_)));
        now.sub_eni = Some("net1".into());
        assert_eq!(intent(&now), Intent::Fresh(EndpointWrite::Replace));
        now.endpoint = Some(endpoint(7));
        assert!(matches!(intent(&now), Intent::Retrieve(_)));
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
