#![expect(
    clippy::too_many_lines,
    reason = "tables with one row a case read best in one piece"
)]

use super::*;
use crate::facts::PodFacts;
use crate::pool::RouteTo;
use crate::range::Family;

/// Every error names annotation, item and value.
#[test]
fn b07_mistakes_in_the_multi_nic_annotation_are_named() {
    for (text, parts) in [
        (
            r#"[{"interface":"eth0","ipv4":["p-1"]},{"interface":"eth0","ipv4":["p-2"]}]"#,
            ["item 1", r#""ipv4":["p-2"]"#, "eth0 a second time"],
        ),
        (
            r#"[{"interface":"eth0","ipv4":["p-1"]},{"ipv4":["p-2"]}]"#,
            ["value", r#"{"ipv4":["p-2"]}"#, "name all or none"],
        ),
        (
            r#"[{"interface":"eth0","ipv4":["p-1","p-1"]}]"#,
            ["item 0", r#"["p-1","p-1"]"#, "IPPool p-1 twice"],
        ),
        ("[]", ["value", "[]", "lists no NIC"]),
        ("{}", ["not the JSON", "line 1 column 0", "its value is {}"]),
        ("", ["not the JSON", "EOF", r#"its value is """#]),
        ("[\n{]", ["not the JSON", "line 2", "its value is [ {]"]),
        ("null", ["not the JSON", "null", "its value is null"]),
        (
            r#"[{"ipv4":["a"]},{"ipv4":"p-1"}]"#,
            ["item 1", r#"{"ipv4":"p-1"}"#, "expected a sequence"],
        ),
        (r#"[{"ipv4":[7]}]"#, ["item 0", "[7]", "expected a string"]),
        (r#"["eth0"]"#, ["item 0", "eth0", "expected an object"]),
        (
            r#"[["eth0",["p"]]]"#,
            ["item 0", r#"["eth0",["p"]]"#, "expected an object"],
        ),
        (
            r#"[{"ipv4":["a"],"cleangateway":"yes"}]"#,
            ["item 0", "yes", "expected a boolean"],
        ),
        (
            r#"[{"interface":"eth0"}]"#,
            ["item 0", r#""interface":"eth0""#, "neither ipv4 nor ipv6"],
        ),
        (
            r#"[{"ipv4":[""]}]"#,
            ["item 0", r#"[""]"#, "empty pool name"],
        ),
        (
            r#"[{"interface":"a/b","ipv4":["a"]}]"#,
            ["item 0", "a/b", "unusable interface"],
        ),
        (
            r#"[{"interface":"much-too-long-a-name","ipv4":["a"]}]"#,
            ["item 0", "much-too-long-a-name", "unusable interface"],
        ),
    ] {
        let error = parse_ippools(text).unwrap_err().to_string();
        assert!(
            error.starts_with("wrong input: annotation ipam.spidernet.io/ippools"),
            "{error}"
        );
        for part in parts {
            assert!(error.contains(part), "{text}: {part} is not in {error}");
        }
    }
}

#[test]
fn a_long_value_is_shortened() {
    let text = format!("[{}", "\u{fc}".repeat(500));
    let error = parse_ippools(&text).unwrap_err().to_string();
    assert!(
        error.ends_with("...") && error.chars().count() < 400,
        "{error}"
    );
}

#[test]
fn choices_keep_their_order_and_ignore_unknown_fields() {
    let text = r#"[{"interface":"net1","ipv4":["b","a*"],"ipv6":null,"cleangateway":true,"x":1}]"#;
    let choices = parse_ippools(text).unwrap();
    let want = PoolChoice {
        interface: Some("net1".into()),
        ipv4: vec!["b".into(), "a*".into()],
        ipv6: vec![],
        clean_gateway: true,
    };
    assert_eq!(choices, [want]);
    assert_eq!(
        parse_ippool(r#"{"ipv6":["p6"]}"#).unwrap().of(Family::V6),
        ["p6"]
    );
    for (bad, part) in [
        ("[]", "its value is []"),
        (r#"["eth0",["p"]]"#, "not the JSON"),
        ("{}", "value {} names neither"),
        ("", "not the JSON"),
        (r#"{"ipv4":["a","a"]}"#, "names IPPool a twice"),
        (r#"{"ipv4":[1]}"#, r#"value {"ipv4":[1]} is wrong"#),
    ] {
        let error = parse_ippool(bad).unwrap_err().to_string();
        assert!(
            error.contains(part) && error.contains("io/ippool"),
            "{bad}: {error}"
        );
    }
}

#[test]
fn routes_are_of_one_family() {
    let route = |text: &str| parse_routes(text);
    assert_eq!(
        route(r#"[{"dst":"10.9.0.0/16","gw":"192.168.5.1"}]"#).unwrap(),
        [RouteTo {
            dst: "10.9.0.0/16".parse().unwrap(),
            gw: "192.168.5.1".parse().unwrap()
        }]
    );
    for (bad, part) in [
        (r#"[{"dst":"10.9.0.0","gw":"192.168.5.1"}]"#, "10.9.0.0"),
        (r#"[{"dst":"10.9.0.0/16","gw":"x"}]"#, "\"gw\":\"x\""),
        (
            r#"[{"dst":"10.9.0.0/16","gw":"192.168.5.1"},{"dst":7}]"#,
            "item 1 {\"dst\":7}",
        ),
        (r#"[{"dst":"10.9.0.0/16","gw":"fd00::1"}]"#, "mixes"),
        (r#"[{"gw":"fd00::1"}]"#, "dst"),
        ("7", "JSON"),
    ] {
        let error = route(bad).unwrap_err().to_string();
        assert!(
            error.contains(part) && error.contains("annotation ipam.spidernet.io/routes"),
            "{bad}: {error}"
        );
    }
}

fn asking(rows: &[(&str, &str)]) -> PodFacts {
    let row = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    PodFacts {
        annotations: rows.iter().map(row).collect(),
        ..PodFacts::default()
    }
}

#[test]
fn automatic_pools_are_refused_by_name() {
    for (key, text) in [
        (names::POD_SUBNET, r#"{"ipv4":["s4"]}"#),
        (
            names::POD_SUBNETS,
            r#"[{"interface":"eth0","ipv4":["s4"]}]"#,
        ),
    ] {
        let error = refuse_auto_pool(&asking(&[(key, text)]), key).unwrap_err();
        assert_eq!(error, AnnotationError::AutoPool { key });
        let error = error.to_string();
        assert!(error.contains(key), "{error}");
        assert!(
            error.contains("automatic pools are not available in this release"),
            "{error}"
        );
        assert_eq!(refuse_auto_pool(&asking(&[]), key), Ok(()));
    }
}

#[test]
fn malformed_automatic_pools_are_told_first() {
    let (one, many) = (names::POD_SUBNET, names::POD_SUBNETS);
    let number = names::POD_IPPOOL_IP_NUMBER;
    let good = r#"{"ipv4":["s4"]}"#;
    for (key, text, more, parts) in [
        (one, "[]", None, [one, "not the JSON", "[]"]),
        (
            one,
            "{}",
            None,
            [one, "value {}", "neither an ipv4 nor an ipv6"],
        ),
        (
            one,
            r#"{"ipv4":[""]}"#,
            None,
            [one, r#"[""]"#, "empty IPv4 subnet"],
        ),
        (
            one,
            r#"{"ipv6":[""],"ipv4":["a"]}"#,
            None,
            [one, r#"[""]"#, "empty IPv6 subnet"],
        ),
        (
            one,
            r#"{"interface":"a b","ipv4":["s"]}"#,
            None,
            [one, "a b", "interface"],
        ),
        (many, "{}", None, [many, "not the JSON", "{}"]),
        (many, "[]", None, [many, "value []", "lists no NIC"]),
        (
            many,
            r#"[{"interface":"eth0"}]"#,
            None,
            [many, "item 0", "neither"],
        ),
        (
            many,
            r#"[{"interface":"a","ipv4":["s"]},{"interface":"a","ipv4":["t"]}]"#,
            None,
            [many, "item 1", "interface a a second time"],
        ),
        (
            many,
            r#"[{"interface":"a","ipv6":["s"]},{"interface":"b","ipv6":["s"]}]"#,
            None,
            [many, "item 1", "IPv6 subnet s a second time"],
        ),
        (
            one,
            good,
            Some((number, "x")),
            [number, "value x", "nor a surplus"],
        ),
        (
            one,
            good,
            Some((number, "1+2+3")),
            [number, "1+2+3", "nor a surplus"],
        ),
        (
            one,
            good,
            Some((number, "-1")),
            [number, "-1", "nor a surplus"],
        ),
        (
            one,
            good,
            Some((number, "")),
            [number, r#"value """#, "nor a surplus"],
        ),
        (
            one,
            good,
            Some((names::POD_IPPOOL_RECLAIM, "yes")),
            [
                names::POD_IPPOOL_RECLAIM,
                "value yes",
                "neither true nor false",
            ],
        ),
    ] {
        let rows: Vec<_> = [(key, text)].into_iter().chain(more).collect();
        let error = refuse_auto_pool(&asking(&rows), key)
            .unwrap_err()
            .to_string();
        for part in parts {
            assert!(error.contains(part), "{text}: {part} is not in {error}");
        }
    }
    for fine in ["3", "+2", "7+2", "0"] {
        let pod = asking(&[
            (one, good),
            (number, fine),
            (names::POD_IPPOOL_RECLAIM, "F"),
        ]);
        let error = refuse_auto_pool(&pod, one).unwrap_err();
        assert_eq!(error, AnnotationError::AutoPool { key: one }, "{fine}");
    }
}

#[test]
fn namespace_defaults_must_be_lists() {
    let space = |text: &str| NamespaceFacts {
        annotations: [(names::NAMESPACE_IPV4_POOLS.to_owned(), text.to_owned())].into(),
        ..NamespaceFacts::default()
    };
    assert_eq!(
        namespace_defaults(&space(r#"["ns-a","ns-b?"]"#))
            .unwrap()
            .ipv4,
        ["ns-a", "ns-b?"]
    );
    assert_eq!(
        namespace_defaults(&space("null")).unwrap().ipv4,
        Vec::<String>::new()
    );
    for (bad, part) in [
        ("ns-a", "its value is ns-a"),
        (r#"["a",""]"#, "has an empty pool name"),
        (r#"["a","a"]"#, "names IPPool a twice"),
        (r#"["a",{}]"#, "item 1 {}"),
    ] {
        let error = namespace_defaults(&space(bad)).unwrap_err().to_string();
        assert!(
            error.contains("default-ipv4-ippool") && error.contains(part),
            "{bad}: {error}"
        );
    }
}
