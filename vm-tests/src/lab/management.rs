//! The management network of a cloud with a provider: a NIC on each node, a namespace that routes
//! between them and where the provider listens. Owns names and addresses of that network.
//!
//! ```text
//!   node-1 eth0 10.91.1.2/30 ── 10.91.1.1 ┐
//!   node-2 eth0 10.91.2.2/30 ── 10.91.2.1 ┴ routes; provider at 10.91.0.1
//! ```

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use anyhow::{Context, Result};
use spiderpool_netops::netns::Netns;
use spiderpool_netops::rtnl::{Route, VethSpec};

use super::namespace::{LO_NAME, connect, in_netns, set_sysctl};

/// Name of the management NIC on every node.
pub const NIC: &str = "eth0";
/// Where the provider listens.
pub const PROVIDER: Ipv4Addr = Ipv4Addr::new(10, 91, 0, 1);
/// Port of the contract without TLS.
pub const HTTP_PORT: u16 = 8080;
/// Port of the contract with TLS.
pub const TLS_PORT: u16 = 8443;
/// Port of the first node's API.
const API_PORT: u16 = 16443;
/// All of the network.
const NETWORK: &str = "10.91.0.0/16";

/// Management address of node number `index`, from 1.
#[must_use]
pub const fn node_address(index: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 91, index, 2)
}

/// Where node number `index` serves its API.
#[must_use]
pub fn api_address(index: u8) -> SocketAddr {
    SocketAddr::new(node_address(index).into(), API_PORT)
}

/// Makes a namespace the router that the provider listens on.
///
/// # Errors
/// The kernel refuses.
pub fn make_router(router: &Netns) -> Result<()> {
    set_sysctl(router, "ipv4/ip_forward", "1")?;
    add_address(router, LO_NAME, &format!("{PROVIDER}/32"))
}

/// Wires node number `index` to the router, both ways.
///
/// # Errors
/// The kernel refuses.
pub fn connect_node(router: &Netns, node: &Netns, index: u8) -> Result<()> {
    let peer = format!("node-{index}");
    let spec = VethSpec {
        name: NIC,
        peer: &peer,
        peer_target: Some(router),
        mac: None,
        peer_mac: None,
    };
    let nic = connect(node, &spec, router)?;
    let gateway = Ipv4Addr::new(10, 91, index, 1);
    add_address(router, &peer, &format!("{gateway}/30"))?;
    add_address(node, NIC, &format!("{}/30", node_address(index)))?;
    in_netns(node, async |rtnl| {
        let route = Route {
            dst: NETWORK.parse()?,
            gateway: Some(IpAddr::V4(gateway)),
            ifindex: nic.ifindex,
        };
        Ok(rtnl.add_route(&route).await?)
    })
}

fn add_address(netns: &Netns, link: &str, address: &str) -> Result<()> {
    in_netns(netns, async |rtnl| {
        let link = rtnl.link_by_name(link).await?;
        let link = link.context("the link is gone")?;
        Ok(rtnl.add_address(link.ifindex, address.parse()?).await?)
    })
    .with_context(|| format!("add {address} to {link} in {netns}"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::lab::namespace::{NamedNetns, root_or_skip};
    use crate::lab::peers::ping;

    #[test]
    fn nodes_reach_the_provider_and_each_other() {
        if !root_or_skip("nodes_reach_the_provider_and_each_other") {
            return;
        }
        let router = NamedNetns::create("router").unwrap();
        make_router(&router).unwrap();
        let nodes = [1, 2].map(|index| {
            let node = NamedNetns::create("node").unwrap();
            connect_node(&router, &node, index).unwrap();
            node
        });
        for to in [PROVIDER, node_address(2)] {
            let answered = ping(&nodes[0], to.into(), 2, Duration::from_secs(2)).unwrap();
            assert!(answered.complete(), "{to}: {answered:?}");
        }
    }
}
