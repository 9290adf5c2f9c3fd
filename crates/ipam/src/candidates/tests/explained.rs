use super::*;
use crate::fixture::entry;
use crate::pick::Rules;

fn conf(pools: &[&str]) -> Request {
    Request {
        ipv4_pools: pools.iter().map(|&name| name.to_owned()).collect(),
        ..eni()
    }
}

/// What `spiderpoolctl trace` prints: candidates in order with what each gives, then why the others
/// were refused.
#[test]
fn an_explanation_lists_candidates_and_refusals() {
    let pools = [
        with(plain("a"), "spec|nodeName", json!(["n2"])),
        with(
            plain("b"),
            "status|allocatedIPs",
            json!(r#"{"10.1.7.99":{}}"#),
        ),
        object("c", "10.9.9.0/24", &[]),
        with(plain("d"), "spec|disable", json!(true)),
    ];
    let now = snapshot(&pools);
    let found = explain(&now, &conf(&["a", "c", "b", "d"]), &Rules::default());
    assert_eq!(found.level, Some(Level::CniConf));
    assert_eq!(found.error, None);
    let family = &found.nics[0].families[0];
    let names: Vec<_> = family
        .candidates
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(names, ["c", "b"]);
    assert!(family.candidates[0].1.as_ref().unwrap_err().is_used_out());
    assert!(family.candidates[1].1.is_ok());
    let b = family.candidates[1].1.as_ref().unwrap().address;
    let lines = format!(
        "pools are named by the CNI configuration's default_ipv4_ippool or default_ipv6_ippool\n\
         NIC eth0 IPv4:\n  \
         IPPool c gives nothing: all IP addresses used out: IPPool c has no free address\n  \
         IPPool b gives {b} (plain)\n  \
         IPPool a is for node n2, not n1\n  \
         IPPool d is disabled"
    );
    assert_eq!(found.to_string(), lines);
}

#[test]
fn a_refused_add_is_explained_by_the_same_words() {
    let now = snapshot(&[with(plain("a"), "spec|nodeName", json!(["n2"]))]);
    let request = conf(&["a"]);
    let found = explain(&now, &request, &Rules::default());
    assert_eq!(found.error, Some(select(&now, &request).unwrap_err()));
    assert_eq!(
        found.nics[0].families[0].refusals,
        [Refusal {
            pool: "a".into(),
            reason: Reason::NodeName {
                names: vec!["n2".into()],
                node: "n1".into()
            }
        }]
    );
    let nothing = explain(&now, &eni(), &Rules::default());
    assert_eq!(nothing.level, None);
    assert!(
        nothing
            .to_string()
            .starts_with("no pools are named\nno IPPool available")
    );
    // Case B01: the message names NIC and pool.
    let named = annotated(
        now,
        names::POD_IPPOOLS,
        r#"[{"interface":"eth0","ipv4":["a"]},{"interface":"net1","ipv4":["a"]}]"#,
    );
    let text = explain(&named, &eni(), &Rules::default()).to_string();
    assert!(
        text.contains("NIC net1 IPv4:\n  IPPool a is for node"),
        "{text}"
    );
}

#[test]
fn a_pair_is_explained_with_both_addresses() {
    let mut v4 = iaas(
        "p4",
        &["10.0.0.10"],
        None,
        &json!({"10.0.0.10": with(with(entry(7), "node", json!("n1")), "ipv6", json!("fd00::10"))}),
    );
    v4["metadata"]["annotations"]["ipam.spidernet.io/pair-pool"] = json!("p6");
    let mut v6 = object("p6", "fd00::/64", &["fd00::10"]);
    v6["metadata"]["annotations"] = json!({"ipam.spidernet.io/iaas-provider": "cloud",
        "ipam.spidernet.io/pair-pool": "p4"});
    let text = explain(&snapshot(&[v4, v6]), &conf(&["p4"]), &Rules::default()).to_string();
    assert!(
        text.ends_with("IPPool p4 gives 10.0.0.10 and fd00::10 (cache_hit)"),
        "{text}"
    );
}
