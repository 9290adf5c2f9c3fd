//! The table of spec iaas section 10, row by row: the answer's text and code, the log, the event on the
//! Pod, the labels of both metrics. And that of release.

#![expect(
    clippy::too_many_lines,
    reason = "tables with one row a case read best in one piece"
)]

use std::io;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use spiderpool_api::provider::{AllocateRequest, AllocateResponse};
use spiderpool_iaas::duration::GoDuration;
use spiderpool_iaas::error::{CallError, Op, TransportError};
use spiderpool_iaas::fake::bind;

use crate::log::Logged;
use crate::metrics::of;
use crate::provider::{Cloud, annotate, global, request, text, world};
use crate::world::{Request, World, object_key};

/// Prepares world and provider, and says what is called.
type Arrange = Box<dyn Fn(&World, &Cloud) -> Request>;

/// What a row looks like from outside.
struct Row {
    arrange: Arrange,
    code: u32,
    texts: Vec<&'static str>,
    /// Reasons of the allocation's and of the call's metric.
    reasons: (Option<&'static str>, Option<&'static str>),
    event: &'static str,
    /// The claim was made and the provider, or what comes before it, failed.
    aborted: bool,
}

type Error = Box<dyn Fn(Op) -> CallError>;

/// Rows of calls that fail, for both calls: text with `{op}`, reason of the call's metric.
fn call_errors() -> Vec<(Error, &'static str, Option<&'static str>)> {
    let timeout = GoDuration::from_secs(50);
    let row = |error: fn(Op) -> CallError, text, reason| (Box::new(error) as Error, text, reason);
    vec![
        row(
            |op| {
                let (provider, source) = ("http://p:80".to_owned(), io::Error::other("refused"));
                let source = TransportError::Connect { provider, source };
                CallError::Transport { op, source }
            },
            "iaas {op} API call failed: cannot connect to provider http://p:80: refused",
            Some("network_error"),
        ),
        (
            Box::new(move |op| CallError::TooSlow { op, timeout }),
            "provider-interaction timeout: IaaS {op} API call exceeded configured timeout 50s",
            Some("timeout"),
        ),
        row(
            |op| CallError::ParentExpired { op, sent: true },
            "parent budget exhausted: IaaS {op} API call cancelled by parent context deadline",
            Some("timeout"),
        ),
        row(
            |op| CallError::ParentExpired { op, sent: false },
            "parent budget exhausted: IaaS {op} API call cancelled by parent context deadline",
            None,
        ),
        row(
            |_| CallError::Insufficient {
                remaining: Duration::from_secs(47),
            },
            "parent budget insufficient: 47s remaining is less than provider worst-case 48s",
            None,
        ),
        row(
            |op| {
                let (status, body) = (429, r#"{"code":"RateLimitTimeout"}"#.to_owned());
                CallError::Status { op, status, body }
            },
            r#"iaas {op} API returned status 429: {"code":"RateLimitTimeout"}"#,
            Some("http_status"),
        ),
        row(
            |op| {
                let source = serde_json::from_str::<Value>("{").unwrap_err().into();
                CallError::Unreadable { op, source }
            },
            "failed to unmarshal {op} response: ",
            Some("bad_response"),
        ),
    ]
}

fn cold(world: &World) -> Request {
    global(world, "p4", &["10.72.0.10-10.72.0.12"], &json!({}));
    request()
}

fn called(error: Error, text: &'static str, reason: Option<&'static str>) -> Row {
    let probe = error(Op::Allocate);
    let late = probe.is_out_of_time();
    let error = Arc::new(std::sync::Mutex::new(Some(probe)));
    Row {
        arrange: Box::new(move |world, cloud| {
            let error = error.lock().unwrap().take().unwrap();
            cloud.fake.script(move |_| Err(error));
            cold(world)
        }),
        code: if late { 11 } else { 100 },
        texts: vec!["IaaS IP allocate failed: iaas allocate failed: ", text],
        reasons: (Some("rpc_error"), reason),
        event: "IaaSAllocateFailed",
        aborted: true,
    }
}

/// An answer whose only item is changed; an array adds items to it, null takes it away.
fn answered(change: Value, text: &'static str) -> Row {
    let answer = move |request: &AllocateRequest| {
        let mut items = json!([bind(&request.sub_eni_requests[0], 9)]);
        match change {
            Value::Null => items = json!([]),
            Value::Array(more) => items.as_array_mut().unwrap().extend(more),
            change => {
                for (key, value) in change.as_object().unwrap() {
                    items[0][key] = value.clone();
                }
            }
        }
        let response = json!({ "subEniResponses": items });
        Ok(serde_json::from_value::<AllocateResponse>(response).unwrap())
    };
    let answer = std::sync::Mutex::new(Some(answer));
    Row {
        arrange: Box::new(move |world, cloud| {
            cloud.fake.script(answer.lock().unwrap().take().unwrap());
            cold(world)
        }),
        code: 100,
        texts: vec!["IaaS IP allocate failed: iaas allocate failed: ", text],
        reasons: (Some("rpc_error"), Some("bad_response")),
        event: "IaaSAllocateFailed",
        aborted: true,
    }
}

#[rustfmt::skip] // a case a line
fn bad_answers() -> Vec<Row> {
    vec![
        answered(json!({"ipv4Address": "10.72.0.11"}), "iaas response contains unknown sub-ENI with address 10.72.0.11"),
        answered(Value::Null, "iaas response lacks the sub-ENI with address 10.72.0.10"),
        answered(json!([{"ipv4Address": "10.72.0.10", "vlanId": 8}]), "address 10.72.0.10 twice with different values"),
        answered(json!({"ipv4PoolName": "px"}), "iaas response names pool px for the sub-ENI with address 10.72.0.10, requested was p4"),
        answered(json!({"ipv6Address": "fd72::1"}), "iaas response binds fd72::1 to the sub-ENI with address 10.72.0.10, requested was none"),
        answered(json!({"vlanId": 5000}), "VLAN id 5000 is not in 1-4094"),
        answered(json!({"macAddress": "fa:16"}), "MAC address \"fa:16\""),
        answered(json!({"vlanId": 0, "macAddress": ""}), "the answer for 10.72.0.10 has no VLAN id and none is known"),
    ]
}

fn row(
    arrange: fn(&World, &Cloud) -> Request,
    (code, text): (u32, &'static str),
    reason: Option<&'static str>,
    event: &'static str,
) -> Row {
    Row {
        arrange: Box::new(arrange),
        code,
        texts: vec![text],
        reasons: (reason, None),
        event,
        aborted: false,
    }
}

/// Rows without a call.
fn uncalled() -> Vec<Row> {
    let mut rows = vec![
        row(
            |world, _| {
                let request = cold(world);
                annotate(world, "p4", "ipam.spidernet.io/parent-nic", "eth9");
                request
            },
            (100, "the parent NIC of NIC net1 cannot be resolved"),
            Some("internal"),
            "IaaSAllocateFailed",
        ),
        row(
            |world, _| {
                let request = cold(world);
                let mut raw = world.store.current_pool("p4").unwrap().raw();
                raw["status"]["ipMetaData"]["observedGeneration"] = json!(0);
                world.store.set_pool(raw).unwrap();
                request
            },
            (100, "IaaS IP metadata not ready"),
            Some("metadata_not_ready"),
            "IaaSMetadataNotReady",
        ),
        row(
            |world, _| {
                let request = cold(world);
                for ip in ["10.72.0.10", "10.72.0.11", "10.72.0.12"] {
                    world.set_record("p4", ip, "shop/other", "u-9", None);
                }
                request
            },
            (100, "all IP addresses used out"),
            Some("no_ready_ip"),
            "IPAddressesUsedOut",
        ),
        row(
            |world, _| {
                for _ in 0..20_000 {
                    world.store.conflict("p4", Box::new(|_| {}));
                }
                cold(world)
            },
            (11, "exhaust all retries"),
            Some("pair_conflict"),
            "IPAMRetriesExhausted",
        ),
        row(
            |world, _| {
                cold(world);
                Request::ipam("c-1", "net1", &["p4"]).pod("shop/web-0", "u-1")
            },
            (100, "requires an eni-vlan SpiderMultusConfig"),
            Some("internal"),
            "NoIPPoolAvailable",
        ),
        row(
            |world, _| {
                world.prewarm_pool("p4", "172.91.0.0/24", &[("172.91.0.100", 301)]);
                world.nic.hold_back("172.91.0.100");
                request()
            },
            (103, "172.91.0.100"),
            None,
            "SubENIAttachFailed",
        ),
    ];
    if let Some(first) = rows.first_mut() {
        first.aborted = true;
    }
    rows
}

#[tokio::test(start_paused = true)]
async fn every_row_has_its_text_log_event_and_metrics() {
    let calls = call_errors().into_iter();
    let calls = calls.map(|(error, text, reason)| called(error, text, reason));
    for row in calls.chain(bad_answers()).chain(uncalled()) {
        let (world, cloud) = world();
        let request = (row.arrange)(&world, &cloud);
        let logged = Logged::begin();
        let failure = world.add(&request).await.unwrap_err();
        let shown = text(&failure);
        let name = row.texts.last().unwrap().replace("{op}", "allocate");
        assert_eq!(failure.code.number(), row.code, "{shown}");
        for part in &row.texts {
            assert!(
                shown.contains(&part.replace("{op}", "allocate")),
                "{name}: {shown}"
            );
        }
        let [event] = world.events().await.try_into().unwrap();
        assert_eq!(
            (event.reason, event.uid.as_str()),
            (row.event, "u-1"),
            "{name}"
        );
        assert!(event.message.contains(&name), "{name}: {}", event.message);
        check_metrics(&world, &row, &name).await;
        check_log(&logged, &row, &name);
    }
}

async fn check_metrics(world: &World, row: &Row, name: &str) {
    let (allocation, call) = row.reasons;
    let failed = allocation.map(|reason| {
        format!(r#"spiderpool_iaas_allocation_failure_total{{mode="global",reason="{reason}",pool="p4"}} 1"#)
    });
    let called = call.map(|reason| {
        format!(r#"spiderpool_iaas_rpc_failure_total{{op="allocate",reason="{reason}"}} 1"#)
    });
    let want: Vec<String> = failed.into_iter().chain(called).collect();
    let seen = of(world, &["iaas_allocation_failure", "iaas_rpc_failure"]).await;
    assert_eq!(seen, want, "{name}");
    let rolled = of(world, &["iaas_claim_rollback"]).await;
    assert_eq!(rolled.len(), usize::from(row.aborted), "{name}");
}

/// Lines that operators search for, and no others of their kind.
fn check_log(logged: &Logged, row: &Row, name: &str) {
    let failed = logged.lines("IaaS allocate API failed");
    let times = usize::from(row.aborted);
    assert_eq!(failed.len(), times, "{name}");
    for line in failed {
        let plain = line.replace("\\\"", "\"");
        assert!(
            line.contains("ERROR") && plain.contains(name),
            "{name}: {line}"
        );
    }
    for line in [
        "IaaS allocate failed, aborting IPAM allocation",
        "Rolled back global-pool claim 10.72.0.10 in IPPool p4 after IaaS allocate failure",
    ] {
        assert_eq!(logged.lines(line).len(), times, "{name}");
    }
    assert!(logged.lines("IaaS allocate API succeeded").is_empty());
}

#[tokio::test]
async fn what_went_well_has_its_lines() {
    let (world, _cloud) = world();
    let logged = Logged::begin();
    world.add(&cold(&world)).await.unwrap();
    assert_eq!(logged.lines("IaaS allocate API succeeded").len(), 1);
    world.prewarm_pool("w", "172.91.0.0/24", &[("172.91.0.100", 301)]);
    world.pod("shop/web-1", "u-2");
    let hit = Request::eni("c-2", "/ns/b", "net1")
        .pod("shop/web-1", "u-2")
        .pools("ipv4", &["w"]);
    world.add(&hit).await.unwrap();
    let skipped =
        "Skipping IaaS provider allocation call: all results are sourced from prewarm ipMetaData";
    assert_eq!(logged.lines(skipped).len(), 1);
    world.store.remove_pod(&object_key("shop/web-1"));
    world.del(&hit).await.unwrap();
    assert_eq!(logged.lines("IaaS release API succeeded").len(), 1);
}

/// DEL succeeds, the claim stays.
#[tokio::test]
async fn release_has_the_same_texts_and_labels() {
    for (error, row, reason) in call_errors() {
        let (world, cloud) = world();
        world.prewarm_pool("p4", "172.91.0.0/24", &[("172.91.0.100", 301)]);
        world.add(&request()).await.unwrap();
        world.store.remove_pod(&object_key("shop/web-0"));
        cloud.fake.refuse_release(error(Op::Release));
        let logged = Logged::begin();
        world.del(&request()).await.unwrap();
        let name = row.replace("{op}", "release");
        assert_eq!(world.records("p4"), ["172.91.0.100 u-1"], "{name}");
        let [line] = logged.lines("IaaS release API failed").try_into().unwrap();
        let plain = line.replace("\\\"", "\"");
        assert!(
            line.contains("ERROR") && plain.contains(&name),
            "{name}: {line}"
        );
        let want = reason.map(|reason| {
            format!(r#"spiderpool_iaas_rpc_failure_total{{op="release",reason="{reason}"}} 1"#)
        });
        let seen = of(&world, &["iaas_rpc_failure"]).await;
        assert_eq!(seen, Vec::from_iter(want), "{name}");
    }
}

/// Entries that contradict themselves are skipped, and told of once while they are published so.
#[tokio::test]
async fn entries_that_contradict_themselves_are_told_once() {
    let (world, _cloud) = world();
    let bad = json!({"10.72.0.10": {"mac": "fa:16:3e:09:00:05", "vlan": 5000, "node": "n1"},
        "10.72.0.11": {"mac": "fa:16:3e:09:00:06", "vlan": -1, "node": "n1", "status": "bound"},
        "10.72.0.12": {"mac": "fa:16:3e:09:00:07", "vlan": 7, "node": "n1"}});
    global(&world, "p4", &["10.72.0.10-10.72.0.14"], &bad);
    let logged = Logged::begin();
    for (container, netns, pod, uid) in [
        ("c-1", "/ns/a", "web-0", "u-1"),
        ("c-2", "/ns/b", "web-1", "u-2"),
    ] {
        let key = format!("shop/{pod}");
        world.pod(&key, uid);
        world
            .add(&Request::eni(container, netns, "net1").pod(&key, uid))
            .await
            .unwrap();
    }
    assert_eq!(world.records("p4"), ["10.72.0.12 u-1", "10.72.0.13 u-2"]);
    let seen = of(&world, &["iaas_metadata_decode_failure"]).await;
    assert_eq!(
        seen,
        [r#"spiderpool_iaas_metadata_decode_failure_total{reason="bad_entry"} 2"#]
    );
    let lines = logged.lines("contradicts itself");
    assert_eq!(lines.len(), 2);
    assert!(
        lines[0].contains("ERROR") && lines[0].contains("10.72.0.10"),
        "{lines:?}"
    );
}
