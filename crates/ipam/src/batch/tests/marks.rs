use super::*;

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
