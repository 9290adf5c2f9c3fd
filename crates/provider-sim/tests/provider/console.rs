//! What an operator sees and changes (spec iaas 15.4).

use axum::body::Body;
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::rig::{Rig, item, request, rig, topology};

pub(crate) async fn get(rig: &Rig, path: &str) -> Value {
    send_for(rig, "GET", path, &Value::Null).await.1
}

pub(crate) async fn send(rig: &Rig, method: &str, path: &str, body: &Value) -> StatusCode {
    send_for(rig, method, path, body).await.0
}

pub(crate) async fn send_for(
    rig: &Rig,
    method: &str,
    path: &str,
    body: &Value,
) -> (StatusCode, Value) {
    let request = Request::builder().method(method).uri(path);
    let request = request.header("content-type", "application/json");
    let request = request.body(Body::from(body.to_string())).unwrap();
    let response = rig.router.clone().oneshot(request).await.unwrap();
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let text = || Value::String(String::from_utf8_lossy(&body).into_owned());
    (
        status,
        serde_json::from_slice(&body).unwrap_or_else(|_| text()),
    )
}

async fn bound() -> Rig {
    let rig = rig().await;
    let wanted = request("n1", &[item("n1", "10.72.0.10", "g")]);
    rig.allocate(&wanted).await.unwrap();
    rig
}

#[tokio::test]
async fn it_shows_calls_sub_enis_and_addresses() {
    let rig = bound().await;
    let address = "/v1/apis/network.iaas.io/status/ips-cache/10.72.0.1";
    let entry = &get(&rig, &format!("{address}0")).await["entry"];
    assert_eq!(
        (&entry["nodeName"], &entry["subnet"]),
        (&json!("n1"), &json!("10.72.0.0/24"))
    );
    let unknown = get(&rig, &format!("{address}1")).await;
    assert_eq!(unknown["code"], "AddressNotFound");
    let record = &get(&rig, "/records").await[0];
    assert_eq!(
        (&record["status"], &record["body"]["podUID"]),
        (&json!(200), &json!("u-1"))
    );
    assert_eq!(get(&rig, "/admin/cloud-calls").await["create"], 1);
    let sub_eni = &get(&rig, "/admin/sub-enis").await[0];
    assert_eq!(
        (&sub_eni["state"]["phase"], &sub_eni["mac"]),
        (&json!("bound"), &entry["mac"])
    );
}

#[tokio::test]
async fn it_changes_the_provider() {
    let rig = bound().await;
    let topology = serde_json::to_value(topology()).unwrap();
    for (method, path, body) in [
        ("POST", "/admin/crash", Value::Null),
        (
            "POST",
            "/admin/rate-limit",
            json!({ "qps": 5.0, "burst": 7.0 }),
        ),
        ("POST", "/admin/latency", json!({ "createMs": 3 })),
        (
            "POST",
            "/admin/faults",
            json!([{ "kind": "hang", "times": 1 }]),
        ),
        ("PUT", "/admin/topology", topology.clone()),
        ("POST", "/admin/flush", Value::Null),
        ("POST", "/admin/prewarm", Value::Null),
    ] {
        assert_eq!(
            send(&rig, method, path, &body).await,
            StatusCode::NO_CONTENT,
            "{path}"
        );
    }
    let shown = get(&rig, "/admin/settings").await;
    assert_eq!(shown["settings"]["rate"]["burst"], 7.0);
    assert_eq!(get(&rig, "/admin/faults").await[0]["kind"], "hang");
    assert_eq!(
        rig.service.with(|world| world.memory.all().count()),
        4,
        "one and the prewarmed"
    );
    assert_eq!(get(&rig, "/admin/audit").await, json!([]));
    let mut bare = topology;
    bare["parents"] = json!([]);
    bare["pools"] = json!([]);
    assert_eq!(
        send(&rig, "PUT", "/admin/topology", &bare).await,
        StatusCode::CONFLICT
    );
    assert_eq!(
        send(&rig, "POST", "/admin/rotate-ca", &Value::Null).await,
        StatusCode::NOT_FOUND
    );
    send(&rig, "POST", "/reset", &Value::Null).await;
    assert_eq!((rig.at("10.72.0.10"), rig.records().len()), (None, 0));
}

/// A cloud that lost everything is found out, first by the audit, then by the restart.
#[tokio::test]
async fn it_wipes_the_cloud() {
    let rig = bound().await;
    send(&rig, "POST", "/admin/wipe-cloud", &Value::Null).await;
    let found = rig.service.audit().await;
    assert!(
        found[0].contains("remembered, but not in the cloud"),
        "{found:?}"
    );
    send(&rig, "POST", "/admin/crash", &Value::Null).await;
    rig.audit().await;
}

#[tokio::test]
#[rustfmt::skip] // a case a line
async fn what_could_do_nothing_is_refused_in_the_words_of_who_wrote_it() {
    let rig = rig().await;
    let mut outside = serde_json::to_value(topology()).unwrap();
    outside["pools"][0]["ips"] = json!(["10.72.0.1"]);
    for (method, path, body, text) in [
        ("POST", "/admin/faults", json!([{ "kind": "delay" }]), "fault 0: delay without delayMs delays nothing"),
        ("POST", "/admin/faults", json!([{ "kind": "hang", "op": "publish" }]), "fault 0: hang cannot befall publish, but allocate, release"),
        ("POST", "/admin/faults", json!([{ "kind": "delay", "delayMs": u64::MAX }]), "fault 0: delayMs is 18446744073709551615; it must be at most a day, 86400000 ms"),
        ("POST", "/admin/crash", json!({ "downMs": u64::MAX }), "downMs is 18446744073709551615; it must be at most a day, 86400000 ms"),
        ("PUT", "/admin/topology", outside, "pool g: 10.72.0.1 is its subnet's gateway"),
    ] {
        let (status, told) = send_for(&rig, method, path, &body).await;
        assert_eq!((status, &told["message"]), (StatusCode::BAD_REQUEST, &json!(text)), "{told}");
    }
    assert!(rig.service.is_ready(), "it did not go down");
}

/// What needs a fabric says so where there is none.
#[tokio::test]
async fn nothing_is_held_back_without_a_fabric() {
    let rig = rig().await;
    for (method, path, body) in [
        ("POST", "/admin/hold", json!({ "ip": "10.72.0.10" })),
        ("POST", "/admin/unhold", json!({ "ip": "10.72.0.10" })),
        ("PUT", "/admin/bindings", json!([])),
    ] {
        let (status, told) = send_for(&rig, method, path, &body).await;
        assert_eq!(status, StatusCode::CONFLICT, "{path}");
        let text = told["error"].as_str().unwrap();
        assert!(text.contains("--fabric"), "{path}: {text}");
    }
}
