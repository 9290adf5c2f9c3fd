#![expect(
    clippy::too_many_lines,
    reason = "tables with one row a case read best in one piece"
)]

use super::*;

#[test]
fn each_filter_names_its_reason() {
    let labels = |key: &str, value: &str| json!({"matchLabels": {key: value}});
    for (pointer, value, want) in [
        (
            "metadata|deletionTimestamp",
            json!("2026-01-01T00:00:00Z"),
            Some("is terminating"),
        ),
        ("spec|disable", json!(true), Some("is disabled")),
        (
            "spec|nodeName",
            json!(["n2", "n3"]),
            Some("is for node n2, n3, not n1"),
        ),
        ("spec|nodeName", json!(["n1"]), None),
        (
            "spec|nodeAffinity",
            labels("zone", "b"),
            Some("nodeAffinity"),
        ),
        ("spec|nodeAffinity", labels("zone", "a"), None),
        ("spec|nodeAffinity", json!({}), None),
        (
            "spec|namespaceName",
            json!(["lab"]),
            Some("is for namespace lab, not shop"),
        ),
        ("spec|namespaceName", json!(["shop"]), None),
        (
            "spec|namespaceAffinity",
            labels("team", "x"),
            Some("namespaceAffinity"),
        ),
        ("spec|podAffinity", labels("app", "db"), Some("podAffinity")),
        ("spec|podAffinity", labels("app", "web"), None),
        ("spec|podAffinity", json!({}), Some("podAffinity")),
        (
            "spec|multusName",
            json!(["lab/nad-r1"]),
            Some("nothing says which network"),
        ),
    ] {
        let pools = [with(plain("p"), pointer, value.clone())];
        let request = Request {
            ipv4_pools: vec!["p".into()],
            ..eni()
        };
        let text = run(&snapshot(&pools), &request);
        match want {
            None => assert_eq!(text, "eth0 IPv4: p", "{pointer} {value}"),
            Some(part) => assert!(
                text.contains(part) && text.contains("IPPool p"),
                "{pointer} {value}: {text}"
            ),
        }
    }
    // nodeName overrides nodeAffinity.
    let both = with(
        with(plain("p"), "spec|nodeName", json!(["n1"])),
        "spec|nodeAffinity",
        labels("zone", "b"),
    );
    let request = Request {
        ipv4_pools: vec!["p".into()],
        ..eni()
    };
    assert_eq!(run(&snapshot(&[both]), &request), "eth0 IPv4: p");
    let other = Request {
        ipv6_pools: vec!["p".into()],
        ..eni()
    };
    assert!(run(&snapshot(&[plain("p")]), &other).contains("is an IPv4 pool, not IPv6"));
}

/// Filter 8: the host NIC behind the NIC must have an address in the pool's subnet.
#[test]
fn match_master_subnet_asks_for_a_host_address() {
    let request = |ifname: &str| Request {
        ipv4_pools: vec!["p".into()],
        match_master_subnet: true,
        ..Request::new(Plugin::EniVlan, ifname)
    };
    let pools = [object("p", "10.1.7.0/24", &["10.1.7.10"])];
    let known = |addresses: &[&str]| Master::Known {
        name: "ens1f0".into(),
        addresses: addresses.iter().map(|text| text.parse().unwrap()).collect(),
    };
    for (master, want) in [
        (known(&["192.168.0.9", "10.1.7.2"]), "eth0 IPv4: p"),
        (
            known(&["10.1.8.2", "fd00::2"]),
            "IPPool p has subnet 10.1.7.0/24, in which the master ens1f0 has no address",
        ),
        (known(&[]), "the master ens1f0 has no address"),
        (
            Master::Unknown("the namespace /x does not exist".into()),
            "the master's addresses are not known: the namespace /x does not exist",
        ),
        (Master::default(), "nobody looked them up"),
    ] {
        let now = Snapshot {
            master,
            ..snapshot(&pools)
        };
        let text = run(&now, &request("eth0"));
        assert!(text.contains(want), "{text}");
    }
    // A pool for networks is not asked.
    let listed = with(pools[0].clone(), "spec|multusName", json!(["lab/nad"]));
    let now = annotated(snapshot(&[listed]), names::POD_NETWORKS, "lab/nad");
    assert_eq!(run(&now, &request("net1")), "net1 IPv4: p");
    // Other NICs of `ippools` have other masters.
    let both = annotated(
        Snapshot {
            master: known(&["10.1.7.2"]),
            ..snapshot(&[pools[0].clone(), plain("q")])
        },
        names::POD_IPPOOLS,
        r#"[{"interface":"eth0","ipv4":["p"]},{"interface":"net1","ipv4":["q"]}]"#,
    );
    assert_eq!(run(&both, &request("eth0")), "eth0 IPv4: p; net1 IPv4: q");
}

#[test]
fn a_providers_pool_needs_eni_vlan() {
    let request = Request {
        ipv4_pools: vec!["g".into()],
        ..Request::new(Plugin::Spiderpool, "eth0")
    };
    let text = run(&snapshot(&[cloud("g", None)]), &request);
    assert!(
        text.contains("requires an eni-vlan SpiderMultusConfig"),
        "{text}"
    );
}

#[test]
fn b09_the_later_of_two_overlapping_pools_gives_nothing() {
    let made = |name: &str, at: &str| {
        with(
            object(name, "10.5.0.0/24", &["10.5.0.10-10.5.0.19"]),
            "metadata|creationTimestamp",
            json!(at),
        )
    };
    let request = Request {
        ipv4_pools: vec!["*".into()],
        ..eni()
    };
    let pools = [
        made("a", "2026-02-01T00:00:00Z"),
        made("b", "2026-01-01T00:00:00Z"),
    ];
    assert_eq!(run(&snapshot(&pools), &request), "eth0 IPv4: b");
    let pools = [
        made("a", "2026-01-01T00:00:00Z"),
        made("b", "2026-01-01T00:00:00Z"),
    ];
    assert_eq!(run(&snapshot(&pools), &request), "eth0 IPv4: a");
    let alone = Request {
        ipv4_pools: vec!["b".into()],
        ..request
    };
    assert_eq!(
        run(&snapshot(&pools), &alone),
        "ERR no IPPool available for IPv4 of NIC eth0: IPPool b overlaps the older IPPool a in 10.5.0.10-10.5.0.19 and gives out nothing until one of them is changed"
    );
}

#[test]
fn an_automatic_pool_is_its_applications_alone() {
    let mut auto = plain("auto");
    auto["metadata"]["labels"] = json!({"ipam.spidernet.io/owner-application-name": "web"});
    auto["spec"]["podAffinity"] = json!({"matchLabels": {
        "ipam.spidernet.io/app-api-group": "apps", "ipam.spidernet.io/app-api-version": "v1",
        "ipam.spidernet.io/app-kind": "Deployment", "ipam.spidernet.io/app-namespace": "shop",
        "ipam.spidernet.io/app-name": "web"}});
    // A match skips the network filter.
    auto["spec"]["multusName"] = json!(["lab/other"]);
    let mut now = snapshot(&[auto]);
    let request = Request {
        ipv4_pools: vec!["auto".into()],
        ..eni()
    };
    assert!(run(&now, &request).contains("another application"));
    now.pod.owner = Owner {
        api_version: "apps/v1".into(),
        kind: "Deployment".into(),
        name: "web".into(),
    };
    assert_eq!(run(&now, &request), "eth0 IPv4: auto");
}

#[test]
fn b05_multus_names_meet_both_forms_of_the_annotation() {
    let pools = [with(plain("p-m"), "spec|multusName", json!(["lab/nad-r1"]))];
    let request = Request {
        ipv4_pools: vec!["p-m".into()],
        ..Request::new(Plugin::EniVlan, "net1")
    };
    let json = "[\n\t{\"name\":\"nad-r1\",\"namespace\":\"lab\"},\n {\"name\":\"nad-r2\",\"namespace\":\"lab\",\"interface\":\"net9\"}]";
    for (value, want) in [
        (json, "net1 IPv4: p-m"),
        ("lab/nad-r1, lab/nad-r2@net9", "net1 IPv4: p-m"),
        (
            "nad-r1",
            "is for network lab/nad-r1, not shop/nad-r1 of NIC net1",
        ),
        (r#"{"name":"nad-r1"}"#, "k8s.v1.cni.cncf.io/networks"),
    ] {
        let text = run(
            &annotated(snapshot(&pools), names::POD_NETWORKS, value),
            &request,
        );
        assert!(text.contains(want), "{value}: {text}");
    }
    // eth0 is of the default network; without multusName nobody asks.
    let zero = annotated(
        snapshot(&pools),
        names::POD_DEFAULT_NETWORK,
        r#"[{"name":"nad-r1","namespace":"lab"}]"#,
    );
    let eth0 = Request {
        ifname: "eth0".into(),
        ..request
    };
    assert_eq!(run(&zero, &eth0), "eth0 IPv4: p-m");
    let unasked = annotated(snapshot(&[plain("p-m")]), names::POD_NETWORKS, "{");
    assert_eq!(run(&unasked, &eth0), "eth0 IPv4: p-m");
}

#[test]
fn b06_the_more_specific_pool_comes_first_and_ties_keep_their_order() {
    let default = |object: Value| with(object, "spec|default", json!(true));
    let pools = [
        default(plain("d-plain")),
        default(with(
            plain("d-multus"),
            "spec|multusName",
            json!(["lab/nad-r0"]),
        )),
        default(with(plain("d-node"), "spec|nodeName", json!(["n1"]))),
        default(with(
            plain("d-pod"),
            "spec|podAffinity",
            json!({"matchLabels": {"app": "web"}}),
        )),
    ];
    let now = annotated(snapshot(&pools), names::POD_DEFAULT_NETWORK, "lab/nad-r0");
    assert_eq!(
        run(&now, &eni()),
        "eth0 IPv4: d-pod d-node d-multus d-plain"
    );
    let now = annotated(
        snapshot(&[plain("a-pool"), plain("z-pool")]),
        names::POD_IPPOOL,
        r#"{"ipv4":["z-pool","a-pool"]}"#,
    );
    assert_eq!(run(&now, &eni()), "eth0 IPv4: z-pool a-pool");
    // 100 of 100 in whatever order a cache lists the pools.
    for turn in 0..100 {
        let mut turned = now.clone();
        turned.pools.rotate_left(turn % 2);
        turned.pod.uid = format!("u-{turn}");
        assert_eq!(run(&turned, &eni()), "eth0 IPv4: z-pool a-pool");
    }
}

#[test]
fn the_whole_order_key_holds() {
    let affinity = json!({"matchLabels": {"app": "web"}});
    let x = with(
        with(plain("x"), "spec|podAffinity", affinity.clone()),
        "spec|nodeName",
        json!(["n1"]),
    );
    let y = with(
        with(plain("y"), "spec|podAffinity", affinity.clone()),
        "spec|namespaceName",
        json!(["shop"]),
    );
    let z = with(plain("z"), "spec|podAffinity", affinity);
    let w = with(
        with(plain("w"), "spec|nodeName", json!(["n1"])),
        "spec|namespaceName",
        json!(["shop"]),
    );
    let request = Request {
        ipv4_pools: ["w", "z", "y", "x"].map(str::to_owned).to_vec(),
        ..eni()
    };
    assert_eq!(
        run(&snapshot(&[x, y, z, w]), &request),
        "eth0 IPv4: x y z w"
    );
    // Prewarm goes first even before a global pool with podAffinity.
    let glob = with(
        cloud("glob", None),
        "spec|podAffinity",
        json!({"matchLabels": {"app": "web"}}),
    );
    let request = Request {
        ipv4_pools: vec!["glob".into(), "warm".into()],
        ..eni()
    };
    assert_eq!(
        run(&snapshot(&[glob, cloud("warm", Some("n1"))]), &request),
        "eth0 IPv4: warm glob"
    );
}
