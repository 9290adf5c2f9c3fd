//! Watches on the wire: event types, resumption, expiry, bookmarks, Table rows.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use futures::StreamExt;
use http::{Response, header};
use serde_json::{Value, json};

use crate::rig::{OURS, TABLE, pool_json, rig, send, value};

async fn watch_events(response: Response<Body>, count: usize) -> Vec<Value> {
    let mut stream = response.into_body().into_data_stream();
    let (mut events, mut text) = (Vec::new(), String::new());
    while events.len() < count {
        let chunk = tokio::time::timeout(Duration::from_secs(10), stream.next()).await;
        let Some(chunk) = chunk.expect("an event in time") else {
            break;
        };
        text.push_str(std::str::from_utf8(&chunk.unwrap()).unwrap());
        while let Some((line, rest)) = text.split_once('\n') {
            events.push(serde_json::from_str(line).unwrap());
            text = rest.to_owned();
        }
    }
    events
}

const JSON: &str = "application/json";

fn types(events: &[Value]) -> String {
    let types: Vec<_> = events.iter().map(|e| e["type"].as_str().unwrap()).collect();
    types.join(" ")
}

async fn watch(router: &Router, query: &str, accept: &str) -> Response<Body> {
    let uri = format!("{OURS}/spiderippools?watch=true&{query}");
    send(
        router,
        "GET",
        &uri,
        &[(header::ACCEPT, accept)],
        &Value::Null,
    )
    .await
}

/// A pool that is made, gets a label, another, loses the first and is deleted; gives the version of
/// its creation.
async fn life_of_a_pool(router: &Router) -> String {
    let collection = format!("{OURS}/spiderippools");
    let item = format!("{collection}/p");
    let made = value(send(router, "POST", &collection, &[], &pool_json("p")).await).await;
    let merge = [(header::CONTENT_TYPE, "application/merge-patch+json")];
    for labels in [json!({"on": "yes"}), json!({"x": "y"}), json!({"on": null})] {
        let patch = json!({"metadata": {"labels": labels}});
        send(router, "PATCH", &item, &merge, &patch).await;
    }
    send(router, "DELETE", &item, &[], &Value::Null).await;
    made["metadata"]["resourceVersion"]
        .as_str()
        .unwrap()
        .to_owned()
}

#[tokio::test]
async fn watches_resume_and_select() {
    let rig = rig();
    let router = rig.api.router();
    let version = life_of_a_pool(&router).await;
    let from = format!("resourceVersion={version}");
    let all = watch_events(watch(&router, &from, JSON).await, 4).await;
    assert_eq!(types(&all), "MODIFIED MODIFIED MODIFIED DELETED");
    // it enters and leaves the selection without being made or deleted
    let selected = format!("{from}&labelSelector=on%3Dyes");
    let selected = watch_events(watch(&router, &selected, JSON).await, 3).await;
    assert_eq!(types(&selected), "ADDED MODIFIED DELETED");
    let rows = watch_events(watch(&router, &from, TABLE).await, 1).await;
    let table = &rows[0]["object"];
    assert_eq!(
        (&table["kind"], &table["rows"][0]["cells"][0]),
        (&json!("Table"), &json!("p"))
    );
}

#[tokio::test]
async fn watches_expire_and_send_initial_events() {
    let rig = rig();
    let router = rig.api.router();
    life_of_a_pool(&router).await;
    for version in ["resourceVersion=1", "resourceVersion=999999"] {
        let events = watch_events(watch(&router, version, JSON).await, 9).await;
        assert_eq!(events.len(), 1, "the stream ends");
        let (event, code) = (&events[0]["type"], &events[0]["object"]["code"]);
        assert_eq!((event, code), (&json!("ERROR"), &json!(410)));
    }
    let collection = format!("{OURS}/spiderippools");
    send(&router, "POST", &collection, &[], &pool_json("q")).await;
    let initial =
        "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let events = watch_events(watch(&router, initial, JSON).await, 2).await;
    assert_eq!(types(&events), "ADDED BOOKMARK");
    let mark = &events[1]["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"];
    assert_eq!(mark, "true");
    let refused = watch(&router, "sendInitialEvents=true", JSON).await;
    assert_eq!(refused.status(), 422);
}

#[tokio::test(start_paused = true)]
async fn quiet_watches_send_bookmarks_and_end_in_time() {
    let rig = rig();
    let uri = format!(
        "{OURS}/spiderippools?watch=1&resourceVersion=2&timeoutSeconds=130&\
                       allowWatchBookmarks=true"
    );
    let response = send(&rig.api.router(), "GET", &uri, &[], &Value::Null).await;
    let start = tokio::time::Instant::now();
    let mut stream = response.into_body().into_data_stream();
    let mut bookmarks = 0;
    while let Some(chunk) = stream.next().await {
        let event: Value = serde_json::from_slice(&chunk.unwrap()).unwrap();
        assert_eq!(
            (
                &event["type"],
                &event["object"]["metadata"]["resourceVersion"]
            ),
            (&json!("BOOKMARK"), &json!("2"))
        );
        bookmarks += 1;
    }
    assert_eq!((bookmarks, start.elapsed().as_secs()), (3, 130));
}
