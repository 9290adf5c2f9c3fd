use super::*;

#[test]
fn both_halves_of_a_pair_come_from_one_entry() {
    let half = |vlan, v6: &str| with(entry(vlan), "ipv6", json!(v6));
    let entries = json!({"10.0.0.10": half(10, "fd00::20"), "10.0.0.11": half(11, "fd00::10"),
        "10.0.0.12": entry(12)});
    let (v4, v6) = pair(&entries);
    let web = who("web", "eth0", "n1");
    let run = |v4: &Pool, v6: &Pool| pick(v4, Some(v6), &web, &rules(&[]));
    let first = run(&v4, &v6).unwrap();
    assert_eq!(
        (first.address, first.pair_v6),
        (ip("10.0.0.10"), "fd00::20".parse().ok())
    );
    // The partner is another Pod's: the entry is skipped, never mixed.
    let busy = with_records(&v6, &json!({"fd00::20": rec("u-9", "eth0")}));
    let second = run(&v4, &busy).unwrap();
    assert_eq!(
        (second.address, second.pair_v6),
        (ip("10.0.0.11"), "fd00::10".parse().ok())
    );
    // An entry without partner is no hit of a pair.
    let both = with_records(
        &v6,
        &json!({"fd00::20": rec("u-9", "e"), "fd00::10": rec("u-9", "e")}),
    );
    assert!(run(&v4, &both).unwrap_err().is_used_out());
    // Own IPv4 claim: the same pair is completed, also when its other half is there already.
    let own = with_records(&v4, &json!({"10.0.0.11": rec("u-web", "eth0")}));
    let again = run(&own, &v6).unwrap();
    assert_eq!(
        (again.address, again.kind),
        (ip("10.0.0.11"), PickKind::Existing)
    );
    let done = with_records(&v6, &json!({"fd00::10": rec("u-web", "eth0")}));
    assert_eq!(run(&own, &done).unwrap().pair_v6, "fd00::10".parse().ok());
    // Its partner is another Pod's: the claim is given up for a whole pair, never mixed.
    let stolen = with_records(&v6, &json!({"fd00::10": rec("u-9", "eth0")}));
    let moved = run(&own, &stolen).unwrap();
    assert_eq!(
        (moved.address, moved.pair_v6),
        (ip("10.0.0.10"), "fd00::20".parse().ok())
    );
    assert_eq!(moved.stale, [ip("10.0.0.11")]);
    let none = with_records(
        &v6,
        &json!({"fd00::10": rec("u-9", "e"), "fd00::20": rec("u-9", "e")}),
    );
    assert!(run(&own, &none).unwrap_err().is_used_out());
    // IPv6 off: plain single-stack use of the IPv4 pool.
    assert_eq!(pick(&v4, None, &web, &rules(&[])).unwrap().pair_v6, None);
    // Reserved or closed on the other side.
    let reserved = pick(&v4, Some(&v6), &web, &rules(&["fd00::20"])).unwrap();
    assert_eq!(reserved.address, ip("10.0.0.11"));
    let closed = Pool {
        disable: true,
        ..v6.clone()
    };
    assert!(run(&v4, &closed).unwrap_err().is_used_out());
}

#[test]
fn a_partner_named_by_two_entries_is_given_to_nobody() {
    let half = |vlan, v6: &str| with(entry(vlan), "ipv6", json!(v6));
    let entries = json!({"10.0.0.10": half(10, "fd00::20"), "10.0.0.11": half(11, "fd00::20"),
        "10.0.0.12": half(12, "fd00::21")});
    let (v4, v6) = pair(&entries);
    let chosen = pick(&v4, Some(&v6), &who("web", "eth0", "n1"), &rules(&[])).unwrap();
    assert_eq!(chosen.address, ip("10.0.0.12"));
}
