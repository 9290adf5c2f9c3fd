//! Changes of links as the kernel tells them: multicast group `RTNLGRP_LINK` (rtnetlink(7)).

use std::io;

use futures::StreamExt;
use futures::channel::mpsc::UnboundedReceiver;
use netlink_packet_route::RouteNetlinkMessage;
use rtnetlink::MulticastGroup;
use rtnetlink::packet_core::NetlinkMessage;
use rtnetlink::proto::Connection;
use rtnetlink::sys::SocketAddr;
use tokio::runtime;
use tokio::task::JoinHandle;

use super::RtnlError;
use crate::netns::Netns;

type Messages = UnboundedReceiver<(NetlinkMessage<RouteNetlinkMessage>, SocketAddr)>;

/// Tells that links of a namespace have changed, from when it was opened. Its socket keeps the
/// namespace alive until this is dropped.
#[derive(Debug)]
pub struct LinkEvents {
    messages: Messages,
    connection: JoinHandle<()>,
}

impl LinkEvents {
    /// Listens in `netns`.
    ///
    /// # Errors
    /// [`RtnlError::Netns`] when it cannot be entered, [`RtnlError::Socket`].
    pub async fn open_in(netns: &Netns) -> Result<Self, RtnlError> {
        let runtime = runtime::Handle::current();
        let opened = netns.run_async(move || {
            // The socket registers with the reactor of the runtime that will drive it.
            let _entered = runtime.enter();
            open()
        });
        let name = format!("network namespace {netns}");
        match opened.await {
            Ok(Ok((connection, messages))) => Ok(Self {
                messages,
                connection: tokio::spawn(connection),
            }),
            Ok(Err(source)) => Err(RtnlError::Socket {
                netns: name,
                source,
            }),
            Err(source) => Err(RtnlError::Netns {
                netns: name,
                source,
            }),
        }
    }

    /// Waits until some link has come, gone or changed; what has happened since the last answer counts
    /// as one. `false`: the socket is gone, and nothing will be told any more.
    pub async fn changed(&mut self) -> bool {
        // A message that says that others were lost is one, too.
        let told = self.messages.next().await.is_some();
        while let Ok(_more) = self.messages.try_recv() {}
        told
    }
}

impl Drop for LinkEvents {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

fn open() -> io::Result<(Connection<RouteNetlinkMessage>, Messages)> {
    let (connection, _requests, messages) =
        rtnetlink::new_multicast_connection(&[MulticastGroup::Link])?;
    Ok((connection, messages))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::rtnl::{Rtnl, VethSpec};
    use crate::testing::{TestNetns, root_or_skip};

    async fn told(events: &mut LinkEvents) -> bool {
        let soon = Duration::from_secs(5);
        tokio::time::timeout(soon, events.changed()).await.unwrap()
    }

    #[tokio::test]
    async fn a_link_that_comes_changes_or_goes_is_told_of() {
        if !root_or_skip("a_link_that_comes_changes_or_goes_is_told_of") {
            return;
        }
        let near = TestNetns::new("near");
        let mut events = LinkEvents::open_in(&near.netns).await.unwrap();
        let rtnl = Rtnl::open_in(&near.netns).await.unwrap();
        let spec = VethSpec {
            name: "v0",
            peer: "v1",
            peer_target: None,
            mac: None,
            peer_mac: None,
        };
        rtnl.add_veth(&spec).await.unwrap();
        assert!(told(&mut events).await);
        let index = rtnl.link_by_name("v0").await.unwrap().unwrap().ifindex;
        // Whatever was still on its way; then only what is asked for.
        while tokio::time::timeout(Duration::from_millis(200), events.changed())
            .await
            .is_ok()
        {}
        let mac = "02:00:00:00:00:07".parse().unwrap();
        rtnl.set_mac(index, mac).await.unwrap();
        assert!(told(&mut events).await);
        rtnl.delete_link(index).await.unwrap();
        assert!(told(&mut events).await);
    }
}
