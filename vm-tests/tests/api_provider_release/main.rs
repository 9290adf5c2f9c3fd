//! Scenarios of release on a real API server, with agents, controller and provider as processes: what
//! the agent gives back, what the collector gives back in its stead, and what a crash leaves (spec
//! iaas 16, 45-47 and 56-63). The name of a test begins with the number of its scenario.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "functions that tests share fail as tests do"
)]

mod broken_off;
mod collected;
mod given_back;

use vm_tests::cluster::Cluster;
use vm_tests::cluster::pods::{Workload, network};

/// A cluster with its controller.
fn take(name: &str) -> Option<Cluster> {
    let mut cluster = Cluster::take(name).unwrap()?;
    cluster.need_controller().unwrap();
    Some(cluster)
}

/// A Pod of a node with addresses from these IPv4 pools.
fn pod(cluster: &Cluster, name: &str, node: &str, pools: &[&str]) -> Workload {
    cluster.pod(name, node, &network(pools, &[])).unwrap()
}
