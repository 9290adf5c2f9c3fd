//! A TCP relay before a server on loopback: counts what passes, and can let connections die without a
//! word, as a middle box does that has forgotten them. It may listen in another network namespace.
//!
//! Owns its listening port on loopback and its threads, which end with it and its connections.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::{fs, thread};

use anyhow::{Context, Result};
use spiderpool_netops::netns::Netns;

use super::ControlPlane;
use super::certificates::server;

/// Bytes passed on at once.
const PART: usize = 16 << 10;

/// A running relay.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    /// Where it listens; `None`: here.
    netns: Option<Netns>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    server: SocketAddr,
    /// From the server to its clients.
    answered: AtomicU64,
    /// Connections of an older generation are dead.
    generation: AtomicU64,
    stopped: AtomicBool,
}

impl Relay {
    /// A relay to the API server of `plane`; also after that was killed and is there again.
    ///
    /// # Errors
    /// No port on loopback.
    pub fn start(plane: &ControlPlane) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("listen on loopback")?;
        Self::over(listener, None, plane.port)
    }

    /// Makes what listens on `port` of loopback here be found at the same port in `netns`.
    ///
    /// # Errors
    /// The port is taken there, or the namespace cannot be entered.
    pub fn into_netns(netns: &Netns, port: u16) -> Result<Self> {
        let listener = netns
            .run(|| TcpListener::bind((Ipv4Addr::LOCALHOST, port)))?
            .with_context(|| format!("listen on port {port} in {netns}"))?;
        Self::over(listener, Some(netns.clone()), port)
    }

    fn over(listener: TcpListener, netns: Option<Netns>, port: u16) -> Result<Self> {
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            server: (Ipv4Addr::LOCALHOST, port).into(),
            answered: AtomicU64::new(0),
            generation: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
        });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || accept(&listener, &accepting));
        Ok(Self {
            address,
            netns,
            shared,
        })
    }

    /// Writes the kubeconfig of `plane` once more, for clients that shall come through here.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub fn kubeconfig(&self, plane: &ControlPlane, path: &Path) -> Result<()> {
        let text = fs::read_to_string(plane.kubeconfig()).context("read the kubeconfig")?;
        let text = text.replace(&plane.server(), &server(self.address.port()));
        fs::write(path, text).with_context(|| format!("write {}", path.display()))
    }

    /// Bytes from the server to its clients so far, as they are on the wire.
    #[must_use]
    pub fn answered(&self) -> u64 {
        self.shared.answered.load(Ordering::Relaxed)
    }

    /// From now on nothing passes on the connections there are, and neither end is told. New ones
    /// work.
    pub fn forget(&self) {
        self.shared.generation.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Relaxed);
        // Wakes the thread that accepts; without it there is none to wake.
        let wake = || drop(TcpStream::connect(self.address));
        match &self.netns {
            Some(netns) => drop(netns.run(wake)),
            None => wake(),
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for client in listener.incoming() {
        if shared.stopped.load(Ordering::Relaxed) {
            return;
        }
        // A server that is away is a refused connection to the client as well.
        if let Ok(client) = client
            && let Ok(server) = TcpStream::connect(shared.server)
        {
            // One that cannot be set up ends here, and both ends see it.
            join(shared, client, server).ok();
        }
    }
}

/// Passes on in both directions, a thread each, until an end closes.
fn join(shared: &Arc<Shared>, client: TcpStream, server: TcpStream) -> std::io::Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (up, down) = (client.try_clone()?, server.try_clone()?);
    let generation = shared.generation.load(Ordering::Relaxed);
    let asked = Arc::clone(shared);
    thread::spawn(move || pass(up, server, |_| asked.lives(generation)));
    let answered = Arc::clone(shared);
    thread::spawn(move || {
        pass(down, client, |bytes| {
            let lives = answered.lives(generation);
            if lives {
                answered.answered.fetch_add(bytes, Ordering::Relaxed);
            }
            lives
        });
    });
    Ok(())
}

impl Shared {
    fn lives(&self, generation: u64) -> bool {
        self.generation.load(Ordering::Relaxed) == generation
    }
}

/// What `from` says goes to `to` while `passes` allows it, else nowhere. The end of a connection that
/// is dead is not passed on either.
fn pass(mut from: TcpStream, mut to: TcpStream, passes: impl Fn(u64) -> bool) {
    let mut part = [0; PART];
    loop {
        let read = from.read(&mut part).unwrap_or(0);
        let lives = passes(u64::try_from(read).unwrap_or_default());
        let sent = part.get(..read).unwrap_or_default();
        if read == 0 {
            if lives {
                drop(to.shutdown(Shutdown::Write));
            }
            return;
        }
        if lives && to.write_all(sent).is_err() {
            return;
        }
    }
}
