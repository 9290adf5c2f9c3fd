//! Serves HTTP on one connection, plain or TLS. A caller that sends its head a byte at a time is
//! let go; bodies have their own limit ([`crate::asked`]).

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::serve::Listener;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tracing::debug;

/// A request's head that takes longer is given up, and so is an idle connection.
const HEAD: Duration = Duration::from_secs(30);

/// Serves one connection to its end.
///
/// # Errors
/// What ended it early, for the log.
pub async fn converse(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
) -> Result<(), String> {
    let service = TowerToHyperService::new(router);
    let mut server = Builder::new(TokioExecutor::new());
    let mut http = server.http1();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD);
    let served = server.serve_connection(TokioIo::new(stream), service).await;
    served.map_err(|error| error.to_string())
}

/// The next connection. Small answers leave it at once; a slow caller's acknowledgement is not waited for.
pub async fn accept(
    listener: &mut impl Listener<Io = TcpStream, Addr = SocketAddr>,
) -> (TcpStream, SocketAddr) {
    let (stream, peer) = listener.accept().await;
    if let Err(error) = stream.set_nodelay(true) {
        debug!(%peer, %error, "answers on a connection may be late");
    }
    (stream, peer)
}

/// Serves each connection without TLS. Never ends.
pub async fn serve(mut listener: impl Listener<Io = TcpStream, Addr = SocketAddr>, router: Router) {
    loop {
        let (stream, peer) = accept(&mut listener).await;
        let router = router.clone();
        tokio::spawn(async move {
            if let Err(cause) = converse(stream, router).await {
                debug!(%peer, cause, "a connection ended early");
            }
        });
    }
}
