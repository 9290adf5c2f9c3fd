//! Standalone mode as one process: API, store, agent and socket, stopped and started again.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking, its helpers too"
)]

use std::path::Path;
use std::time::Duration;

use clap::Parser;
use serde_json::{Value, json};
use spiderpool_agent::config::{Cli, Mode, StandaloneArgs};
use spiderpool_agent::standalone::run_standalone;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio_util::sync::CancellationToken;

const POOL: &str = "
apiVersion: spiderpool.spidernet.io/v2beta1
kind: SpiderIPPool
metadata: {name: lab}
spec: {subnet: 10.31.0.0/24, ips: [10.31.0.10-10.31.0.11], gateway: 10.31.0.1, default: true}
";

fn args(dir: &Path) -> StandaloneArgs {
    let dir = dir.to_str().unwrap();
    let line = format!(
        "agent standalone --dir {dir} --state {dir}/state.redb --run-dir {dir}/run --node-name n1 --api-listen 0"
    );
    match Cli::parse_from(line.split(' ')).mode {
        Mode::Standalone(args) => args,
        Mode::Daemon(_) => panic!("another mode"),
    }
}

/// Calls the agent; waits for its socket as the CNI binary does.
async fn call(dir: &Path, command: &str, container: &str) -> Value {
    let socket = dir.join("run/spiderpool.sock");
    let connect = async {
        loop {
            match UnixStream::connect(&socket).await {
                Ok(stream) => return stream,
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    };
    let mut stream = tokio::time::timeout(Duration::from_secs(20), connect)
        .await
        .unwrap();
    let body = json!({"v": 1, "command": command, "plugin": "spiderpool", "containerID": container,
        "netns": "/proc/self/ns/net", "ifname": "eth0",
        "conf": {"cniVersion": "1.0.0", "name": "lab", "ipam": {"type": "spiderpool"}}});
    let body = body.to_string();
    let head = format!(
        "POST /v1/cni HTTP/1.1\r\nhost: agent\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream
        .write_all(format!("{head}{body}").as_bytes())
        .await
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_given_survives_a_restart_and_is_freed_once() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    std::fs::create_dir(dir.join("manifests")).unwrap();
    std::fs::write(dir.join("manifests/pool.yaml"), POOL).unwrap();
    let start = || {
        let (args, stop) = (args(dir), CancellationToken::new());
        let stopping = stop.clone();
        let running = tokio::spawn(async move { run_standalone(&args, stopping).await });
        (stop, running)
    };
    let (stop, running) = start();
    let first = call(dir, "ADD", "1111aaaa2222bbbb").await;
    assert_eq!(
        first["result"]["ips"][0]["address"], "10.31.0.10/24",
        "{first}"
    );
    stop.cancel();
    running.await.unwrap().unwrap();
    assert!(!dir.join("run/spiderpool.sock").exists());
    let (stop, running) = start();
    assert_eq!(call(dir, "ADD", "1111aaaa2222bbbb").await, first);
    let second = call(dir, "ADD", "3333cccc4444dddd").await;
    assert_eq!(
        second["result"]["ips"][0]["address"], "10.31.0.11/24",
        "{second}"
    );
    let full = call(dir, "ADD", "5555eeee6666ffff").await;
    assert_eq!(full["code"], 100, "{full}");
    assert_eq!(
        call(dir, "DEL", "1111aaaa2222bbbb").await,
        json!({"result": null})
    );
    // A second agent would take its files for leftovers.
    let error = run_standalone(&args(dir), CancellationToken::new()).await;
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains(&format!("(process {})", std::process::id())),
        "{error}"
    );
    let third = call(dir, "ADD", "5555eeee6666ffff").await;
    assert_eq!(
        third["result"]["ips"][0]["address"], "10.31.0.10/24",
        "{third}"
    );
    stop.cancel();
    running.await.unwrap().unwrap();
}
