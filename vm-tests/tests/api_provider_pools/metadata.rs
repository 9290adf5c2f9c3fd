//! Metadata that is late, broken or partly wrong, and pools that a pattern names.

use serde_json::{Value, json};
use vm_tests::cluster::pods::network;
use vm_tests::cluster::pools::prewarm;
use vm_tests::cluster::{Cluster, N1, PARENT};

const NOT_READY: &str = "IaaS IP metadata not ready";
const DECODE_FAILURES: &str = "spiderpool_iaas_metadata_decode_failure_total";

/// Decode failures of n1's agent for a reason.
fn failures(cluster: &Cluster, reason: &str) -> f64 {
    let worker = cluster.worker(N1).unwrap();
    worker
        .metric(DECODE_FAILURES, &[("reason", reason)])
        .unwrap()
}

#[test]
#[ignore = "api level"]
fn scenario_16_a_pool_that_has_grown_waits_for_its_provider() {
    let name = "scenario_16_a_pool_that_has_grown_waits_for_its_provider";
    let Some(cluster) = Cluster::take(name).unwrap() else {
        return;
    };
    cluster.ready_prewarm("pw1", "10.72.0.10", N1, 1).unwrap();
    cluster
        .faults(&json!([{ "kind": "publish-stall" }]))
        .unwrap();
    let more = json!({ "spec": { "ips": ["10.72.0.10-10.72.0.11"] } });
    cluster.change_pool("pw1", &more).unwrap();
    let pod = cluster.pod("a", N1, &network(&["pw1"], &[])).unwrap();
    let refused = cluster.refused(&pod).unwrap();
    assert!(refused.details.contains(NOT_READY), "{refused:?}");
    assert_eq!(cluster.claims("pw1").unwrap().len(), 0);
    cluster.faults(&json!([])).unwrap();
    cluster.await_entries("pw1", 2).unwrap();
    assert_eq!(cluster.add_in_the_end(&pod).unwrap().ip(), "10.72.0.10");
    cluster.end(&pod).unwrap();
    cluster.finish().unwrap();
}

#[test]
#[ignore = "api level"]
fn scenario_17_broken_metadata_is_counted_by_its_reason() {
    let name = "scenario_17_broken_metadata_is_counted_by_its_reason";
    let Some(cluster) = Cluster::take(name).unwrap() else {
        return;
    };
    cluster.ready_prewarm("pw1", "10.72.0.10", N1, 1).unwrap();
    let pod = cluster.pod("a", N1, &network(&["pw1"], &[])).unwrap();
    let entry = r#"{"mac":"fa:16:3e:00:00:01","vlan":7,"node":"n1"}"#;
    let with_node = format!(r#"{{"scope":"n1","ips":{{"10.72.0.10":{entry}}}}}"#);
    for (text, reason) in [
        ("{", "bad_json"),
        (r#"{"ips":{}}"#, "missing_scope"),
        (r#"{"scope":"n2","ips":{}}"#, "scope_mismatch"),
        (with_node.as_str(), "scope_mismatch"),
    ] {
        let before = failures(&cluster, reason);
        cluster.lie("pw1", text).unwrap();
        cluster
            .until("a refusal and its count", || {
                let refused = cluster.refused(&pod)?;
                assert!(refused.details.contains(NOT_READY), "{refused:?}");
                Ok(failures(&cluster, reason) > before)
            })
            .unwrap();
    }
    cluster.faults(&json!([])).unwrap();
    cluster.await_entries("pw1", 1).unwrap();
    cluster.add_in_the_end(&pod).unwrap();
    cluster.end(&pod).unwrap();
    cluster.finish().unwrap();
}

#[test]
#[ignore = "api level"]
fn scenario_18_bad_entries_are_skipped_and_the_rest_is_served() {
    let name = "scenario_18_bad_entries_are_skipped_and_the_rest_is_served";
    let Some(cluster) = Cluster::take(name).unwrap() else {
        return;
    };
    cluster.ready_global("g", "10.72.0.10-10.72.0.13").unwrap();
    let conf = network(&["g"], &[]);
    // A real sub-ENI, the last of the pool, among entries nobody could have made.
    let first = cluster.pod("a", N1, &conf).unwrap();
    let given = cluster.add_in_the_end(&first).unwrap();
    let good = cluster
        .await_entry("g", &given.ip(), |entry| entry["node"] == N1)
        .unwrap();
    cluster.end(&first).unwrap();
    let mut ips = json!({
        "10.72.0.11": { "mac": "fa:16:3e:00:00:01", "vlan": 5000, "node": N1 },
        "10.72.0.12": { "mac": "fa:16:3e:00:00:02", "vlan": -1, "node": N1, "status": "bound" },
        "10.72.0.13": { "mac": "fa:16:3e:00:00:03", "vlan": 8, "node": N1, "status": "unbound" },
    });
    ips[given.ip()] = good;
    let text = json!({ "scope": "", "ips": ips }).to_string();
    cluster.lie("g", &text).unwrap();
    let served = cluster.pod("served", N1, &conf).unwrap();
    assert_eq!(cluster.add_in_the_end(&served).unwrap(), given);
    let refused = cluster.pod("refused", N1, &conf).unwrap();
    let error = cluster.refused(&refused).unwrap();
    assert!(
        error.details.contains("all IP addresses used out"),
        "{error:?}"
    );
    assert!(failures(&cluster, "bad_entry") >= 3.0);
    for ip in ["10.72.0.11", "10.72.0.12", "10.72.0.13"] {
        let log = cluster.worker(N1).unwrap().log();
        let told = |line: &str| line.contains("\"ERROR\"") && line.contains(ip);
        assert!(log.lines().any(told), "{ip}\n{log}");
    }
    cluster.faults(&json!([])).unwrap();
    cluster.end(&served).unwrap();
    cluster.finish().unwrap();
}

#[test]
#[ignore = "api level"]
fn scenario_19_a_pattern_meets_a_new_nodes_pool() {
    let name = "scenario_19_a_pattern_meets_a_new_nodes_pool";
    let Some(mut cluster) = Cluster::take(name).unwrap() else {
        return;
    };
    cluster.need_controller().unwrap();
    let of_pools = |pattern: &str| {
        json!({ "cniType": "eni-vlan",
            "enivlan": { "master": [PARENT], "ippools": { "ipv4": [pattern] } } })
    };
    // What the runtime makes of a list: each plugin is told name and version.
    let first = |list: Value| {
        let mut conf = list["plugins"][0].clone();
        for key in ["name", "cniVersion"] {
            conf[key] = list[key].clone();
        }
        conf
    };
    let list = cluster.multus_network("workers", &of_pools("worker-*-pool"));
    let conf = first(list.unwrap());
    let pod = cluster.pod("a", N1, &conf).unwrap();
    // Not one pool yet.
    let refused = cluster.refused(&pod).unwrap();
    let text = format!("{} {}", refused.msg, refused.details);
    assert!(text.contains("no IPPool available"), "{text}");
    let pool = prewarm("worker-n1-pool", "10.72.0.10", N1);
    cluster.create_pool(&pool).unwrap();
    cluster.await_entries("worker-n1-pool", 1).unwrap();
    assert_eq!(cluster.add_in_the_end(&pod).unwrap().ip(), "10.72.0.10");

    let nothing = cluster.multus_network("nothing", &of_pools("zz*")).unwrap();
    let other = cluster.pod("b", N1, &first(nothing)).unwrap();
    let refused = cluster.refused(&other).unwrap();
    let text = format!("{} {}", refused.msg, refused.details);
    assert!(text.contains("no IPPool available"), "{text}");
    assert!(text.contains("zz*"), "{text}");
    cluster.end(&pod).unwrap();
    cluster.finish().unwrap();
}
