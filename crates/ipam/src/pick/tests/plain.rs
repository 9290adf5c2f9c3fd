#![expect(
    clippy::too_many_lines,
    reason = "tables with one row a case read best in one piece"
)]

use super::*;

#[test]
fn plain_picks_are_first_free_in_the_order_of_the_spec() {
    let web = who("web", "eth0", "n1");
    for (records, reserved, want) in [
        // .10 is the gateway
        (json!({}), vec![], Some("10.0.0.11")),
        (
            json!({"10.0.0.11": rec("u-9", "eth0")}),
            vec![],
            Some("10.0.0.12"),
        ),
        (json!({}), vec!["10.0.0.11-10.0.0.12"], Some("10.0.0.5")),
        (
            json!({"10.0.0.12": rec("u-web", "eth0")}),
            vec![],
            Some("10.0.0.12"),
        ),
        // A reservation does not move what is allocated.
        (
            json!({"10.0.0.12": rec("u-web", "eth0")}),
            vec!["10.0.0.12"],
            Some("10.0.0.12"),
        ),
        // Another NIC of the same Pod gets another address.
        (
            json!({"10.0.0.12": rec("u-web", "net1")}),
            vec![],
            Some("10.0.0.11"),
        ),
        // A record without a NIC is the asking one's.
        (
            json!({"10.0.0.12": {"pod": "ns/web", "podUid": "u-web"}}),
            vec![],
            Some("10.0.0.12"),
        ),
        // Name alone proves nothing (B02).
        (
            json!({"10.0.0.11": {"pod": "ns/web", "podUid": "u-old"}}),
            vec![],
            Some("10.0.0.12"),
        ),
        // Being released: nobody's.
        (
            json!({"10.0.0.12": {"pod": "ns/web", "podUid": "u-web", "nic": "eth0",
            "releasing": {"by": "a", "at": "t"}}}),
            vec![],
            Some("10.0.0.11"),
        ),
        (json!({}), vec!["10.0.0.0-10.0.0.255"], None),
    ] {
        let found = pick(&ten(&records), None, &web, &rules(&reserved));
        assert_eq!(
            found.as_ref().ok().map(|pick| pick.address),
            want.map(ip),
            "{records}"
        );
        if let Err(error) = found {
            assert!(error.is_used_out() && error.to_string().contains("all IP addresses used out"));
            assert!(error.to_string().contains("IPPool p"));
        }
    }
}

#[test]
fn a_record_without_nic_belongs_to_the_nic_the_endpoint_names() {
    let pool = ten(&json!({"10.0.0.12": {"pod": "ns/web", "podUid": "u-web"}}));
    let mut second = who("web", "net1", "n1");
    second.elsewhere = vec![ip("10.0.0.12")];
    assert_eq!(
        pick(&pool, None, &second, &rules(&[])).unwrap().address,
        ip("10.0.0.11")
    );
}

#[test]
fn an_empty_uid_owns_nothing() {
    let pool = ten(&json!({"10.0.0.12": {"pod": "ns/web", "podUid": ""}}));
    let nobody = Claimant {
        uid: String::new(),
        ..who("web", "eth0", "n1")
    };
    assert_eq!(
        pick(&pool, None, &nobody, &rules(&[])).unwrap().kind,
        PickKind::New
    );
}

#[test]
fn the_record_cap_and_closed_pools_stop_new_records_only() {
    let pool = ten(&json!({"10.0.0.12": rec("u-web", "eth0")}));
    let capped = Rules {
        record_cap: 1,
        ..Rules::default()
    };
    let other = who("other", "eth0", "n1");
    let error = pick(&pool, None, &other, &capped).unwrap_err();
    assert!(
        error.is_used_out() && error.to_string().contains("1 records"),
        "{error}"
    );
    assert!(pick(&pool, None, &who("web", "eth0", "n1"), &capped).is_ok());
    let closed = Pool {
        terminating: true,
        ..pool
    };
    let error = pick(&closed, None, &other, &rules(&[])).unwrap_err();
    assert!(error.to_string().contains("terminating"), "{error}");
    assert!(pick(&closed, None, &who("web", "eth0", "n1"), &rules(&[])).is_ok());
}

proptest! {
    /// Whatever the records, exclusions and reservations: a new address is the pool's, free, not
    /// reserved, not the gateway, and asking again after the write gives the same one.
    #[test]
    fn a_new_address_is_always_a_legal_one(
        taken in proptest::collection::btree_map(0_u8..16, (0_u8..4, 0_u8..2), 0..16),
        excluded in proptest::collection::btree_set(0_u8..16, 0..6),
        reserved in proptest::collection::btree_set(0_u8..16, 0..6),
        gateway in 0_u8..16,
        ready in proptest::option::of(proptest::collection::btree_set(0_u8..16, 0..12)),
    ) {
        let at = |n: u8| format!("10.0.0.{n}");
        let list = |set: &std::collections::BTreeSet<u8>| set.iter().map(|n| at(*n)).collect::<Vec<_>>();
        let entries: serde_json::Map<String, Value> = ready.iter().flatten()
            .map(|n| (at(*n), entry(i64::from(*n) + 1))).collect();
        let mut given = match ready {
            Some(_) => iaas("p", &["10.0.0.0-10.0.0.15"], Some("n1"), &json!(entries)),
            None => object("p", "10.0.0.0/24", &["10.0.0.0-10.0.0.15"]),
        };
        given["spec"]["excludeIPs"] = json!(list(&excluded));
        given["spec"]["gateway"] = json!(at(gateway));
        let records: serde_json::Map<String, Value> = taken.iter()
            .map(|(n, (uid, nic))| (at(*n), rec(&format!("u-{uid}"), &format!("eth{nic}")))).collect();
        let pool = with_records(&pool(&given), &json!(records));
        let rules = Rules { reserved: RangeSet::from_texts(&list(&reserved)).unwrap(), ..Rules::default() };
        for uid in 0..5_u8 {
            let asking = who(&uid.to_string(), "eth0", "n1");
            let Ok(chosen) = pick(&pool, None, &asking, &rules) else { continue };
            let record = pool.records.get(chosen.address);
            if chosen.kind == PickKind::Existing {
                prop_assert!(record.is_some_and(|record| record.pod_uid == asking.uid));
                continue;
            }
            prop_assert!(record.is_none());
            prop_assert!(pool.usable.contains(chosen.address));
            prop_assert!(!rules.reserved.contains(chosen.address));
            prop_assert!(pool.gateway != Some(chosen.address));
            let mut after = pool.clone();
            for gone in &chosen.stale {
                after.records.remove(*gone);
            }
            after.records.insert(chosen.address, serde_json::from_value(rec(&asking.uid, "eth0")).unwrap());
            let again = pick(&after, None, &asking, &rules).unwrap();
            prop_assert_eq!(again.address, chosen.address);
            prop_assert_eq!(again.kind, PickKind::Existing);
        }
    }
}
