//! Idle cache that the provider takes back, while Pods come and go.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use vm_tests::cluster::pods::{Given, Workload};
use vm_tests::cluster::settings::quick_but;
use vm_tests::cluster::{Cluster, N1};

use crate::pod;

/// A provider that takes back what is above these shares of a pool when it is told to.
fn reclaiming(cluster: &mut Cluster, mode: &str, bound: f64, created: f64) {
    let settings = json!({ "reclaim": { "mode": mode, "bound": bound, "created": created,
        "debounceMs": 50, "rate": { "qps": 1000, "burst": 1000 } } });
    cluster.restart_provider(quick_but(&settings)).unwrap();
}

/// So many Pods of n1, which run.
fn running(cluster: &Cluster, count: usize) -> Vec<Workload> {
    let pods: Vec<_> = (0..count)
        .map(|n| pod(cluster, &format!("a-{n}"), N1, &["g"]))
        .collect();
    for pod in &pods {
        cluster.add_in_the_end(pod).unwrap();
    }
    cluster.await_entries("g", count).unwrap();
    pods
}

fn reclaim(cluster: &Cluster) -> Value {
    cluster
        .admin("POST", "/admin/reclaim", &Value::Null)
        .unwrap()
}

/// Conflicts of n1's agent when it claimed.
fn conflicts(cluster: &Cluster) -> f64 {
    let name = "spiderpool_ipam_allocation_update_ippool_conflict_counts_total";
    cluster.worker(N1).unwrap().metric(name, &[]).unwrap()
}

/// What a Pod was given is bound to its node, as it was told.
fn is_bound(cluster: &Cluster, given: &Given) {
    let ip = given.ip().parse().unwrap();
    let sub_eni = cluster.provider().unwrap().sub_eni(ip).unwrap().unwrap();
    assert_eq!(sub_eni.state.phase, "bound", "{sub_eni:?}");
    let parent = cluster.worker(N1).unwrap().parent_mac;
    assert_eq!(sub_eni.state.parent, Some(parent));
    let vlan = sub_eni.state.vlan.map(|vlan| u64::from(vlan.get()));
    assert_eq!(
        (sub_eni.mac.to_string(), vlan),
        (given.mac.clone(), Some(given.vlan))
    );
}

/// Pods claim idle sub-ENIs in the moment in which the provider takes all of them back; again and
/// again until `seen` says that what it waits for has happened. It is told what the provider did.
fn until_crossed(cluster: &Cluster, mut seen: impl FnMut(&Value) -> bool) {
    let mut turn = 0;
    cluster
        .until("a claim and a reclaim that cross", || {
            turn += 1;
            let pods: Vec<_> = (0..3)
                .map(|n| pod(cluster, &format!("b-{turn}-{n}"), N1, &["g"]))
                .collect();
            let (done, outcomes) = std::thread::scope(|scope| {
                let reclaim = scope.spawn(|| reclaim(cluster));
                let outcomes = cluster.add_at_once(&pods).unwrap();
                (reclaim.join().unwrap(), outcomes)
            });
            for (pod, outcome) in pods.iter().zip(&outcomes) {
                let given = cluster.given(pod, outcome)?;
                is_bound(cluster, &given);
            }
            let found = cluster.provider()?.audit()?;
            assert_eq!(found, Vec::<String>::new());
            for pod in &pods {
                cluster.end(pod)?;
            }
            Ok(seen(&done))
        })
        .unwrap();
}

#[test]
#[ignore = "api level"]
fn scenario_33_a_claim_behind_the_providers_mark_is_made_anew() {
    let name = "scenario_33_a_claim_behind_the_providers_mark_is_made_anew";
    let Some(mut cluster) = Cluster::take(name).unwrap() else {
        return;
    };
    reclaiming(&mut cluster, "off", 0.01, 1.0);
    cluster.ready_global("g", "10.72.0.10-10.72.0.17").unwrap();
    for pod in running(&cluster, 4) {
        cluster.end(&pod).unwrap();
    }
    let before = conflicts(&cluster);
    until_crossed(&cluster, |done| {
        let detached = done["detached"].as_array().unwrap();
        !detached.is_empty() && conflicts(&cluster) > before
    });
    cluster.finish().unwrap();
}

#[test]
#[ignore = "api level"]
fn scenario_34_a_claim_before_the_detach_keeps_its_sub_eni() {
    let name = "scenario_34_a_claim_before_the_detach_keeps_its_sub_eni";
    let Some(mut cluster) = Cluster::take(name).unwrap() else {
        return;
    };
    reclaiming(&mut cluster, "off", 0.01, 1.0);
    cluster.ready_global("g", "10.72.0.10-10.72.0.17").unwrap();
    for pod in running(&cluster, 4) {
        cluster.end(&pod).unwrap();
    }
    until_crossed(&cluster, |done| {
        !done["kept"].as_array().unwrap().is_empty()
    });
    cluster.finish().unwrap();
}

/// The entries of a pool that are attached, and all.
fn entries(cluster: &Cluster) -> (usize, usize) {
    let entries = cluster.entries("g").unwrap();
    let attached = entries.values().filter(|entry| entry["node"].is_string());
    (attached.count(), entries.len())
}

#[test]
#[ignore = "api level"]
fn scenario_65_above_the_marks_idle_cache_goes_and_claims_stay() {
    let name = "scenario_65_above_the_marks_idle_cache_goes_and_claims_stay";
    let Some(mut cluster) = Cluster::take(name).unwrap() else {
        return;
    };
    reclaiming(&mut cluster, "watermark", 0.6, 0.9);
    cluster.ready_global("g", "10.72.0.10-10.72.0.19").unwrap();
    let mut pods = running(&cluster, 10);
    // Everything is in use: nothing goes, whatever the marks say.
    let done = reclaim(&cluster);
    assert_eq!(done["detached"], json!([]), "{done}");
    assert_eq!(entries(&cluster), (10, 10));

    let kept = pods.pop().unwrap();
    for pod in &pods {
        cluster.end(pod).unwrap();
    }
    // Below 6 of 10 attached, below 9 of 10 made.
    cluster
        .until(
            "a cache below its marks",
            || Ok(entries(&cluster) == (5, 8)),
        )
        .unwrap();
    for (ip, entry) in cluster.entries("g").unwrap() {
        let detached = entry["node"].is_null();
        assert!(entry["detachTime"].is_null(), "{ip} {entry}");
        assert_eq!(entry["status"] == "unbound", detached, "{ip} {entry}");
    }
    let nic = cluster.endpoint_nic(&kept).unwrap().unwrap();
    let held: BTreeSet<_> = cluster
        .claims("g")
        .unwrap()
        .into_iter()
        .map(|(ip, _)| ip)
        .collect();
    let ip = held.first().unwrap();
    let entry = &cluster.entries("g").unwrap()[ip];
    assert_eq!((&entry["mac"], &entry["vlan"]), (&nic["mac"], &nic["vlan"]));
    cluster.end(&kept).unwrap();
    cluster.finish().unwrap();
}

/// As many sub-ENIs a parent NIC carries.
const LIMIT: u16 = 256;

/// The claims of pool `full` on these addresses, of Pods nobody asks after.
fn claim(cluster: &Cluster, octets: std::ops::Range<u16>) {
    let claims: serde_json::Map<String, Value> = octets
        .map(|octet| {
            let claim =
                json!({ "pod": format!("default/f-{octet}"), "podUid": format!("u-{octet}") });
            (format!("10.72.1.{octet}"), claim)
        })
        .collect();
    let status = json!({ "status": { "allocatedIPCount": claims.len(),
        "allocatedIPs": json!(claims).to_string() } });
    let path = format!("{}/status", vm_tests::cluster::pools::path("full"));
    cluster.api.merge(&path, &status).unwrap();
}

#[test]
#[ignore = "api level"]
fn scenario_66_a_full_parent_nic_gives_up_idle_cache_or_refuses() {
    let name = "scenario_66_a_full_parent_nic_gives_up_idle_cache_or_refuses";
    let Some(cluster) = Cluster::take(name).unwrap() else {
        return;
    };
    cluster
        .ready_global("full", "10.72.1.0-10.72.1.255")
        .unwrap();
    claim(&cluster, 0..LIMIT);
    let parent = cluster.worker(N1).unwrap().parent_mac.to_string();
    for octet in 0..LIMIT {
        let item = json!({ "ipv4Address": format!("10.72.1.{octet}"), "ipv4PoolName": "full",
            "subnet": "10.72.0.0/22", "parentNicMac": parent });
        assert_eq!(cluster.allocate(N1, &item).unwrap(), 200, "{octet}");
    }
    cluster.await_entries("full", usize::from(LIMIT)).unwrap();
    cluster.ready_global("g", "10.72.0.10").unwrap();
    let a = pod(&cluster, "a", N1, &["g"]);
    cluster
        .until("a refusal for want of room", || {
            let refused = cluster.refused(&a)?;
            let text = refused.details;
            Ok(text.contains("status 409") && text.contains("CapacityExceeded"))
        })
        .unwrap();
    assert_eq!(cluster.claims("g").unwrap().len(), 0, "rolled back");

    // One of them is idle now.
    claim(&cluster, 1..LIMIT);
    cluster.add_in_the_end(&a).unwrap();
    cluster
        .await_entry("full", "10.72.1.0", |entry| entry["node"].is_null())
        .unwrap();
    cluster.end(&a).unwrap();
    cluster.finish().unwrap();
}
