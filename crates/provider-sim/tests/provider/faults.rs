//! Every way a call can fail, as the client tells it (spec iaas 6 and 10), and what is left of it
//! in the cloud.

use std::time::Duration;

use provider_sim::cloud::State;
use serde_json::json;
use spiderpool_iaas::client::MAX_IN_FLIGHT;
use spiderpool_iaas::error::CallError;
use spiderpool_iaas::provider::Provider;
use tokio::time::Instant;

use crate::rig::{chain, client, item, pair, release, request, rig};

const MS: Duration = Duration::from_millis(1);

/// Case B22: whatever the provider answers instead, the call fails with its text and label.
#[tokio::test]
#[rustfmt::skip] // a case a line
async fn each_wrong_answer_has_its_text_and_label() {
    let rig = rig().await;
    let wanted = request("n1", &[pair("n1", "10.72.0.20", "fd72::20")]);
    let long = "x".repeat(3000);
    for (fault, text, reason) in [
        (json!({ "kind": "status", "status": 500, "body": "broken" }), "iaas allocate API returned status 500: broken".to_owned(), "http_status"),
        (json!({ "kind": "status", "status": 503, "body": long }), format!("iaas allocate API returned status 503: {}", &long[..1024]), "http_status"),
        (json!({ "kind": "status", "status": 302, "body": "" }), "iaas allocate API returned status 302: Found".to_owned(), "http_status"),
        (json!({ "kind": "bad-json", "body": "{" }), "failed to unmarshal allocate response: the body is not a valid answer: EOF while parsing an object at line 1 column 1".to_owned(), "bad_response"),
        (json!({ "kind": "bad-json", "body": "x".repeat((1 << 20) + 1) }), "failed to unmarshal allocate response: the body is longer than 1048576 bytes".to_owned(), "bad_response"),
        (json!({ "kind": "extra-ip" }), "iaas response contains unknown sub-ENI with address 203.0.113.99".to_owned(), "bad_response"),
        (json!({ "kind": "missing-ip" }), "iaas response lacks the sub-ENI with address 10.72.0.20".to_owned(), "bad_response"),
        (json!({ "kind": "duplicate" }), "iaas response contains the sub-ENI with address 10.72.0.20 twice with different values".to_owned(), "bad_response"),
        (json!({ "kind": "wrong-v6" }), "iaas response binds 2001:db8::99 to the sub-ENI with address 10.72.0.20, requested was fd72::20".to_owned(), "bad_response"),
        (json!({ "kind": "wrong-pool" }), "iaas response names pool another-pool for the sub-ENI with address 10.72.0.20, requested was p4".to_owned(), "bad_response"),
        (json!({ "kind": "vlan-range" }), "provider answer for 10.72.0.20: VLAN id 70000 is not in 1-4094".to_owned(), "bad_response"),
    ] {
        let mut rule = fault.clone();
        rule["op"] = "allocate".into();
        rule["times"] = 1.into();
        rig.faults(json!([rule]));
        let error = rig.client.allocate(&wanted, None).await.unwrap_err();
        assert_eq!(chain(&error), text, "{}", fault["kind"]);
        assert_eq!(error.rpc_reason(), Some(reason), "{text}");
        assert!(rig.allocate(&wanted).await.is_ok(), "a rule for one call: {}", fault["kind"]);
    }
    rig.faults(json!([{ "kind": "vlan-zero" }]));
    let bound = rig.allocate(&wanted).await.unwrap();
    assert_eq!((bound[0].vlan, bound[0].mac), (None, None), "left to the caller");
    rig.audit().await;
}

#[tokio::test]
async fn release_fails_with_the_same_texts() {
    let rig = rig().await;
    let wanted = release("n1", "10.72.0.30", "w");
    rig.faults(
        json!([{ "op": "release", "kind": "status", "status": 503, "body": "later", "times": 1 }]),
    );
    let error = rig.release(&wanted).await.unwrap_err();
    assert_eq!(chain(&error), "iaas release API returned status 503: later");
    rig.faults(json!([{ "op": "release", "kind": "hang", "times": 1 }]));
    let impatient = client(rig.address, 80 * MS);
    rig.service
        .with(|world| world.settings.budget_check = false);
    let error = impatient.release(&wanted, None).await.unwrap_err();
    let text =
        "provider-interaction timeout: IaaS release API call exceeded configured timeout 80ms";
    assert_eq!(chain(&error), text);
    assert!(rig.release(&wanted).await.is_ok());
}

#[tokio::test]
async fn nobody_there_is_a_network_error_that_names_the_provider() {
    let free = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let client = client(free, Duration::from_secs(5));
    let wanted = request("n1", &[item("n1", "10.72.0.10", "g")]);
    let error = client.allocate(&wanted, None).await.unwrap_err();
    let start =
        format!("iaas allocate API call failed: cannot connect to provider http://{free}: ");
    assert!(chain(&error).starts_with(&start), "{}", chain(&error));
    assert_eq!(error.rpc_reason(), Some("network_error"));
}

#[tokio::test]
async fn whoever_is_out_of_time_says_so() {
    let rig = rig().await;
    rig.service
        .with(|world| world.settings.budget_check = false);
    rig.faults(json!([{ "kind": "hang" }]));
    let wanted = request("n1", &[item("n1", "10.72.0.10", "g")]);
    let client = client(rig.address, 120 * MS);
    let slow = client.allocate(&wanted, None).await.unwrap_err();
    let text =
        "provider-interaction timeout: IaaS allocate API call exceeded configured timeout 120ms";
    assert_eq!(
        (chain(&slow).as_str(), slow.rpc_reason()),
        (text, Some("timeout"))
    );
    let parent = Some(Instant::now() + 60 * MS);
    let expired = client.allocate(&wanted, parent).await.unwrap_err();
    let text =
        "parent budget exhausted: IaaS allocate API call cancelled by parent context deadline";
    assert_eq!(
        (chain(&expired).as_str(), expired.rpc_reason()),
        (text, Some("timeout"))
    );
    let over = client
        .allocate(&wanted, Some(Instant::now()))
        .await
        .unwrap_err();
    assert_eq!((chain(&over).as_str(), over.rpc_reason()), (text, None));
    let headers: Vec<u64> = rig
        .records()
        .iter()
        .map(|record| record.headers["x-request-timeout-ms"].parse().unwrap())
        .collect();
    assert_eq!(headers.len(), 2, "nothing is sent when nothing is left");
    assert!(
        (1..=120).contains(&headers[0]) && (1..=60).contains(&headers[1]),
        "{headers:?}"
    );
}

#[tokio::test]
async fn waiting_for_a_free_place_costs_the_parents_time() {
    let rig = rig().await;
    rig.faults(json!([{ "kind": "hang" }]));
    let wanted = request("n1", &[item("n1", "10.72.0.10", "g")]);
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..MAX_IN_FLIGHT {
        let (client, wanted) = (rig.client.clone(), wanted.clone());
        calls.spawn(async move { client.allocate(&wanted, None).await.is_ok() });
    }
    rig.until("all places are taken", |service| {
        service.records.all().len() == MAX_IN_FLIGHT
    })
    .await;
    let asked = Instant::now();
    let parent = Some(asked + 50 * MS);
    let error = rig.client.allocate(&wanted, parent).await.unwrap_err();
    assert!(
        matches!(error, CallError::ParentExpired { sent: false, .. }),
        "{error}"
    );
    assert!(asked.elapsed() < 2_000 * MS, "{:?}", asked.elapsed());
    assert_eq!(rig.records().len(), MAX_IN_FLIGHT);
    // whoever gives up makes place
    rig.faults(json!([]));
    calls.abort_all();
    while calls.join_next().await.is_some() {}
    assert!(rig.allocate(&wanted).await.is_ok());
}

/// The caller cannot know what became of its call; the cloud has done it.
#[tokio::test]
async fn an_answer_that_breaks_off_is_a_network_error() {
    let rig = rig().await;
    rig.faults(json!([{ "kind": "reset" }]));
    let wanted = request("n1", &[item("n1", "10.72.0.10", "g")]);
    let error = rig.client.allocate(&wanted, None).await.unwrap_err();
    let start = format!(
        "iaas allocate API call failed: no complete answer from provider http://{}: ",
        rig.address
    );
    assert!(chain(&error).starts_with(&start), "{}", chain(&error));
    assert_eq!(error.rpc_reason(), Some("network_error"));
    assert!(matches!(
        rig.at("10.72.0.10").unwrap().state,
        State::Bound(_)
    ));
    let released = rig.release(&release("n1", "10.72.0.30", "w")).await;
    let text = chain(&released.unwrap_err());
    assert!(
        text.starts_with("iaas release API call failed: no complete answer"),
        "{text}"
    );
    rig.audit().await;
}

/// The cloud succeeds after the caller left; the same address is then wanted elsewhere.
#[tokio::test]
async fn a_late_success_is_idle_cache_that_the_next_call_moves() {
    let rig = rig().await;
    rig.service
        .with(|world| world.settings.budget_check = false);
    rig.faults(json!([{ "op": "allocate", "kind": "late-success", "times": 1 }]));
    let here = request("n1", &[item("n1", "10.72.0.10", "g")]);
    let error = client(rig.address, 1_500 * MS)
        .allocate(&here, None)
        .await
        .unwrap_err();
    assert!(matches!(error, CallError::TooSlow { .. }), "{error}");
    let bound = |service: &provider_sim::service::Service| {
        let ip = "10.72.0.10".parse().unwrap();
        let found = service.with(|world| world.cloud.by_address(ip).map(|found| found.state));
        matches!(found, Some(State::Bound(_)))
    };
    rig.until("it is bound all the same", bound).await;
    let late = rig.at("10.72.0.10").unwrap();
    let there = request("n2", &[item("n2", "10.72.0.10", "g")]);
    let moved = rig.allocate(&there).await.unwrap();
    assert_eq!(moved[0].mac, Some(late.mac));
    rig.audit().await;
}

/// A caller that leaves in the middle of the cloud's work does not stop it half way.
#[tokio::test]
async fn work_begun_is_finished_when_the_caller_leaves() {
    let rig = rig().await;
    rig.service.with(|world| {
        world.settings.budget_check = false;
        world.settings.latency.attach_ms = 2_500;
    });
    let wanted = request("n1", &[item("n1", "10.72.0.10", "g")]);
    let error = client(rig.address, 1_000 * MS)
        .allocate(&wanted, None)
        .await
        .unwrap_err();
    assert!(matches!(error, CallError::TooSlow { .. }), "{error}");
    rig.until("the sub-ENI is bound", |service| {
        let ip = "10.72.0.10".parse().unwrap();
        let state = service.with(|world| world.cloud.by_address(ip).map(|found| found.state));
        matches!(state, Some(State::Bound(_)))
    })
    .await;
    rig.audit().await;
}

/// A caller that leaves while it waits for a token leaves the token to the next one.
#[tokio::test]
async fn a_queue_is_left_without_cloud_work() {
    let rig = rig().await;
    rig.service.with(|world| {
        world.settings.budget_check = false;
        world.settings.queue_timeout_ms = 600_000;
        let rate = provider_sim::bucket::Rate {
            qps: 0.01,
            burst: 1.0,
        };
        world.bucket = provider_sim::bucket::Bucket::new(rate);
    });
    let wanted = |host| request("n1", &[item("n1", &format!("10.72.0.{host}"), "g")]);
    rig.allocate(&wanted(10)).await.unwrap();
    let level = |service: &provider_sim::service::Service| {
        let now = service.now();
        service.with(|world| world.bucket.level(now))
    };
    let error = client(rig.address, 100 * MS)
        .allocate(&wanted(11), None)
        .await
        .unwrap_err();
    assert!(matches!(error, CallError::TooSlow { .. }), "{error}");
    rig.until("the token is given back", |service| level(service) > -0.5)
        .await;
    assert_eq!(rig.at("10.72.0.11"), None);
    rig.service
        .with(|world| world.settings.queue_timeout_ms = 50);
    let refused = rig.allocate(&wanted(11)).await.unwrap_err();
    assert!(
        refused.contains("status 429") && refused.contains("\"reason\":\"queue\""),
        "{refused}"
    );
}

#[tokio::test]
async fn a_provider_that_is_not_ready_says_so() {
    let rig = rig().await;
    rig.service.set_ready(false);
    let wanted = request("n1", &[item("n1", "10.72.0.10", "g")]);
    let text = rig.allocate(&wanted).await.unwrap_err();
    assert!(
        text.contains("status 503") && text.contains("NotReady"),
        "{text}"
    );
    let error = rig
        .release(&release("n1", "10.72.0.10", "g"))
        .await
        .unwrap_err();
    assert!(
        matches!(error, CallError::Status { status: 503, .. }),
        "{error}"
    );
}

/// A caller that leaves while an earlier call has the address gets nothing done.
#[tokio::test]
async fn a_turn_is_left_without_cloud_work() {
    let rig = rig().await;
    rig.service.with(|world| {
        world.settings.budget_check = false;
        world.settings.transaction_timeout_ms = 4_000;
    });
    rig.faults(json!([{ "op": "create", "kind": "delay", "delayMs": 1_000, "times": 1 }]));
    let here = request("n1", &[item("n1", "10.72.0.10", "g")]);
    let there = request("n2", &[item("n2", "10.72.0.10", "g")]);
    let impatient = client(rig.address, 60 * MS);
    let second = async {
        rig.until("the first has its turn", |service| {
            service.with(|world| world.cloud.sub_enis().count() == 1)
        })
        .await;
        impatient.allocate(&there, None).await
    };
    let (first, second) = futures::join!(rig.allocate(&here), second);
    assert!(
        matches!(second, Err(CallError::TooSlow { .. })),
        "{second:?}"
    );
    // a third has its turn after the second would have had it
    assert_eq!(rig.allocate(&here).await, first);
    let calls = rig.service.with(|world| world.cloud.calls().clone());
    assert_eq!(calls.len(), 2, "created and attached once: {calls:?}");
    rig.audit().await;
}
