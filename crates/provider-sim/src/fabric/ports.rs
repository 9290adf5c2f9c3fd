//! The sockets of the fabric: one on the gateway's wire, one on each parent NIC's.

use std::io;

use nix::errno::Errno;
use nix::net::if_::if_nametoindex;
use spiderpool_api::value::IfName;
use spiderpool_netops::packet::{AsyncRaw, RawSocket, is_link_gone};

use super::counters::Lost;
use super::table::Port;
use crate::topology::Topology;

/// A wire of the fabric could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// No such link in this network namespace.
    #[error("fabric port {ifname}: no such link in this network namespace; create it first")]
    NoLink {
        /// As the topology names it.
        ifname: IfName,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The packet socket was refused.
    #[error("fabric port {ifname}: cannot open a packet socket; CAP_NET_RAW is needed")]
    Socket {
        /// As the topology names it.
        ifname: IfName,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The runtime refused the socket.
    #[error("fabric port {port}: cannot hand its socket to the runtime")]
    Register {
        /// `gateway` or the number of the parent in the topology.
        port: String,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// Open sockets, not yet in a runtime. Frames wait in their buffers from now on.
#[derive(Debug)]
pub struct Sockets {
    gateway: RawSocket,
    parents: Vec<RawSocket>,
}

impl Sockets {
    /// Opens all wires of the topology in the network namespace of the calling thread. Blocks
    /// for less than a millisecond a wire.
    ///
    /// # Errors
    /// [`PortError`] for the first wire that fails.
    pub fn open(topology: &Topology) -> Result<Self, PortError> {
        let parents = topology.parents.iter().map(|parent| open(&parent.ifname));
        Ok(Self {
            gateway: open(&topology.gateway.ifname)?,
            parents: parents.collect::<Result<_, _>>()?,
        })
    }
}

/// The wires in use.
#[derive(Debug)]
pub(super) struct Ports {
    gateway: AsyncRaw,
    parents: Vec<AsyncRaw>,
}

impl Ports {
    /// Hands the sockets to the runtime of the calling task.
    pub(super) fn register(sockets: Sockets) -> Result<Self, PortError> {
        let register = |socket, port: String| {
            AsyncRaw::register(socket).map_err(|source| PortError::Register { port, source })
        };
        let numbered = sockets.parents.into_iter().enumerate();
        Ok(Self {
            gateway: register(sockets.gateway, "gateway".to_owned())?,
            parents: numbered
                .map(|(at, socket)| register(socket, at.to_string()))
                .collect::<Result<_, _>>()?,
        })
    }

    pub(super) fn get(&self, port: Port) -> Option<&AsyncRaw> {
        match port {
            Port::Gateway => Some(&self.gateway),
            Port::Parent(at) => self.parents.get(at),
        }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = Port> + use<> {
        let parents = (0..self.parents.len()).map(Port::Parent);
        std::iter::once(Port::Gateway).chain(parents)
    }
}

/// Under which head a refused frame is counted.
pub(super) fn classify(error: &io::Error) -> Lost {
    match errno(error) {
        Some(Errno::EAGAIN | Errno::ENOBUFS) => Lost::Busy,
        Some(Errno::EMSGSIZE) => Lost::TooLong,
        _ if is_link_gone(error) => Lost::LinkDown,
        _ => Lost::Refused,
    }
}

/// The error number, if the system gave one.
pub(super) fn errno(error: &io::Error) -> Option<Errno> {
    error.raw_os_error().map(Errno::from_raw)
}

fn open(ifname: &IfName) -> Result<RawSocket, PortError> {
    let ifindex = if_nametoindex(ifname.as_str()).map_err(|errno| PortError::NoLink {
        ifname: ifname.clone(),
        source: errno.into(),
    })?;
    RawSocket::open(ifindex).map_err(|source| PortError::Socket {
        ifname: ifname.clone(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_told_apart() {
        let cases = [
            (Errno::EAGAIN, Lost::Busy),
            (Errno::ENOBUFS, Lost::Busy),
            (Errno::EMSGSIZE, Lost::TooLong),
            (Errno::ENETDOWN, Lost::LinkDown),
            (Errno::ENXIO, Lost::LinkDown),
            (Errno::EINVAL, Lost::Refused),
        ];
        for (errno, lost) in cases {
            assert_eq!(classify(&errno.into()), lost, "{errno}");
        }
    }
}
