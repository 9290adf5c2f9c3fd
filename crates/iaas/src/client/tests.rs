//! What the client makes of answers that come byte by byte, or not at all.

use std::time::Duration;

use serde_json::json;
use spiderpool_api::provider::{AllocateRequest, ReleaseRequest};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::Instant;

use super::{Client, Endpoint};
use crate::error::CallError;
use crate::provider::{Generation, Provider};

/// Answers one call with that text and then nothing more, without closing.
async fn provider(answer: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = vec![0; 4096];
        assert!(stream.read(&mut request).await.unwrap() > 0);
        stream.write_all(answer.as_bytes()).await.unwrap();
        std::future::pending::<()>().await;
    });
    url
}

async fn release(answer: &'static str) -> CallError {
    let endpoint = Endpoint::parse(&provider(answer).await).unwrap();
    let client = Client::new(endpoint, Duration::from_millis(600)).unwrap();
    let request = json!({"nodeName": "n1", "subnet": "10.0.0.0/24", "ipAddress": "10.0.0.10"});
    let request: ReleaseRequest = serde_json::from_value(request).unwrap();
    client.release(&request, None).await.unwrap_err()
}

#[tokio::test]
async fn a_status_is_told_although_its_text_never_ends() {
    let error = release("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 99\r\n\r\nbus").await;
    assert_eq!(
        error.to_string(),
        "iaas release API returned status 503: bus"
    );
    let error = release("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 99\r\n\r\n").await;
    assert_eq!(
        error.to_string(),
        "iaas release API returned status 503: Service Unavailable"
    );
}

#[tokio::test]
async fn a_success_that_never_ends_is_too_slow() {
    let error = release("HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{").await;
    assert!(matches!(error, CallError::TooSlow { .. }), "{error}");
}

/// Answers one call with that JSON; the text of the request comes back.
async fn recorded(answer: serde_json::Value) -> (String, tokio::task::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let served = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"}") {
            assert!(stream.read_buf(&mut request).await.unwrap() > 0);
        }
        let body = answer.to_string();
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        stream.write_all((head + &body).as_bytes()).await.unwrap();
        String::from_utf8(request).unwrap()
    });
    (url, served)
}

fn first_generation(url: &str) -> Client {
    let client = Client::new(Endpoint::parse(url).unwrap(), Duration::from_secs(50));
    client.unwrap().of_generation(Generation::First)
}

fn one_sub_eni() -> AllocateRequest {
    let request = json!({"podName": "p", "podNamespace": "shop", "podUID": "u-1", "nodeName": "n1",
        "subEniRequests": [{"parentNicMac": "fa:16:3e:30:00:01", "subnet": "10.0.0.0/24",
            "ipv4Address": "10.0.0.10", "ipv4PoolName": "p4"}]});
    serde_json::from_value(request).unwrap()
}

#[tokio::test]
async fn the_first_generation_is_spoken_to_in_its_own_words() {
    let answer = json!({"nodeName": "n1", "iaasIPsAllocationResponse": [{"ipAddress": "10.0.0.10",
        "macAddress": "fa:16:3e:00:00:01", "vlanId": 7}]});
    let (url, served) = recorded(answer).await;
    let parent = Instant::now() + Duration::from_secs(60);
    let bound = first_generation(&url)
        .allocate(&one_sub_eni(), Some(parent))
        .await
        .unwrap();
    assert_eq!(bound[0].vlan.map(|vlan| vlan.get()), Some(7));
    let request = served.await.unwrap();
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    assert!(
        head.to_lowercase().contains("x-request-timeout-ms: "),
        "{head}"
    );
    let want = json!({"podName": "p", "podNamespace": "shop", "podUID": "u-1", "nodeName": "n1",
        "iaasIPsAllocationRequest": [{"ipAddress": "10.0.0.10", "subnet": "10.0.0.0/24",
            "parentNicMac": "fa:16:3e:30:00:01"}]});
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(body).unwrap(),
        want
    );
    let (url, served) = recorded(json!({})).await;
    let request = json!({"nodeName": "n1", "subnet": "10.0.0.0/24", "ipAddress": "10.0.0.10", "poolName": "p4"});
    let request: ReleaseRequest = serde_json::from_value(request).unwrap();
    first_generation(&url)
        .release(&request, None)
        .await
        .unwrap();
    assert!(!served.await.unwrap().contains("poolName"));
}

/// Nobody listens: a call would fail otherwise.
#[tokio::test]
async fn the_first_generation_is_not_called_without_48_seconds() {
    let client = first_generation("http://127.0.0.1:1");
    let parent = |seconds| Some(Instant::now() + Duration::from_secs(seconds));
    let allocated = client
        .allocate(&one_sub_eni(), parent(48))
        .await
        .unwrap_err();
    let request = json!({"nodeName": "n1", "subnet": "10.0.0.0/24", "ipAddress": "10.0.0.10"});
    let request: ReleaseRequest = serde_json::from_value(request).unwrap();
    let released = client.release(&request, parent(48)).await.unwrap_err();
    for error in [allocated, released] {
        assert_eq!(
            error.to_string(),
            "parent budget insufficient: 47s remaining is less than provider worst-case 48s"
        );
        assert_eq!(error.rpc_reason(), None);
    }
    let sent = client
        .allocate(&one_sub_eni(), parent(60))
        .await
        .unwrap_err();
    assert!(matches!(sent, CallError::Transport { .. }), "{sent}");
    // The second generation leaves it to its provider.
    let second = client.of_generation(Generation::Second);
    let sent = second
        .allocate(&one_sub_eni(), parent(1))
        .await
        .unwrap_err();
    assert!(matches!(sent, CallError::Transport { .. }), "{sent}");
}
