use super::*;

fn on(node: &str, vlan: i64) -> Value {
    with(entry(vlan), "node", json!(node))
}

fn global(entries: &Value) -> Pool {
    pool(&iaas("g", &["10.0.0.10-10.0.0.14"], None, entries))
}

fn cold(pool: &Pool, records: &Value, name: &str, node: &str) -> Result<(IpAddr, Path), PickError> {
    let pool = with_records(pool, records);
    let chosen = pick(&pool, None, &who(name, "eth0", node), &called())?;
    assert_eq!(chosen.binding.is_none(), chosen.path.is_cold());
    Ok((chosen.address, chosen.path))
}

fn taken(list: &[u8]) -> Value {
    let rows = list
        .iter()
        .map(|n| (format!("10.0.0.{n}"), rec("u-9", "eth0")));
    json!(rows.collect::<serde_json::Map<_, _>>())
}

/// 7.2, worked example: .10{n1,11} .11{n2,12} .12{no node,-1} .14{n1,-1}.
#[test]
fn the_worked_example_with_a_provider() {
    let base = global(&json!({
        "10.0.0.10": on("n1", 11),
        "10.0.0.11": on("n2", 12),
        "10.0.0.12": {"mac": "fa:16:3e:00:00:0c", "vlan": -1},
        "10.0.0.14": {"vlan": -1, "node": "n1"},
    }));
    for (node, records, address, path) in [
        ("n1", taken(&[]), "10.0.0.10", Path::CacheHit),
        ("n1", taken(&[10]), "10.0.0.12", Path::ColdRebind),
        ("n2", taken(&[10, 12]), "10.0.0.11", Path::CacheHit),
        ("n2", taken(&[10, 11, 12]), "10.0.0.13", Path::ColdCreate),
        ("n2", taken(&[11, 12, 13]), "10.0.0.10", Path::ColdSteal),
        // An own claim keeps its address, wherever its sub-ENI is.
        (
            "n2",
            json!({"10.0.0.10": rec("u-web", "eth0")}),
            "10.0.0.10",
            Path::ColdSteal,
        ),
        (
            "n1",
            json!({"10.0.0.12": rec("u-web", "eth0")}),
            "10.0.0.12",
            Path::ColdRebind,
        ),
        (
            "n1",
            json!({"10.0.0.13": rec("u-web", "eth0")}),
            "10.0.0.13",
            Path::ColdCreate,
        ),
        // Not on one that is leaving.
        (
            "n1",
            json!({"10.0.0.14": rec("u-web", "eth0")}),
            "10.0.0.10",
            Path::CacheHit,
        ),
    ] {
        let found = cold(&base, &records, "web", node);
        assert_eq!(found, Ok((ip(address), path)), "{node} {records}");
    }
    let error = cold(&base, &taken(&[10, 11, 12, 13]), "web", "n1").unwrap_err();
    assert!(error.is_used_out(), "{error}");
}

#[test]
fn a_known_mac_comes_along_and_a_foreign_vlan_does_not() {
    let base = global(&json!({"10.0.0.10": on("n2", 12)}));
    let only = with_records(&base, &taken(&[11, 12, 13, 14]));
    let chosen = pick(&only, None, &who("web", "eth0", "n1"), &called()).unwrap();
    assert_eq!(chosen.known_mac, "fa:16:3e:00:00:0c".parse().ok());
    assert_eq!((chosen.binding, chosen.kind), (None, PickKind::New));
}

#[test]
fn steals_prefer_what_was_chosen_for_reclaim_oldest_first() {
    let since = |vlan, at: &str| with(on("n2", vlan), "detachTime", json!(at));
    let base = global(&json!({
        "10.0.0.10": on("n2", 10),
        "10.0.0.11": since(11, "2027-01-05T10:00:00.5Z"),
        // The same moment as 09:59:59Z, later as text.
        "10.0.0.12": since(12, "2027-01-05T11:59:59+02:00"),
        "10.0.0.13": since(13, "some day"),
        "10.0.0.14": on("n2", 14),
    }));
    let mut records = Vec::new();
    for want in [12, 11, 13, 10, 14] {
        let found = cold(&base, &taken(&records), "web", "n1");
        let address = ip(&format!("10.0.0.{want}"));
        assert_eq!(found, Ok((address, Path::ColdSteal)));
        records.push(want);
    }
}

#[test]
fn broken_and_leaving_entries_are_never_called_for() {
    let broken = json!({
        "10.0.0.10": {"mac": "fa:16:3e:00:00:0a", "vlan": 70000, "node": "n1"},
        "10.0.0.11": {"status": "detaching", "vlan": -1, "node": "n2"},
        "10.0.0.12": {"status": "gone"},
    });
    let base = global(&broken);
    assert_eq!(
        cold(&base, &taken(&[]), "web", "n1"),
        Ok((ip("10.0.0.13"), Path::ColdCreate))
    );
    for own in ["10.0.0.10", "10.0.0.11", "10.0.0.12"] {
        let chosen = pick(
            &with_records(&base, &json!({own: rec("u-web", "eth0")})),
            None,
            &who("web", "eth0", "n1"),
            &called(),
        )
        .unwrap();
        assert_eq!(
            (chosen.address, chosen.stale),
            (ip("10.0.0.13"), vec![ip(own)])
        );
    }
    let error = cold(&base, &taken(&[13, 14]), "web", "n1").unwrap_err();
    assert!(error.to_string().contains("70000"), "{error}");
}

/// Case B24, the global pool.
#[test]
fn b24_global_addresses_in_the_order_of_their_cost() {
    let base = pool(&iaas(
        "g-pool",
        &["10.0.0.20-10.0.0.23"],
        None,
        &json!({"10.0.0.20": on("worker-a", 401), "10.0.0.21": on("worker-b", 402),
            "10.0.0.23": {"node": "worker-b", "vlan": -1, "status": "detaching"}}),
    ));
    let mut records = Vec::new();
    for (want, path) in [
        (20, Path::CacheHit),
        (22, Path::ColdCreate),
        (21, Path::ColdSteal),
    ] {
        let found = cold(&base, &taken(&records), "web", "worker-a");
        assert_eq!(found, Ok((ip(&format!("10.0.0.{want}")), path)));
        records.push(want);
    }
    assert!(cold(&base, &taken(&records), "web", "worker-a").is_err());
}

fn global_pair(entries: &Value) -> (Pool, Pool) {
    let (_, v6) = pair(&json!({}));
    (global(entries), v6)
}

fn halves(v4: &Pool, v6: &Pool) -> Result<(IpAddr, Option<Ipv6Addr>, Path), PickError> {
    let chosen = pick(v4, Some(v6), &who("web", "eth0", "n1"), &called())?;
    Ok((chosen.address, chosen.pair_v6, chosen.path))
}

#[test]
fn a_new_pair_takes_no_partner_that_an_entry_locks() {
    let half = |object: Value, v6: &str| with(object, "ipv6", json!(v6));
    let (v4, v6) = global_pair(&json!({
        "10.0.0.10": half(json!({}), "fd00::20"),
        "10.0.0.11": half(on("n2", 11), "fd00::10"),
        "10.0.0.12": on("n2", 12),
    }));
    let partner = |text: &str| text.parse().ok();
    let mine = |address: &str| json!({address: rec("u-web", "eth0")});
    let other = |address: &str| json!({address: rec("u-9", "eth0")});
    // An unattached sub-ENI brings its partner along.
    assert_eq!(
        halves(&v4, &v6),
        Ok((ip("10.0.0.10"), partner("fd00::20"), Path::ColdRebind))
    );
    // ... unless that is another Pod's: a new pair, with the lowest that no entry names.
    let busy = with_records(&v6, &other("fd00::20"));
    assert_eq!(
        halves(&v4, &busy),
        Ok((ip("10.0.0.13"), partner("fd00::11"), Path::ColdCreate))
    );
    // An own claim is completed with its own half.
    let own = with_records(&v4, &mine("10.0.0.13"));
    let begun = with_records(&v6, &mine("fd00::1f"));
    assert_eq!(
        halves(&own, &begun),
        Ok((ip("10.0.0.13"), partner("fd00::1f"), Path::ColdCreate))
    );
    // An entry without partner is no pair; what is left is taken from the other node.
    let rest = with_records(&v4, &taken(&[10, 13, 14]));
    assert_eq!(
        halves(&rest, &v6),
        Ok((ip("10.0.0.11"), partner("fd00::10"), Path::ColdSteal))
    );
    let none = with_records(&v4, &taken(&[10, 11, 13, 14]));
    assert!(halves(&none, &v6).unwrap_err().is_used_out());
}

#[test]
fn without_partners_there_is_no_pair() {
    let (v4, v6) = global_pair(&json!({}));
    let closed = Pool {
        disable: true,
        ..v6
    };
    assert!(halves(&v4, &closed).unwrap_err().is_used_out());
}
