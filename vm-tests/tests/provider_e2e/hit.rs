//! Allocations that need no call.

use serde_json::json;

use crate::rig::{GLOBAL, PREWARM, Rig};

/// How a message about metadata that cannot be used begins.
const NOT_READY: &str = "failed to allocate any IPv4 IP address to NIC net1 from IPPools [w-1]: IaaS IP metadata not ready: IPPool w-1: ";

#[test]
fn a_hit_never_calls_the_provider() {
    let Some(rig) = Rig::plain("a_hit_never_calls_the_provider") else {
        return;
    };
    let first = rig.given("a", GLOBAL);
    rig.await_entries(GLOBAL, 1);
    rig.del("a", GLOBAL);
    assert_eq!(rig.count(GLOBAL), 0);
    let calls = || {
        (
            rig.sim().calls("allocate-ips").len(),
            rig.sim().calls("release-ip").len(),
        )
    };
    assert_eq!(calls(), (1, 0), "a global sub-ENI stays as cache");
    // Nobody could answer a call.
    rig.sim().set_faults(&json!([{ "kind": "refuse" }]));
    assert_eq!(rig.given("b", GLOBAL), first, "address, MAC and VLAN");
    let prewarmed = rig.given("c", PREWARM);
    assert_eq!(prewarmed, rig.in_cloud("10.72.0.30"));
    assert_eq!(
        rig.logged("Skipping IaaS provider allocation call: all results are sourced from prewarm ipMetaData"),
        2
    );
    // The same Pod again: what it has, with MAC and VLAN.
    assert_eq!(rig.given("b", GLOBAL), first);
    assert_eq!(calls(), (1, 0));
    rig.sim().set_faults(&json!([]));
    rig.del("b", GLOBAL);
    rig.del("c", PREWARM);
    assert_eq!(calls(), (1, 1), "a prewarmed one is given back");
    rig.clean();
}

#[test]
fn a_pool_with_broken_metadata_gives_nothing_until_it_is_whole_again() {
    let name = "a_pool_with_broken_metadata_gives_nothing_until_it_is_whole_again";
    let Some(rig) = Rig::plain(name) else { return };
    for (body, text) in [
        (
            "{",
            "metadata is not valid JSON: EOF while parsing an object at line 1 column 1",
        ),
        (
            r#"{"ips":{}}"#,
            "metadata has no scope: the provider has not published this pool yet, or speaks the older flat form",
        ),
        (
            r#"{"scope":"n2","ips":{}}"#,
            r#"metadata scope "n2" is not "n1""#,
        ),
    ] {
        rig.sim().set_faults(&json!([
            { "kind": "bad-metadata", "match": { "pool": PREWARM }, "body": body },
        ]));
        rig.await_text(PREWARM, body);
        let refused = rig.refused("a", PREWARM);
        let text = format!("{NOT_READY}{text}");
        assert_eq!((refused.code, refused.details), (100, text), "{body}");
        assert_eq!(rig.count(PREWARM), 0);
    }
    rig.sim().set_faults(&json!([]));
    rig.await_entries(PREWARM, 2);
    assert_eq!(rig.given("a", PREWARM), rig.in_cloud("10.72.0.30"));
    rig.del("a", PREWARM);
    rig.clean();
}
