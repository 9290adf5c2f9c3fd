//! The server of the webhooks on loopback, with a certificate that somebody provides.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "functions that tests share fail as tests do"
)]

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::routing::{get, post};
use jiff::Timestamp;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use spiderpool_controller::certificates::files;
use spiderpool_controller::certificates::issue::{Pair, issue};
use spiderpool_controller::certificates::served::Served;
use spiderpool_controller::config::TlsFiles;
use spiderpool_controller::webhook::server;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;

/// Files are looked at every five seconds.
const SOON: Duration = Duration::from_secs(30);
const BETWEEN: Duration = Duration::from_millis(100);

fn pair() -> Pair {
    let now: Timestamp = "2001-01-01T00:00:00Z".parse().unwrap();
    // Clocks of test machines are anywhere.
    issue(&["127.0.0.1".to_owned()], now, 36_500).unwrap()
}

fn write(dir: &Path, pair: &Pair) -> TlsFiles {
    let (cert, key) = (dir.join("tls.crt"), dir.join("tls.key"));
    std::fs::write(&cert, &pair.cert).unwrap();
    std::fs::write(&key, &pair.key).unwrap();
    TlsFiles { cert, key }
}

async fn connect(port: u16, ca: &str) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(ca.as_bytes()).unwrap())
        .unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    let name = ServerName::try_from("127.0.0.1").unwrap();
    TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
}

async fn answer(stream: &mut TlsStream<TcpStream>) -> String {
    stream
        .write_all(b"GET /health HTTP/1.1\r\nHost: lab\r\n\r\n")
        .await
        .unwrap();
    let mut head = [0; 15];
    stream.read_exact(&mut head).await.unwrap();
    // The rest is short and already there or on its way; the next answer begins after it.
    let mut rest = [0; 4096];
    let mut text = String::new();
    while !text.ends_with("fine") {
        let read = stream.read(&mut rest).await.unwrap();
        text.push_str(std::str::from_utf8(&rest[..read]).unwrap());
    }
    String::from_utf8(head.to_vec()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn provided_files_are_read_again_and_no_connection_ends() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (pair(), pair());
    let provided = write(dir.path(), &first);
    let served = Arc::new(Served::default());
    let stop = CancellationToken::new();
    let following = tokio::spawn({
        let (served, stop) = (Arc::clone(&served), stop.clone());
        async move { files::follow(&provided, served, stop).await }
    });
    timeout(SOON, served.wait()).await.unwrap();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let router = Router::new().route("/health", get(|| async { "fine" }));
    let config = served.config().unwrap();
    let serving = tokio::spawn(server::serve(listener, config, router, stop.clone()));

    let mut kept = connect(port, &first.ca).await.unwrap();
    assert_eq!(answer(&mut kept).await, "HTTP/1.1 200 OK");
    connect(port, &second.ca).await.unwrap_err();
    write(dir.path(), &second);
    let switched = async {
        loop {
            if let Ok(fresh) = connect(port, &second.ca).await {
                return fresh;
            }
            tokio::time::sleep(BETWEEN).await;
        }
    };
    let mut fresh = timeout(SOON, switched).await.unwrap();
    assert_eq!(answer(&mut fresh).await, "HTTP/1.1 200 OK");
    assert_eq!(answer(&mut kept).await, "HTTP/1.1 200 OK");
    connect(port, &first.ca).await.unwrap_err();

    stop.cancel();
    // Told to stop, it is called a little longer.
    let mut late = connect(port, &second.ca).await.unwrap();
    assert_eq!(answer(&mut late).await, "HTTP/1.1 200 OK");
    following.await.unwrap().unwrap();
    timeout(SOON, serving).await.unwrap().unwrap();
}

/// A server whose certificate nobody changes.
struct Lone {
    port: u16,
    ca: String,
    stop: CancellationToken,
}

impl Lone {
    async fn start() -> Self {
        let (pair, served) = (pair(), Served::default());
        served.replace(&pair.cert, &pair.key).unwrap();
        let served = Arc::new(served);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let length = |body: Bytes| async move { body.len().to_string() };
        let router = Router::new()
            .route("/health", get(|| async { "fine" }))
            .route("/length", post(length));
        let (config, stop) = (served.config().unwrap(), CancellationToken::new());
        tokio::spawn(server::serve(listener, config, router, stop.clone()));
        let ca = pair.ca;
        Self { port, ca, stop }
    }

    async fn connect(&self) -> TlsStream<TcpStream> {
        let connected = timeout(SOON, connect(self.port, &self.ca)).await;
        connected.unwrap().unwrap()
    }

    /// A request whose body is to have so many bytes, without them.
    async fn begin(&self, length: usize) -> TlsStream<TcpStream> {
        let mut stream = self.connect().await;
        let head =
            format!("POST /length HTTP/1.1\r\nHost: lab\r\nContent-Length: {length}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        stream
    }
}

async fn rest(mut stream: TlsStream<TcpStream>) -> String {
    let mut text = Vec::new();
    // A peer that closes without the last words of TLS has said everything else.
    let _closed = timeout(SOON, stream.read_to_end(&mut text)).await.unwrap();
    String::from_utf8(text).unwrap()
}

/// Whoever reaches the port can open connections and say nothing, before or after the handshake.
#[tokio::test(flavor = "multi_thread")]
async fn silent_connections_keep_nobody_waiting() {
    let server = Lone::start().await;
    let mut silent = Vec::new();
    for _ in 0..server::MAX_CONNECTIONS + 8 {
        silent.push(server.connect().await);
    }
    let mut asking = server.connect().await;
    assert_eq!(answer(&mut asking).await, "HTTP/1.1 200 OK");
    server.stop.cancel();
}

/// A call on a connection that was accepted just before the server ended is answered: its peer would
/// not repeat it.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_on_a_fresh_connection_is_answered_to_the_end() {
    let server = Lone::start().await;
    server.stop.cancel();
    let mut fresh = server.connect().await;
    let refused = async {
        while TcpStream::connect((Ipv4Addr::LOCALHOST, server.port))
            .await
            .is_ok()
        {
            tokio::time::sleep(BETWEEN).await;
        }
    };
    timeout(SOON, refused).await.unwrap();
    assert_eq!(answer(&mut fresh).await, "HTTP/1.1 200 OK");
}

/// Or a head, and never the body.
#[tokio::test(flavor = "multi_thread")]
async fn bodies_that_do_not_come_keep_nobody_waiting() {
    let server = Lone::start().await;
    let mut slow = Vec::new();
    for _ in 0..server::MAX_CONNECTIONS + 8 {
        let mut begun = server.begin(100).await;
        begun.write_all(b"a part of it").await.unwrap();
        slow.push(begun);
    }
    let mut asking = server.connect().await;
    assert_eq!(answer(&mut asking).await, "HTTP/1.1 200 OK");
    let last = slow.pop().unwrap();
    assert!(
        rest(last).await.starts_with("HTTP/1.1 408"),
        "it is told and closed"
    );
    server.stop.cancel();
}

/// Long bodies take turns; one that does not come gives its turn back.
#[tokio::test(flavor = "multi_thread")]
async fn long_bodies_wait_for_each_other_and_end() {
    const LONG: usize = 1 << 20;
    let server = Lone::start().await;
    let mut slow = Vec::new();
    for _ in 0..8 {
        slow.push(server.begin(LONG).await);
    }
    let mut short = server.begin(4).await;
    short.write_all(b"four").await.unwrap();
    let mut answered = [0; 12];
    timeout(SOON, short.read_exact(&mut answered))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(&answered, b"HTTP/1.1 200");
    for begun in slow {
        assert!(rest(begun).await.starts_with("HTTP/1.1 408"));
    }
    let mut long = server.begin(LONG).await;
    long.write_all(&vec![b'x'; LONG]).await.unwrap();
    timeout(SOON, long.read_exact(&mut answered))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(&answered, b"HTTP/1.1 200");
    let too_long = server.begin(1 << 30).await;
    assert!(rest(too_long).await.starts_with("HTTP/1.1 413"));
    server.stop.cancel();
}

#[tokio::test]
async fn files_that_cannot_be_served_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (pair(), pair());
    write(dir.path(), &one);
    let mixed = write(
        dir.path(),
        &Pair {
            key: two.key,
            ..one
        },
    );
    let served = Arc::new(Served::default());
    let failed = files::follow(&mixed, Arc::clone(&served), CancellationToken::new()).await;
    let text = failed.unwrap_err().to_string();
    assert!(
        text.contains("tls.crt") && text.contains("tls.key"),
        "{text}"
    );
    let missing = TlsFiles {
        cert: dir.path().join("none"),
        ..mixed
    };
    let failed = files::follow(&missing, served, CancellationToken::new()).await;
    assert!(failed.unwrap_err().to_string().contains("none"));
}
