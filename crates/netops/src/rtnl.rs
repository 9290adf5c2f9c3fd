//! Typed rtnetlink requests: links, addresses, routes, namespace ids.
//!
//! Owns the netlink sockets. A socket belongs to the namespace it was opened in and keeps that
//! namespace alive: open one per operation and [`Rtnl::close`] it. Every request is counted, so
//! that a test can hold an attach to its budget. May touch the kernel by NETLINK_ROUTE only.

mod address;
mod counters;
mod error;
mod link;
mod link_events;
mod parent_device;
mod qdisc;
mod route;
mod vlan_support;

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::StreamExt;
use netlink_packet_route::RouteNetlinkMessage;
use rtnetlink::packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
};
use rtnetlink::proto::Connection;
use rtnetlink::sys::AsyncSocket;
use tokio::runtime;
use tokio::task::JoinHandle;

use crate::netns::Netns;

pub use address::Address;
pub use counters::LinkCounters;
pub use error::{Refusal, RtnlError};
pub use link::{Link, LinkKind, VethSpec, VlanSpec};
pub use link_events::LinkEvents;
pub use qdisc::{Filter, Hook};
pub use route::Route;

/// Flags of a request that makes a new object.
const CREATE: u16 = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
/// Flags of a request that changes or deletes an object.
const CHANGE: u16 = NLM_F_REQUEST | NLM_F_ACK;
/// Flags of a request for one object.
const GET: u16 = NLM_F_REQUEST;
/// Flags of a request for all objects.
const DUMP: u16 = NLM_F_REQUEST | NLM_F_DUMP;

type Opened = io::Result<(Connection<RouteNetlinkMessage>, rtnetlink::Handle)>;

/// A netlink connection in one namespace. Its task runs on the runtime that opened it.
#[derive(Debug)]
pub struct Rtnl {
    handle: rtnetlink::Handle,
    connection: JoinHandle<()>,
    netns: String,
    sent: AtomicU64,
}

impl Rtnl {
    /// Opens a connection in the namespace of the calling thread. Call it on a tokio runtime.
    ///
    /// # Errors
    /// [`RtnlError::Socket`].
    pub fn open() -> Result<Self, RtnlError> {
        Self::start(open_socket(), "the current network namespace".to_owned())
    }

    /// Opens a connection in `netns`, from a thread that entered it.
    ///
    /// # Errors
    /// [`RtnlError::Netns`] when it cannot be entered, [`RtnlError::Socket`].
    pub async fn open_in(netns: &Netns) -> Result<Self, RtnlError> {
        let runtime = runtime::Handle::current();
        let opened = netns.run_async(move || {
            // The socket registers with the reactor of the runtime that will drive it.
            let _entered = runtime.enter();
            open_socket()
        });
        let name = format!("network namespace {netns}");
        match opened.await {
            Ok(opened) => Self::start(opened, name),
            Err(source) => Err(RtnlError::Netns {
                netns: name,
                source,
            }),
        }
    }

    fn start(opened: Opened, netns: String) -> Result<Self, RtnlError> {
        match opened {
            Ok((connection, handle)) => Ok(Self {
                handle,
                connection: tokio::spawn(connection),
                netns,
                sent: AtomicU64::new(0),
            }),
            Err(source) => Err(RtnlError::Socket { netns, source }),
        }
    }

    /// Requests sent so far on this connection.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Closes the socket and waits until it is closed: afterwards it keeps no namespace alive.
    /// A dropped connection is closed too, a little later.
    pub async fn close(mut self) {
        self.connection.abort();
        // An aborted task ends with a cancellation error: that is what was asked for.
        drop((&mut self.connection).await);
    }

    /// Sends one request and collects the answers.
    async fn request(
        &self,
        message: RouteNetlinkMessage,
        flags: u16,
        tried: impl Fn() -> String,
    ) -> Result<Vec<RouteNetlinkMessage>, RtnlError> {
        let tried = || format!("{} in {}", tried(), self.netns);
        let mut request = NetlinkMessage::from(message);
        request.header.flags = flags;
        self.sent.fetch_add(1, Ordering::Relaxed);
        let Ok(mut answers) = self.handle.clone().request(request) else {
            return Err(RtnlError::Closed { tried: tried() });
        };
        let mut collected = Vec::new();
        let mut answered = flags & NLM_F_ACK != 0 || flags & NLM_F_DUMP != 0;
        while let Some(answer) = answers.next().await {
            match answer.payload {
                NetlinkPayload::InnerMessage(inner) => collected.push(inner),
                NetlinkPayload::Error(error) if error.code.is_some() => {
                    let source = Refusal::from_message(&error);
                    return Err(RtnlError::Refused {
                        tried: tried(),
                        source,
                    });
                }
                _ => {}
            }
            answered = true;
        }
        // A connection that died closes the stream like an acknowledgement does.
        if !answered || self.connection.is_finished() {
            return Err(RtnlError::Closed { tried: tried() });
        }
        Ok(collected)
    }
}

impl Drop for Rtnl {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

fn open_socket() -> Opened {
    let (mut connection, handle, _unsolicited) = rtnetlink::new_connection()?;
    let socket = connection.socket_mut().socket_mut();
    // Errors with the kernel's own words, and without a copy of the request before them.
    socket.set_ext_ack(true)?;
    socket.set_cap_ack(true)?;
    Ok((connection, handle))
}

#[cfg(test)]
mod tests;
