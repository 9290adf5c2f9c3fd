//! Calls that fail, and what is left of them: nothing.

use serde_json::{Value, json};

use crate::rig::{GLOBAL, Rig, TIMEOUT_S};
use crate::simulator::quick;

/// How a message about the first address begins.
const FAILED: &str = "the IaaS Network Provider did not bind 10.72.0.10 of IPPool g-1: IaaS IP allocate failed: iaas allocate failed: ";

/// The ADD fails with this cause, its address and the provider named, and nothing stays.
fn fails(rig: &Rig, container: &str, cause: &str) {
    let refused = rig.refused(container, GLOBAL);
    let msg = format!("spiderpool IP allocation error: Pod default/c-{container}, NIC net1");
    assert_eq!(refused.details, format!("{FAILED}{cause}"));
    assert_eq!((refused.code, refused.msg), (100, msg));
    assert_eq!(rig.count(GLOBAL), 0, "rolled back: {cause}");
    assert_eq!(rig.endpoint(container), None, "{cause}");
}

/// The next try has what the cloud has.
fn succeeds(rig: &Rig, container: &str) {
    let given = rig.given(container, GLOBAL);
    assert_eq!(given, rig.in_cloud("10.72.0.10"));
    assert_eq!(rig.count(GLOBAL), 1);
}

#[test]
fn case_b22_retries_against_a_failing_provider_eat_no_addresses() {
    let name = "case_b22_retries_against_a_failing_provider_eat_no_addresses";
    let Some(rig) = Rig::plain(name) else { return };
    rig.sim().set_faults(&json!([
        { "op": "allocate", "kind": "status", "status": 500, "body": "broken", "times": 5 },
    ]));
    for _ in 0..5 {
        fails(&rig, "u-1", "iaas allocate API returned status 500: broken");
    }
    succeeds(&rig, "u-1");
    let calls = rig.sim().calls("allocate-ips");
    assert_eq!(calls.len(), 6);
    for call in calls {
        let left = call["headers"]["x-request-timeout-ms"].as_str().unwrap();
        let left: u64 = left.parse().unwrap();
        assert!((1..=TIMEOUT_S * 1000).contains(&left), "{call}");
        assert_eq!(call["body"]["podName"], "c-u-1");
        assert_eq!(call["body"]["nodeName"], "n1");
        let item = &call["body"]["subEniRequests"][0];
        assert_eq!(item["parentNicMac"], crate::rig::PARENT_MAC, "the master's");
        assert_eq!(item["ipv4PoolName"], GLOBAL);
    }
    let line = "Rolled back global-pool claim 10.72.0.10 in IPPool g-1 after IaaS allocate failure";
    assert_eq!(rig.logged(line), 5);
    rig.del("u-1", GLOBAL);
    rig.clean();
}

/// A fault of one call, and what the client says of it.
#[rustfmt::skip] // a case a line
fn wrong_answers() -> Vec<(Value, &'static str)> {
    let other = json!({ "subEniResponses": [
        { "ipv4Address": "10.72.0.11", "macAddress": "fa:16:3e:00:00:01", "vlanId": 7 },
    ] });
    let other = json!({ "kind": "status", "status": 200, "body": other.to_string() });
    let empty = json!({ "kind": "status", "status": 200, "body": "{}" });
    vec![
        (json!({ "kind": "status", "status": 500, "body": "broken" }), "iaas allocate API returned status 500: broken"),
        (json!({ "kind": "bad-json" }), "failed to unmarshal allocate response: the body is not a valid answer: EOF while parsing a list at line 1 column 20"),
        (empty, "failed to unmarshal allocate response: the body is not a valid answer: missing field `subEniResponses` at line 1 column 2"),
        (json!({ "kind": "extra-ip" }), "iaas response contains unknown sub-ENI with address 203.0.113.99"),
        (other, "iaas response contains unknown sub-ENI with address 10.72.0.11"),
        (json!({ "kind": "missing-ip" }), "iaas response lacks the sub-ENI with address 10.72.0.10"),
        (json!({ "kind": "duplicate" }), "iaas response contains the sub-ENI with address 10.72.0.10 twice with different values"),
        (json!({ "kind": "wrong-pool" }), "iaas response names pool another-pool for the sub-ENI with address 10.72.0.10, requested was g-1"),
        (json!({ "kind": "vlan-range" }), "provider answer for 10.72.0.10: VLAN id 70000 is not in 1-4094"),
        (json!({ "kind": "reset" }), "iaas allocate API call failed: no complete answer from provider http://127.0.0.1:8080: connection closed before message completed"),
        (json!({ "op": "create", "kind": "cloud-error" }), r#"iaas allocate API returned status 502: {"code":"CloudError","details":{"operation":"create"},"message":"create refused by the cloud platform"}"#),
    ]
}

#[test]
fn case_b22_each_wrong_answer_has_its_text_and_the_next_try_is_clean() {
    let name = "case_b22_each_wrong_answer_has_its_text_and_the_next_try_is_clean";
    let Some(rig) = Rig::plain(name) else { return };
    for (index, (mut fault, text)) in wrong_answers().into_iter().enumerate() {
        let container = format!("u-{index}");
        fault["times"] = json!(1);
        rig.sim().set_faults(&json!([fault]));
        fails(&rig, &container, text);
        assert_eq!(rig.sim().calls("allocate-ips").len(), 1, "{fault}");
        succeeds(&rig, &container);
        rig.del(&container, GLOBAL);
        rig.clean();
        // The next fault shall meet a cloud without cache.
        rig.sim().reset();
        rig.await_entries(GLOBAL, 0);
        rig.await_entries(crate::rig::PREWARM, 2);
    }
}

/// The one answer whose text is not the client's: it is well formed, but nobody knows the rest.
#[test]
fn case_b22_an_answer_without_vlan_and_mac_is_a_failure() {
    let name = "case_b22_an_answer_without_vlan_and_mac_is_a_failure";
    let Some(rig) = Rig::plain(name) else { return };
    rig.sim()
        .set_faults(&json!([{ "kind": "vlan-zero", "times": 1 }]));
    let refused = rig.refused("a", GLOBAL);
    let text = "the IaaS Network Provider did not bind 10.72.0.10 of IPPool g-1: IaaS IP allocate failed: iaas allocate failed: the answer for 10.72.0.10 has no VLAN id and none is known; the provider has to be asked why";
    assert_eq!((refused.code, refused.details.as_str()), (100, text));
    assert_eq!(rig.count(GLOBAL), 0);
    succeeds(&rig, "a");
    rig.del("a", GLOBAL);
    rig.clean();
}

#[test]
fn case_b22_nobody_there_or_no_answer_in_time() {
    let name = "case_b22_nobody_there_or_no_answer_in_time";
    let Some(rig) = Rig::plain(name) else { return };
    rig.sim().set_faults(&json!([{ "kind": "refuse" }]));
    fails(
        &rig,
        "a",
        "iaas allocate API call failed: cannot connect to provider http://127.0.0.1:8080: Connection refused (os error 111)",
    );
    assert_eq!(rig.sim().calls("allocate-ips").len(), 0);
    rig.sim()
        .set_faults(&json!([{ "kind": "hang", "times": 1 }]));
    fails(
        &rig,
        "a",
        "provider-interaction timeout: IaaS allocate API call exceeded configured timeout 2s",
    );
    succeeds(&rig, "a");
    rig.del("a", GLOBAL);
    rig.clean();
}

#[test]
fn a_caller_without_the_time_or_a_token_is_refused_before_any_work() {
    let name = "a_caller_without_the_time_or_a_token_is_refused_before_any_work";
    let Some(mut rig) = Rig::plain(name) else {
        return;
    };
    rig.sim().set_rate(0.001, 1.0);
    succeeds(&rig, "a");
    let refused = rig.refused("b", GLOBAL);
    let late = FAILED.replace("10.72.0.10", "10.72.0.11")
        + r#"iaas allocate API returned status 429: {"code":"RateLimitTimeout","details":{"reason":"#;
    let text = format!(r#"{late}"queue"}},"message":"no free slot within 200 ms"}}"#);
    assert_eq!((refused.code, refused.details), (100, text));
    assert_eq!(rig.count(GLOBAL), 1, "the other Pod's");
    assert_eq!(rig.sim().sub_eni("10.72.0.11"), None);
    // A provider that may need 46 s, and a caller that waits for 2 s.
    let mut slow = quick();
    slow["queueTimeoutMs"] = json!(30_000);
    slow["transactionTimeoutMs"] = json!(16_000);
    rig.restart_sim(slow);
    let refused = rig.refused("b", GLOBAL);
    let start = format!(r#"{late}"budget","receivedMs":"#);
    let details = &refused.details;
    assert!(details.starts_with(&start), "{details}");
    assert!(
        details.ends_with(r#" ms left, 46000 ms needed"}"#),
        "{details}"
    );
    assert_eq!(refused.code, 100);
    assert_eq!(rig.count(GLOBAL), 1);
    rig.restart_sim(quick());
    assert_eq!(rig.given("b", GLOBAL), rig.in_cloud("10.72.0.11"));
    rig.del("a", GLOBAL);
    rig.del("b", GLOBAL);
    rig.clean();
}

/// The agent gives up, the cloud goes on: what it bound is cache, and the next ADD may have it.
#[test]
fn a_late_success_leaks_nothing_and_the_next_add_gets_what_was_bound() {
    let name = "a_late_success_leaks_nothing_and_the_next_add_gets_what_was_bound";
    let Some(rig) = Rig::plain(name) else { return };
    rig.sim()
        .set_faults(&json!([{ "op": "allocate", "kind": "late-success", "times": 1 }]));
    fails(
        &rig,
        "a",
        "provider-interaction timeout: IaaS allocate API call exceeded configured timeout 2s",
    );
    let late = rig.in_cloud("10.72.0.10");
    rig.await_entries(GLOBAL, 1);
    assert_eq!(rig.given("b", GLOBAL), late, "another Pod");
    rig.del("b", GLOBAL);
    assert_eq!(rig.given("a", GLOBAL), late, "the same Pod");
    assert_eq!(rig.sim().calls("allocate-ips").len(), 1);
    rig.del("a", GLOBAL);
    rig.clean();
}
