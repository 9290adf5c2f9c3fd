//! Calls that come to nothing: what the user reads, and what is left of them.

use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use spiderpool_api::agent_v1::{BODY_VERSION, CniRequest};
use spiderpool_api::cni::CniCommand;
use spiderpool_api::names;
use vm_tests::cluster::pods::{Workload, network};
use vm_tests::cluster::pools::{global, pair};
use vm_tests::cluster::settings::{AgentSettings, quick, quick_but};
use vm_tests::cluster::{Cluster, N1, N2};
use vm_tests::lab::cni_call::kubernetes_args;
use vm_tests::lab::http::{Request, exchange};

use crate::{known, pod, refusal};

/// What is said of each claim that is taken back.
const ROLLED_BACK: &str =
    "Rolled back global-pool claim 10.72.0.10 in IPPool g after IaaS allocate failure";

/// Failures of allocate calls of n1's agent, by reason.
fn rpc_failures(cluster: &Cluster, reason: &str) -> f64 {
    let labels = [("op", "allocate"), ("reason", reason)];
    let worker = cluster.worker(N1).unwrap();
    worker
        .metric("spiderpool_iaas_rpc_failure_total", &labels)
        .unwrap()
}

/// The provider is itself again, and the Pod that was refused runs.
fn recovers(cluster: &Cluster, pod: &Workload) {
    cluster.faults(&json!([])).unwrap();
    cluster.add(pod).unwrap();
    cluster.end(pod).unwrap();
}

/// Agents of n1 whose calls last so long, on a provider that does not look at it.
fn impatient(cluster: &mut Cluster, timeout: &str) {
    let settings = quick_but(&json!({ "budgetCheck": false }));
    cluster.restart_provider(settings).unwrap();
    let conf = json!({ "iaasNetworkProvider": { "httpRequestTimeout": timeout } });
    let settings = AgentSettings {
        conf,
        ..AgentSettings::default()
    };
    cluster.restart_agent(N1, settings).unwrap();
}

/// A dead provider, a Pod that has the cached sub-ENI of pool g, and one that would need a call.
fn without_provider(cluster: &mut Cluster) -> [Workload; 2] {
    cluster.ready_global("g", "10.72.0.10-10.72.0.11").unwrap();
    known(cluster, N1, "g");
    cluster.await_entries("g", 1).unwrap();
    cluster.kill_provider().unwrap();
    ["hit", "cold"].map(|name| pod(cluster, name, N1, &["g"]))
}

#[test]
#[ignore = "api level"]
fn scenario_36_a_dead_provider_stops_only_what_is_cold() {
    let name = "scenario_36_a_dead_provider_stops_only_what_is_cold";
    let Some(mut cluster) = Cluster::take(name).unwrap() else {
        return;
    };
    let [hit, cold] = without_provider(&mut cluster);
    assert_eq!(cluster.add(&hit).unwrap().ip(), "10.72.0.10");
    let before = rpc_failures(&cluster, "network_error");
    let text = refusal(&cluster, &cold);
    assert!(text.contains("iaas allocate API call failed:"), "{text}");
    assert_eq!(cluster.claims("g").unwrap().len(), 1, "as before");
    assert!((rpc_failures(&cluster, "network_error") - before - 1.0).abs() < 0.1);
    cluster.restart_provider(quick()).unwrap();
    cluster.end(&hit).unwrap();
    cluster.end(&cold).unwrap();
    cluster.finish().unwrap();
}

#[test]
#[ignore = "api level"]
fn scenario_37_a_provider_that_is_back_serves_kubelets_next_try() {
    let name = "scenario_37_a_provider_that_is_back_serves_kubelets_next_try";
    let Some(mut cluster) = Cluster::take(name).unwrap() else {
        return;
    };
    let [hit, cold] = without_provider(&mut cluster);
    cluster.add(&hit).unwrap();
    cluster.refused(&cold).unwrap();
    cluster.restart_provider(quick()).unwrap();
    // Nobody but kubelet does anything.
    assert_eq!(cluster.add_in_the_end(&cold).unwrap().ip(), "10.72.0.11");
    cluster.end(&hit).unwrap();
    cluster.end(&cold).unwrap();
    cluster.finish().unwrap();
}

#[test]
#[ignore = "api level"]
fn scenario_38_the_providers_words_reach_the_runtime() {
    let name = "scenario_38_the_providers_words_reach_the_runtime";
    let Some(cluster) = Cluster::take(name).unwrap() else {
        return;
    };
    cluster.ready_global("g", "10.72.0.10").unwrap();
    let a = pod(&cluster, "a", N1, &["g"]);
    cluster
        .until("an agent that knows the pool", || {
            let fault = json!([{ "op": "allocate", "kind": "status", "status": 500 }]);
            cluster.faults(&fault)?;
            Ok(refusal(&cluster, &a).contains("status 500"))
        })
        .unwrap();
    for status in [500, 429, 503, 404] {
        let body = format!("the cloud says {status}");
        let fault = json!([{ "op": "allocate", "kind": "status", "status": status, "body": body }]);
        cluster.faults(&fault).unwrap();
        let before = rpc_failures(&cluster, "http_status");
        let rolled_back = cluster.logged(N1, ROLLED_BACK).unwrap();
        let text = refusal(&cluster, &a);
        let told = format!("iaas allocate API returned status {status}: {body}");
        assert!(text.contains(&told), "{text}");
        assert_eq!(cluster.claims("g").unwrap().len(), 0);
        assert!((rpc_failures(&cluster, "http_status") - before - 1.0).abs() < 0.1);
        assert_eq!(cluster.logged(N1, ROLLED_BACK).unwrap(), rolled_back + 1);
    }
    recovers(&cluster, &a);
    cluster.finish().unwrap();
}

#[test]
#[ignore = "api level"]
fn scenario_39_a_provider_that_is_silent_is_left_after_the_configured_time() {
    let name = "scenario_39_a_provider_that_is_silent_is_left_after_the_configured_time";
    let Some(mut cluster) = Cluster::take(name).unwrap() else {
        return;
    };
    impatient(&mut cluster, "3s");
    cluster.ready_global("g", "10.72.0.10").unwrap();
    known(&cluster, N1, "g");
    let hang = json!([{ "op": "allocate", "kind": "hang" }]);
    cluster.faults(&hang).unwrap();
    // What is here already would be a hit.
    cluster.admin("POST", "/reset", &Value::Null).unwrap();
    cluster.faults(&hang).unwrap();
    cluster.await_entries("g", 0).unwrap();
    let a = pod(&cluster, "a", N1, &["g"]);
    let begun = Instant::now();
    let text = refusal(&cluster, &a);
    let elapsed = begun.elapsed();
    let told =
        "provider-interaction timeout: IaaS allocate API call exceeded configured timeout 3s";
    assert!(text.contains(told), "{text}");
    let limits = Duration::from_secs(3)..Duration::from_secs(8);
    assert!(limits.contains(&elapsed), "{elapsed:?}");
    assert_eq!(cluster.claims("g").unwrap().len(), 0);
    recovers(&cluster, &a);
    cluster.finish().unwrap();
}

/// ADD as a runtime makes it that waits for so long in all; the agent's answer.
fn add_within(cluster: &Cluster, pod: &Workload, budget: Duration) -> String {
    let container_id = format!("box-{}", pod.uid);
    let request = CniRequest {
        v: BODY_VERSION,
        command: CniCommand::Add,
        plugin: names::PLUGIN_IPAM.to_owned(),
        args: kubernetes_args("default", &pod.name, &pod.uid, &container_id),
        container_id,
        netns: "/proc/self/ns/net".to_owned(),
        ifname: pod.ifname.clone(),
        path: String::new(),
        conf: pod.conf.clone(),
        budget_ms: budget.as_millis().try_into().unwrap(),
    };
    let body = serde_json::to_vec(&request).unwrap();
    let socket = cluster.worker(&pod.node).unwrap().socket();
    let mut stream = UnixStream::connect(socket).unwrap();
    let headers = ["Content-Type: application/json".to_owned()];
    let request = Request {
        method: "POST",
        path: names::ROUTE_CNI,
        headers: &headers,
        body: &body,
    };
    let answer = exchange(&mut stream, &request).unwrap();
    String::from_utf8(answer.body).unwrap()
}

#[test]
#[ignore = "api level"]
fn scenario_40_a_call_ends_with_the_time_of_its_add() {
    let name = "scenario_40_a_call_ends_with_the_time_of_its_add";
    let Some(mut cluster) = Cluster::take(name).unwrap() else {
        return;
    };
    impatient(&mut cluster, "50s");
    cluster.ready_global("g", "10.72.0.10-10.72.0.11").unwrap();
    known(&cluster, N1, "g");
    cluster.await_entries("g", 1).unwrap();
    let hit = pod(&cluster, "hit", N1, &["g"]);
    cluster.add(&hit).unwrap();
    let hang = json!([{ "op": "allocate", "kind": "hang" }]);
    cluster.faults(&hang).unwrap();
    let before = cluster.allocate_calls().unwrap().len();
    let a = pod(&cluster, "a", N1, &["g"]);
    // The agent keeps three seconds for itself.
    let text = add_within(&cluster, &a, Duration::from_secs(5));
    let told =
        "parent budget exhausted: IaaS allocate API call cancelled by parent context deadline";
    assert!(text.contains(told), "{text}");
    let calls = cluster.allocate_calls().unwrap();
    assert_eq!(calls.len(), before + 1);
    let left: u64 = calls[before].headers["x-request-timeout-ms"]
        .parse()
        .unwrap();
    assert!((1..=2000).contains(&left), "{left}");
    cluster.await_claims("g", 1).unwrap();
    recovers(&cluster, &a);
    cluster.end(&hit).unwrap();
    cluster.finish().unwrap();
}

/// Tokens in the provider's bucket.
fn tokens(cluster: &Cluster) -> f64 {
    let shown = cluster.admin("GET", "/admin/settings", &Value::Null);
    shown.unwrap()["tokens"].as_f64().unwrap()
}

#[test]
#[ignore = "api level"]
fn scenario_41_a_caller_without_time_is_refused_for_nothing() {
    let name = "scenario_41_a_caller_without_time_is_refused_for_nothing";
    let Some(mut cluster) = Cluster::take(name).unwrap() else {
        return;
    };
    // Ten calls, and practically no more.
    let settings = quick_but(&json!({ "rate": { "qps": 0.000_001, "burst": 10 } }));
    cluster.restart_provider(settings).unwrap();
    cluster.ready_global("g", "10.72.0.10").unwrap();
    let before = tokens(&cluster);
    let body = json!({ "nodeName": N1, "podName": "a", "podNamespace": "default", "podUID": "u",
        "subEniRequests": [{ "ipv4Address": "10.72.0.10", "ipv4PoolName": "g",
            "subnet": "10.72.0.0/22",
            "parentNicMac": cluster.worker(N1).unwrap().parent_mac.to_string() }] });
    let path = "/v1/apis/network.iaas.io/ipam/allocate-ips";
    let ask = |ms: u64| cluster.contract(path, ms, &body).unwrap();
    // Queue and transaction may take 46 s.
    let begun = Instant::now();
    let answer = ask(45_000);
    // 100 ms on a machine that has nothing else to do.
    assert!(begun.elapsed() < Duration::from_secs(2));
    assert_eq!(answer.status, 429);
    let text = String::from_utf8(answer.body).unwrap();
    assert!(text.contains("RateLimitTimeout"), "{text}");
    assert!((tokens(&cluster) - before).abs() < 0.01);
    let calls = cluster.admin("GET", "/admin/cloud-calls", &Value::Null);
    let calls = calls.unwrap();
    let total: u64 = calls
        .as_object()
        .unwrap()
        .values()
        .filter_map(Value::as_u64)
        .sum();
    assert_eq!(total, 0, "{calls}");
    assert_eq!(ask(47_000).status, 200);
    assert!((tokens(&cluster) - before + 1.0).abs() < 0.01);
    cluster.finish().unwrap();
}

/// A fault of one answer, and what is said of it.
#[rustfmt::skip] // a case a line
fn wrong_answers() -> Vec<(Value, &'static str)> {
    let range = json!({ "subEniResponses": [
        { "ipv4Address": "10.72.0.10", "ipv6Address": "fd72::10", "macAddress": "fa:16:3e:00:00:01", "vlanId": 5000 },
    ] });
    vec![
        (json!({ "kind": "bad-json" }), "failed to unmarshal allocate response:"),
        (json!({ "kind": "extra-ip" }), "iaas response contains unknown sub-ENI with address 203.0.113.99"),
        (json!({ "kind": "missing-ip" }), "iaas response lacks the sub-ENI with address 10.72.0.10"),
        (json!({ "kind": "duplicate" }), "iaas response contains the sub-ENI with address 10.72.0.10 twice with different values"),
        (json!({ "kind": "wrong-v6" }), "to the sub-ENI with address 10.72.0.10, requested was fd72::10"),
        (json!({ "kind": "wrong-pool" }), "iaas response names pool another-pool for the sub-ENI with address 10.72.0.10, requested was p4"),
        (json!({ "kind": "status", "status": 200, "body": range.to_string() }), "VLAN id 5000 is not in 1-4094"),
    ]
}

#[test]
#[ignore = "api level"]
fn scenario_42_an_answer_that_does_not_fit_is_a_failure() {
    let name = "scenario_42_an_answer_that_does_not_fit_is_a_failure";
    let Some(cluster) = Cluster::take(name).unwrap() else {
        return;
    };
    for pool in pair(global("p4", "10.72.0.10"), global("p6", "fd72::10")) {
        cluster.create_pool(&pool).unwrap();
    }
    cluster.await_entries("p4", 0).unwrap();
    let probe = pod(&cluster, "probe", N2, &["p4"]);
    let broken = json!([{ "op": "allocate", "kind": "status", "status": 500 }]);
    cluster.faults(&broken).unwrap();
    for probe in [probe, pod(&cluster, "probe-1", N1, &["p4"])] {
        cluster
            .until("an agent that knows the pair", || {
                Ok(refusal(&cluster, &probe).contains("status 500"))
            })
            .unwrap();
    }
    for (mut fault, text) in wrong_answers() {
        fault["op"] = json!("allocate");
        cluster.faults(&json!([fault])).unwrap();
        let before = rpc_failures(&cluster, "bad_response");
        let a = pod(&cluster, "a", N1, &["p4"]);
        let told = refusal(&cluster, &a);
        assert!(told.contains(text), "{fault}: {told}");
        for pool in ["p4", "p6"] {
            assert_eq!(cluster.claims(pool).unwrap().len(), 0, "{fault}");
        }
        assert!(rpc_failures(&cluster, "bad_response") > before, "{fault}");
        cluster.end(&a).unwrap();
        // The next one shall meet a cloud without cache.
        cluster.admin("POST", "/reset", &Value::Null).unwrap();
        cluster.await_entries("p4", 0).unwrap();
    }
    cluster.finish().unwrap();
}

#[test]
#[ignore = "api level"]
fn scenario_43_an_answer_without_vlan_and_mac_is_a_failure() {
    let name = "scenario_43_an_answer_without_vlan_and_mac_is_a_failure";
    let Some(cluster) = Cluster::take(name).unwrap() else {
        return;
    };
    cluster.ready_global("g", "10.72.0.10").unwrap();
    let zero = json!([{ "op": "allocate", "kind": "vlan-zero" }]);
    cluster.faults(&zero).unwrap();
    let a = pod(&cluster, "a", N1, &["g"]);
    cluster
        .until("a refusal of the answer", || {
            let text = refusal(&cluster, &a);
            Ok(text.contains("the answer for 10.72.0.10 has no VLAN id"))
        })
        .unwrap();
    assert_eq!(cluster.claims("g").unwrap().len(), 0);
    recovers(&cluster, &a);
    cluster.finish().unwrap();
}

#[test]
#[ignore = "api level"]
fn scenario_44_a_late_success_moves_to_the_node_of_the_retry() {
    let name = "scenario_44_a_late_success_moves_to_the_node_of_the_retry";
    let Some(mut cluster) = Cluster::take(name).unwrap() else {
        return;
    };
    impatient(&mut cluster, "1s");
    cluster.ready_global("g", "10.72.0.10").unwrap();
    let conf = network(&["g"], &[]);
    let slow = json!({ "createMs": 4000, "attachMs": 2, "detachMs": 2, "deleteMs": 2 });
    cluster.admin("POST", "/admin/latency", &slow).unwrap();
    let a = cluster.pod("a", N1, &conf).unwrap();
    cluster
        .until("a call that timed out", || {
            Ok(refusal(&cluster, &a).contains("provider-interaction timeout"))
        })
        .unwrap();
    cluster.end(&a).unwrap();
    // The cloud is still at it for n1.
    let b = cluster.pod("a", N2, &conf).unwrap();
    let given = cluster.add_in_the_end(&b).unwrap();
    let ip = "10.72.0.10".parse().unwrap();
    let state = cluster.provider().unwrap().sub_eni(ip).unwrap().unwrap();
    assert_eq!(
        state.state.parent,
        Some(cluster.worker(N2).unwrap().parent_mac)
    );
    assert_eq!(state.mac.to_string(), given.mac);
    cluster.end(&b).unwrap();
    cluster.finish().unwrap();
}
