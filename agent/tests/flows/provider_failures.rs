//! ADD with a provider that fails: the words, and that nothing is left.

use std::io;
use std::sync::Arc;

use serde_json::{Value, json};
use spiderpool_api::provider::{AllocateRequest, AllocateResponse};
use spiderpool_iaas::duration::GoDuration;
use spiderpool_iaas::error::{CallError, Op, TransportError};
use spiderpool_iaas::fake::bind;

use crate::provider::{annotate, entry, global, request, text, world};
use crate::world::{NODE, Request, addresses};

fn answer(extra: Value) -> impl FnOnce(&AllocateRequest) -> Result<AllocateResponse, CallError> {
    move |request| {
        let good = bind(&request.sub_eni_requests[0], 9);
        let mut items = json!([good]);
        match extra {
            Value::Array(more) => items.as_array_mut().unwrap().extend(more),
            Value::Null => items = json!([]),
            changes => {
                for (key, value) in changes.as_object().unwrap() {
                    items[0][key] = value.clone();
                }
            }
        }
        Ok(serde_json::from_value(json!({"subEniResponses": items})).unwrap())
    }
}

type Script = Box<dyn FnOnce(&AllocateRequest) -> Result<AllocateResponse, CallError> + Send>;

fn call_errors() -> Vec<(Script, u32, &'static str)> {
    let op = Op::Allocate;
    let fail = |error: CallError| -> Script { Box::new(move |_| Err(error)) };
    let json = serde_json::from_str::<Value>("{").unwrap_err();
    let source = TransportError::Connect {
        provider: "http://127.0.0.1:1".into(),
        source: io::Error::from(io::ErrorKind::ConnectionRefused),
    };
    let timeout = GoDuration::from_secs(50);
    let body = "no".to_owned();
    vec![
        (
            fail(CallError::Transport { op, source }),
            100,
            "iaas allocate API call failed: cannot connect to provider http://127.0.0.1:1: connection refused",
        ),
        (
            fail(CallError::TooSlow { op, timeout }),
            100,
            "provider-interaction timeout: IaaS allocate API call exceeded configured timeout 50s",
        ),
        (
            fail(CallError::ParentExpired { op, sent: true }),
            11,
            "parent budget exhausted: IaaS allocate API call cancelled by parent context deadline",
        ),
        (
            fail(CallError::Status {
                op,
                status: 500,
                body,
            }),
            100,
            "iaas allocate API returned status 500: no",
        ),
        (
            fail(CallError::Unreadable {
                op,
                source: json.into(),
            }),
            100,
            "failed to unmarshal allocate response: ",
        ),
    ]
}

fn bad_answers() -> Vec<(Script, u32, &'static str)> {
    [
        (
            json!([{"ipv4Address": "10.72.0.99", "vlanId": 9}]),
            "iaas response contains unknown sub-ENI with address 10.72.0.99",
        ),
        (
            json!({"ipv4Address": "10.72.0.11"}),
            "iaas response contains unknown sub-ENI with address 10.72.0.11",
        ),
        (
            Value::Null,
            "iaas response lacks the sub-ENI with address 10.72.0.10",
        ),
        (
            json!([{"ipv4Address": "10.72.0.10", "vlanId": 8}]),
            "address 10.72.0.10 twice with different values",
        ),
        (
            json!({"ipv6Address": "fd72::1"}),
            "iaas response binds fd72::1 to the sub-ENI with address 10.72.0.10",
        ),
        (json!({"ipv4PoolName": "px"}), "iaas response names pool px"),
        (
            json!({"vlanId": 70_000}),
            "provider answer for 10.72.0.10: VLAN id 70000 is not in 1-4094",
        ),
        (json!({"macAddress": "fa:16"}), "MAC address \"fa:16\""),
        (
            json!({"vlanId": 0, "macAddress": ""}),
            "the answer for 10.72.0.10 has no VLAN id",
        ),
        (
            json!({"macAddress": ""}),
            "the answer for 10.72.0.10 has no MAC address",
        ),
    ]
    .into_iter()
    .map(|(extra, part)| -> (Script, u32, &'static str) { (Box::new(answer(extra)), 100, part) })
    .collect()
}

/// Case B22 and the failures of spec iaas section 10.
#[tokio::test]
async fn b22_every_failure_gives_the_claim_back_and_the_next_try_is_clean() {
    for (script, code, part) in call_errors().into_iter().chain(bad_answers()) {
        let (world, cloud) = world();
        global(&world, "p4", &["10.72.0.10-10.72.0.12"], &json!({}));
        cloud.fake.script(script);
        let failure = world.add(&request()).await.unwrap_err();
        let text = text(&failure);
        assert_eq!(failure.code.number(), code, "{text}");
        let chain = "IaaS IP allocate failed: iaas allocate failed: ";
        assert!(
            failure.details.contains(part) && failure.details.contains(chain),
            "{part}: {text}"
        );
        assert!(
            text.contains("10.72.0.10") && text.contains("Provider"),
            "{text}"
        );
        assert!(world.records("p4").is_empty(), "{part}");
        assert_eq!(
            (world.nic.link_count(), world.endpoint_uid("shop/web-0")),
            (0, None)
        );
        let [event] = world.events().await.try_into().unwrap();
        assert!(event.message.contains(part), "{event:?}");
        assert_eq!(
            (event.reason, event.uid.as_str()),
            ("IaaSAllocateFailed", "u-1")
        );
        let again = request().set("containerID", "c-2");
        let result = world.add(&again).await.unwrap();
        assert_eq!(addresses(&result), ["10.72.0.10/24"]);
        assert_eq!(world.records("p4"), ["10.72.0.10 u-1"]);
    }
}

#[tokio::test]
async fn b22_five_failures_leave_nothing_and_say_so_once() {
    let (world, cloud) = world();
    global(&world, "g-1", &["10.72.0.10-10.72.0.12"], &json!({}));
    let add = |n: usize| {
        let request = request().pools("ipv4", &["g-1"]);
        request.set("containerID", format!("c-{n}"))
    };
    for n in 0..5 {
        cloud.fake.fail(500);
        world.add(&add(n)).await.unwrap_err();
        assert!(world.records("g-1").is_empty());
    }
    world.add(&add(5)).await.unwrap();
    assert_eq!(world.records("g-1"), ["10.72.0.10 u-1"]);
    assert_eq!(cloud.fake.allocated().len(), 6);
    assert_eq!(world.events().await.len(), 1);
}

/// Somebody replaced the pool, by force, while the provider was asked: its addresses are free to others.
#[tokio::test]
async fn an_address_whose_record_went_during_the_call_is_not_answered_with() {
    let (world, cloud) = world();
    global(&world, "p4", &["10.72.0.10-10.72.0.12"], &json!({}));
    let store = Arc::clone(&world.store);
    cloud.fake.script(move |asked| {
        let pool = store.current_pool("p4").unwrap();
        let mut raw = pool.raw();
        raw["metadata"]["uid"] = json!("another");
        raw["status"]["allocatedIPs"] = Value::Null;
        store.set_pool(raw).unwrap();
        answer(json!({}))(asked)
    });
    let failure = world.add(&request()).await.unwrap_err();
    assert_eq!(failure.code.number(), 11, "{failure:?}");
    let part = "IPPool p4 has no record of the Pod for 10.72.0.10 any more";
    assert!(failure.details.contains(part), "{failure:?}");
    assert_eq!(world.endpoint_uid("shop/web-0"), None);
    world.add(&request()).await.unwrap();
    assert_eq!(world.records("p4"), ["10.72.0.10 u-1"]);
}

#[tokio::test]
async fn a_rollback_that_fails_only_warns_and_the_retry_converges() {
    let (world, cloud) = world();
    global(&world, "p4", &["10.72.0.10-10.72.0.12"], &json!({}));
    let store = Arc::clone(&world.store);
    cloud.fake.script(move |_| {
        store.set_outage(true);
        let body = "no".to_owned();
        let (op, status) = (Op::Allocate, 503);
        Err(CallError::Status { op, status, body })
    });
    let failure = world.add(&request()).await.unwrap_err();
    assert!(
        text(&failure).contains("returned status 503"),
        "{failure:?}"
    );
    assert_eq!(world.records("p4"), ["10.72.0.10 u-1"]);
    world.store.set_outage(false);
    world.add(&request()).await.unwrap();
    assert_eq!(world.records("p4"), ["10.72.0.10 u-1"]);
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_outlived_its_call_keeps_its_address() {
    // Killed between claim and call, and: the endpoint could not be written after a good call.
    for written in [true, false] {
        let (mut world, cloud) = world();
        global(&world, "p4", &["10.72.0.10-10.72.0.12"], &json!({}));
        if written {
            world.set_record("p4", "10.72.0.12", "shop/web-0", "u-1", Some("net1"));
        } else {
            world.set_record("p4", "10.72.0.10", "shop/other", "u-9", Some("net1"));
            world.store.conflict_endpoints(usize::MAX);
            world.add(&request()).await.unwrap_err();
            world.store.conflict_endpoints(0);
        }
        world.restart();
        let result = world.add(&request()).await.unwrap();
        let (want, calls) = if written {
            ("10.72.0.12/24", 1)
        } else {
            ("10.72.0.11/24", 2)
        };
        assert_eq!(addresses(&result), [want]);
        assert_eq!(cloud.fake.allocated().len(), calls);
    }
}

#[tokio::test]
async fn without_a_parent_nic_nothing_is_asked_and_nothing_stays() {
    let (world, cloud) = world();
    global(&world, "p4", &["10.72.0.10"], &json!({}));
    annotate(&world, "p4", "ipam.spidernet.io/parent-nic", "eth9");
    let failure = world.add(&request()).await.unwrap_err();
    let text = text(&failure);
    assert!(
        text.contains("the parent NIC of NIC net1 cannot be resolved") && text.contains("eth9"),
        "{text}"
    );
    assert_eq!(failure.code.number(), 100);
    assert!(world.records("p4").is_empty() && cloud.fake.allocated().is_empty());
}

#[tokio::test]
async fn another_plugin_than_eni_vlan_claims_nothing() {
    let (world, cloud) = world();
    global(
        &world,
        "p4",
        &["10.72.0.10"],
        &json!({"10.72.0.10": entry(7, NODE)}),
    );
    let add = Request::ipam("c-1", "eth0", &["p4"]).pod("shop/web-0", "u-1");
    let failure = world.add(&add).await.unwrap_err();
    assert!(
        text(&failure).contains("requires an eni-vlan SpiderMultusConfig"),
        "{failure:?}"
    );
    assert_eq!(world.store.counts().pool_writes, 0);
    assert!(cloud.fake.allocated().is_empty());
}
