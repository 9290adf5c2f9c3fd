#![expect(
    clippy::too_many_lines,
    reason = "tables with one row a case read best in one piece"
)]

use super::*;

#[test]
fn the_highest_class_is_used_alone() {
    let mut pair4 = cloud("pair-v4", Some("n1"));
    pair4["metadata"]["annotations"][names::PAIR_POOL] = json!("pair-v6");
    let mut pair6 = six("pair-v6");
    pair6["metadata"]["annotations"] = json!({"ipam.spidernet.io/iaas-provider": "cloud"});
    pair6["spec"]["nodeName"] = json!(["n1"]);
    let pools = [
        plain("plain-1"),
        cloud("glob-1", None),
        cloud("warm-n1", Some("n1")),
        cloud("warm-n2", Some("n2")),
        pair4,
        pair6,
        six("six-1"),
    ];
    for (v4, v6, dual, want, dropped, events) in [
        (
            vec!["plain-1", "glob-1"],
            vec![],
            true,
            "eth0 IPv4: glob-1",
            vec!["plain-1"],
            1,
        ),
        (
            vec!["plain-1", "glob-1", "warm-n2"],
            vec![],
            true,
            "eth0 IPv4: glob-1",
            vec!["plain-1"],
            1,
        ),
        (
            vec!["glob-1", "warm-n1"],
            vec![],
            true,
            "eth0 IPv4: warm-n1 glob-1",
            vec![],
            0,
        ),
        (
            vec!["glob-1", "pair-v4"],
            vec![],
            true,
            "eth0 IPv4: pair-v4",
            vec!["glob-1"],
            1,
        ),
        (
            vec!["glob-1", "pair-v4"],
            vec![],
            false,
            "eth0 IPv4: pair-v4 glob-1",
            vec![],
            0,
        ),
        (
            vec!["pair-v4"],
            vec!["pair-v6"],
            true,
            "eth0 IPv4: pair-v4",
            vec!["pair-v6"],
            0,
        ),
        (
            vec!["pair-v4"],
            vec!["six-1"],
            true,
            "eth0 IPv4: pair-v4",
            vec!["six-1"],
            1,
        ),
        (
            vec!["pair-v4"],
            vec![],
            true,
            "eth0 IPv4: pair-v4",
            vec![],
            0,
        ),
    ] {
        let mut now = snapshot(&pools);
        now.enable_ipv6 = dual;
        let request = Request {
            ipv4_pools: v4.iter().map(|&n| n.to_owned()).collect(),
            ipv6_pools: v6.iter().map(|&n| n.to_owned()).collect(),
            ..eni()
        };
        let selection = select(&now, &request).unwrap();
        assert_eq!(shown(&selection), want);
        let names: Vec<_> = selection.dropped.iter().map(|d| d.pool.as_str()).collect();
        assert_eq!(names, dropped, "{v4:?}");
        assert_eq!(selection.dropped.iter().filter(|d| d.event).count(), events);
        let paired = selection.nics[0].families[0].candidates[0]
            .sibling
            .is_some();
        assert_eq!(paired, dual && want.ends_with("pair-v4"));
    }
    for (v4, v6, part) in [
        (
            vec!["warm-n2", "plain-1"],
            vec![],
            "IPPool plain-1 is ignored: pools of class IaaS are named as well; IPPool warm-n2 is for node n2",
        ),
        (vec!["glob-1"], vec!["six-1"], "IPPool six-1 is ignored"),
        (
            vec!["plain-1"],
            vec!["pair-v6"],
            "IPv6 side of a pair and is not used alone: name pair-v4",
        ),
    ] {
        let request = Request {
            ipv4_pools: v4.iter().map(|&n| n.to_owned()).collect(),
            ipv6_pools: v6.iter().map(|&n| n.to_owned()).collect(),
            ..eni()
        };
        let text = run(&snapshot(&pools), &request);
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn a_dropped_pool_is_reported_with_family_pool_nic_and_class() {
    let pools = [plain("plain-1"), cloud("glob-1", None)];
    let request = Request {
        ipv4_pools: vec!["*".into()],
        ..eni()
    };
    let selection = select(&snapshot(&pools), &request).unwrap();
    let text = selection.dropped[0].to_string();
    for part in ["IPv4", "plain-1", "eth0", "class IaaS"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn a_pair_needs_its_other_side() {
    let mut pair4 = cloud("pair-v4", Some("n1"));
    pair4["metadata"]["annotations"][names::PAIR_POOL] = json!("pair-v6");
    let request = Request {
        ipv4_pools: vec!["pair-v4".into()],
        ..eni()
    };
    let text = run(&snapshot(std::slice::from_ref(&pair4)), &request);
    assert!(
        text.contains("pair pool pair-v6, which does not exist"),
        "{text}"
    );
    let pools = [pair4, with(six("pair-v6"), "spec|disable", json!(true))];
    let text = run(&snapshot(&pools), &request);
    assert!(
        text.contains("pair pool pair-v6, which is disabled"),
        "{text}"
    );
}
