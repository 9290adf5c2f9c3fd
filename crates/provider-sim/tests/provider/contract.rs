//! The contract as a well-behaved cloud serves it (spec iaas 11 and 15.2).

use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt;
use provider_sim::cloud::{Operation, State};
use provider_sim::settings::{ReleasePolicy, Settings};
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::rig::{Rig, item, pair, parent, release, request, rig, rig_with, settings, topology};

#[tokio::test]
async fn allocate_creates_keeps_and_moves() {
    let rig = rig().await;
    let here = request("n1", &[item("n1", "10.72.0.10", "g")]);
    let first = rig.allocate(&here).await.unwrap();
    assert_eq!(rig.allocate(&here).await.unwrap(), first, "nothing changes");
    assert_eq!(
        (rig.calls(Operation::Create), rig.calls(Operation::Attach)),
        (1, 1)
    );
    let there = request("n2", &[item("n2", "10.72.0.10", "g")]);
    let moved = rig.allocate(&there).await.unwrap();
    assert_eq!(moved[0].mac, first[0].mac);
    assert_ne!(moved[0].vlan, first[0].vlan);
    assert_eq!(
        (rig.calls(Operation::Attach), rig.calls(Operation::Detach)),
        (2, 1)
    );
    let State::Bound(at) = rig.at("10.72.0.10").unwrap().state else {
        panic!("not bound");
    };
    assert_eq!(
        (at.parent.to_string(), Some(at.vlan)),
        (parent("n2").to_owned(), moved[0].vlan)
    );
    let header = rig.records()[0].headers["x-request-timeout-ms"]
        .parse::<u64>()
        .unwrap();
    assert!((1..=5_000).contains(&header), "{header}");
    rig.audit().await;
}

#[tokio::test]
async fn a_pair_is_one_sub_eni_and_keeps_its_partner() {
    let rig = rig().await;
    let both = request("n1", &[pair("n1", "10.72.0.20", "fd72::20")]);
    rig.allocate(&both).await.unwrap();
    assert_eq!(rig.at("10.72.0.20"), rig.at("fd72::20"));
    let wrong = request("n1", &[pair("n1", "10.72.0.20", "fd72::21")]);
    let text = rig.allocate(&wrong).await.unwrap_err();
    assert!(
        text.contains("PairMismatch") && text.contains("fd72::20"),
        "{text}"
    );
    let taken = request("n1", &[pair("n1", "10.72.0.21", "fd72::20")]);
    assert!(
        rig.allocate(&taken)
            .await
            .unwrap_err()
            .contains("PairMismatch")
    );
    // made without a partner, asked for with one
    rig.allocate(&request("n1", &[item("n1", "10.72.0.22", "p4")]))
        .await
        .unwrap();
    rig.allocate(&request("n1", &[pair("n1", "10.72.0.22", "fd72::22")]))
        .await
        .unwrap();
    assert_eq!(rig.at("10.72.0.22"), rig.at("fd72::22"));
    rig.audit().await;
}

#[tokio::test]
#[rustfmt::skip] // a case a line
async fn what_cannot_be_meant_is_refused_by_code_and_nothing_happens() {
    let rig = rig().await;
    let good = || item("n1", "10.72.0.10", "g");
    let with = |key: &str, value: Value| { let mut item = good(); item[key] = value; item };
    for (node, items, code) in [
        ("", vec![good()], "400: {\"code\":\"InvalidRequest\""),
        ("n1", vec![], "400: {\"code\":\"InvalidRequest\""),
        ("n1", vec![good(), good()], "400: {\"code\":\"InvalidRequest\""),
        ("n1", vec![with("ipv4Address", Value::Null)], "400: {\"code\":\"InvalidRequest\""),
        ("n1", vec![json!({ "parentNicMac": parent("n1"), "subnet": "fd72::/64", "ipv6Address": "fd72::20" })], "400: {\"code\":\"UnsupportedAddressFamily\""),
        ("n2", vec![good()], "400: {\"code\":\"ParentNicNotOnNode\""),
        ("n1", vec![with("subnet", "10.73.0.0/24".into())], "400: {\"code\":\"InvalidRequest\""),
        ("n1", vec![with("subnet", "10.0.0.0/8".into())], "404: {\"code\":\"SubnetNotFound\""),
        ("n1", vec![with("ipv4PoolName", "h".into())], "404: {\"code\":\"PoolNotFound\""),
        ("n1", vec![with("ipv4Address", "10.72.0.20".into())], "409: {\"code\":\"PoolMismatch\""),
        ("n2", vec![item("n2", "10.72.0.30", "w")], "409: {\"code\":\"PoolMismatch\""),
        ("n1", vec![{ let mut item = item("n1", "10.72.0.250", ""); item["ipv4PoolName"] = Value::Null; item }], "404: {\"code\":\"AddressNotFound\""),
        ("n1", vec![{ let mut item = pair("n1", "10.72.0.20", "fd72::20"); item["ipv6PoolName"] = "g".into(); item }], "400: {\"code\":\"PairMismatch\""),
        ("n1", vec![pair("n1", "10.72.0.20", "fd72::99")], "400: {\"code\":\"PairMismatch\""),
    ] {
        let text = rig.allocate(&request(node, &items)).await.unwrap_err();
        assert!(text.starts_with(&format!("iaas allocate API returned status {code}")), "{text}");
    }
    assert_eq!(rig.service.with(|world| world.cloud.calls().len()), 0);
}

/// Sends a body and headers as they are; returns status and code.
async fn raw(rig: &Rig, path: &str, budget: Option<&str>, body: &str) -> (StatusCode, String) {
    let mut request = Request::post(path).header("content-type", "application/json");
    if let Some(budget) = budget {
        request = request.header("X-Request-Timeout-Ms", budget);
    }
    let request = request.body(Body::from(body.to_owned())).unwrap();
    let response = rig.router.clone().oneshot(request).await.unwrap();
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
    (status, body["code"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn malformed_calls_are_refused() {
    let rig = rig().await;
    let allocate = spiderpool_api::provider::ALLOCATE_PATH;
    let releasing = spiderpool_api::provider::RELEASE_PATH;
    let good = serde_json::to_string(&request("n1", &[item("n1", "10.72.0.10", "g")])).unwrap();
    let invalid = (StatusCode::BAD_REQUEST, "InvalidRequest".to_owned());
    for (path, budget, body) in [
        (allocate, None, good.as_str()),
        (allocate, Some("0"), good.as_str()),
        (allocate, Some("-1"), good.as_str()),
        (allocate, Some("soon"), good.as_str()),
        (allocate, Some("5000"), "{"),
        (allocate, Some("5000"), r#"{"nodeName":"n1"}"#),
        (
            allocate,
            Some("5000"),
            r#"{"nodeName":"n1","iaasIPsAllocationRequest":[]}"#,
        ),
        (releasing, None, "{}"),
        (releasing, Some("5000"), "{}"),
        (
            releasing,
            Some("5000"),
            r#"{"nodeName":"","subnet":"10.72.0.0/24","ipAddress":"10.72.0.10"}"#,
        ),
    ] {
        assert_eq!(
            raw(&rig, path, budget, body).await,
            invalid,
            "{path} {budget:?} {body}"
        );
    }
    assert_eq!(
        raw(&rig, allocate, Some("5000"), &good).await.0,
        StatusCode::OK
    );
    let statuses: Vec<_> = rig.records().iter().map(|record| record.status).collect();
    assert_eq!(
        (statuses.len(), statuses[0], statuses[10]),
        (11, Some(400), Some(200))
    );
}

/// P5: less time than queue and cloud may need is refused at once, at no cost.
#[tokio::test]
async fn a_short_budget_is_refused_before_anything_is_spent() {
    let rig = rig_with(
        Settings {
            latency: settings().latency,
            ..Settings::default()
        },
        topology(),
        None,
    )
    .await;
    let tokens = || {
        let now = rig.service.now();
        rig.service.with(|world| world.bucket.level(now))
    };
    let before = tokens();
    let asked = tokio::time::Instant::now();
    let wanted = request("n1", &[item("n1", "10.72.0.10", "g")]);
    let text = rig.allocate(&wanted).await.unwrap_err();
    assert!(asked.elapsed() < Duration::from_millis(100));
    assert!(
        text.starts_with("iaas allocate API returned status 429: ")
            && text.contains("RateLimitTimeout"),
        "{text}"
    );
    assert!(text.contains("\"requiredMs\":46000"), "{text}");
    assert!((tokens() - before).abs() < 1e-9);
    assert_eq!(rig.service.with(|world| world.cloud.calls().len()), 0);
    rig.service
        .with(|world| world.settings.budget_check = false);
    assert!(rig.allocate(&wanted).await.is_ok());
}

#[tokio::test]
async fn release_keeps_or_recycles_prewarm_and_takes_whatever_is_unknown() {
    let rig = rig().await;
    rig.service.prewarm().await;
    let before = rig.at("10.72.0.30").unwrap();
    rig.release(&release("n1", "10.72.0.30", "w"))
        .await
        .unwrap();
    rig.release(&release("n1", "10.72.0.99", "w"))
        .await
        .unwrap();
    rig.release(&release("n2", "10.72.0.30", "gone"))
        .await
        .unwrap();
    assert_eq!(rig.at("10.72.0.30").as_ref(), Some(&before));
    let statuses: Vec<_> = rig.records().iter().map(|record| record.status).collect();
    assert_eq!(statuses, [Some(202), Some(204), Some(204)]);
    rig.service
        .with(|world| world.settings.release_policy = ReleasePolicy::Recycle);
    rig.release(&release("n1", "10.72.0.30", "w"))
        .await
        .unwrap();
    let gone = |service: &provider_sim::service::Service| {
        service.with(|world| world.cloud.get(before.mac).is_none())
    };
    rig.until("the old sub-ENI is gone", gone).await;
    rig.service.prewarm().await;
    assert_ne!(rig.at("10.72.0.30").unwrap().mac, before.mac);
    rig.audit().await;
}

#[tokio::test]
async fn concurrent_calls_for_one_address_follow_one_another() {
    let rig = rig().await;
    let calls = (0..12).map(|number| {
        let node = if number % 2 == 0 { "n1" } else { "n2" };
        let wanted = request(node, &[item(node, "10.72.0.10", "g")]);
        let rig = &rig;
        async move { rig.allocate(&wanted).await }
    });
    let answers = futures::future::join_all(calls).await;
    let macs: std::collections::BTreeSet<_> = answers
        .iter()
        .map(|answer| answer.as_ref().unwrap()[0].mac)
        .collect();
    assert_eq!((macs.len(), rig.calls(Operation::Create)), (1, 1));
    assert!(matches!(
        rig.at("10.72.0.10").unwrap().state,
        State::Bound(_)
    ));
    rig.audit().await;
}

#[tokio::test]
async fn a_request_is_served_whole_or_not_at_all() {
    let rig = rig().await;
    rig.faults(json!([{ "op": "attach", "match": { "ip": "10.72.0.11" }, "kind": "cloud-error", "times": 1 }]));
    let both = request(
        "n1",
        &[item("n1", "10.72.0.10", "g"), item("n1", "10.72.0.11", "g")],
    );
    let text = rig.allocate(&both).await.unwrap_err();
    assert!(
        text.contains("status 502") && text.contains("CloudError"),
        "{text}"
    );
    assert_eq!((rig.at("10.72.0.10"), rig.at("10.72.0.11")), (None, None));
    rig.audit().await;
    assert_eq!(rig.allocate(&both).await.unwrap().len(), 2);
    rig.audit().await;
}

#[tokio::test]
async fn a_full_parent_is_refused() {
    let rig = rig().await;
    let wanted = |host| request("n2", &[item("n2", &format!("10.72.0.{host}"), "g")]);
    for host in 10..14 {
        rig.allocate(&wanted(host)).await.unwrap();
    }
    let text = rig.allocate(&wanted(14)).await.unwrap_err();
    assert!(
        text.contains("status 409") && text.contains("CapacityExceeded"),
        "{text}"
    );
    assert!(text.contains("\"limit\":4"), "{text}");
    assert_eq!(rig.at("10.72.0.14"), None);
    rig.audit().await;
}

#[tokio::test]
async fn a_slow_cloud_ends_at_the_transaction_timeout() {
    let rig = rig().await;
    rig.service
        .with(|world| world.settings.transaction_timeout_ms = 400);
    rig.faults(json!([{ "op": "attach", "kind": "delay", "delayMs": 1000, "times": 1 }]));
    let wanted = request("n1", &[item("n1", "10.72.0.10", "g")]);
    let text = rig.allocate(&wanted).await.unwrap_err();
    assert!(
        text.contains("status 504") && text.contains("attach did not finish within 400 ms"),
        "{text}"
    );
    assert_eq!(rig.at("10.72.0.10"), None);
    rig.audit().await;
}
