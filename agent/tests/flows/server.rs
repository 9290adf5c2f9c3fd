//! The socket: bodies and codes as callers see them, and one call's failure is its own.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use spiderpool_agent::api::{self, socket::Socket};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio_util::sync::CancellationToken;

use crate::world::{Request, World, object_key};

struct Server {
    world: World,
    stop: CancellationToken,
    served: tokio::task::JoinHandle<()>,
}

impl Server {
    fn start() -> Self {
        let world = World::new();
        world.prewarm_pool(
            "p4",
            "172.91.0.0/24",
            &[("172.91.0.100", 301), ("172.91.0.101", 302)],
        );
        world.pod("shop/web-0", "u-1");
        let stop = CancellationToken::new();
        let socket = Socket::bind(world.paths.socket_path()).unwrap();
        let (agent, stopping) = (Arc::clone(&world.agent), stop.clone());
        let served = tokio::spawn(async move { api::serve(agent, socket, stopping).await });
        Self {
            world,
            stop,
            served,
        }
    }

    async fn call(&self, request: &Request, command: &str) -> (u16, Value) {
        let body = serde_json::to_string(&request.build(command)).unwrap();
        self.post(&body).await
    }

    async fn post(&self, body: &str) -> (u16, Value) {
        let head = format!(
            "POST /v1/cni HTTP/1.1\r\nhost: agent\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        let answer = exchange(self.world.paths.socket_path(), &format!("{head}{body}")).await;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str(body).unwrap_or(Value::Null))
    }
}

pub(crate) async fn exchange(path: &Path, text: &str) -> String {
    let mut stream = UnixStream::connect(path).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

fn request() -> Request {
    Request::eni("c-1", "/ns/a", "net1").pod("shop/web-0", "u-1")
}

#[tokio::test]
async fn answers_have_the_shape_of_the_specification() {
    let server = Server::start();
    let (status, body) = server.call(&request(), "ADD").await;
    assert_eq!(
        (status, &body["result"]["ips"][0]["address"]),
        (200, &json!("172.91.0.100/24"))
    );
    let (status, body) = server.call(&request(), "DEL").await;
    assert_eq!((status, body), (200, json!({"result": null})));
    let bad = request().conf("master", "eth9").conf("cniVersion", "0.4.0");
    let (status, body) = server.call(&bad, "ADD").await;
    assert_eq!(
        (status, &body["code"], &body["cniVersion"]),
        (500, &json!(106), &json!("0.4.0"))
    );
    let (status, body) = server.call(&request().set("netns", ""), "ADD").await;
    assert_eq!((status, &body["code"]), (400, &json!(4)));
    for text in ["", "{", "[]", r#"{"v":1}"#] {
        let (status, body) = server.post(text).await;
        assert_eq!((status, &body["code"]), (400, &json!(6)), "{text}");
    }
    let health = "GET /v1/ipam/healthy HTTP/1.1\r\nhost: agent\r\nconnection: close\r\n\r\n";
    let answer = exchange(server.world.paths.socket_path(), health).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[tokio::test]
async fn a_panic_is_code_999_to_its_caller_and_the_agent_lives_on() {
    let server = Server::start();
    server.world.nic.panic_on_attach(true);
    let (status, body) = server.call(&request(), "ADD").await;
    assert_eq!((status, &body["code"]), (500, &json!(999)));
    server.world.nic.panic_on_attach(false);
    let (status, _) = server.call(&request(), "ADD").await;
    assert_eq!(status, 200);
    server.world.store.remove_pod(&object_key("shop/web-0"));
    assert_eq!(server.call(&request(), "DEL").await.0, 200);
    assert!(server.world.records("p4").is_empty());
}

#[tokio::test]
async fn a_stopped_server_takes_its_socket_away_and_a_newer_one_keeps_its_own() {
    let server = Server::start();
    let path = server.world.paths.socket_path().to_owned();
    let newer = Socket::bind(&path).unwrap();
    let stop = CancellationToken::new();
    let (agent, stopping) = (Arc::clone(&server.world.agent), stop.clone());
    let serving = tokio::spawn(async move { api::serve(agent, newer, stopping).await });
    server.stop.cancel();
    server.served.await.unwrap();
    let health = "GET /v1/ipam/healthy HTTP/1.1\r\nhost: agent\r\nconnection: close\r\n\r\n";
    assert!(exchange(&path, health).await.starts_with("HTTP/1.1 200"));
    stop.cancel();
    serving.await.unwrap();
    assert!(!path.exists());
}

#[tokio::test]
async fn a_configuration_as_large_as_the_plugin_takes_is_read() {
    let server = Server::start();
    let large = request().conf("comment", "x".repeat(8 << 20));
    let (status, body) = server.call(&large, "ADD").await;
    assert_eq!(status, 200, "{body}");
}

#[tokio::test(start_paused = true)]
async fn callers_that_stop_in_the_middle_do_not_keep_the_agent_from_stopping() {
    let server = Server::start();
    let mut stopped = Vec::new();
    for part in [
        "POST /v1/cni HTTP/1.1\r\nhost: ag",
        "POST /v1/cni HTTP/1.1\r\nhost: agent\r\ncontent-length: 500\r\n\r\n{",
    ] {
        let mut stream = UnixStream::connect(server.world.paths.socket_path())
            .await
            .unwrap();
        stream.write_all(part.as_bytes()).await.unwrap();
        stopped.push(stream);
    }
    // Answered after those two have been accepted.
    assert_eq!(server.call(&request(), "ADD").await.0, 200);
    server.stop.cancel();
    let ended = tokio::time::timeout(Duration::from_secs(30), server.served).await;
    ended.expect("the agent stops").unwrap();
    let mut answer = String::new();
    stopped[1].read_to_string(&mut answer).await.unwrap();
    assert!(answer.contains("not complete within"), "{answer}");
}

#[tokio::test]
async fn a_socket_that_was_removed_with_its_folder_comes_back() {
    let server = Server::start();
    let path = server.world.paths.socket_path().to_owned();
    std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
    let back = async {
        while UnixStream::connect(&path).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(30), back).await;
    waited.expect("the socket comes back");
    assert_eq!(server.call(&request(), "ADD").await.0, 200);
    assert_eq!(server.world.files().len(), 1);
    server.stop.cancel();
    server.served.await.unwrap();
    assert!(!path.exists());
}

#[tokio::test]
async fn a_caller_that_hangs_up_cancels_what_waits() {
    let server = Server::start();
    server.world.store.set_delay(Duration::from_millis(200));
    let body = serde_json::to_string(&request().build("ADD")).unwrap();
    let text = format!(
        "POST /v1/cni HTTP/1.1\r\nhost: agent\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = UnixStream::connect(server.world.paths.socket_path())
        .await
        .unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    // The call is under way once its task is there.
    while server.world.agent.tasks().is_empty() {
        tokio::task::yield_now().await;
    }
    drop(stream);
    server.stop.cancel();
    server.served.await.unwrap();
    let tasks = server.world.agent.tasks().clone();
    tasks.close();
    drop(server.world.agent);
    tasks.wait().await;
    assert_eq!(server.world.nic.link_count(), 0);
}
