//! What the client makes of answers that come byte by byte, or not at all.

use std::time::Duration;

use serde_json::json;
use spiderpool_api::provider::ReleaseRequest;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::{Client, Endpoint};
use crate::error::CallError;
use crate::provider::Provider;

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
