//! The place where the contract is served: a TCP listener that is shut while a fault says that
//! nobody listens. Owns the listener; decides nothing about calls.

use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use axum::serve::Listener;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::warn;

/// Between two tries to accept or to listen again.
const PAUSE: Duration = Duration::from_millis(100);

/// A listener at one address. While it is shut the kernel refuses connections there.
#[derive(Debug)]
pub struct Door {
    address: SocketAddr,
    listener: Option<TcpListener>,
    shut: watch::Receiver<bool>,
}

impl Door {
    /// Listens; with port 0 at one the kernel chooses, and at that one again after each time it
    /// was shut.
    ///
    /// # Errors
    /// Those of listening.
    pub async fn open(listen: SocketAddr, shut: watch::Receiver<bool>) -> io::Result<Self> {
        let listener = TcpListener::bind(listen).await?;
        Ok(Self {
            address: listener.local_addr()?,
            listener: Some(listener),
            shut,
        })
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The next connection, or whatever else there is to react to.
    async fn step(&mut self) -> io::Result<Option<(TcpStream, SocketAddr)>> {
        if *self.shut.borrow_and_update() {
            self.listener = None;
            if self.shut.changed().await.is_err() {
                // who shut it is gone, and nobody will open it
                pending::<()>().await;
            }
            return Ok(None);
        }
        let listener = match &mut self.listener {
            Some(listener) => listener,
            closed => closed.insert(TcpListener::bind(self.address).await?),
        };
        tokio::select! {
            accepted = TcpListener::accept(listener) => accepted.map(Some),
            Ok(()) = self.shut.changed() => Ok(None),
        }
    }
}

impl Listener for Door {
    type Io = TcpStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (TcpStream, SocketAddr) {
        loop {
            match self.step().await {
                Ok(Some(accepted)) => return accepted,
                Ok(None) => {}
                Err(cause) => {
                    warn!(address = %self.address, %cause, "cannot accept a connection");
                    sleep(PAUSE).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }
}
