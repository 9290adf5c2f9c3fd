//! ADDs that end half way: the agent dies, or the API server refuses one of its writes.

use serde_json::{Value, json};
use vm_tests::cluster::pods::{ENDPOINTS, Workload};
use vm_tests::cluster::pools::path;
use vm_tests::cluster::settings::AgentSettings;
use vm_tests::cluster::{Cluster, N1};

use crate::{pod, take};

const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";

/// An ADD that kills the agent between claim and call.
fn broken_off(cluster: &mut Cluster, pod: &Workload) {
    let settings = AgentSettings {
        env: vec![("SPIDERPOOL_FAILPOINT".into(), "bind:before".into())],
        ..AgentSettings::default()
    };
    cluster.restart_agent(N1, settings).unwrap();
    cluster
        .until("the end of the agent", || {
            let outcome = cluster.call("ADD", pod)?;
            assert_ne!(outcome.code, 0, "{outcome:?}");
            Ok(!cluster.claims("g")?.is_empty())
        })
        .unwrap();
    let before = cluster.allocate_calls().unwrap().len();
    cluster.restart_agent(N1, AgentSettings::default()).unwrap();
    assert_eq!(cluster.allocate_calls().unwrap().len(), before);
}

#[test]
#[ignore = "api level"]
fn scenario_45_a_claim_survives_its_agent_and_is_used_or_freed() {
    let name = "scenario_45_a_claim_survives_its_agent_and_is_used_or_freed";
    let Some(mut cluster) = take(name) else {
        return;
    };
    cluster.ready_global("g", "10.72.0.10-10.72.0.11").unwrap();
    let a = pod(&cluster, "a", N1, &["g"]);
    broken_off(&mut cluster, &a);
    assert_eq!(
        cluster.claims("g").unwrap()["10.72.0.10"]["podUid"],
        a.uid.as_str()
    );
    assert_eq!(cluster.allocate_calls().unwrap().len(), 0);
    assert_eq!(cluster.add_in_the_end(&a).unwrap().ip(), "10.72.0.10");
    assert_eq!(cluster.allocate_calls().unwrap().len(), 1);
    cluster.end(&a).unwrap();
    assert_eq!(cluster.claims("g").unwrap().len(), 0);

    // The Pod is deleted instead, and no runtime knows of it.
    cluster.admin("POST", "/reset", &Value::Null).unwrap();
    cluster.await_entries("g", 0).unwrap();
    let b = pod(&cluster, "b", N1, &["g"]);
    broken_off(&mut cluster, &b);
    cluster.kill_agent(N1).unwrap();
    cluster.remove(&b).unwrap();
    cluster.scan().unwrap();
    cluster.await_claims("g", 0).unwrap();
    assert_eq!(cluster.release_calls().unwrap().len(), 0);
    cluster.finish().unwrap();
}

/// Has the API server refuse writes of `resources` for which `allowed` is false, as soon as `probe`
/// is refused.
fn refuse(cluster: &Cluster, verb: &str, resources: &str, allowed: &str, probe: impl Fn() -> bool) {
    let policy = json!({ "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy", "metadata": { "name": "scenario" },
        "spec": { "matchConstraints": { "resourceRules": [{
                "apiGroups": ["spiderpool.spidernet.io"], "apiVersions": ["*"],
                "operations": [verb], "resources": [resources] }] },
            "validations": [{ "expression": allowed, "message": "not in this scenario" }] } });
    cluster.api.create(POLICIES, &policy).unwrap();
    let binding = json!({ "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding", "metadata": { "name": "scenario" },
        "spec": { "policyName": "scenario", "validationActions": ["Deny"] } });
    cluster.api.create(BINDINGS, &binding).unwrap();
    let refused = cluster.until("a policy that counts", || Ok(!probe()));
    refused.unwrap();
}

/// The end of that.
fn allow(cluster: &Cluster, probe: impl Fn() -> bool) {
    for kind in [BINDINGS, POLICIES] {
        cluster.api.delete(&format!("{kind}/scenario")).unwrap();
    }
    let allowed = cluster.until("the end of a policy", || Ok(probe()));
    allowed.unwrap();
}

#[test]
#[ignore = "api level"]
fn scenario_46_an_endpoint_that_cannot_be_written_costs_no_second_address() {
    let name = "scenario_46_an_endpoint_that_cannot_be_written_costs_no_second_address";
    let Some(cluster) = take(name) else {
        return;
    };
    cluster.ready_global("g", "10.72.0.10-10.72.0.11").unwrap();
    let object = json!({ "apiVersion": "spiderpool.spidernet.io/v2beta1",
        "kind": "SpiderEndpoint", "metadata": { "name": "probe" } });
    let probe = || {
        let path = format!("{ENDPOINTS}?dryRun=All");
        cluster.api.create(&path, &object).is_ok()
    };
    refuse(&cluster, "CREATE", "spiderendpoints", "false", probe);
    let a = pod(&cluster, "a", N1, &["g"]);
    cluster
        .until("a call whose result is not recorded", || {
            let outcome = cluster.call("ADD", &a)?;
            assert_ne!(outcome.code, 0, "{outcome:?}");
            Ok(!cluster.allocate_calls()?.is_empty())
        })
        .unwrap();
    assert_eq!(cluster.claims("g").unwrap().len(), 1);
    assert_eq!(cluster.endpoint(&a).unwrap(), None);
    allow(&cluster, probe);
    assert_eq!(cluster.add(&a).unwrap().ip(), "10.72.0.10");
    let calls = cluster.allocate_calls().unwrap();
    assert!(calls.len() <= 2, "{calls:?}");
    for call in calls {
        assert_eq!(call.body["subEniRequests"][0]["ipv4Address"], "10.72.0.10");
    }
    cluster.end(&a).unwrap();
    cluster.finish().unwrap();
}

#[test]
#[ignore = "api level"]
fn scenario_47_a_rollback_that_cannot_be_written_is_left_to_the_collector() {
    let name = "scenario_47_a_rollback_that_cannot_be_written_is_left_to_the_collector";
    let Some(cluster) = take(name) else {
        return;
    };
    cluster.ready_global("g", "10.72.0.10-10.72.0.11").unwrap();
    let first = pod(&cluster, "first", N1, &["g"]);
    cluster.add_in_the_end(&first).unwrap();
    // No claim goes any more.
    let probe = || {
        let path = format!("{}/status?dryRun=All", path("g"));
        let none = json!({ "status": { "allocatedIPCount": 0 } });
        cluster.api.merge(&path, &none).is_ok()
    };
    let grows = "!has(oldObject.status.allocatedIPCount) || \
        object.status.allocatedIPCount >= oldObject.status.allocatedIPCount";
    refuse(&cluster, "UPDATE", "spiderippools/status", grows, probe);
    let broken = json!([{ "op": "allocate", "kind": "status", "status": 500 }]);
    cluster.faults(&broken).unwrap();
    let a = pod(&cluster, "a", N1, &["g"]);
    let refused = cluster.refused(&a).unwrap();
    assert!(refused.details.contains("status 500"), "{refused:?}");
    assert_eq!(cluster.claims("g").unwrap().len(), 2);
    let log = cluster.worker(N1).unwrap().log();
    let warned = |line: &str| line.contains("\"WARN\"") && line.contains("10.72.0.11");
    assert!(log.lines().any(warned), "{log}");
    cluster.faults(&json!([])).unwrap();
    allow(&cluster, probe);
    cluster.remove(&a).unwrap();
    cluster.scan().unwrap();
    cluster.await_claims("g", 1).unwrap();
    assert!(cluster.claims("g").unwrap().contains_key("10.72.0.10"));
    cluster.end(&first).unwrap();
    cluster.finish().unwrap();
}
