//! What differs under the first generation of the provider contract (`serverUrl` without a service;
//! spec ipam 7.5, iaas Q8): the NIC's configuration decides whether a provider is involved, pools
//! are all plain ([`crate::pool::Pool::unmarked`]), and only IPv4 is bound.

use std::net::IpAddr;

use ipnet::IpNet;
use spiderpool_api::allocation::Record;
use spiderpool_api::endpoint::{EndpointAllocation, EndpointNic};

use crate::candidates::NicCandidates;
use crate::pool::Pool;
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

/// What is known of a record that names no node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unnamed {
    /// No provider was asked for the address.
    NotBound,
    /// One was, or may have been, for this node.
    For(String),
    /// The same, and nobody knows for which node.
    Nowhere,
}

/// Judges a record that names no node. We name it before we ask, and the NIC always; agents of other
/// releases wrote neither of them, but they wrote the VLAN into the endpoint. `endpoint` is that of the
/// record's key, `pod_node` where its Pod is or was.
#[must_use]
pub fn unnamed(
    pool: &Pool,
    (address, record): (IpAddr, &Record),
    endpoint: Option<&EndpointAllocation>,
    pod_node: Option<&str>,
) -> Unnamed {
    let own = endpoint.filter(|current| current.uid == record.pod_uid);
    let mut nics = own.iter().flat_map(|current| &current.ips);
    let bound = match nics.find(|nic| has(nic, address)) {
        Some(nic) => nic.vlan != 0,
        // Nothing says that it is none.
        None => record.nic.is_none(),
    };
    if record.node.is_some() || address.is_ipv6() || !bound {
        return Unnamed::NotBound;
    }
    let of_endpoint = own.map(|current| current.node.as_str());
    let of_pool = match pool.affinity.node_names.as_slice() {
        [one] => Some(one.as_str()),
        _ => None,
    };
    let nodes = [of_endpoint, pod_node, of_pool];
    let known = nodes.into_iter().flatten().find(|node| !node.is_empty());
    known.map_or(Unnamed::Nowhere, |node| Unnamed::For(node.to_owned()))
}

fn has(nic: &EndpointNic, address: IpAddr) -> bool {
    let net = nic
        .ipv4
        .as_deref()
        .and_then(|text| text.parse::<IpNet>().ok());
    net.is_some_and(|net| net.addr() == address)
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

    fn record(nic: Option<&str>, node: Option<&str>) -> Record {
        let raw = json!({"pod": "ns/a", "podUid": "u-1", "nic": nic, "node": node});
        serde_json::from_value(raw).unwrap()
    }

    /// Records of agents of other releases.
    #[test]
    fn the_endpoint_tells_whether_a_record_without_a_node_is_a_sub_eni() {
        let object = |nodes: serde_json::Value| {
            let mut object = crate::fixture::object("p", "10.2.0.0/24", &["10.2.0.10"]);
            object["spec"]["nodeName"] = nodes;
            pool(&object)
        };
        let (anywhere, one) = (object(json!(null)), object(json!(["n9"])));
        let two = object(json!(["n8", "n9"]));
        let endpoint = |uid: &str, node: &str, vlan: i64| -> EndpointAllocation {
            let nic = json!({"interface": "net1", "ipv4": "10.2.0.10/24", "vlan": vlan});
            serde_json::from_value(json!({"uid": uid, "node": node, "ips": [nic]})).unwrap()
        };
        let (old, ours) = (record(None, None), record(Some("net1"), None));
        let named = record(None, Some("n1"));
        let bound = endpoint("u-1", "n1", 301);
        let other = endpoint("u-2", "n1", 301);
        let plain = endpoint("u-1", "n1", 0);
        let nowhere = endpoint("u-1", "", 301);
        let for_node = |node: &str| Unnamed::For(node.to_owned());
        let [v4, v6]: [IpAddr; 2] = ["10.2.0.10", "fd00::1"].map(|ip| ip.parse().unwrap());
        for (case, (pool, address, record, endpoint, pod_node, want)) in [
            (&anywhere, v4, &old, Some(&bound), None, for_node("n1")),
            (&anywhere, v4, &ours, Some(&bound), None, for_node("n1")),
            (&one, v4, &old, Some(&plain), Some("n1"), Unnamed::NotBound),
            (&one, v4, &named, Some(&bound), None, Unnamed::NotBound),
            // Without a word of the endpoint: by who wrote the record.
            (&one, v4, &ours, None, Some("n1"), Unnamed::NotBound),
            (&one, v4, &old, None, Some("n1"), for_node("n1")),
            (&one, v4, &old, Some(&other), None, for_node("n9")),
            (&one, v4, &old, Some(&nowhere), Some(""), for_node("n9")),
            (&two, v4, &old, Some(&nowhere), Some("n3"), for_node("n3")),
            (&two, v4, &old, None, None, Unnamed::Nowhere),
            (&anywhere, v4, &old, Some(&nowhere), None, Unnamed::Nowhere),
            (&one, v6, &old, None, Some("n1"), Unnamed::NotBound),
        ]
        .into_iter()
        .enumerate()
        {
            let got = unnamed(pool, (address, record), endpoint, pod_node);
            assert_eq!(got, want, "{case}");
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
