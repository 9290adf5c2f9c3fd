use super::*;
use crate::fixture::publish;

/// A Pod of identity `ns/sts-0`.
fn next(uid: &str, nic: &str, node: &str) -> Claimant {
    Claimant {
        pod: "ns/sts-0".into(),
        uid: uid.into(),
        nic: nic.into(),
        node: node.into(),
        elsewhere: Vec::new(),
        sub_eni: false,
    }
}

fn adopt(who: Claimant, address: &str, half: bool) -> Op {
    Op::Adopt {
        who,
        address: ip(address),
        half,
        from: Some("u-1".into()),
        settled: true,
    }
}

fn owned(uid: &str, nic: &str) -> Value {
    json!({"pod": "ns/sts-0", "podUid": uid, "nic": nic})
}

fn one(pool: &Pool, rules: &Rules, op: Op) -> Batch {
    apply(pool, None, rules, &[op])
}

/// Case B10: the next Pod of the name gets the record, the count stays.
#[test]
fn b10_the_next_pod_of_an_identity_takes_the_record_over() {
    let record = with(owned("u-1", "eth0"), "zone", json!("b"));
    let pool = with_records(&small(), &json!({"10.0.0.10": record}));
    let op = adopt(next("u-2", "eth0", "n2"), "10.0.0.10", false);
    let batch = one(&pool, &Rules::default(), op.clone());
    assert_eq!(addresses(&batch), [Some(ip("10.0.0.10"))]);
    // Keys of other writers stay.
    assert_eq!(
        batch.records.encode().unwrap(),
        r#"{"10.0.0.10":{"pod":"ns/sts-0","podUid":"u-2","nic":"eth0","zone":"b"}}"#
    );
    let again = one(&pool.with_records(batch.records), &Rules::default(), op);
    assert!(!again.changed && again.outcomes[0].is_ok());
}

/// A slow ADD of an earlier Pod does not take from a later one what that has adopted meanwhile.
#[test]
fn what_a_later_pod_has_adopted_stays_with_it() {
    let pool = with_records(&small(), &json!({"10.0.0.10": owned("u-3", "eth0")}));
    let op = adopt(next("u-2", "eth0", "n1"), "10.0.0.10", false);
    let batch = one(&pool, &Rules::default(), op);
    assert_eq!(
        batch.outcomes[0].as_ref().unwrap_err().to_string(),
        "IPPool p: address 10.0.0.10 has just gone to the Pod with UID u-3"
    );
    assert!(!batch.changed);
}

#[test]
fn a_lost_record_is_claimed_again() {
    let batch = one(
        &small(),
        &Rules::default(),
        adopt(next("u-2", "eth0", "n1"), "10.0.0.11", false),
    );
    assert_eq!(addresses(&batch), [Some(ip("10.0.0.11"))]);
    assert_eq!(batch.records.get(ip("10.0.0.11")).unwrap().pod, "ns/sts-0");
}

#[test]
fn what_is_not_the_identitys_stays_as_it_is() {
    let releasing = with(
        owned("u-1", "eth0"),
        "releasing",
        json!({"by": "gc", "at": "t"}),
    );
    let elsewhere = Claimant {
        elsewhere: vec![ip("10.0.0.10")],
        ..next("u-2", "eth0", "n1")
    };
    let nameless = json!({"pod": "ns/sts-0", "podUid": "u-1"});
    let me = || next("u-2", "eth0", "n1");
    for (record, who, part) in [
        (
            json!({"pod": "ns/other", "podUid": "u-9"}),
            me(),
            "Pod ns/other (UID u-9)",
        ),
        (releasing, me(), "is being released"),
        (owned("u-1", "net1"), me(), "belongs to net1"),
        (nameless, elsewhere, "another NIC"),
        (owned("u-1", "eth0"), next("", "eth0", "n1"), "belongs to"),
    ] {
        let pool = with_records(&small(), &json!({"10.0.0.10": record}));
        let batch = one(&pool, &Rules::default(), adopt(who, "10.0.0.10", false));
        let text = batch.outcomes[0].as_ref().unwrap_err().to_string();
        assert!(text.contains(part) && text.contains("IPPool p"), "{text}");
        assert!(!batch.changed);
    }
}

#[test]
fn an_unnamed_detail_keeps_the_nic_of_its_record() {
    for (record, want) in [
        (owned("u-1", "net1"), Some("net1")),
        (json!({"pod": "ns/sts-0", "podUid": "u-1"}), None),
    ] {
        let pool = with_records(&small(), &json!({"10.0.0.10": record}));
        let op = adopt(next("u-2", "", "n1"), "10.0.0.10", false);
        let batch = one(&pool, &Rules::default(), op);
        let stored = batch.records.get(ip("10.0.0.10")).unwrap();
        assert_eq!(
            (stored.pod_uid.as_str(), stored.nic.as_deref()),
            ("u-2", want)
        );
    }
}

#[test]
fn another_claim_of_the_nic_goes_in_the_same_write() {
    let pool = with_records(
        &small(),
        &json!({"10.0.0.10": owned("u-1", "eth0"), "10.0.0.11": owned("u-2", "eth0")}),
    );
    let op = adopt(next("u-2", "eth0", "n1"), "10.0.0.10", false);
    let batch = one(&pool, &Rules::default(), op);
    assert_eq!(batch.records.count(), 1);
    assert_eq!(batch.records.get(ip("10.0.0.10")).unwrap().pod_uid, "u-2");
}

/// Spec ipam 7.5: a global address moves by a provider call, a prewarm one does not move.
#[test]
fn a_providers_pool_has_a_say_about_the_node() {
    let attached = json!({"10.0.0.10": with(entry(10), "node", json!("n1"))});
    let global = with_records(
        &pool(&iaas("g", &["10.0.0.10-10.0.0.12"], None, &attached)),
        &json!({"10.0.0.10": owned("u-1", "eth0")}),
    );
    let provider = Rules {
        provider: true,
        ..Rules::default()
    };
    let op = |node: &str| adopt(next("u-2", "eth0", node), "10.0.0.10", false);
    let picked = |batch: &Batch| match &batch.outcomes[0] {
        Ok(Outcome::Claimed(pick)) => (pick.path, pick.binding.map(|binding| binding.vlan.get())),
        other => panic!("{other:?}"),
    };
    use crate::pick::Path;
    let here = one(&global, &Rules::default(), op("n1"));
    assert_eq!(picked(&here), (Path::CacheHit, Some(10)));
    let moves = one(&global, &provider, op("n2"));
    assert_eq!(picked(&moves), (Path::ColdSteal, None));
    assert_eq!(moves.records.get(ip("10.0.0.10")).unwrap().pod_uid, "u-2");
    // Nobody to call: the record stays the old Pod's.
    let alone = one(&global, &Rules::default(), op("n2"));
    assert!(alone.outcomes[0].is_err() && !alone.changed);

    let warm = iaas(
        "w",
        &["10.0.0.10-10.0.0.12"],
        Some("n1"),
        &json!({"10.0.0.10": entry(10)}),
    );
    let records = json!({"10.0.0.10": owned("u-1", "eth0"), "10.0.0.11": owned("u-2", "eth0")});
    let stays = one(&with_records(&pool(&warm), &records), &provider, op("n2"));
    assert!(stays.outcomes[0].is_err() && !stays.changed);
    let mut gone = warm;
    publish(&mut gone, r#"{"scope":"n1","ips":{}}"#);
    let gone = one(&with_records(&pool(&gone), &records), &provider, op("n1"));
    assert!(gone.outcomes[0].as_ref().unwrap_err().is_used_out());
    assert!(!gone.changed);
}

/// Spec ipam 7.5: from another node it is moved by a call, whatever the metadata says of it yet.
#[test]
fn a_hit_is_not_trusted_after_an_add_that_did_not_end_here() {
    let attached = json!({"10.0.0.10": with(entry(10), "node", json!("n1"))});
    let global = with_records(
        &pool(&iaas("g", &["10.0.0.10-10.0.0.12"], None, &attached)),
        &json!({"10.0.0.10": owned("u-1", "eth0")}),
    );
    let op = Op::Adopt {
        who: next("u-2", "eth0", "n1"),
        address: ip("10.0.0.10"),
        half: false,
        from: Some("u-1".into()),
        settled: false,
    };
    for (provider, path) in [
        (true, crate::pick::Path::ColdRebind),
        (false, crate::pick::Path::CacheHit),
    ] {
        let rules = Rules {
            provider,
            ..Rules::default()
        };
        let batch = one(&global, &rules, op.clone());
        let Ok(Outcome::Claimed(pick)) = &batch.outcomes[0] else {
            panic!("{:?}", batch.outcomes);
        };
        assert_eq!((pick.path, pick.binding.is_none()), (path, provider));
    }
}

/// An identity does not lose its address to a detachment that is only just under way.
#[test]
fn a_sub_eni_that_is_being_detached_is_waited_for() {
    let leaving = json!({"10.0.0.10": {"mac": "fa:16:3e:00:00:0a", "vlan": -1, "node": "n1"}});
    let pool = with_records(
        &pool(&iaas("g", &["10.0.0.10-10.0.0.12"], None, &leaving)),
        &json!({"10.0.0.10": owned("u-1", "eth0")}),
    );
    let provider = Rules {
        provider: true,
        ..Rules::default()
    };
    for node in ["n1", "n2"] {
        let op = adopt(next("u-2", "eth0", node), "10.0.0.10", false);
        let batch = one(&pool, &provider, op);
        let error = batch.outcomes[0].as_ref().unwrap_err();
        assert_eq!(
            error.to_string(),
            "IaaS IP metadata not ready: IPPool g: the sub-ENI of 10.0.0.10 is being detached from node n1"
        );
        assert!(!batch.changed);
    }
}

#[test]
fn a_half_is_adopted_without_metadata_of_its_own() {
    let mut six = object("p6", "fd00::/64", &["fd00::10-fd00::20"]);
    six["metadata"]["annotations"] = json!({"ipam.spidernet.io/iaas-provider": "cloud"});
    let held = with_records(&pool(&six), &json!({"fd00::11": owned("u-1", "eth0")}));
    let op = |address: &str| adopt(next("u-2", "eth0", "n1"), address, true);
    let batch = one(&held, &Rules::default(), op("fd00::11"));
    assert_eq!(batch.records.get(ip("fd00::11")).unwrap().pod_uid, "u-2");
    let lost = one(&pool(&six), &Rules::default(), op("fd00::12"));
    assert_eq!(lost.records.get(ip("fd00::12")).unwrap().pod_uid, "u-2");
}
