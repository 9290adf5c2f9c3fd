//! The TCP ports: health, metrics, and what happens when a port is taken.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use spiderpool_agent::api::{self, socket::Socket};
use spiderpool_agent::http::{HttpSettings, Listeners, Port, Reach};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::world::World;

async fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: agent\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    (status, answer)
}

fn settings(health: Port, metrics: Port) -> HttpSettings {
    HttpSettings {
        reach: Reach::Loopback,
        health,
        metrics,
    }
}

#[tokio::test]
async fn health_asks_the_socket_and_metrics_are_text() {
    let world = World::new();
    let stop = CancellationToken::new();
    let open = settings(Port::Wanted(0), Port::Wanted(0));
    let listeners = Listeners::open(&open).await.unwrap();
    let (Some(health), Some(metrics)) = listeners.addresses() else {
        panic!("not open");
    };
    assert!(health.ip().is_loopback());
    let (agent, path) = (
        Arc::clone(&world.agent),
        world.paths.socket_path().to_owned(),
    );
    let stopping = stop.clone();
    let ports = tokio::spawn(async move { listeners.serve(agent, &path, stopping).await });
    for (route, status) in [
        ("startup", 200),
        ("liveness", 500),
        ("readiness", 500),
        ("other", 404),
    ] {
        let (found, text) = get(health, &format!("/v1/runtime/{route}")).await;
        assert_eq!(found, status, "{route}: {text}");
        assert!(status != 500 || text.contains("spiderpool.sock"), "{text}");
    }
    let socket = Socket::bind(world.paths.socket_path()).unwrap();
    let served = tokio::spawn(api::serve(Arc::clone(&world.agent), socket, stop.clone()));
    for route in ["startup", "liveness", "readiness"] {
        assert_eq!(get(health, &format!("/v1/runtime/{route}")).await.0, 200);
    }
    for path in ["/metrics", "/"] {
        let (status, text) = get(metrics, path).await;
        assert_eq!(status, 200);
        assert!(text.contains("content-type: application/openmetrics-text; version=1.0.0"));
        assert!(
            text.contains("\nspiderpool_ipam_allocation_counts_total{") && text.contains("# EOF")
        );
    }
    // An idle caller does not keep the agent from ending.
    let _idle = TcpStream::connect(metrics).await.unwrap();
    stop.cancel();
    ports.await.unwrap();
    served.await.unwrap();
}

/// Callers that pass the limit of a port.
const CROWD: usize = 40;
/// Bytes of requests that nobody reads the answers of: far more than fit into a socket's buffers.
const FLOOD: usize = 1 << 25;

#[tokio::test]
async fn callers_that_say_or_read_nothing_hold_up_neither_others_nor_the_end() {
    let world = World::new();
    let stop = CancellationToken::new();
    let open = settings(Port::Off, Port::Wanted(0));
    let listeners = Listeners::open(&open).await.unwrap();
    let metrics = listeners.addresses().1.unwrap();
    let (agent, path) = (
        Arc::clone(&world.agent),
        world.paths.socket_path().to_owned(),
    );
    let stopping = stop.clone();
    let ports = tokio::spawn(async move { listeners.serve(agent, &path, stopping).await });
    let mut silent = Vec::new();
    for _ in 0..CROWD {
        silent.push(TcpStream::connect(metrics).await.unwrap());
    }
    // Less than the time a caller may take to say what it wants.
    let limit = Duration::from_secs(5);
    let answer = tokio::time::timeout(limit, get(metrics, "/metrics")).await;
    assert_eq!(answer.unwrap().0, 200);
    let mut deaf = TcpStream::connect(metrics).await.unwrap();
    let request = "GET / HTTP/1.1\r\nhost: agent\r\n\r\n";
    let flood = request.repeat(FLOOD / request.len());
    // Ends when its answers have filled all buffers, so that it is not even read any more.
    let filled = tokio::time::timeout(limit, deaf.write_all(flood.as_bytes())).await;
    assert!(filled.is_err(), "the answers are stuck");
    stop.cancel();
    let ended = tokio::time::timeout(limit * 2, ports).await;
    ended.expect("the ports are closed").unwrap();
}

#[tokio::test]
async fn a_taken_port_matters_only_to_who_asked_for_it() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = taken.local_addr().unwrap().port();
    let usual = settings(Port::Usual(port), Port::Off);
    assert_eq!(
        Listeners::open(&usual).await.unwrap().addresses(),
        (None, None)
    );
    let wanted = settings(Port::Off, Port::Wanted(port));
    let text = Listeners::open(&wanted).await.unwrap_err().to_string();
    for part in [&port.to_string(), "metrics", "--metrics-port", "0"] {
        assert!(text.contains(part), "{text}");
    }
}
