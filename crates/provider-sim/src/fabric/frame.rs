//! The headers of a frame that the fabric judges by. Pure; one pass, no allocation.

use std::net::{Ipv4Addr, Ipv6Addr};

use spiderpool_api::value::Mac;
use spiderpool_netops::arp::{self, ArpPacket};
use spiderpool_netops::ndp::{self, NdpError, NdpPacket};

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_8021Q: u16 = 0x8100;
const ETHERTYPE_8021AD: u16 = 0x88a8;

/// An Ethernet frame without checksum is at least this long.
const MIN_FRAME_LEN: usize = 60;

/// A frame as the table sees it. The outermost tag is beside it, not in the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameView {
    /// Ethernet destination.
    pub destination: Mac,
    /// Ethernet source.
    pub source: Mac,
    /// What it carries.
    pub content: Content,
}

/// What a frame carries, as far as the fabric reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// ARP for IPv4.
    Arp(ArpPacket),
    /// A valid Neighbor Solicitation or Advertisement.
    Ndp(NdpPacket),
    /// Any IPv4 packet.
    Ipv4 {
        /// IPv4 source.
        source: Ipv4Addr,
        /// IPv4 destination.
        destination: Ipv4Addr,
    },
    /// Any other IPv6 packet.
    Ipv6 {
        /// IPv6 source.
        source: Ipv6Addr,
        /// IPv6 destination.
        destination: Ipv6Addr,
    },
    /// A second VLAN tag.
    DoubleTag,
    /// A protocol the fabric does not carry.
    OtherProtocol,
    /// Too short for its own headers, or a neighbour discovery packet a host would discard.
    Malformed,
}

impl FrameView {
    /// Reads a frame without its outermost tag; none if it has no whole Ethernet header.
    #[must_use]
    pub fn parse(frame: &[u8]) -> Option<Self> {
        let (destination, rest) = frame.split_first_chunk::<6>()?;
        let (source, rest) = rest.split_first_chunk::<6>()?;
        let (ethertype, payload) = rest.split_first_chunk::<2>()?;
        let content = match u16::from_be_bytes(*ethertype) {
            arp::ETHERTYPE => match ArpPacket::decode(payload) {
                Ok(packet) => Content::Arp(packet),
                Err(_) => Content::Malformed,
            },
            ETHERTYPE_IPV4 => ipv4(payload).unwrap_or(Content::Malformed),
            ndp::ETHERTYPE => ipv6(payload).unwrap_or(Content::Malformed),
            ETHERTYPE_8021Q | ETHERTYPE_8021AD => Content::DoubleTag,
            _ => Content::OtherProtocol,
        };
        Some(Self {
            destination: Mac::new(*destination),
            source: Mac::new(*source),
            content,
        })
    }
}

/// A whole frame: Ethernet header, `payload`, padding to the minimum.
#[must_use]
pub fn build(destination: Mac, source: Mac, ethertype: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(MIN_FRAME_LEN.max(14 + payload.len()));
    frame.extend_from_slice(&destination.octets());
    frame.extend_from_slice(&source.octets());
    frame.extend_from_slice(&ethertype.to_be_bytes());
    frame.extend_from_slice(payload);
    if frame.len() < MIN_FRAME_LEN {
        frame.resize(MIN_FRAME_LEN, 0);
    }
    frame
}

fn ipv4(packet: &[u8]) -> Option<Content> {
    let (head, rest) = packet.split_first_chunk::<12>()?;
    let (source, rest) = rest.split_first_chunk::<4>()?;
    let destination = rest.first_chunk::<4>()?;
    let [version_and_len, ..] = *head;
    let header_len = usize::from(version_and_len & 0x0f) * 4;
    let sound = version_and_len >> 4 == 4 && header_len >= 20 && packet.len() >= header_len;
    sound.then_some(Content::Ipv4 {
        source: Ipv4Addr::from(*source),
        destination: Ipv4Addr::from(*destination),
    })
}

fn ipv6(packet: &[u8]) -> Option<Content> {
    match NdpPacket::decode(packet) {
        Ok(packet) => return Some(Content::Ndp(packet)),
        Err(NdpError::OtherProtocol) => {}
        // A truncated packet may be of another protocol: segments with their headers alone.
        Err(NdpError::Truncated(_)) if !claims_ndp(packet) => {}
        Err(_) => return None,
    }
    let (head, rest) = packet.split_first_chunk::<8>()?;
    let (source, rest) = rest.split_first_chunk::<16>()?;
    let destination = rest.first_chunk::<16>()?;
    let [version, ..] = *head;
    (version >> 4 == 6).then_some(Content::Ipv6 {
        source: Ipv6Addr::from(*source),
        destination: Ipv6Addr::from(*destination),
    })
}

/// Whether the first bytes say ICMPv6 solicitation or advertisement.
fn claims_ndp(packet: &[u8]) -> bool {
    packet.get(6) == Some(&58) && matches!(packet.get(40), Some(135 | 136))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const A: Mac = Mac::new([0xfa, 0x16, 0x3e, 0, 0, 0x0a]);
    const B: Mac = Mac::new([0xfa, 0x16, 0x3e, 0, 0, 0x0b]);

    fn content(ethertype: u16, payload: &[u8]) -> Content {
        let mut frame = build(B, A, ethertype, payload);
        frame.truncate(14 + payload.len());
        let view = FrameView::parse(&frame).unwrap();
        assert_eq!((view.destination, view.source), (B, A));
        view.content
    }

    fn ipv4_header() -> Vec<u8> {
        let mut header = vec![0x45, 0, 0, 20, 0, 0, 0, 0, 64, 6, 0, 0];
        header.extend_from_slice(&[172, 16, 0, 10, 172, 16, 0, 11]);
        header
    }

    fn ipv6_header(next: u8) -> Vec<u8> {
        let mut header = vec![0x60, 0, 0, 0, 0, 0, next, 64];
        header.extend_from_slice(&"fd00::a".parse::<Ipv6Addr>().unwrap().octets());
        header.extend_from_slice(&"fd00::b".parse::<Ipv6Addr>().unwrap().octets());
        header
    }

    #[test]
    fn contents_are_told_apart() {
        let arp = ArpPacket::request(A, [172, 16, 0, 10].into(), [172, 16, 0, 1].into());
        let ask =
            NdpPacket::solicitation("fd00::a".parse().unwrap(), A, "fd00::1".parse().unwrap());
        let v4 = Content::Ipv4 {
            source: [172, 16, 0, 10].into(),
            destination: [172, 16, 0, 11].into(),
        };
        let v6 = Content::Ipv6 {
            source: "fd00::a".parse().unwrap(),
            destination: "fd00::b".parse().unwrap(),
        };
        // IPv6 TCP segments larger than the announced length, or with the length 0 of a jumbo.
        let mut long = ipv6_header(6);
        long[4..6].copy_from_slice(&60_000u16.to_be_bytes());
        let mut echo = ipv6_header(58);
        echo[5] = 8;
        echo.extend_from_slice(&[128, 0, 0, 0, 0, 0, 0, 0]);
        let mut damaged = ask.encode();
        damaged[70] ^= 1;
        let mut routed = ask.encode();
        routed[7] = 64;
        let mut ihl_4 = ipv4_header();
        ihl_4[0] = 0x44;
        let mut ihl_15 = ipv4_header();
        ihl_15[0] = 0x4f;
        #[rustfmt::skip] // a row a line
        let cases: Vec<(&str, u16, Vec<u8>, Content)> = vec![
            ("arp", 0x0806, arp.encode(), Content::Arp(arp)),
            ("arp cut", 0x0806, arp.encode()[..20].to_vec(), Content::Malformed),
            ("ipv4", 0x0800, ipv4_header(), v4),
            ("ipv4 cut", 0x0800, ipv4_header()[..19].to_vec(), Content::Malformed),
            ("ipv4 header length 16", 0x0800, ihl_4, Content::Malformed),
            ("ipv4 options missing", 0x0800, ihl_15, Content::Malformed),
            ("ipv6 in ipv4", 0x0800, ipv6_header(6), Content::Malformed),
            ("ipv6", 0x86dd, ipv6_header(6), v6),
            ("ipv6 segments", 0x86dd, long, v6),
            ("ipv6 echo", 0x86dd, echo, v6),
            ("ipv6 cut", 0x86dd, ipv6_header(6)[..39].to_vec(), Content::Malformed),
            ("ipv4 in ipv6", 0x86dd, [ipv4_header(), ipv4_header()].concat(), Content::Malformed),
            ("solicitation", 0x86dd, ask.encode(), Content::Ndp(ask)),
            ("solicitation damaged", 0x86dd, damaged, Content::Malformed),
            ("solicitation routed", 0x86dd, routed, Content::Malformed),
            ("solicitation cut", 0x86dd, ask.encode()[..60].to_vec(), Content::Malformed),
            ("second tag", 0x8100, vec![0, 7, 8, 0], Content::DoubleTag),
            ("provider tag", 0x88a8, vec![0, 7, 8, 0], Content::DoubleTag),
            ("lldp", 0x88cc, vec![2, 7], Content::OtherProtocol),
        ];
        for (name, ethertype, payload, expected) in cases {
            assert_eq!(content(ethertype, &payload), expected, "{name}");
        }
    }

    #[test]
    fn frames_shorter_than_a_header_are_none_and_built_ones_are_padded() {
        for len in 0..14 {
            assert_eq!(FrameView::parse(&[0xff; 13][..len.min(13)]), None);
        }
        assert_eq!(build(A, B, 0x0806, &[1; 28]).len(), 60);
        assert_eq!(build(A, B, 0x86dd, &[1; 72]).len(), 86);
    }

    proptest! {
        #[test]
        fn parse_never_panics(
            kind in prop::sample::select(vec![0x0800u16, 0x0806, 0x86dd, 0x8100, 1500]),
            payload in proptest::collection::vec(any::<u8>(), 0..120),
        ) {
            let mut frame = build(B, A, kind, &payload);
            frame.truncate(14 + payload.len());
            prop_assert!(FrameView::parse(&frame).is_some());
        }
    }
}
