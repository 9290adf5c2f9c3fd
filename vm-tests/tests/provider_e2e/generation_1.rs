//! Contract version 1: `serverUrl`, bodies of an address, and a NIC that is a sub-ENI whatever its pool.

use serde_json::json;

use crate::rig::{Given, PARENT_MAC, PLAIN_POOL, Rig};
use crate::simulator::{PLAIN, quick};

fn rig(test: &str) -> Option<Rig> {
    let section = json!({ "serverUrl": format!("http://{PLAIN}") });
    let mut rig = Rig::with(test, &section, |_| ())?;
    let mut settings = quick();
    settings["acceptV1"] = json!(true);
    rig.restart_sim(settings);
    Some(rig)
}

#[test]
fn an_address_of_a_plain_pool_is_bound_by_one_call_and_released_by_one() {
    let name = "an_address_of_a_plain_pool_is_bound_by_one_call_and_released_by_one";
    let Some(rig) = rig(name) else { return };
    assert_eq!(rig.logged("IaaS client created successfully"), 1);
    let given: Given = rig.given("a", PLAIN_POOL);
    assert_eq!(given, rig.in_cloud("10.72.0.50"));
    // Answered from the endpoint.
    assert_eq!(rig.given("a", PLAIN_POOL), given);
    let [call] = rig.sim().calls("allocate-ips").try_into().unwrap();
    let body = &call["body"];
    let item = json!([{ "ipAddress": "10.72.0.50", "subnet": "10.72.0.0/24", "parentNicMac": PARENT_MAC }]);
    assert_eq!(body["iaasIPsAllocationRequest"], item);
    assert_eq!(
        (&body["nodeName"], &body["podName"]),
        (&json!("n1"), &json!("c-a"))
    );
    let left = call["headers"]["x-request-timeout-ms"].as_str().unwrap();
    assert!((1..=2000).contains(&left.parse().unwrap()), "{call}");
    assert_eq!(rig.records(PLAIN_POOL)["10.72.0.50"]["node"], "n1");
    rig.del("a", PLAIN_POOL);
    let [call] = rig.sim().calls("release-ip").try_into().unwrap();
    let body = &call["body"];
    assert_eq!(
        (&body["ipAddress"], &body["nodeName"]),
        (&json!("10.72.0.50"), &json!("n1"))
    );
    assert_eq!(body.get("poolName"), None);
    assert_eq!(rig.count(PLAIN_POOL), 0);
    rig.clean();
}

#[test]
fn a_refusal_gives_the_address_back_and_an_unanswered_release_keeps_it() {
    let name = "a_refusal_gives_the_address_back_and_an_unanswered_release_keeps_it";
    let Some(rig) = rig(name) else { return };
    rig.sim().set_faults(&json!([
        { "op": "allocate", "kind": "status", "status": 500, "body": "broken", "times": 1 },
        { "op": "release", "kind": "status", "status": 500, "body": "broken", "times": 1 },
    ]));
    let refused = rig.refused("a", PLAIN_POOL);
    let text = "the IaaS Network Provider did not bind 10.72.0.50 of IPPool p-1: IaaS IP allocate failed: iaas allocate failed: iaas allocate API returned status 500: broken";
    assert_eq!((refused.code, refused.details.as_str()), (100, text));
    assert_eq!((rig.count(PLAIN_POOL), rig.endpoint("a")), (0, None));
    rig.given("a", PLAIN_POOL);
    // The runtime sees success.
    rig.del("a", PLAIN_POOL);
    assert_eq!(rig.count(PLAIN_POOL), 1);
    assert_eq!(rig.logged("IaaS release API failed"), 1);
    rig.del("a", PLAIN_POOL);
    assert_eq!(rig.count(PLAIN_POOL), 0);
    assert_eq!(rig.sim().calls("release-ip").len(), 2);
    rig.clean();
}

/// Marks, metadata and pairs of pools mean nothing; MAC and VLAN are where plugins of others look.
#[test]
fn a_marked_pool_is_a_plain_one_and_others_find_mac_and_vlan() {
    let name = "a_marked_pool_is_a_plain_one_and_others_find_mac_and_vlan";
    let Some(rig) = rig(name) else { return };
    let given = rig.given("a", crate::rig::PREWARM);
    assert_eq!(rig.sim().calls("allocate-ips").len(), 1);
    let (status, told) = rig.ask("/v1/workloadendpoint?podNamespace=default&podName=c-a");
    assert_eq!(status, 200, "{told}");
    let nic = &told["interfaces"][0];
    assert_eq!(
        (nic["mac"].as_str(), nic["vlan"].as_i64()),
        (Some(given.mac.as_str()), Some(given.vlan))
    );
    let (status, told) = rig.ask("/v1/workloadendpoint?podNamespace=default&podName=c-b");
    assert_eq!((status, told.is_string()), (404, true), "{told}");
    let (status, _) = rig.ask("/v1/workloadendpoint?podName=c-a");
    assert_eq!(status, 400);
    rig.del("a", crate::rig::PREWARM);
    assert_eq!(rig.sim().calls("release-ip").len(), 1);
}
