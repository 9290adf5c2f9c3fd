use std::collections::BTreeMap;

use proptest::prelude::{Just, Strategy, prop_assert, prop_assert_eq, prop_oneof, proptest};
use serde_json::{Value, json};

use super::*;
use crate::fixture::{entry, iaas, object, pool, who, with, with_records};
use crate::range_set::RangeSet;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn claim(name: &str) -> Op {
    Op::Claim {
        who: who(name, "eth0", "n1"),
        pin: None,
    }
}

fn pin(name: &str, address: &str) -> Op {
    Op::Claim {
        who: who(name, "eth0", "n1"),
        pin: Some(ip(address)),
    }
}

fn free(uid: &str) -> Op {
    Op::Release {
        uid: uid.to_owned(),
        nic: None,
        addresses: None,
        by: None,
    }
}

fn small() -> Pool {
    pool(&object("p", "10.0.0.0/24", &["10.0.0.10-10.0.0.11"]))
}

fn addresses(batch: &Batch) -> Vec<Option<IpAddr>> {
    let claimed = |outcome: &Result<Outcome, PickError>| match outcome {
        Ok(Outcome::Claimed(pick)) => Some(pick.address),
        _ => None,
    };
    batch.outcomes.iter().map(claimed).collect()
}

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
fn releases_narrow_by_nic_and_address_and_spare_marked_records() {
    let rec = |nic: &str| json!({"pod": "ns/a", "podUid": "u-a", "nic": nic});
    let wide = pool(&object("p", "10.0.0.0/24", &["10.0.0.10-10.0.0.19"]));
    let marked = with(rec("eth0"), "releasing", json!({"by": "gc", "at": "t"}));
    let pool = with_records(
        &wide,
        &json!({"10.0.0.10": rec("eth0"), "10.0.0.11": rec("net1"),
        "10.0.0.12": {"pod": "ns/a", "podUid": "u-a"}, "10.0.0.13": marked}),
    );
    for (nic, list, want) in [
        (None, None, vec!["10.0.0.10", "10.0.0.11", "10.0.0.12"]),
        (Some("eth0"), None, vec!["10.0.0.10", "10.0.0.12"]),
        (
            None,
            Some(vec!["10.0.0.11", "10.0.0.99"]),
            vec!["10.0.0.11"],
        ),
        (Some("net1"), Some(vec!["10.0.0.10"]), vec![]),
        (None, Some(vec!["10.0.0.13"]), vec![]),
    ] {
        let op = Op::Release {
            uid: "u-a".into(),
            nic: nic.map(str::to_owned),
            addresses: list.map(|list| list.into_iter().map(ip).collect()),
            by: None,
        };
        let batch = apply(&pool, None, &Rules::default(), &[op]);
        let want: Vec<IpAddr> = want.into_iter().map(ip).collect();
        assert_eq!(batch.outcomes[0], Ok(Outcome::Released(want)));
    }
}

fn mark(uid: &str, by: &str, at: &str) -> Op {
    Op::Mark {
        uid: uid.into(),
        addresses: vec![ip("10.0.0.10"), ip("10.0.0.11")],
        by: by.into(),
        at: at.into(),
    }
}

/// Spec iaas section 8, releasing marker.
#[test]
fn a_mark_is_its_owners_until_it_is_old() {
    let then = "2027-01-05T10:00:00Z";
    let rec = |by: Option<&str>, at: &str| {
        let plain = json!({"pod": "ns/a", "podUid": "u-a", "nic": "eth0"});
        by.map_or(plain.clone(), |by| {
            with(plain, "releasing", json!({"by": by, "at": at}))
        })
    };
    for (there, at, uid, want) in [
        (rec(None, ""), then, "u-a", true),
        (rec(None, ""), then, "u-b", false),
        (rec(None, ""), then, "", false),
        (rec(Some("me"), then), then, "u-a", true),
        (rec(Some("gc"), then), then, "u-a", false),
        (rec(Some("gc"), then), "2027-01-05T10:01:59Z", "u-a", false),
        (rec(Some("gc"), then), "2027-01-05T10:02:00Z", "u-a", true),
        (
            rec(Some("gc"), "2027-01-05T12:00:00+02:00"),
            "2027-01-05T10:02:00Z",
            "u-a",
            true,
        ),
        (rec(Some("gc"), "yesterday"), then, "u-a", true),
    ] {
        let pool = with_records(&small(), &json!({"10.0.0.10": there}));
        let batch = apply(&pool, None, &Rules::default(), &[mark(uid, "me", at)]);
        let marked = if want { vec![ip("10.0.0.10")] } else { vec![] };
        assert_eq!(
            batch.outcomes[0],
            Ok(Outcome::Marked(marked)),
            "{there} {at}"
        );
        let record = batch.records.get(ip("10.0.0.10")).unwrap();
        let by = record.releasing.as_ref().map(|mark| mark.by.as_str());
        assert_eq!(by == Some("me"), want, "{there}");
    }
}

#[test]
fn a_marked_record_is_freed_by_its_marker_alone_and_given_to_nobody() {
    let pool = with_records(
        &small(),
        &json!({"10.0.0.10": {"pod": "ns/a", "podUid": "u-a", "nic": "eth0"}}),
    );
    let by = |actor: Option<&str>| Op::Release {
        uid: "u-a".into(),
        nic: None,
        addresses: None,
        by: actor.map(str::to_owned),
    };
    let ops = [
        mark("u-a", "me", "2027-01-05T10:00:00Z"),
        claim("a"),
        free("u-a"),
        by(Some("gc")),
        claim("b"),
        by(Some("me")),
    ];
    let batch = apply(&pool, None, &Rules::default(), &ops);
    // Its own Pod gets another address, and loses that one with the plain release.
    assert_eq!(addresses(&batch)[1], Some(ip("10.0.0.11")));
    assert_eq!(
        batch.outcomes[2],
        Ok(Outcome::Released(vec![ip("10.0.0.11")]))
    );
    assert_eq!(batch.outcomes[3], Ok(Outcome::Released(vec![])));
    assert_eq!(addresses(&batch)[4], Some(ip("10.0.0.11")));
    assert_eq!(
        batch.outcomes[5],
        Ok(Outcome::Released(vec![ip("10.0.0.10")]))
    );
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
fn a_pin_is_that_address_or_an_error_that_names_the_owner() {
    let mut given = object("p", "10.0.0.0/24", &["10.0.0.10-10.0.0.19"]);
    given["spec"]["gateway"] = json!("10.0.0.19");
    let pool = with_records(
        &pool(&given),
        &json!({
        "10.0.0.10": {"pod": "ns/z", "podUid": "u-z", "nic": "eth0"},
        "10.0.0.11": {"pod": "ns/a", "podUid": "u-a", "nic": "net1"},
        "10.0.0.12": {"pod": "ns/b", "podUid": "u-b", "nic": "eth0"}}),
    );
    let rules = Rules {
        reserved: RangeSet::from_texts(&["10.0.0.18"]).unwrap(),
        ..Rules::default()
    };
    for (op, want) in [
        (pin("a", "10.0.0.15"), Ok(PickKind::New)),
        (pin("z", "10.0.0.10"), Ok(PickKind::Existing)),
        (pin("a", "10.0.0.10"), Err("ns/z (UID u-z)")),
        (pin("a", "10.0.0.11"), Err("net1")),
        (pin("b", "10.0.0.13"), Err("holds already (10.0.0.12)")),
        (pin("a", "10.0.0.18"), Err("reserved")),
        (pin("a", "10.0.0.19"), Err("gateway")),
        (pin("a", "10.0.0.99"), Err("not in the pool")),
    ] {
        let batch = apply(&pool, None, &rules, std::slice::from_ref(&op));
        match (&batch.outcomes[0], want) {
            (Ok(Outcome::Claimed(pick)), Ok(kind)) => assert_eq!(pick.kind, kind, "{op:?}"),
            (Err(error), Err(part)) => {
                assert!(
                    error.to_string().contains(part) && error.to_string().contains("IPPool p"),
                    "{error}"
                );
                assert!(!batch.changed);
            }
            (found, want) => panic!("{op:?}: {found:?}, wanted {want:?}"),
        }
    }
}

#[test]
fn a_pin_in_a_providers_pool_must_be_ready() {
    let entries = json!({"10.0.0.10": entry(10), "10.0.0.11": entry(11)});
    let pool = pool(&iaas("w", &["10.0.0.10-10.0.0.12"], Some("n1"), &entries));
    let batch = apply(
        &pool,
        None,
        &Rules::default(),
        &[pin("a", "10.0.0.11"), pin("b", "10.0.0.12")],
    );
    match &batch.outcomes[0] {
        Ok(Outcome::Claimed(pick)) => assert_eq!(pick.binding.unwrap().vlan.get(), 11),
        other => panic!("{other:?}"),
    }
    assert!(batch.outcomes[1].as_ref().unwrap_err().is_used_out());
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

fn some_op() -> impl Strategy<Value = Op> {
    let asking = |(pod, nic): (u8, u8)| who(&pod.to_string(), &format!("eth{nic}"), "n1");
    prop_oneof![
        4 => (0_u8..5, 0_u8..2).prop_map(move |who| Op::Claim { who: asking(who), pin: None }),
        1 => ((0_u8..5, 0_u8..2), 0_u8..10).prop_map(move |(who, n)| Op::Claim {
            who: asking(who), pin: Some(IpAddr::from([10, 0, 0, n])) }),
        3 => (0_u8..5, proptest::option::of(0_u8..2)).prop_map(|(uid, nic)| Op::Release {
            uid: format!("u-{uid}"), nic: nic.map(|n| format!("eth{n}")), addresses: None, by: None }),
        1 => Just(Op::Release { uid: String::new(), nic: None, addresses: None, by: None }),
    ]
}

proptest! {
    /// Invariants 1, 2, 4, 5 and 6 of spec ipam section 10 over any sequence.
    #[test]
    fn no_sequence_breaks_the_records(ops in proptest::collection::vec(some_op(), 0..40), ready in proptest::bool::ANY) {
        let rules = Rules { reserved: RangeSet::from_texts(&["10.0.0.4"]).unwrap(), record_cap: 6, ..Rules::default() };
        let entries: serde_json::Map<String, Value> = (0..7).map(|n| (format!("10.0.0.{n}"), entry(n + 1))).collect();
        let mut given = if ready {
            iaas("p", &["10.0.0.1-10.0.0.8"], Some("n1"), &json!(entries))
        } else {
            object("p", "10.0.0.0/24", &["10.0.0.1-10.0.0.8"])
        };
        given["spec"]["gateway"] = json!("10.0.0.1");
        given["spec"]["excludeIPs"] = json!(["10.0.0.2"]);
        let mut now = pool(&given);
        let mut model: BTreeMap<IpAddr, (String, String)> = BTreeMap::new();
        for op in ops {
            let batch = apply(&now, None, &rules, std::slice::from_ref(&op));
            match (&op, &batch.outcomes[0]) {
                (Op::Claim { who, .. }, Ok(Outcome::Claimed(pick))) => {
                    let before = model.insert(pick.address, (who.uid.clone(), who.nic.clone()));
                    prop_assert!(before.is_none_or(|owner| owner == (who.uid.clone(), who.nic.clone())));
                    prop_assert!(now.usable.contains(pick.address) && pick.address != ip("10.0.0.1"));
                    prop_assert!(pick.address != ip("10.0.0.4"));
                }
                (Op::Release { uid, nic, .. }, Ok(Outcome::Released(freed))) => {
                    for address in freed {
                        let owner = model.remove(address);
                        prop_assert!(owner.is_some_and(|(u, n)| u == *uid && nic.as_ref().is_none_or(|nic| *nic == n)));
                    }
                }
                (_, Err(_)) => prop_assert!(!batch.changed),
                other => prop_assert!(false, "{:?}", other),
            }
            now = now.with_records(batch.records);
            let stored: BTreeMap<IpAddr, (String, String)> = now.records.iter()
                .map(|(address, record)| (address, (record.pod_uid.clone(), record.nic.clone().unwrap()))).collect();
            prop_assert_eq!(&stored, &model);
            prop_assert!(now.records.count() <= 6);
            // One record per NIC: owners are all different.
            let owners: std::collections::BTreeSet<_> = model.values().collect();
            prop_assert_eq!(owners.len(), model.len());
        }
    }
}
