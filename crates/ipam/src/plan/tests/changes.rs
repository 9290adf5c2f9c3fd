//! Spec ipam 1.4: pools that a StatefulSet Pod no longer names.
#![expect(
    clippy::too_many_lines,
    reason = "tables with one row a case read best in one piece"
)]

use spiderpool_api::cni_conf::Plugin;

use super::sticky::{holding, intent_of, member, mine, p};
use super::*;
use crate::candidates::Request;
use crate::sticky::Switches;

fn choosing(now: &Snapshot, key: &str, value: &str) -> Snapshot {
    let mut now = now.clone();
    now.pod.annotations.insert(key.into(), value.into());
    now
}

fn two_nics() -> Snapshot {
    let records = |nic: &str, last: u8| json!({format!("10.0.0.{last}"): rec("u-0", nic)});
    let mut b = holding(
        "b",
        "10.1.0.0/24",
        &json!({"10.1.0.10": rec("u-0", "net1")}),
    );
    b["spec"]["default"] = json!(true);
    let pools = [
        p(&records("eth0", 10)),
        b,
        holding("c", "10.2.0.0/24", &json!({})),
    ];
    let details = vec![
        detail("eth0", "10.0.0.10/24", "p"),
        detail("net1", "10.1.0.10/24", "b"),
    ];
    member(&pools, endpoint("u-0", details))
}

/// Spec ipam 1.4.
#[test]
fn row_5_pools_that_are_no_longer_named_are_given_up() {
    let request = |ifname: &str| Request::new(Plugin::EniVlan, ifname);
    let list = names::POD_IPPOOLS;
    let named = |eth0: &str, net1: &str| {
        format!(
            r#"[{{"interface":"eth0","ipv4":["{eth0}"]}},{{"interface":"net1","ipv4":["{net1}"]}}]"#
        )
    };
    let nameless =
        |first: &str, second: &str| format!(r#"[{{"ipv4":["{first}"]}},{{"ipv4":["{second}"]}}]"#);
    for (key, value, ifname, freed) in [
        (list, named("p", "b"), "eth0", vec![]),
        (list, named("p*", "?"), "eth0", vec![]),
        (list, named("c", "b"), "eth0", vec!["p"]),
        (list, named("p", "c"), "eth0", vec!["b"]),
        (list, named("c", "c"), "eth0", vec!["p", "b"]),
        // Nameless: by index alone, and one difference frees all.
        (list, nameless("p", "b"), "eth0", vec![]),
        (list, nameless("p", "b"), "net1", vec![]),
        (list, nameless("p", "c"), "eth0", vec!["p", "b"]),
        (list, nameless("b", "p"), "eth0", vec!["p", "b"]),
        (list, r#"[{"ipv4":["p"]}]"#.into(), "eth0", vec!["p", "b"]),
        // Other levels are about one NIC.
        (
            names::POD_IPPOOL,
            r#"{"ipv4":["p"]}"#.into(),
            "eth0",
            vec![],
        ),
        (
            names::POD_IPPOOL,
            r#"{"ipv4":["c"]}"#.into(),
            "eth0",
            vec!["p"],
        ),
        (
            names::POD_IPPOOL,
            r#"{"ipv4":["c"]}"#.into(),
            "net1",
            vec!["b"],
        ),
    ] {
        let now = choosing(&two_nics(), key, &value);
        let change = pool_change(&now, &request(ifname)).unwrap();
        let (free, keep) = change.map_or_else(
            || (vec![], 2),
            |change| {
                let pools = change.free.iter().map(|freed| freed.pool.clone());
                (pools.collect(), change.keep.len())
            },
        );
        assert_eq!(free, freed, "{value}");
        assert_eq!(keep, 2 - freed.len(), "{value}");
    }
    // The default changed; a node that no longer matches is no change.
    let change = pool_change(&two_nics(), &request("eth0")).unwrap().unwrap();
    assert_eq!(change.free[0].pool, "p");
    assert_eq!(pool_change(&two_nics(), &request("net1")), Ok(None));
    let mut pinned = holding(
        "p",
        "10.0.0.0/24",
        &json!({"10.0.0.10": rec("u-0", "eth0")}),
    );
    pinned["spec"]["nodeName"] = json!(["n9"]);
    let now = choosing(
        &member(&[pinned], endpoint("u-0", mine())),
        names::POD_IPPOOL,
        r#"{"ipv4":["p"]}"#,
    );
    assert_eq!(pool_change(&now, &request("eth0")), Ok(None));
    assert_eq!(word(&intent_of(&now)), "adopt");
}

#[test]
fn row_5_gives_nothing_up_for_a_choice_that_is_wrong() {
    let request = Request::new(Plugin::EniVlan, "eth0");
    for (key, value) in [
        (names::POD_IPPOOL, "{"),
        (names::POD_IPPOOL, r#"{"ipv4":["nope"]}"#),
        (names::POD_SUBNET, r#"{"ipv4":["s"]}"#),
        (names::POD_IPPOOLS, r#"[{"interface":"net1","ipv4":["p"]}]"#),
    ] {
        assert!(
            pool_change(&choosing(&two_nics(), key, value), &request).is_err(),
            "{value}"
        );
    }
    let stateless = Snapshot {
        switches: Switches::default(),
        ..two_nics()
    };
    assert_eq!(pool_change(&stateless, &request), Ok(None));
    let fresh = Snapshot {
        endpoint: None,
        ..two_nics()
    };
    assert_eq!(pool_change(&fresh, &request), Ok(None));
}

/// The IPv6 side of a pair is never named itself.
#[test]
fn row_5_a_partner_and_a_disabled_family_are_no_change() {
    let mut v4 = iaas(
        "p4",
        &["10.0.0.10"],
        Some("n1"),
        &json!({"10.0.0.10": entry(11)}),
    );
    v4["metadata"]["annotations"]["ipam.spidernet.io/pair-pool"] = json!("p6");
    let v6 = object("p6", "fd00::/64", &["fd00::10"]);
    let nic = EndpointNic {
        ipv6: Some("fd00::10/64".into()),
        ipv6_pool: Some("p6".into()),
        ..detail("eth0", "10.0.0.10/24", "p4")
    };
    let request = Request::new(Plugin::EniVlan, "eth0");
    let now = member(
        &[v4.clone(), v6.clone()],
        endpoint("u-0", vec![nic.clone()]),
    );
    let paired = choosing(&now, names::POD_IPPOOL, r#"{"ipv4":["p4"]}"#);
    assert_eq!(pool_change(&paired, &request), Ok(None));
    let mut off = member(
        &[p(&json!({"10.0.0.10": rec("u-0", "eth0")})), v6],
        endpoint(
            "u-0",
            vec![EndpointNic {
                ipv4_pool: Some("p".into()),
                ..nic
            }],
        ),
    );
    off.enable_ipv6 = false;
    let off = choosing(&off, names::POD_IPPOOL, r#"{"ipv4":["p"],"ipv6":["p6"]}"#);
    assert_eq!(pool_change(&off, &request), Ok(None));
    let other = choosing(&off, names::POD_IPPOOL, r#"{"ipv4":["p"]}"#);
    assert_eq!(pool_change(&other, &request).unwrap().unwrap().keep, []);
}
