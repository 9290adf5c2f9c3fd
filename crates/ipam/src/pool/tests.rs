#![expect(
    clippy::too_many_lines,
    reason = "tables with one row a case read best in one piece"
)]

use serde_json::{Value, json};

use super::*;
use crate::fixture::{entry, iaas, object, pool, publish, try_pool, with};

fn reason(object: &Value) -> (Option<&'static str>, String) {
    match pool(object).metadata {
        Some(Err(error)) => (error.reason, error.to_string()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_gate_fails_closed_with_its_reason() {
    let good = iaas(
        "p",
        &["10.0.0.10-10.0.0.19"],
        Some("n1"),
        &json!({"10.0.0.10": entry(11)}),
    );
    assert!(matches!(pool(&good).metadata, Some(Ok(_))));
    let meta = "status|ipMetaData";
    for (object, label, part) in [
        (
            with(good.clone(), "status", json!({})),
            None,
            "not published",
        ),
        (
            with(
                good.clone(),
                "status|ipMetaData|observedGeneration",
                json!(null),
            ),
            None,
            "not published",
        ),
        (
            with(good.clone(), "metadata|generation", json!(4)),
            None,
            "generation 3, the pool is at 4",
        ),
        (
            with(good.clone(), "metadata|generation", json!(2)),
            None,
            "generation 3, the pool is at 2",
        ),
        (
            with(good.clone(), meta, json!({"observedGeneration": 3})),
            Some("bad_json"),
            "no status.ipMetaData.metadata",
        ),
        (
            with(good.clone(), "status|ipMetaData|metadata", json!("{")),
            Some("bad_json"),
            "not valid JSON",
        ),
        (
            with(
                good.clone(),
                "status|ipMetaData|metadata",
                json!("{\"10.0.0.10\":{}}"),
            ),
            Some("missing_scope"),
            "no scope",
        ),
        (
            with(good.clone(), "spec|nodeName", json!(["n2"])),
            Some("scope_mismatch"),
            "\"n1\" is not \"n2\"",
        ),
        (
            with(good.clone(), "spec|nodeName", json!(null)),
            Some("scope_mismatch"),
            "\"n1\" is not \"\"",
        ),
    ] {
        let (found, text) = reason(&object);
        assert_eq!(found, label, "{text}");
        assert!(
            text.starts_with("IaaS IP metadata not ready") && text.contains(part),
            "{text}"
        );
    }
}

#[test]
fn a_prewarm_entry_that_names_a_node_is_a_scope_mismatch() {
    for bad in [
        json!({"mac": "fa:16:3e:00:00:0b", "vlan": 11, "node": "n1"}),
        json!({"vlan": -1, "node": "n2"}),
    ] {
        let object = iaas("p", &["10.0.0.10"], Some("n1"), &json!({"10.0.0.10": bad}));
        assert_eq!(reason(&object).0, Some("scope_mismatch"));
    }
    let leaving = iaas(
        "p",
        &["10.0.0.10"],
        Some("n1"),
        &json!({"10.0.0.10": {"vlan": -1}}),
    );
    assert!(matches!(pool(&leaving).metadata, Some(Ok(_))));
}

#[test]
fn an_empty_global_pool_is_ready_and_a_plain_pool_has_no_metadata() {
    let global = iaas("g", &["10.0.0.10"], None, &json!({}));
    assert!(matches!(pool(&global).metadata, Some(Ok(_))));
    assert_eq!(pool(&global).mode, Mode::Global);
    let mut plain = object("p", "10.0.0.0/24", &["10.0.0.10"]);
    publish(&mut plain, "{");
    assert!(pool(&plain).metadata.is_none());
    assert_eq!(pool(&plain).mode, Mode::Plain);
}

#[test]
fn parts_are_typed() {
    let mut given = object("p", "10.0.0.0/24", &["10.0.0.10-10.0.0.19"]);
    given["spec"]["excludeIPs"] = json!(["10.0.0.12", "10.0.0.15-10.0.0.99"]);
    given["spec"]["gateway"] = json!("10.0.0.1");
    given["spec"]["routes"] = json!([{"dst": "10.9.0.0/16", "gw": "10.0.0.2"}]);
    given["metadata"]["annotations"] =
        json!({"ipam.spidernet.io/parent-nic": " eth1 ", "ipam.spidernet.io/pair-pool": "p6"});
    given["status"]["parentNic"] = json!({"name": "eth1", "mac": "fa:16:3e:11:22:33"});
    let pool = pool(&given);
    assert_eq!(pool.usable.count(), 4);
    assert_eq!(pool.gateway, Some("10.0.0.1".parse().unwrap()));
    assert_eq!(pool.routes.len(), 1);
    assert_eq!(pool.parent_nic.as_deref(), Some("eth1"));
    assert_eq!(pool.pair.as_deref(), Some("p6"));
    assert_eq!(pool.parent_mac, Some("fa:16:3e:11:22:33".parse().unwrap()));
    assert_eq!(
        pool.with_prefix("10.0.0.10".parse().unwrap()).to_string(),
        "10.0.0.10/24"
    );
}

#[test]
fn unusable_objects_name_the_pool_and_the_field() {
    let base = || object("p", "10.0.0.0/24", &["10.0.0.10"]);
    let marked = with(
        base(),
        "metadata|annotations",
        json!({"ipam.spidernet.io/iaas-provider": "x"}),
    );
    for (object, part) in [
        (
            with(base(), "spec|subnet", json!("10.0.0.0")),
            "spec.subnet",
        ),
        (with(base(), "spec|ipVersion", json!(6)), "spec.ipVersion 6"),
        (
            with(base(), "spec|ips", json!(["10.0.0.9-10.0.0.1"])),
            "spec.ips",
        ),
        (
            with(base(), "spec|excludeIPs", json!(["x"])),
            "spec.excludeIPs",
        ),
        (with(base(), "spec|gateway", json!("fd00::1")), "fd00::1"),
        (
            with(
                base(),
                "spec|routes",
                json!([{"dst": "x", "gw": "10.0.0.1"}]),
            ),
            "spec.routes",
        ),
        (
            with(
                base(),
                "status|parentNic",
                json!({"name": "a", "mac": "zz"}),
            ),
            "parentNic",
        ),
        (with(base(), "status|allocatedIPs", json!("[]")), "records"),
        (
            with(marked, "spec|nodeName", json!(["a", "b"])),
            "exactly one node",
        ),
    ] {
        let text = try_pool(&object).unwrap_err().to_string();
        assert!(text.contains("IPPool p") && text.contains(part), "{text}");
    }
}
