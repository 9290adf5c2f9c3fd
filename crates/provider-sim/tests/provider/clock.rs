//! The provider's own times with its default settings (spec iaas 15.2, P5 to P7), to the
//! millisecond: the clock is paused and goes only where somebody waits.

use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use http_body_util::BodyExt;
use provider_sim::settings::Settings;
use provider_sim::topology::Topology;
use serde_json::{Value, json};
use spiderpool_api::provider::{ALLOCATE_PATH, RELEASE_PATH};
use tokio::time::Instant;
use tower::ServiceExt;

use crate::rig::{Rig, TOPOLOGY, item, rig_with};

/// A provider as it is without a settings file, with a pool for many.
async fn by_default() -> Rig {
    let wide = TOPOLOGY.replace("10.72.0.10-10.72.0.19", "10.72.0.100-10.72.0.199");
    let wide: Topology = serde_saphyr::from_str(&wide).unwrap();
    rig_with(Settings::default(), wide, None).await
}

/// One call; status, body and how long it took.
async fn call(rig: &Rig, path: &str, body: Value) -> (StatusCode, Value, Duration) {
    let begun = Instant::now();
    let request = Request::post(path).header("X-Request-Timeout-Ms", "50000");
    let request = request.body(Body::from(body.to_string())).unwrap();
    let response = rig.router.clone().oneshot(request).await.unwrap();
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    (status, body, begun.elapsed())
}

fn wanted(host: u8) -> Value {
    json!({ "nodeName": "n1", "subEniRequests": [item("n1", &format!("10.72.0.{host}"), "g")] })
}

fn within(took: Duration, from: f64, to: f64) -> bool {
    (from..=to).contains(&took.as_secs_f64())
}

/// P6: ten at once, then one each half second, and nobody is let wait for more than 30 s.
#[tokio::test(start_paused = true)]
async fn calls_pass_at_the_rate_and_the_queue_ends_after_its_time() {
    let rig = by_default().await;
    let calls = (100..180).map(|host| call(&rig, ALLOCATE_PATH, wanted(host)));
    let calls: Vec<_> = calls.collect::<FuturesUnordered<_>>().collect().await;
    let (served, refused): (Vec<_>, Vec<_>) = calls
        .into_iter()
        .partition(|(status, ..)| *status == StatusCode::OK);
    assert_eq!(
        (served.len(), refused.len()),
        (70, 10),
        "10 at once and 60 in 30 s"
    );
    for (status, body, took) in refused {
        assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(body["details"]["reason"], "queue");
        assert!(took < Duration::from_millis(100), "{took:?}");
    }
    // create and attach take 1.2 s, give or take a fifth
    let times = served.into_iter().map(|(.., took)| took.as_secs_f64());
    let mut times: Vec<f64> = times.collect();
    times.sort_by(f64::total_cmp);
    assert!(
        times[..10].iter().all(|took| (0.96..=1.45).contains(took)),
        "{times:?}"
    );
    assert!((30.95..=31.45).contains(&times[69]), "{times:?}");
    let close = times
        .windows(2)
        .filter(|pair| pair[1] - pair[0] > 1.0)
        .count();
    assert_eq!(close, 0, "no gap in what is served: {times:?}");
    rig.audit().await;
}

/// P7: the cloud's times, and their end.
#[tokio::test(start_paused = true)]
async fn the_cloud_takes_its_time_and_no_more_than_the_transaction_may() {
    let rig = by_default().await;
    let (status, _, took) = call(&rig, ALLOCATE_PATH, wanted(100)).await;
    assert!(
        status == StatusCode::OK && within(took, 0.96, 1.44),
        "create, attach: {took:?}"
    );
    let (_, _, took) = call(&rig, ALLOCATE_PATH, wanted(100)).await;
    assert_eq!(took, Duration::ZERO, "nothing to do");
    let mut there = wanted(100);
    there["nodeName"] = "n2".into();
    there["subEniRequests"] = json!([item("n2", "10.72.0.100", "g")]);
    let (status, _, took) = call(&rig, ALLOCATE_PATH, there).await;
    assert!(
        status == StatusCode::OK && within(took, 0.64, 0.96),
        "detach, attach: {took:?}"
    );
    rig.faults(json!([{ "op": "attach", "kind": "delay", "delayMs": 20_000, "times": 1 }]));
    let (status, body, took) = call(&rig, ALLOCATE_PATH, wanted(101)).await;
    assert_eq!(
        (status, &body["code"]),
        (StatusCode::GATEWAY_TIMEOUT, &json!("CloudTimeout"))
    );
    // what was made is removed before the answer
    assert!(within(took, 16.0, 16.25), "{took:?}");
    assert_eq!(rig.at("10.72.0.101"), None);
    let released = json!({ "nodeName": "n2", "subnet": "10.72.0.0/24", "ipAddress": "10.72.0.100", "poolName": "g" });
    let (status, _, took) = call(&rig, RELEASE_PATH, released.clone()).await;
    assert_eq!((status, took), (StatusCode::ACCEPTED, Duration::ZERO));
    rig.service.with(|world| world.settings.sync_release = true);
    rig.until("it is gone", |service| {
        service.with(|world| world.cloud.sub_enis().count() == 0)
    })
    .await;
    let mut again = wanted(100);
    again["nodeName"] = "n2".into();
    again["subEniRequests"] = json!([item("n2", "10.72.0.100", "g")]);
    call(&rig, ALLOCATE_PATH, again).await;
    let (status, _, took) = call(&rig, RELEASE_PATH, released).await;
    assert!(
        status == StatusCode::NO_CONTENT && within(took, 0.48, 0.72),
        "{took:?}"
    );
    rig.audit().await;
}
