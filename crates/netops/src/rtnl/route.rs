//! Routes of the main table.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use rtnetlink::RouteMessageBuilder;
use rtnetlink::packet_core::{NLM_F_ACK, NLM_F_APPEND, NLM_F_CREATE, NLM_F_REQUEST};

use super::{DUMP, Rtnl, RtnlError};

/// A unicast route of the main table through one link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Destination, host bits cleared.
    pub dst: IpNet,
    /// Next hop; `None`: the destination is on the link.
    pub gateway: Option<IpAddr>,
    /// Index of the link.
    pub ifindex: u32,
}

impl Rtnl {
    /// Adds a route. The same route being there already is fine; one to the same destination by
    /// another way stays and the new one stands behind it (IPv4) or beside it (IPv6), as the
    /// usual CNI address step does.
    ///
    /// # Errors
    /// [`RtnlError`]; `ENETUNREACH` or `EHOSTUNREACH` when the gateway is not on the link.
    pub async fn add_route(&self, route: &Route) -> Result<(), RtnlError> {
        let flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_APPEND;
        let tried = || match route.gateway {
            Some(gateway) => format!(
                "add route {} via {gateway} on link {}",
                route.dst, route.ifindex
            ),
            None => format!("add on-link route {} on link {}", route.dst, route.ifindex),
        };
        match self
            .acknowledged(
                RouteNetlinkMessage::NewRoute(route_message(route)),
                flags,
                tried,
            )
            .await
        {
            Err(error) if error.is_exists() => Ok(()),
            result => result,
        }
    }

    /// All unicast routes of the main table through a link, both families.
    ///
    /// # Errors
    /// [`RtnlError`].
    pub async fn routes(&self, ifindex: u32) -> Result<Vec<Route>, RtnlError> {
        let mut routes = Vec::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut message = RouteMessage::default();
            message.header.address_family = family;
            let tried = || format!("list routes of link {ifindex}");
            let answers = self
                .request(RouteNetlinkMessage::GetRoute(message), DUMP, tried)
                .await?;
            routes.extend(answers.into_iter().filter_map(read_route));
        }
        routes.retain(|route| route.ifindex == ifindex);
        Ok(routes)
    }
}

fn route_message(route: &Route) -> RouteMessage {
    let mut message = match route.dst {
        IpNet::V4(_) => RouteMessageBuilder::<Ipv4Addr>::new().build(),
        IpNet::V6(_) => RouteMessageBuilder::<Ipv6Addr>::new().build(),
    };
    message.header.protocol = RouteProtocol::Boot;
    message.header.destination_prefix_length = route.dst.prefix_len();
    let dst = route.dst.network();
    message
        .attributes
        .push(RouteAttribute::Destination(dst.into()));
    match route.gateway {
        Some(gateway) => message
            .attributes
            .push(RouteAttribute::Gateway(gateway.into())),
        None => message.header.scope = RouteScope::Link,
    }
    message.attributes.push(RouteAttribute::Oif(route.ifindex));
    message
}

/// `None` for messages that are no unicast route of the main table with one next hop.
fn read_route(message: RouteNetlinkMessage) -> Option<Route> {
    let RouteNetlinkMessage::NewRoute(message) = message else {
        return None;
    };
    let header = &message.header;
    if header.table != RouteHeader::RT_TABLE_MAIN || header.kind != RouteType::Unicast {
        return None;
    }
    let anywhere: IpAddr = match header.address_family {
        AddressFamily::Inet => Ipv4Addr::UNSPECIFIED.into(),
        AddressFamily::Inet6 => Ipv6Addr::UNSPECIFIED.into(),
        _ => return None,
    };
    let mut dst = anywhere;
    let mut gateway = None;
    let mut ifindex = None;
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(address) => dst = read_ip(address)?,
            RouteAttribute::Gateway(address) => gateway = read_ip(address),
            RouteAttribute::Oif(index) => ifindex = Some(*index),
            _ => {}
        }
    }
    let dst = IpNet::new(dst, header.destination_prefix_length).ok()?;
    Some(Route {
        dst,
        gateway,
        ifindex: ifindex?,
    })
}

fn read_ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(ip) => Some((*ip).into()),
        RouteAddress::Inet6(ip) => Some((*ip).into()),
        _ => None,
    }
}
