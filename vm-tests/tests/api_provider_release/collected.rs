//! What the controller's collector gives back when no agent does.

use serde_json::json;
use vm_tests::cluster::N1;
use vm_tests::cluster::pods::ENDPOINTS;

use crate::{pod, take};

#[test]
#[ignore = "api level"]
fn scenario_62_the_collector_releases_for_a_node_that_is_gone() {
    let name = "scenario_62_the_collector_releases_for_a_node_that_is_gone";
    let Some(mut cluster) = take(name) else {
        return;
    };
    cluster.ready_prewarm("pw1", "10.72.0.10", N1, 1).unwrap();
    cluster.ready_global("g", "10.72.0.20").unwrap();
    let warm = pod(&cluster, "warm", N1, &["pw1"]);
    let cold = pod(&cluster, "cold", N1, &["g"]);
    cluster.add_in_the_end(&warm).unwrap();
    cluster.add_in_the_end(&cold).unwrap();
    cluster.kill_agent(N1).unwrap();
    for pod in [&warm, &cold] {
        cluster.remove(pod).unwrap();
    }
    cluster.scan().unwrap();
    cluster.await_claims("pw1", 0).unwrap();
    cluster.await_claims("g", 0).unwrap();
    let calls = cluster.release_calls().unwrap();
    assert_eq!(calls.len(), 1, "{calls:?}");
    let body = calls[0].body.as_object().unwrap();
    assert_eq!(body["nodeName"], N1);
    assert_eq!(body["ipAddress"], "10.72.0.10");
    assert_eq!(body["poolName"], "pw1");
    assert_eq!(body["podUID"], warm.uid.as_str());
    let empty = body.iter().find(|(_, value)| **value == "");
    assert_eq!(empty, None, "{body:?}");
    cluster
        .until("no endpoints", || {
            Ok(cluster.endpoint(&warm)?.is_none() && cluster.endpoint(&cold)?.is_none())
        })
        .unwrap();
    cluster.finish().unwrap();
}

#[test]
#[ignore = "api level"]
fn scenario_63_without_endpoint_the_pool_names_the_node() {
    let name = "scenario_63_without_endpoint_the_pool_names_the_node";
    let Some(mut cluster) = take(name) else {
        return;
    };
    cluster.ready_prewarm("pw1", "10.72.0.10", N1, 1).unwrap();
    let warm = pod(&cluster, "warm", N1, &["pw1"]);
    cluster.add_in_the_end(&warm).unwrap();
    cluster.kill_agent(N1).unwrap();
    let endpoint = format!("{ENDPOINTS}/warm");
    let free = json!({ "metadata": { "finalizers": null } });
    cluster.api.merge(&endpoint, &free).unwrap();
    cluster.api.delete(&endpoint).unwrap();
    cluster.remove(&warm).unwrap();
    cluster.scan().unwrap();
    cluster.await_claims("pw1", 0).unwrap();
    let calls = cluster.release_calls().unwrap();
    assert_eq!(calls.len(), 1, "{calls:?}");
    assert_eq!(calls[0].body["nodeName"], N1);
    assert_eq!(calls[0].body["ipAddress"], "10.72.0.10");
    cluster.finish().unwrap();
}
