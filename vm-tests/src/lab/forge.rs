//! Frames that do not belong to the Pod they leave, as a process in it with `CAP_NET_RAW` can send
//! them. May open a packet socket on the Pod's link.

use std::net::{IpAddr, Ipv4Addr};

use anyhow::{Context, Result};
use spiderpool_api::value::Mac;
use spiderpool_netops::packet::RawSocket;
use spiderpool_netops::packet::vnet::VnetHdr;

use super::Pod;
use super::inspect::LinkState;
use super::layout::GATEWAY_V4;

/// The MAC that is claimed.
pub const FOREIGN_MAC: Mac = Mac::new([0xfa, 0x16, 0x3e, 9, 9, 9]);
/// The address that is claimed.
pub const FOREIGN_IP: Ipv4Addr = Ipv4Addr::new(10, 9, 9, 9);

const TO_ALL: [u8; 6] = [0xff; 6];
const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_ARP: u16 = 0x0806;
/// Without padding, drivers and links disagree about the length.
const SHORTEST_FRAME: usize = 60;

/// What is wrong with a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forgery {
    /// The source address of an IPv4 packet.
    SourceIp,
    /// The source MAC.
    SourceMac,
    /// The sender's address of an ARP request.
    ArpSpoof,
}

impl Forgery {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::SourceIp, Self::SourceMac, Self::ArpSpoof];

    /// What the observer calls it (spec dataplane 5.5).
    #[must_use]
    pub const fn kind(self) -> &'static str {
        match self {
            Self::SourceIp => "src_ip4",
            Self::SourceMac => "src_mac",
            Self::ArpSpoof => "arp_spa",
        }
    }

    /// What the fabric drops it for.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::SourceMac => "src_mac",
            Self::SourceIp | Self::ArpSpoof => "src_ip",
        }
    }

    /// Sends one such frame from a Pod with an IPv4 address.
    ///
    /// # Errors
    /// The Pod has no NIC with such an address, or the kernel refuses.
    pub fn send(self, pod: &Pod) -> Result<()> {
        let nic = pod.nic()?.context("the Pod has no NIC")?;
        let (mac, ip) = identity(&nic)?;
        let socket = pod.netns().run(|| RawSocket::open(nic.link.ifindex))??;
        let frame = self.frame(mac, ip);
        socket
            .try_send(&frame, None, VnetHdr::default())
            .with_context(|| format!("send a frame with a forged {}", self.kind()))?;
        Ok(())
    }

    fn frame(self, own: Mac, own_ip: Ipv4Addr) -> Vec<u8> {
        let (src, ethertype, payload) = match self {
            Self::SourceIp => (own, ETHERTYPE_IPV4, ipv4(FOREIGN_IP)),
            Self::SourceMac => (FOREIGN_MAC, ETHERTYPE_IPV4, ipv4(own_ip)),
            Self::ArpSpoof => (own, ETHERTYPE_ARP, arp_request(own, FOREIGN_IP)),
        };
        let ethertype = ethertype.to_be_bytes();
        let mut frame = [&TO_ALL[..], &src.octets(), &ethertype, &payload].concat();
        frame.resize(SHORTEST_FRAME, 0);
        frame
    }
}

fn identity(nic: &LinkState) -> Result<(Mac, Ipv4Addr)> {
    let mac = nic.link.mac.context("the NIC has no MAC")?;
    let v4 = |address: IpAddr| match address {
        IpAddr::V4(ip) => Some(ip),
        IpAddr::V6(_) => None,
    };
    let mut addresses = nic.addresses.iter();
    let ip = addresses.find_map(|address| v4(address.address.addr()));
    Ok((mac, ip.context("the NIC has no IPv4 address")?))
}

/// A header to the gateway without payload; RFC 791.
fn ipv4(src: Ipv4Addr) -> Vec<u8> {
    let head = [0x45, 0, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0];
    [&head[..], &src.octets(), &GATEWAY_V4.octets()].concat()
}

/// Who has the gateway's address; RFC 826.
fn arp_request(mac: Mac, sender: Ipv4Addr) -> Vec<u8> {
    let head = [0, 1, 8, 0, 6, 4, 0, 1];
    let (mac, target) = (mac.octets(), GATEWAY_V4.octets());
    [&head[..], &mac, &sender.octets(), &[0; 6], &target].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_frame_lies_in_one_place() {
        let own = Mac::new([2, 0, 0, 0, 0, 1]);
        let ip = Ipv4Addr::new(172, 91, 0, 7);
        let frames = Forgery::ALL.map(|forgery| forgery.frame(own, ip));
        let [source_ip, source_mac, arp] = &frames;
        assert_eq!(
            (&source_ip[6..12], &source_ip[26..30]),
            (&own.octets()[..], &FOREIGN_IP.octets()[..])
        );
        assert_eq!(
            (&source_mac[6..12], &source_mac[26..30]),
            (&FOREIGN_MAC.octets()[..], &ip.octets()[..])
        );
        assert_eq!(
            (&arp[22..28], &arp[28..32]),
            (&own.octets()[..], &FOREIGN_IP.octets()[..])
        );
        assert!(frames.iter().all(|frame| frame.len() == SHORTEST_FRAME));
    }
}
