//! The contract over TLS: verified, renewed, refused.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::http::{Method, Request, Response};
use http_body_util::BodyExt;
use provider_sim::contract;
use provider_sim::tls::{Tls, TlsError};
use provider_sim::tls_secret::TlsSecret;
use serde_json::{Value, json};
use spiderpool_iaas::client::{Client, Endpoint};
use spiderpool_iaas::provider::Provider;
use tokio::net::TcpListener;

use crate::rig::{chain, item, request, rig};

async fn start(name: &str, ca: Option<&Path>, secret: Option<TlsSecret>) -> Result<Tls, TlsError> {
    Tls::start(vec![name.to_owned()], ca.map(Path::to_owned), secret).await
}

#[tokio::test]
async fn the_certificate_is_verified_by_the_ca_of_now() {
    let rig = rig().await;
    let dir = tempfile::tempdir().unwrap();
    let (ca, other) = (dir.path().join("ca.crt"), dir.path().join("other.crt"));
    let name = "iaas-network-provider.iaas-network-provider-system.svc";
    let tls = Arc::new(start(name, Some(&ca), None).await.unwrap());
    start(name, Some(&other), None).await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let router = contract::router(Arc::clone(&rig.service));
    let server = tokio::spawn(Arc::clone(&tls).serve(listener, router));
    let endpoint = || Endpoint::parse(&url).unwrap();
    let call = async |endpoint: Endpoint| {
        let client = Client::new(endpoint, Duration::from_secs(5)).unwrap();
        let wanted = request("n1", &[item("n1", "10.72.0.10", "g")]);
        client
            .allocate(&wanted, None)
            .await
            .map_err(|error| chain(&error))
    };
    let named = || endpoint().with_server_name(name);
    assert!(call(named().with_ca_file(&ca)).await.is_ok());
    assert!(
        call(named()).await.is_ok(),
        "without a CA file nothing is verified"
    );
    for refused in [named().with_ca_file(&other), endpoint().with_ca_file(&ca)] {
        let text = call(refused).await.unwrap_err();
        assert!(
            text.starts_with("iaas allocate API call failed: cannot set up TLS"),
            "{text}"
        );
    }
    // one client over a renewal: its file has the new CA by the next connection
    let client = Client::new(named().with_ca_file(&ca), Duration::from_secs(5)).unwrap();
    let wanted = request("n1", &[item("n1", "10.72.0.10", "g")]);
    assert!(client.allocate(&wanted, None).await.is_ok());
    tls.rotate().await.unwrap();
    assert!(client.allocate(&wanted, None).await.is_ok());
    std::fs::remove_file(&ca).unwrap();
    let text = chain(&client.allocate(&wanted, None).await.unwrap_err());
    assert!(
        text.starts_with("iaas allocate API call failed: cannot read CA file"),
        "{text}"
    );
    // a pipe that nobody writes to, in the file's place
    nix::unistd::mkfifo(&ca, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let text = chain(&client.allocate(&wanted, None).await.unwrap_err());
    assert!(text.contains("it is not a regular file"), "{text}");
    server.abort();
}

/// An API server that has at most one Secret.
fn secrets(kept: &Arc<Mutex<Option<Value>>>) -> kube::Client {
    let kept = Arc::clone(kept);
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        let kept = Arc::clone(&kept);
        async move {
            let method = request.method().clone();
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let sent: Option<Value> = serde_json::from_slice(&body).ok();
            let mut kept = kept.lock().unwrap();
            let status = |code: u16| {
                json!({ "kind": "Status", "status": "Failure", "code": code, "message": "x",
                "reason": if code == 404 { "NotFound" } else { "AlreadyExists" } })
            };
            let (code, answer) = match (method, kept.as_mut()) {
                (Method::POST, None) => {
                    *kept = sent.clone();
                    (201, sent.unwrap())
                }
                (Method::PATCH, Some(old)) => {
                    let sent = sent.unwrap();
                    old["data"] = sent["data"].clone();
                    old["metadata"]["annotations"] = sent["metadata"]["annotations"].clone();
                    (200, old.clone())
                }
                (Method::GET, Some(old)) => (200, old.clone()),
                (Method::POST, Some(_)) => (409, status(409)),
                _ => (404, status(404)),
            };
            let body = kube::client::Body::from(answer.to_string().into_bytes());
            let response = Response::builder().status(code).body(body).unwrap();
            Ok::<_, std::convert::Infallible>(response)
        }
    });
    kube::Client::new(service, "default")
}

/// P18: made once, kept over restarts, for other names and on command made anew.
#[tokio::test]
async fn the_secret_holds_ca_and_certificate() {
    let kept = Arc::new(Mutex::new(None));
    let secret = || {
        let place = "iaas-system/iaas-network-provider-tls".parse().unwrap();
        Some(TlsSecret::new(secrets(&kept), place))
    };
    let ca = || kept.lock().unwrap().as_ref().unwrap()["data"]["ca.crt"].clone();
    start("provider.svc", None, secret()).await.unwrap();
    let first = ca();
    let object = kept.lock().unwrap().clone().unwrap();
    assert_eq!(object["type"], "kubernetes.io/tls");
    let keys: Vec<&str> = object["data"]
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    assert_eq!(keys, ["ca.crt", "tls.crt", "tls.key"]);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("ca.crt");
    let tls = start("provider.svc", Some(&file), secret()).await.unwrap();
    assert_eq!(ca(), first, "a restart changes nothing");
    assert!(
        std::fs::read_to_string(&file)
            .unwrap()
            .starts_with("-----BEGIN CERTIFICATE")
    );
    tls.rotate().await.unwrap();
    let second = ca();
    assert_ne!(second, first);
    start("other.svc", None, secret()).await.unwrap();
    assert_ne!(ca(), second);
    let whole = ca();
    kept.lock().unwrap().as_mut().unwrap()["data"]["tls.key"] = json!("eA==");
    start("other.svc", None, secret()).await.unwrap();
    assert_ne!(ca(), whole, "what is of no use is replaced");
}
