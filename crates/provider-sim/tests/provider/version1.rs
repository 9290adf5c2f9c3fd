//! Contract version 1 beside version 2 (P19), and bodies that never end.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{Request, StatusCode};
use futures::StreamExt;
use futures::stream;
use http_body_util::BodyExt;
use provider_sim::cloud::{Operation, State};
use serde_json::{Value, json};
use spiderpool_api::provider::{ALLOCATE_PATH, AllocateRequest, RELEASE_PATH};
use spiderpool_iaas::check::{ResponseError, accept};
use spiderpool_iaas::wire_v1::{AllocateRequestV1, AllocateResponseV1};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tower::ServiceExt;

use crate::rig::{Rig, item, parent, request, rig};

async fn post(rig: &Rig, path: &str, body: Body) -> (StatusCode, Value) {
    let request = Request::post(path).header("X-Request-Timeout-Ms", "5000");
    let response = rig.router.clone().oneshot(request.body(body).unwrap());
    let response = response.await.unwrap();
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
}

fn wanted(node: &str, ips: &[&str]) -> Value {
    let items = ips.iter().map(
        |ip| json!({ "ipAddress": ip, "subnet": "10.72.0.0/24", "parentNicMac": parent(node) }),
    );
    json!({ "podName": "old", "podNamespace": "shop", "podUID": "u-1", "nodeName": node,
        "iaasIPsAllocationRequest": items.collect::<Vec<_>>() })
}

fn release(node: &str, ip: &str) -> Value {
    json!({ "podName": "old", "podNamespace": "shop", "podUID": "u-1", "nodeName": node,
        "subnet": "10.72.0.0/24", "ipAddress": ip })
}

async fn version_1() -> Rig {
    let rig = rig().await;
    rig.service.with(|world| world.settings.accept_v1 = true);
    rig
}

/// Addresses of pools the provider knows and of pools it was never told of, in one call.
#[tokio::test]
async fn an_old_client_gets_answers_in_its_words() {
    let rig = version_1().await;
    let asked = wanted("n1", &["10.72.0.10", "10.72.0.200"]);
    let (status, body) = post(&rig, ALLOCATE_PATH, Body::from(asked.to_string())).await;
    assert_eq!((status, &body["podName"]), (StatusCode::OK, &json!("old")));
    let first: AllocateRequestV1 = serde_json::from_value(asked.clone()).unwrap();
    let second = AllocateRequest::from(first);
    let answer: AllocateResponseV1 = serde_json::from_value(body.clone()).unwrap();
    let bound = accept(&second, &answer.into()).unwrap();
    for (bound, ip) in bound.iter().zip(["10.72.0.10", "10.72.0.200"]) {
        let State::Bound(at) = rig.at(ip).unwrap().state else {
            panic!("{ip} is not bound");
        };
        assert_eq!(
            (bound.vlan, bound.mac),
            (Some(at.vlan), Some(rig.at(ip).unwrap().mac))
        );
    }
    let again = post(&rig, ALLOCATE_PATH, Body::from(asked.to_string())).await;
    assert_eq!(
        (again, rig.calls(Operation::Create)),
        ((StatusCode::OK, body), 2)
    );
    // both versions speak of the same sub-ENI
    let moved = rig
        .allocate(&request("n2", &[item("n2", "10.72.0.10", "g")]))
        .await;
    assert_eq!(moved.unwrap()[0].mac, bound[0].mac);
    for (node, ip, expected) in [
        ("n1", "10.72.0.200", StatusCode::ACCEPTED),
        ("n2", "10.72.0.10", StatusCode::ACCEPTED),
        ("n1", "10.72.0.201", StatusCode::NO_CONTENT),
    ] {
        let body = Body::from(release(node, ip).to_string());
        assert_eq!(post(&rig, RELEASE_PATH, body).await.0, expected, "{ip}");
    }
    rig.until("both are gone", |service| {
        service.with(|world| world.cloud.sub_enis().count() == 0)
    })
    .await;
    rig.audit().await;
}

#[tokio::test]
async fn faults_spoil_answers_of_version_1_too() {
    let rig = version_1().await;
    let asked = wanted("n1", &["10.72.0.10"]);
    let second = serde_json::from_value::<AllocateRequestV1>(asked.clone()).unwrap();
    let second = AllocateRequest::from(second);
    for (kind, text) in [
        ("extra-ip", "unknown sub-ENI with address 203.0.113.99"),
        ("missing-ip", "lacks the sub-ENI with address 10.72.0.10"),
        ("duplicate", "twice with different values"),
        ("vlan-range", "VLAN id 70000"),
    ] {
        rig.faults(json!([{ "kind": kind, "times": 1 }]));
        let (_, body) = post(&rig, ALLOCATE_PATH, Body::from(asked.to_string())).await;
        let answer: AllocateResponseV1 = serde_json::from_value(body).unwrap();
        let error: ResponseError = accept(&second, &answer.into()).unwrap_err();
        assert!(error.to_string().contains(text), "{kind}: {error}");
    }
    rig.audit().await;
}

#[tokio::test]
async fn version_1_is_refused_unless_it_is_accepted_and_never_mixed() {
    let rig = rig().await;
    let old = wanted("n1", &["10.72.0.10"]);
    let (status, body) = post(&rig, ALLOCATE_PATH, Body::from(old.to_string())).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(
        body["message"].as_str().unwrap().contains("acceptV1"),
        "{body}"
    );
    rig.service.with(|world| world.settings.accept_v1 = true);
    let mut both = old.clone();
    both["subEniRequests"] = json!([item("n1", "10.72.0.10", "g")]);
    let mut sixth = old.clone();
    sixth["iaasIPsAllocationRequest"][0]["ipAddress"] = "fd72::20".into();
    let mut nobody = old.clone();
    nobody["iaasIPsAllocationRequest"] = json!([]);
    let foreign = wanted("n2", &["10.73.0.10"]);
    for (asked, code) in [
        (both, "InvalidRequest"),
        (sixth, "InvalidRequest"),
        (nobody, "InvalidRequest"),
        (foreign, "InvalidRequest"),
    ] {
        let (status, body) = post(&rig, ALLOCATE_PATH, Body::from(asked.to_string())).await;
        assert_eq!(
            (status, &body["code"]),
            (StatusCode::BAD_REQUEST, &json!(code)),
            "{asked}"
        );
    }
    assert_eq!(rig.service.with(|world| world.cloud.calls().len()), 0);
}

/// P5: `strictRelease` asks of a release what an allocate needs.
#[tokio::test]
async fn a_release_needs_its_turn_and_strictly_the_clouds_time_too() {
    let rig = rig().await;
    rig.service.with(|world| {
        world.settings.queue_timeout_ms = 4_000;
        world.settings.transaction_timeout_ms = 2_000;
    });
    let sent = || Body::from(release("n1", "10.72.0.10").to_string());
    assert_eq!(
        post(&rig, RELEASE_PATH, sent()).await.0,
        StatusCode::NO_CONTENT
    );
    rig.service
        .with(|world| world.settings.strict_release = true);
    let (status, body) = post(&rig, RELEASE_PATH, sent()).await;
    assert_eq!(
        (status, &body["details"]["requiredMs"]),
        (StatusCode::TOO_MANY_REQUESTS, &json!(6_000))
    );
}

/// Neither an endless body nor one that never ends costs more than its limit.
#[tokio::test(start_paused = true)]
async fn bodies_are_bounded_in_size_and_time() {
    let rig = rig().await;
    let endless = stream::repeat_with(|| Ok::<_, std::io::Error>(Bytes::from(vec![b' '; 65_536])));
    let (status, body) = post(&rig, ALLOCATE_PATH, Body::from_stream(endless)).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE, "{body}");
    let trickle = stream::unfold((), |()| async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        Some((Ok::<_, std::io::Error>(Bytes::from_static(b" ")), ()))
    });
    let begun = tokio::time::Instant::now();
    let (status, body) = post(&rig, ALLOCATE_PATH, Body::from_stream(trickle.boxed())).await;
    assert!(
        begun.elapsed() <= Duration::from_secs(10),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(status, StatusCode::REQUEST_TIMEOUT, "{body}");
    assert_eq!(body["message"], "the body did not arrive within 10000 ms");
    let statuses: Vec<_> = rig.records().iter().map(|record| record.status).collect();
    assert_eq!(statuses, [Some(413), Some(408)]);
}

/// A head that comes a byte at a time is not waited for.
#[tokio::test]
async fn a_trickling_head_is_given_up() {
    let rig = rig().await;
    let mut stream = TcpStream::connect(rig.address).await.unwrap();
    tokio::time::pause();
    stream.write_all(b"POST / HTTP/1.1\r\nx: ").await.unwrap();
    let mut answer = Vec::new();
    let ended = tokio::time::timeout(Duration::from_secs(60), stream.read_to_end(&mut answer));
    assert!(ended.await.is_ok(), "the connection is still open");
}
