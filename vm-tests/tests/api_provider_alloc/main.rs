//! Scenarios of allocation on a real API server, agents and provider as processes (spec iaas 16, 14,
//! 15, 20-54). The name of a test begins with the number of its scenario.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "functions that tests share fail as tests do"
)]

mod candidates;
mod cold;
mod failures;
mod frames;
mod pairs;
mod prewarm;
mod races;
mod reclaim;
mod steal;

use vm_tests::cluster::Cluster;
use vm_tests::cluster::pods::{Workload, network};

/// Allocations of a node's agent, by their path.
const ALLOCATIONS: &str = "spiderpool_iaas_allocation_total";

/// How many allocations of a pool went this way.
fn counted(cluster: &Cluster, node: &str, pool: &str, path: &str) -> f64 {
    let labels = [("pool", pool), ("path", path)];
    let worker = cluster.worker(node).unwrap();
    worker.metric(ALLOCATIONS, &labels).unwrap()
}

/// A Pod of a node with addresses from these IPv4 pools.
fn pod(cluster: &Cluster, name: &str, node: &str, pools: &[&str]) -> Workload {
    cluster.pod(name, node, &network(pools, &[])).unwrap()
}

/// What the runtime is told of an ADD that fails, all of it.
fn refusal(cluster: &Cluster, pod: &Workload) -> String {
    let error = cluster.refused(pod).unwrap();
    format!("{} {}", error.msg, error.details)
}

/// Waits until agents know the pool: all they need for an ADD but an address.
fn known(cluster: &Cluster, node: &str, pool: &str) {
    let probe = pod(cluster, &format!("probe-{node}-{pool}"), node, &[pool]);
    cluster.add_in_the_end(&probe).unwrap();
    cluster.end(&probe).unwrap();
}
