//! The whole process: binds what it is told to, its cloud outlives it, and it outlives an API
//! server that goes away for a while.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use provider_sim::admin::AdminAddress;
use provider_sim::serve::{ServeArguments, Serving};
use serde_json::json;
use spiderpool_embedded_api::{EmbeddedApi, IpamAdmission, TlsOptions, write_kubeconfig};
use spiderpool_iaas::provider::Provider;
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::cluster::{marked, until};
use crate::rig::{TOPOLOGY, chain, client, item, request};

fn arguments(dir: &TempDir, topology: &str) -> ServeArguments {
    let path = |name: &str| dir.path().join(name);
    fs::write(path("t.yaml"), topology).unwrap();
    let quick = "{budgetCheck: false, flushMs: 5, latency: {createMs: 1, attachMs: 1, detachMs: 1, deleteMs: 1}}";
    fs::write(path("s.yaml"), quick).unwrap();
    ServeArguments {
        topology: path("t.yaml"),
        kubeconfig: None,
        listen: "127.0.0.1:0".parse().unwrap(),
        tls_listen: Some("127.0.0.1:0".parse().unwrap()),
        tls_ca_file: Some(path("ca.crt")),
        tls_secret: None,
        tls_name: vec!["localhost".into()],
        admin: AdminAddress::Unix(path("admin.sock")),
        fabric: false,
        fabric_netns: None,
        settings: Some(path("s.yaml")),
        state: Some(path("state.json")),
        ready_file: None,
    }
}

#[tokio::test]
async fn the_cloud_outlives_the_process() {
    let dir = tempfile::tempdir().unwrap();
    let arguments = arguments(&dir, TOPOLOGY);
    let wanted = request("n1", &[item("n1", "10.72.0.10", "g")]);
    let mut answers = Vec::new();
    for _ in 0..2 {
        let serving = Serving::start(&arguments).await.unwrap();
        assert!(serving.tls.is_some() && dir.path().join("ca.crt").exists());
        let client = client(serving.contract, Duration::from_secs(5));
        answers.push(client.allocate(&wanted, None).await.unwrap());
    }
    assert_eq!(answers[0], answers[1]);
    fs::write(dir.path().join("state.json"), "{").unwrap();
    let text = format!("{:#}", Serving::start(&arguments).await.unwrap_err());
    assert!(text.contains("state.json"), "{text}");
}

#[tokio::test]
async fn what_no_cloud_can_be_keeps_the_process_from_starting() {
    let refused = async |arguments: &ServeArguments| {
        let started = tokio::time::timeout(Duration::from_secs(10), Serving::start(arguments));
        let error = started.await.expect("it waits for something").unwrap_err();
        format!("{error:#}")
    };
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    // without a fabric too
    let nowhere = TOPOLOGY.replace("node: n1}", "node: n9}");
    let arguments = arguments(&dir, &nowhere);
    let text = refused(&arguments).await;
    assert!(text.contains("t.yaml") && text.contains("n9"), "{text}");
    fs::write(at("t.yaml"), TOPOLOGY).unwrap();
    fs::write(at("s.yaml"), "rate: {qps: 0, burst: 1}").unwrap();
    let text = refused(&arguments).await;
    assert!(
        text.contains("s.yaml") && text.contains("rate.qps"),
        "{text}"
    );
    fs::write(at("s.yaml"), "{}").unwrap();
    nix::unistd::mkfifo(&at("state.json"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let text = refused(&arguments).await;
    assert!(text.contains("it is not a regular file"), "{text}");
    fs::remove_file(at("state.json")).unwrap();
    let huge = fs::File::create(at("state.json")).unwrap();
    huge.set_len(1 << 30).unwrap();
    let text = refused(&arguments).await;
    assert!(text.contains("it is larger than"), "{text}");
}

/// `refuse`: nobody listens, with and without TLS, and then somebody does again.
#[tokio::test]
async fn a_door_that_is_shut_refuses_connections_until_it_is_opened() {
    let dir = tempfile::tempdir().unwrap();
    let serving = Serving::start(&arguments(&dir, TOPOLOGY)).await.unwrap();
    let faults = |rules: serde_json::Value| {
        let rules = serde_json::from_value(rules).unwrap();
        serving.service.change(|world| world.faults.replace(rules));
    };
    let addresses = [serving.contract, serving.tls.unwrap()];
    let connects = async |expected: bool| {
        for address in addresses {
            let seen = async {
                while TcpStream::connect(address).await.is_ok() != expected {
                    sleep(Duration::from_millis(2)).await;
                }
            };
            let seen = timeout(Duration::from_secs(5), seen).await;
            assert!(seen.is_ok(), "{address} never {expected}");
        }
    };
    connects(true).await;
    faults(json!([{ "kind": "refuse" }]));
    connects(false).await;
    let wanted = request("n1", &[item("n1", "10.72.0.10", "g")]);
    let client = client(serving.contract, Duration::from_secs(5));
    let text = chain(&client.allocate(&wanted, None).await.unwrap_err());
    assert!(text.contains("cannot connect to provider"), "{text}");
    faults(json!([]));
    connects(true).await;
    client.allocate(&wanted, None).await.unwrap();
}

async fn open(dir: &Path, listen: SocketAddr) -> (EmbeddedApi, SocketAddr) {
    let admission = Arc::new(IpamAdmission::default());
    let api = EmbeddedApi::open(&dir.join("state.redb"), admission).unwrap();
    let options = TlsOptions {
        listen,
        cert_dir: dir.to_owned(),
        token_path: dir.join("token"),
        names: Vec::new(),
    };
    let listening = api.serve(&options).await.unwrap();
    let address = listening.address;
    let (server, path) = (format!("https://{address}"), dir.join("kubeconfig"));
    write_kubeconfig(&path, &server, &listening.ca_pem, &listening.token).unwrap();
    (api, address)
}

/// While the API server is away calls are served from memory; what happened is published when it
/// is back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_server_that_was_away_is_told_afterwards() {
    let dir = tempfile::tempdir().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (api, address) = open(folder, "127.0.0.1:0".parse().unwrap()).await;
    let mut arguments = arguments(&dir, TOPOLOGY.split("pools:").next().unwrap());
    arguments.kubeconfig = Some(folder.join("kubeconfig"));
    let serving = Serving::start(&arguments).await.unwrap();
    let pools = marked(&api, "g").await;
    until(&pools, "g", "the mark", |_, read| read.entries.is_empty()).await;
    api.close().await;
    let wanted = request("n1", &[item("n1", "10.72.0.10", "g")]);
    let client = client(serving.contract, Duration::from_secs(5));
    client.allocate(&wanted, None).await.unwrap();
    let (api, _) = open(folder, address).await;
    let pools = crate::cluster::pools_of(&api);
    until(&pools, "g", "the entry", |_, read| read.entries.len() == 1).await;
    assert_eq!(serving.service.audit().await, Vec::<String>::new());
}
