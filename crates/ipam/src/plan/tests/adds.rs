#![expect(
    clippy::too_many_lines,
    reason = "tables with one row a case read best in one piece"
)]

use super::*;
use crate::pick::Path;

#[test]
fn an_add_is_decided_by_endpoint_and_records() {
    let mine = || vec![detail("eth0", "10.0.0.10/24", "p")];
    let releasing = with(
        rec("u-1", "eth0"),
        "releasing",
        json!({"by": "x", "at": "t"}),
    );
    for (records, ips, want) in [
        (json!({"10.0.0.10": rec("u-1", "eth0")}), mine(), "retrieve"),
        (
            json!({"10.0.0.10": {"pod": "shop/web-0", "podUid": "u-1"}}),
            mine(),
            "retrieve",
        ),
        (
            json!({"10.0.0.10": rec("u-1", "eth0")}),
            vec![detail("", "10.0.0.10/24", "p")],
            "retrieve",
        ),
        (json!({}), mine(), "reclaim"),
        (json!({"10.0.0.10": rec("u-2", "eth0")}), mine(), "replace"),
        (json!({"10.0.0.10": rec("u-1", "net1")}), mine(), "replace"),
        (json!({"10.0.0.10": releasing}), mine(), "replace"),
        (
            json!({}),
            vec![detail("eth0", "10.0.0.10/24", "gone")],
            "replace",
        ),
        (
            json!({}),
            vec![EndpointNic {
                interface: "eth0".into(),
                ..EndpointNic::default()
            }],
            "replace",
        ),
        (
            json!({}),
            vec![detail("net1", "10.0.0.10/24", "p")],
            "append",
        ),
        (json!({}), vec![], "append"),
    ] {
        let plan = plan_add(&recorded(&records, ips), "eth0").unwrap();
        assert_eq!(word(&plan.intent), want, "{records}");
    }
    let none = snapshot(&[]);
    assert_eq!(word(&plan_add(&none, "eth0").unwrap().intent), "create");
    let other = Snapshot {
        endpoint: Some(endpoint("u-0", mine())),
        ..snapshot(&[])
    };
    assert_eq!(word(&plan_add(&other, "eth0").unwrap().intent), "recreate");
}

#[test]
fn a_nic_less_record_of_another_nic_is_not_retrieved() {
    let both = vec![
        detail("eth0", "10.0.0.10/24", "p"),
        detail("net1", "10.0.0.10/24", "p"),
    ];
    let now = recorded(
        &json!({"10.0.0.10": {"pod": "shop/web-0", "podUid": "u-1"}}),
        both,
    );
    assert_eq!(claimant(&now, "net1").elsewhere.len(), 1);
    assert_eq!(word(&plan_add(&now, "net1").unwrap().intent), "replace");
}

#[test]
fn a_sub_eni_that_changed_is_planned_anew() {
    let build = |entries: Value, published: bool| {
        let mut given = iaas("w", &["10.0.0.10-10.0.0.19"], Some("n1"), &entries);
        given["status"]["allocatedIPs"] =
            json!(json!({"10.0.0.10": rec("u-1", "eth0")}).to_string());
        if !published {
            given["metadata"]["generation"] = json!(9);
        }
        let nic = EndpointNic {
            vlan: 11,
            mac: Some("fa:16:3e:00:00:0b".into()),
            ..detail("eth0", "10.0.0.10/24", "w")
        };
        Snapshot {
            endpoint: Some(endpoint("u-1", vec![nic])),
            ..snapshot(&[given])
        }
    };
    for (entries, published, want) in [
        (json!({"10.0.0.10": entry(11)}), true, "retrieve"),
        (json!({"10.0.0.10": entry(12)}), true, "replace"),
        (json!({"10.0.0.10": {"vlan": -1}}), true, "replace"),
        (json!({}), true, "replace"),
        (json!({}), false, "retrieve"),
    ] {
        let plan = plan_add(&build(entries.clone(), published), "eth0").unwrap();
        assert_eq!(word(&plan.intent), want, "{entries}");
    }
}

#[test]
fn a_lost_half_is_claimed_as_a_half() {
    let mut v4 = iaas(
        "p4",
        &["10.0.0.10"],
        Some("n1"),
        &json!({"10.0.0.10": entry(11)}),
    );
    v4["status"]["allocatedIPs"] = json!(json!({"10.0.0.10": rec("u-1", "eth0")}).to_string());
    let v6 = object("p6", "fd00::/64", &["fd00::10"]);
    let nic = EndpointNic {
        vlan: 11,
        mac: Some("fa:16:3e:00:00:0b".into()),
        ipv6: Some("fd00::10/64".into()),
        ipv6_pool: Some("p6".into()),
        ..detail("eth0", "10.0.0.10/24", "p4")
    };
    let now = Snapshot {
        endpoint: Some(endpoint("u-1", vec![nic])),
        ..snapshot(&[v4, v6])
    };
    match plan_add(&now, "eth0").unwrap().intent {
        Intent::Reclaim { lost, .. } => {
            assert_eq!(lost.len(), 1);
            assert!(lost[0].half && lost[0].pool == "p6");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_dead_pod_gets_nothing() {
    let mut now = snapshot(&[]);
    now.pod.terminating = true;
    let text = plan_add(&now, "eth0").unwrap_err().to_string();
    assert!(text.contains("dead Pod shop/web-0"), "{text}");
}

#[test]
fn steps_run_in_one_order_and_undo_by_class() {
    let names: Vec<_> = Step::ALL.iter().map(|step| step.name()).collect();
    let unique: std::collections::BTreeSet<_> = names.iter().collect();
    assert_eq!(unique.len(), names.len());
    let of = |snapshot: &Snapshot| -> Vec<&str> {
        let plan = plan_add(snapshot, "eth0").unwrap();
        assert!(
            plan.steps
                .iter()
                .all(|planned| planned.undo == planned.step.undo())
        );
        plan.steps
            .iter()
            .map(|planned| planned.step.name())
            .collect()
    };
    let other = Snapshot {
        endpoint: Some(endpoint("u-0", vec![])),
        ..snapshot(&[])
    };
    assert_eq!(of(&other), names);
    assert_eq!(of(&snapshot(&[])), names[1..]);
    let held = recorded(
        &json!({"10.0.0.10": rec("u-1", "eth0")}),
        vec![detail("eth0", "10.0.0.10/24", "p")],
    );
    assert_eq!(of(&held)[0], "attachment_file");
    let at = |name: &str| names.iter().position(|other| *other == name).unwrap();
    assert!(at("claim") < at("record") && at("record") < at("attachment_file"));
    assert!(at("attachment_file") < at("link") && at("preflight") < at("address"));
    // A failed NIC step must leave claim and endpoint for the retry.
    assert_eq!(Step::Record.undo(), Undo::Keep);
    assert_eq!(Step::Link.undo(), Undo::Reverse);
    let path = Path::Plain;
    assert_eq!(undo_of_claim(&Mode::Global, path), Undo::Reverse);
    assert_eq!(undo_of_claim(&Mode::Plain, path), Undo::Keep);
    assert_eq!(undo_of_claim(&Mode::Plain, Path::ColdCreate), Undo::Reverse);
    assert_eq!(
        undo_of_claim(&Mode::Prewarm { node: "n1".into() }, path),
        Undo::Keep
    );
}

#[test]
fn the_endpoint_keeps_other_nics_of_this_pod_only() {
    let (v4, _) = pools();
    let made = assemble(
        "eth0",
        false,
        &[Claim {
            pool: &v4,
            address: "10.0.0.10".parse().unwrap(),
            binding: None,
        }],
    )
    .unwrap();
    let old = vec![
        detail("eth0", "10.0.0.19/24", "p"),
        detail("net1", "10.0.0.18/24", "p"),
    ];
    let same = Snapshot {
        endpoint: Some(endpoint("u-1", old.clone())),
        ..snapshot(&[])
    };
    let after = endpoint_after(&same, std::slice::from_ref(&made));
    let nics: Vec<_> = after
        .current
        .ips
        .iter()
        .map(|n| (n.interface.as_str(), n.ipv4.as_deref()))
        .collect();
    assert_eq!(
        nics,
        [
            ("eth0", Some("10.0.0.10/24")),
            ("net1", Some("10.0.0.18/24"))
        ]
    );
    let other = Snapshot {
        endpoint: Some(endpoint("u-0", old)),
        ..snapshot(&[])
    };
    assert_eq!(endpoint_after(&other, &[made]).current.ips.len(), 1);
}

#[test]
fn an_endpoint_of_several_claims_is_in_their_order() {
    let (v4, _) = pools();
    let made = |nic: &str, address: &str| {
        let claim = Claim {
            pool: &v4,
            address: address.parse().unwrap(),
            binding: None,
        };
        assemble(nic, false, &[claim]).unwrap()
    };
    let old = vec![
        detail("other", "10.0.0.17/24", "p"),
        detail("net1", "10.0.0.18/24", "p"),
    ];
    let now = Snapshot {
        endpoint: Some(endpoint("u-1", old)),
        ..snapshot(&[])
    };
    let after = endpoint_after(
        &now,
        &[made("eth0", "10.0.0.10"), made("net1", "10.0.0.11")],
    );
    let nics: Vec<_> = after
        .current
        .ips
        .iter()
        .map(|nic| nic.interface.as_str())
        .collect();
    assert_eq!(nics, ["eth0", "net1", "other"]);
}
