use super::*;

fn read(rows: &[(&str, &str)]) -> Result<Wanted, String> {
    let wanted = Wanted::read(|name| {
        let name = name.strip_prefix("SPIDERPOOL_")?;
        let own = [("NAMESPACE", "net")];
        let mut rows = rows.iter().chain(&own);
        rows.find(|(known, _)| *known == name)
            .map(|(_, value)| (*value).to_owned())
    });
    wanted.map_err(|error| error.to_string())
}

fn made(rows: &[(&str, &str)]) -> Vec<(&'static str, String, Value)> {
    let objects = read(rows).unwrap().objects.into_iter();
    objects
        .map(|object| (object.kind, object.name, object.spec))
        .collect()
}

#[test]
fn nothing_is_made_that_was_not_asked_for() {
    let wanted = read(&[("INIT_DEFAULT_COORDINATOR_MODE", "auto")]).unwrap();
    assert_eq!((wanted.objects, wanted.network), (Vec::new(), None));
    assert_eq!(wanted.controller, "spiderpool-controller");
}

#[test]
fn a_coordinator_has_what_is_set() {
    let name = ("INIT_DEFAULT_COORDINATOR_NAME", "default");
    let spec = json!({"podCIDRType": "auto"});
    let want = vec![("SpiderCoordinator", "default".to_owned(), spec)];
    assert_eq!(made(&[name]), want);
    let all = [
        name,
        ("INIT_DEFAULT_COORDINATOR_MODE", "underlay"),
        ("INIT_DEFAULT_COORDINATOR_POD_CIDR_TYPE", "calico"),
        ("INIT_DEFAULT_COORDINATOR_TUNE_POD_ROUTES", "false"),
        (
            "INIT_DEFAULT_COORDINATOR_HIJACK_CIDR",
            r#"["169.254.0.0/16"]"#,
        ),
        (
            "INIT_DEFAULT_COORDINATOR_POLICY_ROUTES",
            r#"[{"dst":"10.0.0.0/8","gw":"10.1.1.1"}]"#,
        ),
        (
            "INIT_DEFAULT_COORDINATOR_VETH_LINK_ADDRESS",
            "169.254.100.1",
        ),
        ("INIT_DEFAULT_COORDINATOR_VETH_MTU", "1400"),
    ];
    let spec = json!({"podCIDRType": "calico", "mode": "underlay", "tunePodRoutes": false,
        "hijackCIDR": ["169.254.0.0/16"], "policyRoutes": [{"dst": "10.0.0.0/8", "gw": "10.1.1.1"}],
        "vethLinkAddress": "169.254.100.1", "vethMTU": 1400});
    assert_eq!(made(&all)[0].2, spec);
}

#[test]
fn subnets_come_before_pools() {
    let rows = [
        ("INIT_DEFAULT_IPV4_SUBNET_NAME", "s4"),
        ("INIT_DEFAULT_IPV4_IPPOOL_NAME", "p4"),
        ("INIT_DEFAULT_IPV4_IPPOOL_SUBNET", "10.1.0.0/16"),
        (
            "INIT_DEFAULT_IPV4_IPPOOL_IPRANGES",
            "10.1.0.10-10.1.0.99, 10.1.1.7",
        ),
        ("INIT_DEFAULT_IPV4_IPPOOL_GATEWAY", "10.1.0.1"),
        ("INIT_DEFAULT_IPV6_IPPOOL_NAME", "p6"),
        ("INIT_DEFAULT_IPV6_IPPOOL_SUBNET", "fd00::/64"),
    ];
    let mut spec = json!({"ipVersion": 4, "subnet": "10.1.0.0/16",
        "ips": ["10.1.0.10-10.1.0.99", "10.1.1.7"], "gateway": "10.1.0.1"});
    let subnet = ("SpiderSubnet", "s4".to_owned(), spec.clone());
    spec["default"] = json!(true);
    let pool = ("SpiderIPPool", "p4".to_owned(), spec);
    let six = json!({"ipVersion": 6, "subnet": "fd00::/64", "default": true});
    let want = vec![subnet, pool, ("SpiderIPPool", "p6".to_owned(), six)];
    assert_eq!(made(&rows), want);
}

#[test]
fn what_cannot_be_is_named() {
    let unnamed = Wanted::read(|_| None).unwrap_err().to_string();
    assert!(unnamed.contains("SPIDERPOOL_NAMESPACE"), "{unnamed}");
    let name = ("INIT_DEFAULT_COORDINATOR_NAME", "default");
    for (rows, part) in [
        (
            vec![("INIT_DEFAULT_IPV4_IPPOOL_NAME", "p")],
            "IPV4_IPPOOL_SUBNET is not set",
        ),
        (
            vec![name, ("INIT_DEFAULT_COORDINATOR_VETH_MTU", "big")],
            "VETH_MTU=\"big\"",
        ),
        (
            vec![name, ("INIT_DEFAULT_COORDINATOR_POLICY_ROUTES", "{}")],
            "a JSON list",
        ),
        (
            vec![("INIT_ENABLE_MULTUS_CONFIG", "maybe")],
            "true or false",
        ),
    ] {
        let text = read(&rows).unwrap_err();
        assert!(text.contains(part), "{text}");
    }
}

/// What admission would refuse for ever.
#[test]
#[rustfmt::skip] // a case a line
fn what_can_never_be_is_refused_with_its_variable() {
    let v4 = "INIT_DEFAULT_IPV4_IPPOOL_";
    let coordinator = "INIT_DEFAULT_COORDINATOR_";
    for (prefix, key, value, part) in [
        (v4, "SUBNET", "zz", "is not a CIDR such as 10.7.0.0/24"),
        (v4, "SUBNET", "fd00::/64", "is not an IPv4 CIDR"),
        (v4, "SUBNET", "10.1.0.9/16", "write 10.1.0.0/16"),
        (v4, "IPRANGES", "zz", "zz"),
        (v4, "IPRANGES", "10.1.0.10-10.1.0.99, 10.2.0.1", "Invalid value: \"10.2.0.1\": does not lie in subnet 10.1.0.0/16"),
        (v4, "IPRANGES", "10.1.0.99-10.1.0.10", "10.1.0.99-10.1.0.10"),
        (v4, "IPRANGES", "fd00::1", "fd00::1"),
        (v4, "GATEWAY", "zz", "zz"),
        (v4, "GATEWAY", "10.2.0.1", "10.2.0.1"),
        (v4, "GATEWAY", "fd00::1", "fd00::1"),
        (v4, "NAME", "Bad Name", "is not a name of lower-case letters"),
        ("INIT_DEFAULT_IPV4_", "SUBNET_NAME", "a_b", "is not a name of lower-case letters"),
        (coordinator, "NAME", "Bad Name", "is not a name of lower-case letters"),
        (coordinator, "MODE", "zz", "is not auto, underlay, overlay or disabled"),
        (coordinator, "POD_CIDR_TYPE", "zz", "is not auto, cluster, calico, cilium or none"),
        (coordinator, "HIJACK_CIDR", "zz", "is neither an address nor a CIDR"),
        (coordinator, "POLICY_ROUTES", "[1]", "is not a JSON list"),
        (coordinator, "POLICY_ROUTES", r#"[{"dst":"zz","gw":"10.1.1.1"}]"#, "is neither an address nor a CIDR"),
        (coordinator, "POLICY_ROUTES", r#"[{"dst":"fd00::/8","gw":"10.1.1.1"}]"#, "is not an IPv6 address, like dst"),
        (coordinator, "VETH_LINK_ADDRESS", "zz", "is not an IP address"),
        (coordinator, "VETH_MTU", "0", "must be at least 1"),
        ("", "CONTROLLER_NAME", "a.b", "is not a name of lower-case letters, digits and -"),
        ("INIT_DEFAULT_CNI_", "NAMESPACE", "A", "is not a name of lower-case letters, digits and -"),
        ("INIT_DEFAULT_CNI_", "NAME", "A", "is not a name of lower-case letters"),
    ] {
        let variable = format!("{prefix}{key}");
        let mut rows = vec![
            (variable.as_str(), value),
            ("INIT_DEFAULT_COORDINATOR_NAME", "default"),
            ("INIT_DEFAULT_IPV4_IPPOOL_NAME", "p4"),
            ("INIT_DEFAULT_IPV4_IPPOOL_SUBNET", "10.1.0.0/16"),
            ("INIT_ENABLE_MULTUS_CONFIG", "true"),
        ];
        let text = read(&rows).unwrap_err();
        let named = format!("environment variable SPIDERPOOL_{variable}={value:?} ");
        assert!(text.starts_with(&named) && text.contains(part), "{text}");
        rows.remove(0);
        assert!(read(&rows).is_ok());
    }
}

#[test]
fn two_objects_have_two_names() {
    let text = read(&[
        ("INIT_DEFAULT_IPV4_IPPOOL_NAME", "p"),
        ("INIT_DEFAULT_IPV4_IPPOOL_SUBNET", "10.1.0.0/16"),
        ("INIT_DEFAULT_IPV6_IPPOOL_NAME", "p"),
        ("INIT_DEFAULT_IPV6_IPPOOL_SUBNET", "fd00::/64"),
    ]);
    let text = text.unwrap_err();
    let both = "IPV4_IPPOOL_NAME and SPIDERPOOL_INIT_DEFAULT_IPV6_IPPOOL_NAME are both \"p\"";
    assert!(text.contains(both), "{text}");
}
