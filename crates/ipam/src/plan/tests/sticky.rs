#![expect(
    clippy::too_many_lines,
    reason = "tables with one row a case read best in one piece"
)]

use super::*;
use crate::candidates::Request;
use crate::facts::Owner;
use crate::fixture::publish;
use crate::sticky::Switches;
use spiderpool_api::cni_conf::Plugin;

fn set() -> Owner {
    Owner {
        api_version: "apps/v1".into(),
        kind: "StatefulSet".into(),
        name: "web".into(),
    }
}

/// Pod `shop/web-0` (UID u-1) of a StatefulSet on node n1.
pub(super) fn member(objects: &[Value], found: EndpointStatus) -> Snapshot {
    let mut now = Snapshot {
        endpoint: Some(found),
        switches: Switches::ON,
        ..snapshot(objects)
    };
    now.pod.owner = set();
    now
}

pub(super) fn holding(name: &str, subnet: &str, records: &Value) -> Value {
    let ips = format!(
        "{}10-{}19",
        &subnet[..subnet.len() - 4],
        &subnet[..subnet.len() - 4]
    );
    let mut given = object(name, subnet, &[&ips]);
    given["status"]["allocatedIPs"] = json!(records.to_string());
    given
}

pub(super) fn p(records: &Value) -> Value {
    holding("p", "10.0.0.0/24", records)
}

fn addresses(adoption: &Adoption) -> Vec<(String, String)> {
    let row = |take: &Take| (take.nic.clone(), take.held.address.to_string());
    adoption.take.iter().map(row).collect()
}

pub(super) fn mine() -> Vec<EndpointNic> {
    vec![detail("eth0", "10.0.0.10/24", "p")]
}

pub(super) fn intent_of(now: &Snapshot) -> Intent {
    plan_add(now, "eth0").unwrap().intent
}

/// Spec ipam 1.3 rows 6 and 7, with the decisions of static retrieve.
#[test]
fn a_static_add_is_decided_by_endpoint_and_records() {
    let at = |record: Value| json!({"10.0.0.10": record});
    let releasing = with(
        rec("u-0", "eth0"),
        "releasing",
        json!({"by": "x", "at": "t"}),
    );
    for (records, uid, ips, want) in [
        (at(rec("u-1", "eth0")), "u-1", mine(), "retrieve"),
        (at(rec("u-0", "eth0")), "u-0", mine(), "adopt"),
        (at(rec("u-0", "eth0")), "u-1", mine(), "adopt"),
        (at(rec("u-1", "eth0")), "u-0", mine(), "adopt"),
        (
            at(json!({"pod": "shop/web-0", "podUid": "u-0"})),
            "u-0",
            mine(),
            "adopt",
        ),
        (
            at(rec("u-0", "eth0")),
            "u-0",
            vec![detail("", "10.0.0.10/24", "p")],
            "adopt",
        ),
        // A missing record is claimed again.
        (json!({}), "u-0", mine(), "adopt"),
        // Somebody else owns it, another NIC, nobody any more, or there is no such pool.
        (
            at(json!({"pod": "shop/web-9", "podUid": "u-9"})),
            "u-0",
            mine(),
            "exchange",
        ),
        (at(rec("u-0", "net1")), "u-0", mine(), "exchange"),
        (at(releasing), "u-0", mine(), "exchange"),
        (
            json!({}),
            "u-0",
            vec![detail("eth0", "10.0.0.10/24", "gone")],
            "exchange",
        ),
        (
            json!({}),
            "u-0",
            vec![EndpointNic {
                interface: "eth0".into(),
                ..EndpointNic::default()
            }],
            "exchange",
        ),
        // Row 7: a new NIC.
        (
            json!({}),
            "u-0",
            vec![detail("net1", "10.0.0.10/24", "p")],
            "append",
        ),
    ] {
        let now = member(&[p(&records)], endpoint(uid, ips));
        assert_eq!(word(&intent_of(&now)), want, "{records} {uid}");
    }
    let none = Snapshot {
        endpoint: None,
        ..member(&[], endpoint("u-0", vec![]))
    };
    assert_eq!(word(&intent_of(&none)), "create");
    // The switch makes the difference.
    let off = Snapshot {
        switches: Switches::default(),
        ..member(&[p(&at(rec("u-0", "eth0")))], endpoint("u-0", mine()))
    };
    assert_eq!(word(&intent_of(&off)), "recreate");
    // Another node, the same addresses.
    let mut moved = member(&[p(&at(rec("u-1", "eth0")))], endpoint("u-1", mine()));
    moved.node.name = "n2".into();
    assert_eq!(word(&intent_of(&moved)), "adopt");
    // CHECK wants what is this Pod's, nothing that could become so.
    let now = member(&[p(&at(rec("u-0", "eth0")))], endpoint("u-0", mine()));
    assert_eq!(word(&plan_check(&now, "eth0")), "recreate");
}

#[test]
fn an_adoption_takes_all_nics_this_one_first() {
    let both = vec![
        detail("net1", "10.0.0.11/24", "p"),
        detail("", "10.0.0.10/24", "p"),
    ];
    let records = json!({"10.0.0.10": rec("u-0", "eth0"), "10.0.0.11": rec("u-0", "net1")});
    let now = member(&[p(&records)], endpoint("u-0", both));
    let plan = plan_add(&now, "eth0").unwrap();
    let names: Vec<_> = plan
        .steps
        .iter()
        .map(|planned| planned.step.name())
        .collect();
    assert_eq!(names.first(), Some(&"claim"));
    assert!(names.contains(&"bind") && names.contains(&"record"));
    let Intent::Adopt(adoption) = plan.intent else {
        panic!("{:?}", plan.intent)
    };
    let row = |nic: &str, ip: &str| (nic.to_owned(), ip.to_owned());
    assert_eq!(
        addresses(&adoption),
        [row("eth0", "10.0.0.10"), row("net1", "10.0.0.11")]
    );
    let status = endpoint_adopted(&now, &adoption.nic, &["net1".into()]).unwrap();
    assert_eq!(
        (status.current.uid.as_str(), status.current.node.as_str()),
        ("u-1", "n1")
    );
    let nics: Vec<_> = status
        .current
        .ips
        .iter()
        .map(|nic| nic.interface.as_str())
        .collect();
    assert_eq!(nics, ["eth0"]);
    let status = endpoint_adopted(&now, &adoption.nic, &[]).unwrap();
    assert_eq!(status.current.ips.len(), 2);
    assert_eq!(status.owner_controller_type, "StatefulSet");
}

/// Spec ipam 7.5: static retrieve on another node.
#[test]
fn pools_of_a_provider_follow_by_their_mode() {
    let bound = EndpointNic {
        vlan: 11,
        mac: Some("fa:16:3e:00:00:0b".into()),
        ..detail("eth0", "10.0.0.10/24", "w")
    };
    let records = json!(json!({"10.0.0.10": rec("u-0", "eth0")}).to_string());
    let build = |node: Option<&str>, entries: &Value| {
        let mut given = iaas("w", &["10.0.0.10-10.0.0.19"], node, entries);
        given["status"]["allocatedIPs"] = records.clone();
        member(&[given], endpoint("u-0", vec![bound.clone()]))
    };
    let entries = json!({"10.0.0.10": entry(11)});
    let warm_here = build(Some("n1"), &entries);
    assert_eq!(word(&intent_of(&warm_here)), "adopt");
    let Intent::Exchange(exchange) = intent_of(&build(Some("n2"), &entries)) else {
        panic!("no exchange")
    };
    let freed = Freed {
        uid: "u-0".into(),
        pool: "w".into(),
        address: "10.0.0.10".parse().unwrap(),
        half: false,
    };
    assert_eq!(exchange.free, [freed]);
    assert_eq!(exchange.keep, []);
    let elsewhere = json!({"10.0.0.10": with(entry(11), "node", json!("n2"))});
    assert_eq!(word(&intent_of(&build(None, &elsewhere))), "adopt");
    // Metadata that is not ready says nothing about the past; the claim will.
    let mut paused = iaas("w", &["10.0.0.10"], None, &elsewhere);
    paused["status"]["allocatedIPs"] = records.clone();
    publish(&mut paused, "{");
    let paused = member(&[paused], endpoint("u-0", vec![bound.clone()]));
    assert_eq!(word(&intent_of(&paused)), "adopt");
}

#[test]
fn only_what_cannot_come_along_is_given_up() {
    let mut warm = iaas("w", &["10.9.0.10"], Some("n2"), &json!({}));
    warm["spec"]["subnet"] = json!("10.9.0.0/24");
    warm["status"]["allocatedIPs"] = json!(json!({"10.9.0.10": rec("u-0", "net1")}).to_string());
    let details = vec![
        detail("eth0", "10.0.0.10/24", "p"),
        detail("net1", "10.9.0.10/24", "w"),
    ];
    let records = json!({"10.0.0.10": rec("u-0", "eth0")});
    let now = member(&[p(&records), warm], endpoint("u-0", details.clone()));
    let plan = plan_add(&now, "eth0").unwrap();
    let names: Vec<_> = plan
        .steps
        .iter()
        .map(|planned| planned.step.name())
        .collect();
    assert_eq!(names, ["record"]);
    let Intent::Exchange(exchange) = plan.intent else {
        panic!("{:?}", plan.intent)
    };
    assert_eq!(exchange.keep, details[..1]);
    assert_eq!(exchange.free.len(), 1);
    assert_eq!(exchange.free[0].pool, "w");
    // A migration's source still runs on it.
    let mut target = now.clone();
    target
        .pod
        .annotations
        .insert(names::KUBEVIRT_MIGRATION_JOB.into(), "job".into());
    let Intent::Exchange(exchange) = intent_of(&target) else {
        panic!("no exchange")
    };
    assert_eq!(exchange.free, []);
    assert_eq!(exchange.keep, details[..1]);
    // What turns out not to be had is given up in the same way.
    let lost = give_up(&now, "eth0");
    assert_eq!(
        (lost.free[0].pool.as_str(), lost.keep),
        ("p", details[1..].to_vec())
    );
    let none = give_up(&now, "net9");
    assert_eq!((none.free, none.keep), (vec![], details));
}

#[test]
fn a_lost_address_of_a_pool_that_lost_to_another_is_not_claimed_again() {
    let old = with(
        p(&json!({})),
        "metadata|creationTimestamp",
        json!("2027-01-02T00:00:00Z"),
    );
    let older = with(
        holding("older", "10.0.0.0/24", &json!({})),
        "metadata|creationTimestamp",
        json!("2027-01-01T00:00:00Z"),
    );
    let now = member(&[old.clone(), older.clone()], endpoint("u-1", mine()));
    assert_eq!(word(&intent_of(&now)), "exchange");
    let stateless = Snapshot {
        switches: Switches::default(),
        ..now
    };
    assert_eq!(word(&intent_of(&stateless)), "replace");
    let alone = Snapshot {
        pools: snapshot(&[old]).pools,
        ..stateless
    };
    assert_eq!(word(&intent_of(&alone)), "reclaim");
}

/// Spec ipam 4.6: endpoint and records are named after the machine.
#[test]
fn a_machine_keeps_its_addresses_under_its_own_name() {
    let record = json!({"pod": "shop/db", "podUid": "u-0", "nic": "eth0"});
    let mut now = member(&[p(&json!({"10.0.0.10": record}))], endpoint("u-0", mine()));
    now.pod.name = "virt-launcher-db-x7".into();
    now.pod.owner = Owner {
        api_version: "kubevirt.io/v1".into(),
        kind: "VirtualMachineInstance".into(),
        name: "db".into(),
    };
    assert_eq!(now.record_key(), "shop/db");
    assert_eq!(claimant(&now, "eth0").pod, "shop/db");
    assert_eq!(word(&intent_of(&now)), "adopt");
    // Live migration: the target, on another node, gets the same address while the source runs.
    now.node.name = "n2".into();
    now.pod
        .annotations
        .insert(names::KUBEVIRT_MIGRATION_JOB.into(), "job".into());
    assert_eq!(word(&intent_of(&now)), "adopt");
    // A machine's pools are not compared (row 5 is about StatefulSets).
    assert_eq!(
        pool_change(&now, &Request::new(Plugin::EniVlan, "eth0")),
        Ok(None)
    );
}

/// The NICs that the endpoint lists are their own ADDs' business: their records may still be the
/// last Pod's.
#[test]
fn a_fresh_add_claims_for_nics_that_have_nothing_yet() {
    use crate::candidates::select;
    let value = r#"[{"interface":"eth0","ipv4":["p"]},{"interface":"net1","ipv4":["q"]},{"interface":"net2","ipv4":["q"]}]"#;
    let q = holding("q", "10.1.0.0/24", &json!({}));
    let mut now = member(
        &[p(&json!({"10.0.0.10": rec("u-0", "eth0")})), q],
        endpoint("u-0", mine()),
    );
    now.pod
        .annotations
        .insert(names::POD_IPPOOLS.into(), value.into());
    let nics = |now: &Snapshot, ifname: &str| -> Vec<String> {
        let selection = select(now, &Request::new(Plugin::EniVlan, ifname)).unwrap();
        let claimed = to_claim(now, ifname, &selection.nics);
        claimed.into_iter().map(|nic| nic.nic.clone()).collect()
    };
    assert_eq!(nics(&now, "net1"), ["net1", "net2"]);
    assert_eq!(nics(&now, "eth0"), ["eth0", "net1", "net2"]);
    // An earlier Pod's endpoint counts only where the identity is kept.
    now.switches = Switches::default();
    assert_eq!(nics(&now, "net1"), ["eth0", "net1", "net2"]);
}
