//! Scenarios of many Pods at once on a real API server: ten nodes' agents, one provider, one global
//! pool (spec iaas 16, 70-74). The name of a test begins with the number of its scenario.
//!
//! Two calls a second for 200 Pods take 95 s by their nature. So time is a fifth: the provider has
//! five times the rate and a fifth of its queue, which leaves the same number of calls waiting and
//! the same number refused. `SPIDERPOOL_SCENARIO_FULL=1` runs it in the table's own figures.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "functions that tests share fail as tests do"
)]

mod crowd;
mod figures;
mod rollout;

use vm_tests::cluster::Cluster;
use vm_tests::cluster::pods::{Workload, network};

/// A Pod of a node with addresses from these IPv4 pools.
fn pod(cluster: &Cluster, name: &str, node: &str, pools: &[&str]) -> Workload {
    cluster.pod(name, node, &network(pools, &[])).unwrap()
}
