use super::*;

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
