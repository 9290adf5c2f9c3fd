//! What agents and provider publish of a pool.

use serde_json::{Value, json};
use spiderpool_api::names;
use spiderpool_api::value::Mac;
use vm_tests::cluster::pools::prewarm;
use vm_tests::cluster::{Cluster, N1, N2, PARENT};
use vm_tests::lab::namespace::in_netns;

/// Gives the parent NIC of the node another MAC.
fn set_mac(cluster: &Cluster, mac: Mac) {
    let netns = cluster.worker(N1).unwrap().netns();
    in_netns(netns, async |rtnl| {
        let link = rtnl.link_by_name(PARENT).await?.unwrap();
        Ok(rtnl.set_mac(link.ifindex, mac).await?)
    })
    .unwrap();
}

#[test]
#[ignore = "api level"]
fn scenario_12_the_pools_own_node_publishes_its_parent_nic() {
    let name = "scenario_12_the_pools_own_node_publishes_its_parent_nic";
    let Some(mut cluster) = Cluster::take(name).unwrap() else {
        return;
    };
    cluster.kill_agent(N2).unwrap();
    cluster
        .create_pool(&prewarm("pw2", "10.72.0.20", N2))
        .unwrap();
    cluster
        .create_pool(&prewarm("pw1", "10.72.0.10", N1))
        .unwrap();
    let parent = |pool: &str| cluster.api.pool(pool).unwrap()["status"]["parentNic"].clone();
    let own = cluster.worker(N1).unwrap().parent_mac;
    let other: Mac = "fa:16:3e:01:00:99".parse().unwrap();
    for mac in [own, other, own] {
        set_mac(&cluster, mac);
        let wanted = json!({ "name": PARENT, "mac": mac.to_string() });
        cluster
            .until("the parent NIC of pw1", || Ok(parent("pw1") == wanted))
            .unwrap();
    }
    assert_eq!(parent("pw2"), Value::Null, "another node's");
    cluster.start_agent(N2).unwrap();
    cluster.await_entries("pw2", 1).unwrap();
    cluster.await_entries("pw1", 1).unwrap();
    cluster.finish().unwrap();
}

/// Under the rights of the chart. The links of these nodes are made, not hardware.
#[test]
#[ignore = "api level"]
fn nodes_say_which_hardware_they_have() {
    let Some(cluster) = Cluster::take("nodes_say_which_hardware_they_have").unwrap() else {
        return;
    };
    for node in [N1, N2] {
        let path = format!("/api/v1/nodes/{node}");
        let published = || {
            let node = cluster.api.get(&path)?.unwrap_or_default();
            Ok(node["metadata"]["annotations"][names::PARENT_NICS] == "{}")
        };
        cluster.until("the node's NICs", published).unwrap();
    }
    cluster.finish().unwrap();
}

#[test]
#[ignore = "api level"]
fn scenario_13_a_warm_pool_says_so() {
    let Some(cluster) = Cluster::take("scenario_13_a_warm_pool_says_so").unwrap() else {
        return;
    };
    cluster
        .ready_prewarm("pw1", "10.72.0.10-10.72.0.29", N1, 20)
        .unwrap();
    let pool = cluster.api.pool("pw1").unwrap();
    let published = &pool["status"]["ipMetaData"];
    assert_eq!(published["readyIPCount"], 20);
    assert_eq!(published["unreadyIPCount"], 0);
    assert_eq!(
        published["observedGeneration"],
        pool["metadata"]["generation"]
    );
    let metadata: Value = serde_json::from_str(published["metadata"].as_str().unwrap()).unwrap();
    assert_eq!(metadata["scope"], N1);
    cluster.finish().unwrap();
}
