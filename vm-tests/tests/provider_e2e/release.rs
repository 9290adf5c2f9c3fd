//! Sub-ENIs of a prewarm pool go back: the provider first, then the record.

use std::thread;
use std::time::Duration;

use serde_json::json;
use vm_tests::lab::wait;

use crate::rig::{PREWARM, Rig};

const LIMIT: Duration = Duration::from_secs(10);

#[test]
fn a_prewarmed_address_is_free_only_when_the_provider_has_agreed() {
    let name = "a_prewarmed_address_is_free_only_when_the_provider_has_agreed";
    let Some(rig) = Rig::plain(name) else { return };
    let first = rig.given("a", PREWARM);
    rig.sim()
        .set_faults(&json!([{ "op": "release", "kind": "delay", "delayMs": 1000, "times": 1 }]));
    thread::scope(|scope| {
        scope.spawn(|| rig.del("a", PREWARM));
        wait::until(LIMIT, "a release call", || {
            Ok(rig.sim().calls("release-ip").pop())
        })
        .unwrap();
        let records = rig.records(PREWARM);
        let record = &records["10.72.0.30"];
        let call = &rig.sim().calls("release-ip")[0];
        assert_eq!(call["status"], json!(null), "the provider is still at it");
        assert!(
            record["releasing"].is_object(),
            "fenced before the call: {records}"
        );
        let other = rig.given("b", PREWARM);
        assert_eq!(
            other.ip.to_string(),
            "10.72.0.31",
            "not the one that leaves"
        );
    });
    let call = &rig.sim().calls("release-ip")[0];
    assert_eq!(call["body"]["ipAddress"], "10.72.0.30");
    assert_eq!(call["body"]["poolName"], PREWARM);
    assert_eq!(call["body"]["nodeName"], "n1");
    assert_eq!(call["body"]["parentNicMac"], crate::rig::PARENT_MAC);
    assert_eq!(rig.records(PREWARM)["10.72.0.30"], json!(null));
    assert_eq!(rig.given("c", PREWARM), first, "the provider kept it");
    rig.del("b", PREWARM);
    rig.del("c", PREWARM);
    rig.clean();
}

#[test]
fn a_refused_release_keeps_the_record_and_is_tried_again() {
    let name = "a_refused_release_keeps_the_record_and_is_tried_again";
    let Some(rig) = Rig::plain(name) else { return };
    let first = rig.given("a", PREWARM);
    for fault in [
        json!({ "op": "release", "kind": "status", "status": 503, "body": "later", "times": 1 }),
        json!({ "kind": "refuse" }),
    ] {
        rig.sim().set_faults(&json!([fault]));
        rig.del("a", PREWARM);
        let records = rig.records(PREWARM);
        assert!(
            records["10.72.0.30"]["releasing"].is_object(),
            "{fault}: {records}"
        );
    }
    rig.sim().set_faults(&json!([]));
    assert_eq!(rig.given("b", PREWARM).ip.to_string(), "10.72.0.31");
    let refused = rig.refused("c", PREWARM);
    let text = "failed to allocate any IPv4 IP address to NIC net1 from IPPools [w-1]: all IP addresses used out: IPPool w-1 has no free address with a ready sub-ENI";
    assert_eq!((refused.code, refused.details.as_str()), (100, text));
    // The runtime asks again, as it may at any time.
    rig.del("a", PREWARM);
    assert_eq!(rig.records(PREWARM)["10.72.0.30"], json!(null));
    assert_eq!(rig.endpoint("a"), None);
    assert_eq!(rig.given("c", PREWARM), first);
    for text in [
        "iaas release API returned status 503: later",
        "iaas release API call failed: cannot connect to provider http://127.0.0.1:8080",
    ] {
        assert_eq!(rig.logged(text), 1, "{text}");
    }
    rig.del("b", PREWARM);
    rig.del("c", PREWARM);
    rig.clean();
}

/// The cloud may have done it, or may do it yet: a second call could take the address from the next
/// Pod that has it by then.
#[test]
fn a_release_whose_answer_broke_off_is_not_called_again_at_once() {
    let name = "a_release_whose_answer_broke_off_is_not_called_again_at_once";
    let Some(rig) = Rig::plain(name) else { return };
    rig.given("a", PREWARM);
    rig.sim()
        .set_faults(&json!([{ "op": "release", "kind": "reset", "times": 1 }]));
    for _ in 0..2 {
        rig.del("a", PREWARM);
        let records = rig.records(PREWARM);
        assert!(records["10.72.0.30"]["releasing"].is_object(), "{records}");
        assert_eq!(rig.sim().calls("release-ip").len(), 1);
    }
    let text =
        "iaas release API call failed: no complete answer from provider http://127.0.0.1:8080";
    assert_eq!(rig.logged(text), 1);
    assert_eq!(rig.given("b", PREWARM).ip.to_string(), "10.72.0.31");
}
