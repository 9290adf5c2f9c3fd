use super::*;

#[test]
fn the_first_level_that_names_something_is_used_alone() {
    let pools = [
        plain("a"),
        plain("b"),
        plain("c"),
        plain("d"),
        with(plain("e"), "spec|default", json!(true)),
    ];
    let mut now = snapshot(&pools);
    assert_eq!(run(&now, &eni()), "eth0 IPv4: e");
    let conf = Request {
        ipv4_pools: vec!["d".into()],
        ..eni()
    };
    assert_eq!(run(&now, &conf), "eth0 IPv4: d");
    now.namespace
        .annotations
        .insert(names::NAMESPACE_IPV4_POOLS.into(), r#"["c"]"#.into());
    assert_eq!(run(&now, &conf), "eth0 IPv4: c");
    now = annotated(
        now,
        names::POD_IPPOOLS,
        r#"[{"interface":"eth0","ipv4":["b"]}]"#,
    );
    assert_eq!(run(&now, &conf), "eth0 IPv4: b");
    now = annotated(now, names::POD_SUBNETS, r#"[{"ipv4":["s"]}]"#);
    assert!(run(&now, &conf).contains("automatic pools are not available in this release"));
    now = annotated(now, names::POD_IPPOOL, r#"{"ipv4":["a"]}"#);
    assert_eq!(run(&now, &conf), "eth0 IPv4: a");
    now = annotated(now, names::POD_SUBNET, r#"{"ipv4":["s"]}"#);
    assert!(
        run(&now, &conf).contains(
            "ipam.spidernet.io/subnet: automatic pools are not available in this release"
        )
    );
    now = annotated(now, names::POD_SUBNET, "{}");
    assert!(run(&now, &conf).contains("ipam.spidernet.io/subnet: value {} names neither"));
}

#[test]
fn a_level_never_falls_through() {
    let pools = [
        with(plain("a"), "spec|disable", json!(true)),
        with(plain("e"), "spec|default", json!(true)),
    ];
    let now = annotated(snapshot(&pools), names::POD_IPPOOL, r#"{"ipv4":["a"]}"#);
    let text = run(&now, &eni());
    assert_eq!(
        text,
        "ERR no IPPool available for IPv4 of NIC eth0: IPPool a is disabled"
    );
    for bad in ["{", "[]", "null"] {
        let error = select(&annotated(now.clone(), names::POD_IPPOOL, bad), &eni()).unwrap_err();
        assert_eq!(error.code(), CniCode::Config, "{error}");
    }
}

#[test]
fn nothing_named_and_nothing_left_are_told_apart() {
    let empty = snapshot(&[plain("a")]);
    let error = select(&empty, &eni()).unwrap_err();
    assert_eq!(error.code(), CniCode::Refused);
    assert!(
        error
            .to_string()
            .starts_with("no IPPool available, no pool selection rules of any type are specified")
    );
    let conf = |v4: &[&str], v6: &[&str]| Request {
        ipv4_pools: v4.iter().map(|&n| n.to_owned()).collect(),
        ipv6_pools: v6.iter().map(|&n| n.to_owned()).collect(),
        ..eni()
    };
    for (request, part) in [
        (conf(&["z*"], &[]), "pattern z* matches no IPv4 pool"),
        (conf(&["nope"], &[]), "wrong input: the CNI configuration's"),
        (conf(&["a", "a"], &[]), "names IPPool a twice"),
        (conf(&["[-]"], &[]), "malformed"),
    ] {
        let text = run(&empty, &request);
        assert!(text.contains(part), "{text}");
    }
    // One family empty, the other served: single-stack.
    assert_eq!(run(&empty, &conf(&["a"], &["z*"])), "eth0 IPv4: a");
    let mut v4_only = snapshot(&[plain("a"), six("s")]);
    v4_only.enable_ipv6 = false;
    assert_eq!(run(&v4_only, &conf(&["a"], &["s"])), "eth0 IPv4: a");
    assert!(run(&v4_only, &conf(&[], &["s"])).contains("no IPPool available"));
    let mut broken = snapshot(&[plain("a")]);
    broken
        .unreadable
        .insert("bad".into(), "spec.subnet \"x\" is not a CIDR".into());
    assert!(run(&broken, &conf(&["bad"], &[])).contains("is not a CIDR"));
}

/// What a reservation says is not known. The other family goes on.
#[test]
fn a_family_whose_reservations_are_not_known_gives_out_nothing() {
    let mut now = snapshot(&[plain("a"), six("s")]);
    let why = "SpiderReservedIP r cannot be read: spec.ips is no list";
    now.withheld.insert(Family::V6, why.into());
    let both = Request {
        ipv4_pools: vec!["a".to_owned()],
        ipv6_pools: vec!["s".to_owned()],
        ..eni()
    };
    let text = run(&now, &both);
    assert!(
        text.contains(why) && text.contains("gives out nothing new"),
        "{text}"
    );
    now.enable_ipv6 = false;
    assert_eq!(run(&now, &both), "eth0 IPv4: a");
}

#[test]
fn patterns_expand_by_name_and_merge() {
    let now = snapshot(&[plain("r-2"), plain("r-1"), plain("x"), six("r-6")]);
    let request = Request {
        ipv4_pools: vec!["r-*".into(), "x".into(), "*".into()],
        ..eni()
    };
    assert_eq!(run(&now, &request), "eth0 IPv4: r-1 r-2 x");
}

#[test]
fn one_failing_family_fails_the_add() {
    let pools = [plain("a"), with(six("s"), "spec|nodeName", json!(["n9"]))];
    let request = Request {
        ipv4_pools: vec!["a".into()],
        ipv6_pools: vec!["s".into()],
        ..eni()
    };
    let text = run(&snapshot(&pools), &request);
    assert_eq!(
        text,
        "ERR no IPPool available for IPv6 of NIC eth0: IPPool s is for node n9, not n1"
    );
}

#[test]
fn b07_named_and_nameless_items() {
    let now = |value: &str| {
        annotated(
            snapshot(&[plain("p-1"), plain("p-2")]),
            names::POD_IPPOOLS,
            value,
        )
    };
    for (value, want) in [
        (
            r#"[{"interface":"net1","ipv4":["p-2"]}]"#,
            "NIC eth0; it lists net1",
        ),
        (
            r#"[{"interface":"eth0","ipv4":["p-1"]},{"interface":"eth0","ipv4":["p-2"]}]"#,
            "lists interface eth0 a second time",
        ),
        (
            r#"[{"interface":"eth0","ipv4":["p-1"]},{"ipv4":["p-2"]}]"#,
            "name all or none",
        ),
        (
            r#"[{"ipv4":["p-1"]},{"ipv4":["p-2"]}]"#,
            "eth0 IPv4: p-1; net1 IPv4: p-2",
        ),
        (
            r#"[{"interface":"eth0","ipv4":["p-1","p-1"]}]"#,
            "IPPool p-1 twice",
        ),
        ("[]", "lists no NIC"),
    ] {
        let text = run(&now(value), &eni());
        assert!(text.contains(want), "{value}: {text}");
    }
    // A nameless second item follows the Pod's networks.
    let named = annotated(
        now(r#"[{"ipv4":["p-1"]},{"ipv4":["p-2"]}]"#),
        names::POD_NETWORKS,
        "lab/x@data0",
    );
    assert_eq!(
        run(&named, &Request::new(Plugin::EniVlan, "data0")),
        "eth0 IPv4: p-1; data0 IPv4: p-2"
    );
}

#[test]
fn clean_gateway_comes_from_the_level_that_names_the_pools() {
    let now = annotated(
        snapshot(&[plain("a")]),
        names::POD_IPPOOLS,
        r#"[{"ipv4":["a"],"cleangateway":true}]"#,
    );
    assert!(select(&now, &eni()).unwrap().nics[0].clean_gateway);
    let now = annotated(
        snapshot(&[plain("a")]),
        names::POD_IPPOOL,
        r#"{"ipv4":["a"],"cleangateway":true}"#,
    );
    assert!(!select(&now, &eni()).unwrap().nics[0].clean_gateway);
    let clean = Request {
        clean_gateway: true,
        ..eni()
    };
    assert!(select(&now, &clean).unwrap().nics[0].clean_gateway);
}
