//! DEL of a node whose agent runs.

use std::time::Duration;

use serde_json::json;
use vm_tests::cluster::pools::{global, pair, path, prewarm};
use vm_tests::cluster::settings::quick_but;
use vm_tests::cluster::{Cluster, N1, N2};

use crate::{pod, take};

/// A claim of a prewarm pool is freed after exactly one release, which names pool and node.
fn goes_back(cluster: &Cluster, name: &str) -> (String, u64) {
    let before = cluster.release_calls().unwrap().len();
    let a = pod(cluster, name, N1, &["pw1"]);
    let given = cluster.add_in_the_end(&a).unwrap();
    let ip = given.ip().parse().unwrap();
    let bound = cluster.provider().unwrap().sub_eni(ip).unwrap().unwrap();
    let vlan = bound.state.vlan.map(|vlan| u64::from(vlan.get()));
    assert_eq!(
        (bound.mac.to_string(), vlan),
        (given.mac.clone(), Some(given.vlan)),
        "not one that was withdrawn"
    );
    cluster.end(&a).unwrap();
    let calls = cluster.release_calls().unwrap();
    assert_eq!(calls.len(), before + 1);
    assert_eq!(calls[before].body["ipAddress"], given.ip());
    assert_eq!(calls[before].body["poolName"], "pw1");
    assert_eq!(calls[before].body["nodeName"], N1);
    assert_eq!(cluster.claims("pw1").unwrap().len(), 0);
    assert_eq!(cluster.endpoint(&a).unwrap(), None);
    (given.mac, given.vlan)
}

#[test]
#[ignore = "api level"]
fn scenario_56_a_prewarmed_address_goes_back_with_one_call() {
    let Some(cluster) = take("scenario_56_a_prewarmed_address_goes_back_with_one_call") else {
        return;
    };
    cluster.ready_prewarm("pw1", "10.72.0.10", N1, 1).unwrap();
    goes_back(&cluster, "a");
    cluster.finish().unwrap();
}

#[test]
#[ignore = "api level"]
fn scenario_58_releasing_what_is_released_is_no_error() {
    let Some(cluster) = take("scenario_58_releasing_what_is_released_is_no_error") else {
        return;
    };
    cluster.ready_prewarm("pw1", "10.72.0.10", N1, 1).unwrap();
    let a = pod(&cluster, "a", N1, &["pw1"]);
    cluster.add_in_the_end(&a).unwrap();
    cluster.end(&a).unwrap();
    cluster.del(&a).unwrap();
    cluster.del(&a).unwrap();
    let calls = cluster.release_calls().unwrap();
    assert_eq!(calls.len(), 1, "{calls:?}");
    let unknown = json!({ "ipAddress": "10.72.0.99", "nodeName": N1, "poolName": "pw1",
        "podName": "a", "podNamespace": "default", "podUID": a.uid, "subnet": "10.72.0.0/22" });
    let path = "/v1/apis/network.iaas.io/ipam/release-ip";
    let answer = cluster.contract(path, 50_000, &unknown).unwrap();
    assert!((200..300).contains(&answer.status), "{answer:?}");
    cluster.finish().unwrap();
}

#[test]
#[ignore = "api level"]
fn scenario_59_a_pair_goes_back_with_one_call() {
    let Some(cluster) = take("scenario_59_a_pair_goes_back_with_one_call") else {
        return;
    };
    let pools = pair(
        prewarm("w4", "10.72.0.10", N1),
        prewarm("w6", "fd72::10", N1),
    );
    for pool in pools {
        cluster.create_pool(&pool).unwrap();
    }
    cluster.await_entries("w4", 1).unwrap();
    let a = pod(&cluster, "a", N1, &["w4"]);
    let given = cluster.add_in_the_end(&a).unwrap();
    assert_eq!(given.ips.len(), 2);
    cluster.end(&a).unwrap();
    let calls = cluster.release_calls().unwrap();
    assert_eq!(calls.len(), 1, "{calls:?}");
    assert_eq!(calls[0].body["ipAddress"], "10.72.0.10");
    for pool in ["w4", "w6"] {
        assert_eq!(cluster.claims(pool).unwrap().len(), 0, "{pool}");
    }
    cluster.finish().unwrap();
}

#[test]
#[ignore = "api level"]
fn scenario_60_a_provider_may_keep_or_remake_what_comes_back() {
    let name = "scenario_60_a_provider_may_keep_or_remake_what_comes_back";
    let Some(mut cluster) = take(name) else {
        return;
    };
    for (policy, same) in [("keep", true), ("recycle", false)] {
        let settings = quick_but(&json!({ "releasePolicy": policy }));
        cluster.restart_provider(settings).unwrap();
        cluster.ready_prewarm("pw1", "10.72.0.10", N1, 1).unwrap();
        let first = goes_back(&cluster, &format!("{policy}-1"));
        let second = goes_back(&cluster, &format!("{policy}-2"));
        assert_eq!(first == second, same, "{policy}: {first:?}");
        cluster.await_entries("pw1", 1).unwrap();
        cluster.api.delete(&path("pw1")).unwrap();
        cluster
            .until("the end of the pool", || {
                let sub_enis = cluster.provider()?.sub_enis()?;
                Ok(cluster.api.get(&path("pw1"))?.is_none() && sub_enis.is_empty())
            })
            .unwrap();
    }
    cluster.finish().unwrap();
}

#[test]
#[ignore = "api level"]
fn scenario_61_a_global_address_is_freed_without_a_call() {
    let Some(cluster) = take("scenario_61_a_global_address_is_freed_without_a_call") else {
        return;
    };
    cluster.ready_global("g", "10.72.0.10-10.72.0.11").unwrap();
    let a = pod(&cluster, "a", N1, &["g"]);
    cluster.add_in_the_end(&a).unwrap();
    cluster.end(&a).unwrap();
    assert_eq!(cluster.claims("g").unwrap().len(), 0);
    // The same by the collector: nobody called DEL.
    let b = pod(&cluster, "b", N1, &["g"]);
    cluster.add(&b).unwrap();
    cluster.remove(&b).unwrap();
    cluster.scan().unwrap();
    cluster.await_claims("g", 0).unwrap();
    assert_eq!(cluster.release_calls().unwrap().len(), 0);
    cluster.await_entries("g", 1).unwrap();
    cluster.finish().unwrap();
}

#[test]
#[ignore = "api level"]
fn scenario_57_a_release_that_is_refused_is_tried_until_it_is_accepted() {
    let name = "scenario_57_a_release_that_is_refused_is_tried_until_it_is_accepted";
    let Some(mut cluster) = take(name) else {
        return;
    };
    cluster.ready_prewarm("pw1", "10.72.0.10", N1, 1).unwrap();
    cluster.ready_prewarm("pw2", "10.72.0.20", N2, 1).unwrap();
    let a = pod(&cluster, "a", N1, &["pw1"]);
    let b = pod(&cluster, "b", N2, &["pw2"]);
    for pod in [&a, &b] {
        cluster.add_in_the_end(pod).unwrap();
    }
    let broken = json!([{ "op": "release", "kind": "status", "status": 500 }]);
    cluster.faults(&broken).unwrap();
    cluster.mark(&a).unwrap();
    cluster.del(&a).unwrap();
    assert!(!cluster.release_calls().unwrap().is_empty());
    assert_eq!(cluster.claims("pw1").unwrap().len(), 1);
    assert!(cluster.endpoint(&a).unwrap().is_some());
    // What an agent has begun is its own for two minutes; what none has begun is the collector's.
    cluster.kill_agent(N2).unwrap();
    cluster.remove(&b).unwrap();
    let tried = |pod: &str| {
        let calls = cluster.release_calls().unwrap().into_iter();
        calls.filter(|call| call.body["podName"] == pod).count()
    };
    cluster
        .until("two tries of the collector", || Ok(tried("b") >= 2))
        .unwrap();
    assert_eq!(cluster.claims("pw2").unwrap().len(), 1);
    assert!(cluster.endpoint(&b).unwrap().is_some());

    cluster.faults(&json!([])).unwrap();
    cluster.await_claims("pw2", 0).unwrap();
    // The runtime asks again.
    cluster.del(&a).unwrap();
    cluster.await_claims("pw1", 0).unwrap();
    for pod in [&a, &b] {
        cluster
            .until("no endpoint", || Ok(cluster.endpoint(pod)?.is_none()))
            .unwrap();
    }
    cluster.remove(&a).unwrap();
    cluster.finish().unwrap();
}

/// How long a DEL may take that has nothing to wait for.
const AT_ONCE: Duration = Duration::from_secs(10);

#[test]
#[ignore = "api level"]
fn scenario_64_a_pool_that_is_gone_holds_up_no_del() {
    let Some(cluster) = take("scenario_64_a_pool_that_is_gone_holds_up_no_del") else {
        return;
    };
    for (name, object) in [
        ("pw1", prewarm("pw1", "10.72.0.10", N1)),
        ("g", global("g", "10.72.0.20")),
    ] {
        cluster.create_pool(&object).unwrap();
        let entries = usize::from(name == "pw1");
        cluster.await_entries(name, entries).unwrap();
        let a = pod(&cluster, &format!("a-{name}"), N1, &[name]);
        cluster.add_in_the_end(&a).unwrap();
        // By force: admission and finalizer would have it wait for the Pod.
        let records = json!({ "status": { "allocatedIPs": null, "allocatedIPCount": 0 } });
        let status = format!("{}/status", path(name));
        cluster.api.merge(&status, &records).unwrap();
        cluster
            .until("the end of the pool", || {
                cluster.api.delete(&path(name)).ok();
                Ok(cluster.api.get(&path(name))?.is_none())
            })
            .unwrap();
        let before = cluster.release_calls().unwrap().len();
        cluster.mark(&a).unwrap();
        let outcome = cluster.call("DEL", &a).unwrap();
        outcome.silent().unwrap();
        assert!(outcome.elapsed < AT_ONCE, "{:?}", outcome.elapsed);
        cluster.remove(&a).unwrap();
        let calls = cluster.release_calls().unwrap();
        assert!(calls.len() <= before + 1, "{calls:?}");
        cluster
            .until("no endpoint", || Ok(cluster.endpoint(&a)?.is_none()))
            .unwrap();
    }
    cluster.finish().unwrap();
}

#[test]
#[ignore = "api level"]
fn scenario_79_a_pair_that_is_deleted_leaves_nothing_in_the_cloud() {
    let Some(cluster) = take("scenario_79_a_pair_that_is_deleted_leaves_nothing_in_the_cloud")
    else {
        return;
    };
    for pool in pair(global("p4", "10.72.0.10"), global("p6", "fd72::10")) {
        cluster.create_pool(&pool).unwrap();
    }
    cluster.await_entries("p4", 0).unwrap();
    let a = pod(&cluster, "a", N1, &["p4"]);
    cluster.add_in_the_end(&a).unwrap();
    cluster.end(&a).unwrap();
    let ip = "10.72.0.10".parse().unwrap();
    assert!(cluster.provider().unwrap().sub_eni(ip).unwrap().is_some());
    for name in ["p4", "p6"] {
        let pool = cluster.api.pool(name).unwrap();
        let finalizers = pool["metadata"]["finalizers"].as_array().unwrap().len();
        assert_eq!(finalizers, 2, "the controller's and the provider's: {pool}");
        cluster.api.delete(&path(name)).unwrap();
    }
    for name in ["p4", "p6"] {
        cluster
            .until("the end of the pool", || {
                Ok(cluster.api.get(&path(name))?.is_none())
            })
            .unwrap();
    }
    assert_eq!(cluster.provider().unwrap().sub_enis().unwrap(), []);
    cluster.finish().unwrap();
}
