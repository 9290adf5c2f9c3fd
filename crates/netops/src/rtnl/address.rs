//! Addresses of links.

use std::net::IpAddr;

use ipnet::IpNet;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{
    AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage,
};
use rtnetlink::AddressMessageBuilder;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::{CREATE, DUMP, Rtnl, RtnlError};

/// An address on a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// Address with its prefix length; host bits kept.
    pub address: IpNet,
    /// Index of the link.
    pub ifindex: u32,
    /// Duplicate address detection is not over (IPv6): not usable yet.
    pub tentative: bool,
}

impl Rtnl {
    /// Adds an address; one that is there already is fine. IPv6 addresses come without duplicate
    /// address detection: a cloud fabric drops its `::`-sourced probes, and the cloud assigns
    /// the address anyway.
    ///
    /// # Errors
    /// [`RtnlError`]; `EACCES` for IPv6 on a link with `disable_ipv6=1`.
    pub async fn add_address(&self, ifindex: u32, address: IpNet) -> Result<(), RtnlError> {
        let message = RouteNetlinkMessage::NewAddress(address_message(ifindex, address));
        let tried = || format!("add address {address} to link {ifindex}");
        match self.acknowledged(message, CREATE, tried).await {
            Err(error) if error.is_exists() => Ok(()),
            result => result,
        }
    }

    /// All addresses of a link.
    ///
    /// # Errors
    /// [`RtnlError`].
    pub async fn addresses(&self, ifindex: u32) -> Result<Vec<Address>, RtnlError> {
        let message = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        let tried = || format!("list addresses of link {ifindex}");
        let answers = self.request(message, DUMP, tried).await?;
        Ok(answers
            .into_iter()
            .filter_map(read_address)
            .filter(|a| a.ifindex == ifindex)
            .collect())
    }
}

fn address_message(ifindex: u32, address: IpNet) -> AddressMessage {
    match address {
        IpNet::V4(net) => AddressMessageBuilder::<Ipv4Addr>::new()
            .index(ifindex)
            .address(net.addr(), net.prefix_len())
            .build(),
        IpNet::V6(net) => {
            let mut message = AddressMessageBuilder::<Ipv6Addr>::new()
                .index(ifindex)
                .address(net.addr(), net.prefix_len())
                .build();
            message.header.flags = AddressHeaderFlags::Nodad;
            message
                .attributes
                .push(AddressAttribute::Flags(AddressFlags::Nodad));
            message
        }
    }
}

/// `None` for messages that are no address.
fn read_address(message: RouteNetlinkMessage) -> Option<Address> {
    let RouteNetlinkMessage::NewAddress(message) = message else {
        return None;
    };
    let find =
        |pick: fn(&AddressAttribute) -> Option<IpAddr>| message.attributes.iter().find_map(pick);
    // On a point-to-point link IFA_ADDRESS is the peer; IFA_LOCAL is absent for IPv6.
    let ip = find(|a| {
        if let AddressAttribute::Local(ip) = a {
            Some(*ip)
        } else {
            None
        }
    })
    .or_else(|| {
        find(|a| {
            if let AddressAttribute::Address(ip) = a {
                Some(*ip)
            } else {
                None
            }
        })
    })?;
    Some(Address {
        address: IpNet::new(ip, message.header.prefix_len).ok()?,
        ifindex: message.header.index,
        tentative: message.header.flags.contains(AddressHeaderFlags::Tentative),
    })
}
