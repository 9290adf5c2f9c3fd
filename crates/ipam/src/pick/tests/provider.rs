use super::*;

/// 7.3: 20 addresses, .105 and .111 not ready.
#[test]
fn prewarm_picks_skip_what_is_not_ready() {
    let entries: serde_json::Map<String, Value> = (100..120)
        .filter(|n| *n != 105 && *n != 111)
        .map(|n| (format!("10.0.0.{n}"), entry(n)))
        .collect();
    let mut now = pool(&iaas(
        "w",
        &["10.0.0.100-10.0.0.119"],
        Some("n1"),
        &json!(entries),
    ));
    let mut got = Vec::new();
    for n in 0..18 {
        let web = who(&format!("web-{n}"), "eth0", "n1");
        let chosen = pick(&now, None, &web, &rules(&[])).unwrap();
        assert_eq!(chosen.path, Path::CacheHit);
        got.push(chosen.address);
        now.records.insert(
            chosen.address,
            serde_json::from_value(rec(&web.uid, "eth0")).unwrap(),
        );
    }
    assert_eq!(got.len(), 18);
    assert!(
        got.is_sorted() && !got.contains(&ip("10.0.0.105")) && !got.contains(&ip("10.0.0.111"))
    );
    let error = pick(&now, None, &who("late", "eth0", "n1"), &rules(&[])).unwrap_err();
    assert!(error.is_used_out(), "{error}");
}

#[test]
fn a_prewarm_pool_gives_nothing_on_another_node() {
    let pool = pool(&iaas(
        "w",
        &["10.0.0.10"],
        Some("n1"),
        &json!({"10.0.0.10": entry(10)}),
    ));
    assert!(pick(&pool, None, &who("web", "eth0", "n2"), &rules(&[])).is_err());
}

#[test]
fn b18_only_a_good_vlan_and_mac_make_a_hit() {
    for (bad, good) in [
        (json!({"mac": "fa:16:3e:00:71:0a"}), false),
        (json!({"mac": "fa:16:3e:00:71:0a", "vlan": 0}), false),
        (json!({"mac": "fa:16:3e:00:71:0a", "vlan": -1}), false),
        (json!({"mac": "fa:16:3e:00:71:0a", "vlan": 1}), true),
        (json!({"mac": "fa:16:3e:00:71:0a", "vlan": 4094}), true),
        (json!({"mac": "fa:16:3e:00:71:0a", "vlan": 4095}), false),
        (json!({"mac": "fa:16:3e:00:71:0a", "vlan": 4096}), false),
        (json!({"mac": "fa:16:3e:00:71:0a", "vlan": 70000}), false),
        (json!({"mac": "fa:16:3e:00:71:0a", "vlan": "7"}), false),
        (json!({"mac": "", "vlan": 101}), false),
        (json!({"mac": "fa:16:3e:00:71", "vlan": 101}), false),
        (json!({"mac": "01:00:5e:00:00:01", "vlan": 101}), false),
    ] {
        let entries = json!({"10.0.0.10": bad, "10.0.0.11": entry(77)});
        let pool = pool(&iaas("w", &["10.0.0.10-10.0.0.11"], Some("n1"), &entries));
        let chosen = pick(&pool, None, &who("web", "eth0", "n1"), &rules(&[])).unwrap();
        // The bad entry alone is skipped, the pool stays usable.
        assert_eq!(
            chosen.address,
            ip(if good { "10.0.0.10" } else { "10.0.0.11" }),
            "{bad}"
        );
        assert!(chosen.binding.is_some());
    }
}

#[test]
fn b18_a_skipped_entry_is_named_when_nothing_else_is_left() {
    for (bad, part) in [
        (json!({"mac": "fa:16:3e:00:71:0a", "vlan": 4095}), "4095"),
        (json!({"mac": "fa:16:3e:00:71:0a", "vlan": 70000}), "70000"),
        (json!({"mac": "01:00:5e:00:00:01", "vlan": 101}), "01:00:5e"),
        (json!({"mac": "fa:16:3e:00:71:0a"}), "without vlan"),
        (
            json!({"mac": "fa:16:3e:00:00:01", "vlan": 101}),
            "that of the parent NIC",
        ),
    ] {
        let object = iaas("w", &["10.0.0.10"], Some("n1"), &json!({"10.0.0.10": bad}));
        let parent = json!({"name": "eth1", "mac": "FA:16:3E:00:00:01"});
        let pool = pool(&with(object, "status|parentNic", parent));
        let error = pick(&pool, None, &who("web", "eth0", "n1"), &rules(&[])).unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("all IP addresses used out"), "{text}");
        assert!(text.contains("10.0.0.10") && text.contains(part), "{text}");
    }
}

#[test]
fn an_own_prewarm_claim_stands_while_its_sub_eni_is_ready() {
    let build = |entries: Value| {
        let pool = pool(&iaas("w", &["10.0.0.10-10.0.0.12"], Some("n1"), &entries));
        with_records(&pool, &json!({"10.0.0.11": rec("u-web", "eth0")}))
    };
    let run = |entries| {
        pick(
            &build(entries),
            None,
            &who("web", "eth0", "n1"),
            &rules(&[]),
        )
    };
    let same = run(json!({"10.0.0.10": entry(10), "10.0.0.11": entry(11)})).unwrap();
    assert_eq!(
        (same.address, same.kind),
        (ip("10.0.0.11"), PickKind::Existing)
    );
    assert_eq!(same.binding.unwrap().vlan.get(), 11);
    for entries in [
        json!({"10.0.0.10": entry(10)}),
        json!({"10.0.0.10": entry(10), "10.0.0.11": {"vlan": -1}}),
    ] {
        let moved = run(entries).unwrap();
        assert_eq!(
            (moved.address, moved.kind),
            (ip("10.0.0.10"), PickKind::New)
        );
        assert_eq!(moved.stale, [ip("10.0.0.11")]);
    }
    let mut blind = build(json!({"10.0.0.11": entry(11)}));
    blind.metadata = Some(Err(NotReady {
        reason: None,
        text: "x".into(),
    }));
    let error = pick(&blind, None, &who("web", "eth0", "n1"), &rules(&[])).unwrap_err();
    assert!(
        error.to_string().starts_with("IaaS IP metadata not ready"),
        "{error}"
    );
}

/// 7.2, worked example: .10{n1,11} .11{n2,12} .12{no node,-1} .14{n1,-1}; cold rows need a provider.
#[test]
fn global_picks_follow_the_worked_example() {
    let entries = json!({
        "10.0.0.10": with(entry(11), "node", json!("n1")),
        "10.0.0.11": with(entry(12), "node", json!("n2")),
        "10.0.0.12": {"mac": "fa:16:3e:00:00:0c", "vlan": -1},
        "10.0.0.14": {"vlan": -1, "node": "n1"},
    });
    let base = pool(&iaas("g", &["10.0.0.10-10.0.0.14"], None, &entries));
    let taken = |list: &[u8]| {
        let rows = list
            .iter()
            .map(|n| (format!("10.0.0.{n}"), rec("u-9", "eth0")));
        json!(rows.collect::<serde_json::Map<_, _>>())
    };
    for (node, records, want) in [
        ("n1", taken(&[]), Ok("10.0.0.10")),
        ("n1", taken(&[10]), Err("Provider")),
        ("n2", taken(&[10, 12]), Ok("10.0.0.11")),
        ("n2", taken(&[10, 11, 12]), Err("Provider")),
        ("n2", taken(&[11, 12, 13]), Err("Provider")),
        ("n1", taken(&[10, 11, 12, 13]), Err("used out")),
        // An own claim that is attached nowhere or elsewhere is moved here by the provider only.
        (
            "n2",
            json!({"10.0.0.10": rec("u-web", "eth0")}),
            Err("Provider"),
        ),
        (
            "n1",
            json!({"10.0.0.12": rec("u-web", "eth0")}),
            Err("Provider"),
        ),
        (
            "n1",
            json!({"10.0.0.13": rec("u-web", "eth0")}),
            Err("Provider"),
        ),
    ] {
        let found = pick(
            &with_records(&base, &records),
            None,
            &who("web", "eth0", node),
            &rules(&[]),
        );
        match (found, want) {
            (Ok(pick), Ok(address)) => assert_eq!(pick.address, ip(address), "{node} {records}"),
            (Err(error), Err(part)) => {
                assert!(error.to_string().contains(part), "{records}: {error}")
            }
            (found, want) => panic!("{node} {records}: {found:?}, wanted {want:?}"),
        }
    }
}

#[test]
fn an_ipv6_only_pool_of_a_provider_is_keyed_by_ipv6() {
    let mut given = object("p6", "fd00::/64", &["fd00::10-fd00::20"]);
    given["metadata"]["annotations"] = json!({"ipam.spidernet.io/iaas-provider": "cloud"});
    given["spec"]["nodeName"] = json!(["n1"]);
    crate::fixture::publish(
        &mut given,
        &json!({"scope": "n1", "ips": {"fd00::11": entry(9), "10.0.0.1": entry(8)}}).to_string(),
    );
    let chosen = pick(&pool(&given), None, &who("web", "eth0", "n1"), &rules(&[])).unwrap();
    assert_eq!(chosen.address, ip("fd00::11"));
}
