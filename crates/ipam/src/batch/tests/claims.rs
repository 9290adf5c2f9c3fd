use super::*;

#[test]
fn a_member_that_does_not_fit_leaves_the_others_alone() {
    let ops = [claim("a"), claim("b"), claim("c"), free("u-a"), claim("d")];
    let batch = apply(&small(), None, &Rules::default(), &ops);
    assert_eq!(
        addresses(&batch),
        [
            Some(ip("10.0.0.10")),
            Some(ip("10.0.0.11")),
            None,
            None,
            Some(ip("10.0.0.10"))
        ]
    );
    assert!(batch.outcomes[2].as_ref().unwrap_err().is_used_out());
    assert_eq!(
        batch.outcomes[3],
        Ok(Outcome::Released(vec![ip("10.0.0.10")]))
    );
    assert!(batch.changed);
    assert_eq!(
        batch.records.encode().unwrap(),
        r#"{"10.0.0.10":{"pod":"ns/d","podUid":"u-d","nic":"eth0"},"10.0.0.11":{"pod":"ns/b","podUid":"u-b","nic":"eth0"}}"#
    );
}

#[test]
fn repeats_change_nothing() {
    let first = apply(&small(), None, &Rules::default(), &[claim("a")]);
    let pool = small().with_records(first.records);
    let again = apply(
        &pool,
        None,
        &Rules::default(),
        &[claim("a"), free("u-x"), free("")],
    );
    assert!(!again.changed);
    assert_eq!(again.outcomes[1], Ok(Outcome::Released(vec![])));
}

/// B03: a late DEL of the old UID frees the old address alone, twice is once.
#[test]
fn b03_a_late_release_frees_only_its_own_uid() {
    let old = json!({"pod": "batch/job-0", "podUid": "u-1"});
    let pool = with_records(&small(), &json!({"10.0.0.10": old}));
    let new = Claimant {
        pod: "batch/job-0".into(),
        ..who("2", "eth0", "n2")
    };
    let batch = apply(
        &pool,
        None,
        &Rules::default(),
        &[
            Op::Claim {
                who: new,
                pin: None,
            },
            free("u-1"),
            free("u-1"),
        ],
    );
    assert_eq!(addresses(&batch)[0], Some(ip("10.0.0.11")));
    assert_eq!(
        batch.outcomes[1],
        Ok(Outcome::Released(vec![ip("10.0.0.10")]))
    );
    assert_eq!(batch.outcomes[2], Ok(Outcome::Released(vec![])));
    assert_eq!(batch.records.count(), 1);
}

#[test]
fn claims_of_one_batch_get_different_partners() {
    let v4 = pool(&iaas("p4", &["10.0.0.10-10.0.0.12"], None, &json!({})));
    let v6 = pool(&object("p6", "fd00::/64", &["fd00::10-fd00::20"]));
    let rules = Rules {
        provider: true,
        ..Rules::default()
    };
    let batch = apply(
        &v4,
        Some(&v6),
        &rules,
        &[claim("a"), claim("b"), claim("c")],
    );
    let partners: std::collections::BTreeSet<_> = batch
        .outcomes
        .iter()
        .map(|outcome| match outcome {
            Ok(Outcome::Claimed(pick)) => pick.pair_v6,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(partners.len(), 3);
}

#[test]
fn the_other_half_replaces_one_of_an_older_pair() {
    // The sibling's own metadata is never read.
    let mut given = object("p6", "fd00::/64", &["fd00::10-fd00::20"]);
    given["metadata"]["annotations"] = json!({"ipam.spidernet.io/iaas-provider": "cloud"});
    let pool = with_records(
        &pool(&given),
        &json!({
        "fd00::11": {"pod": "ns/a", "podUid": "u-a", "nic": "eth0"},
        "fd00::12": {"pod": "ns/z", "podUid": "u-z", "nic": "eth0"}}),
    );
    let half = |address: &str| Op::ClaimHalf {
        who: who("a", "eth0", "n1"),
        address: ip(address),
    };
    let batch = apply(
        &pool,
        None,
        &Rules::default(),
        &[half("fd00::12"), half("fd00::10"), half("fd00::10")],
    );
    assert!(batch.outcomes[0].is_err());
    assert!(batch.outcomes[1].is_ok() && batch.outcomes[2].is_ok());
    assert_eq!(batch.records.get(ip("fd00::11")), None);
    assert_eq!(batch.records.get(ip("fd00::10")).unwrap().pod_uid, "u-a");
    assert_eq!(batch.records.count(), 2);
}

#[test]
fn stale_own_claims_leave_in_the_same_write() {
    let pool = pool(&iaas(
        "w",
        &["10.0.0.10-10.0.0.12"],
        Some("n1"),
        &json!({"10.0.0.12": entry(12)}),
    ));
    let pool = with_records(
        &pool,
        &json!({"10.0.0.10": {"pod": "ns/a", "podUid": "u-a", "nic": "eth0"}}),
    );
    let batch = apply(&pool, None, &Rules::default(), &[claim("a")]);
    assert_eq!(batch.records.get(ip("10.0.0.10")), None);
    assert_eq!(batch.records.get(ip("10.0.0.12")).unwrap().pod_uid, "u-a");
}

#[test]
fn a_batch_on_a_full_pool_stays_quick() {
    let wide = pool(&object("p", "10.0.0.0/16", &["10.0.0.0-10.0.255.255"]));
    let rows = (0..4_900_u32).map(|n| {
        (
            std::net::Ipv4Addr::from_bits(0x0a00_0000 + n).to_string(),
            json!({"pod": "ns/x", "podUid": format!("u{n}"), "nic": "eth0"}),
        )
    });
    let full = with_records(&wide, &json!(rows.collect::<serde_json::Map<_, _>>()));
    let ops: Vec<Op> = (0..64).map(|n| claim(&format!("w{n}"))).collect();
    let batch = apply(&full, None, &Rules::default(), &ops);
    assert_eq!(batch.records.count(), 4_964);
    assert!(batch.outcomes.iter().all(Result::is_ok));
}

/// Case B04 under load: a range of 2^64 addresses stays one interval beside 5,000 records.
#[test]
fn b04_a_whole_ipv6_network_with_5000_records_is_never_expanded() {
    let whole = pool(&object(
        "p",
        "fd12::/64",
        &["fd12::-fd12::ffff:ffff:ffff:ffff"],
    ));
    let rows = (0..4_999_u128).map(|n| {
        let address = std::net::Ipv6Addr::from_bits((0xfd12 << 112) + n);
        let record = json!({"pod": "ns/x", "podUid": format!("u{n}"), "nic": "eth0"});
        (address.to_string(), record)
    });
    let full = with_records(&whole, &json!(rows.collect::<serde_json::Map<_, _>>()));
    assert_eq!(full.usable.ranges().len(), 1);
    assert_eq!(full.taken().ranges().len(), 1);
    let ops = [claim("a"), free("u7"), claim("b"), claim("c")];
    let batch = apply(&full, None, &Rules::default(), &ops);
    let last = Some(ip("fd12::1387"));
    assert_eq!(addresses(&batch), [last, None, Some(ip("fd12::7")), None]);
    let cap = batch.outcomes[3].as_ref().unwrap_err().to_string();
    assert!(cap.contains("5000 records"), "{cap}");
    assert_eq!(full.usable.count(), i64::MAX);
}

/// Case B01: retries of an ADD whose other NIC finds nothing meet the same address each time; the
/// error names NIC and pool.
#[test]
fn b01_a_retry_takes_no_second_address() {
    let mut p_a = pool(&object("p-a", "10.31.0.0/24", &["10.31.0.10-10.31.0.14"]));
    let blocked = json!({"10.32.0.10": {"pod": "other/blocker", "podUid": "u-9", "nic": "eth0"}});
    let mut p_b = with_records(
        &pool(&object("p-b", "10.32.0.0/24", &["10.32.0.10"])),
        &blocked,
    );
    let rules = Rules::default();
    let ask = |nic: &str| Op::Claim {
        who: who("web-0", nic, "n1"),
        pin: None,
    };
    for _ in 0..6 {
        let batch = apply(&p_a, None, &rules, &[ask("eth0")]);
        assert_eq!(addresses(&batch), [Some(ip("10.31.0.10"))]);
        p_a = p_a.with_records(batch.records);
        assert_eq!(p_a.records.count(), 1);
        let batch = apply(&p_b, None, &rules, &[ask("net1")]);
        let text = batch.outcomes[0].as_ref().unwrap_err().to_string();
        assert!(text.contains("used out") && text.contains("p-b"), "{text}");
    }
    let batch = apply(&p_b, None, &rules, &[free("u-9"), ask("net1")]);
    assert_eq!(addresses(&batch)[1], Some(ip("10.32.0.10")));
    p_b = p_b.with_records(batch.records);
    assert_eq!((p_a.records.count(), p_b.records.count()), (1, 1));
}

/// Case B02: a record whose endpoint was never written is found by its UID, and by nothing else.
#[test]
fn b02_a_record_without_endpoint_is_its_pods() {
    let records = json!({"10.33.0.10": {"pod": "ns/a", "podUid": "u-a"},
        "10.33.0.11": {"pod": "ns/b", "podUid": "u-b"}});
    let p_c = pool(&object("p-c", "10.33.0.0/24", &["10.33.0.10-10.33.0.11"]));
    let p_c = with_records(&p_c, &records);
    let of = |uid: &str| Op::Claim {
        who: Claimant {
            uid: uid.into(),
            ..who("b", "eth0", "n1")
        },
        pin: None,
    };
    let batch = apply(&p_c, None, &Rules::default(), &[of("u-b"), of("u-b2")]);
    assert_eq!(addresses(&batch), [Some(ip("10.33.0.11")), None]);
    assert!(batch.outcomes[1].as_ref().unwrap_err().is_used_out());
    assert!(!batch.changed && batch.records.count() == 2);
    let batch = apply(&p_c, None, &Rules::default(), &[free("u-b"), of("u-b2")]);
    assert_eq!(addresses(&batch)[1], Some(ip("10.33.0.11")));
    assert_eq!(batch.records.get(ip("10.33.0.11")).unwrap().pod_uid, "u-b2");
}
