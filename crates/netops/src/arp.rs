//! ARP for IPv4 over Ethernet (RFC 826), as bytes behind the Ethernet header. Pure: no socket, no
//! clock. Who sends what and when is `probe`'s matter.

use std::net::Ipv4Addr;

use spiderpool_api::value::Mac;

/// EtherType of ARP.
pub const ETHERTYPE: u16 = 0x0806;

/// Bytes of an ARP packet for IPv4 over Ethernet; what follows in a frame is padding.
pub const LEN: usize = 28;

/// Hardware type 1, protocol type IPv4, address lengths 6 and 4: the only kind decoded here.
const PREFIX: [u8; 6] = [0, 1, 8, 0, 6, 4];

/// Why bytes are not an ARP packet for IPv4 over Ethernet.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArpError {
    /// Fewer bytes than [`LEN`].
    #[error("ARP packet has {0} bytes, 28 are needed")]
    Truncated(usize),
    /// Another hardware, protocol or address length.
    #[error("ARP packet is not IPv4 over Ethernet")]
    NotEthernetIpv4,
    /// Neither request nor reply (RARP, InARP).
    #[error("ARP operation {0} is neither request nor reply")]
    Operation(u16),
}

/// What the sender wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// "Who has the target address?" (opcode 1).
    Request,
    /// "The sender has it." (opcode 2).
    Reply,
}

/// One ARP packet. Field names are RFC 826's: sender and target hardware and protocol address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArpPacket {
    /// Request or reply.
    pub operation: Operation,
    /// Sender hardware address.
    pub sha: Mac,
    /// Sender protocol address.
    pub spa: Ipv4Addr,
    /// Target hardware address; zero where unknown.
    pub tha: Mac,
    /// Target protocol address.
    pub tpa: Ipv4Addr,
}

impl ArpPacket {
    /// Asks who has `target`.
    #[must_use]
    pub const fn request(sha: Mac, spa: Ipv4Addr, target: Ipv4Addr) -> Self {
        Self {
            operation: Operation::Request,
            sha,
            spa,
            tha: Mac::ZERO,
            tpa: target,
        }
    }

    /// An announcement: a request with SPA = TPA (RFC 5227 section 3), which neighbours take as
    /// an update and nobody answers.
    #[must_use]
    pub const fn announcement(mac: Mac, ip: Ipv4Addr) -> Self {
        Self::request(mac, ip, ip)
    }

    /// The answer that tells the sender of `self` that `mac` has the address it asked for.
    #[must_use]
    pub const fn answer(&self, mac: Mac) -> Self {
        Self {
            operation: Operation::Reply,
            sha: mac,
            spa: self.tpa,
            tha: self.sha,
            tpa: self.spa,
        }
    }

    /// Whether this packet tells of its sender and asks nothing.
    #[must_use]
    pub fn is_announcement(&self) -> bool {
        self.spa == self.tpa
    }

    /// The packet as it goes behind the Ethernet header.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(LEN);
        out.extend_from_slice(&PREFIX);
        let opcode: u16 = match self.operation {
            Operation::Request => 1,
            Operation::Reply => 2,
        };
        out.extend_from_slice(&opcode.to_be_bytes());
        out.extend_from_slice(&self.sha.octets());
        out.extend_from_slice(&self.spa.octets());
        out.extend_from_slice(&self.tha.octets());
        out.extend_from_slice(&self.tpa.octets());
        out
    }

    /// Reads what is behind the Ethernet header. Padding after the packet is ignored: an Ethernet
    /// frame has at least 60 bytes.
    ///
    /// # Errors
    /// [`ArpError`] if the bytes are too few or another kind of ARP.
    pub fn decode(bytes: &[u8]) -> Result<Self, ArpError> {
        let truncated = || ArpError::Truncated(bytes.len());
        let (prefix, rest) = bytes.split_first_chunk::<6>().ok_or_else(truncated)?;
        let (opcode, rest) = rest.split_first_chunk::<2>().ok_or_else(truncated)?;
        let (sha, rest) = rest.split_first_chunk::<6>().ok_or_else(truncated)?;
        let (spa, rest) = rest.split_first_chunk::<4>().ok_or_else(truncated)?;
        let (tha, rest) = rest.split_first_chunk::<6>().ok_or_else(truncated)?;
        let tpa = rest.first_chunk::<4>().ok_or_else(truncated)?;
        if *prefix != PREFIX {
            return Err(ArpError::NotEthernetIpv4);
        }
        let operation = match u16::from_be_bytes(*opcode) {
            1 => Operation::Request,
            2 => Operation::Reply,
            other => return Err(ArpError::Operation(other)),
        };
        Ok(Self {
            operation,
            sha: Mac::new(*sha),
            spa: Ipv4Addr::from(*spa),
            tha: Mac::new(*tha),
            tpa: Ipv4Addr::from(*tpa),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const POD: Mac = Mac::new([0xfa, 0x16, 0x3e, 0, 0, 0x0a]);
    const GATEWAY: Mac = Mac::new([0xfa, 0x16, 0x3e, 0xff, 0xff, 0xfe]);
    const POD_IP: Ipv4Addr = Ipv4Addr::new(172, 16, 0, 10);
    const GATEWAY_IP: Ipv4Addr = Ipv4Addr::new(172, 16, 0, 1);

    const REQUEST: [u8; 28] = [
        0x00, 0x01, 0x08, 0x00, 0x06, 0x04, 0x00, 0x01, // ethernet, ipv4, request
        0xfa, 0x16, 0x3e, 0x00, 0x00, 0x0a, 0xac, 0x10, 0x00, 0x0a, // sender
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xac, 0x10, 0x00, 0x01, // target
    ];
    const REPLY: [u8; 28] = [
        0x00, 0x01, 0x08, 0x00, 0x06, 0x04, 0x00, 0x02, // ethernet, ipv4, reply
        0xfa, 0x16, 0x3e, 0xff, 0xff, 0xfe, 0xac, 0x10, 0x00, 0x01, // sender
        0xfa, 0x16, 0x3e, 0x00, 0x00, 0x0a, 0xac, 0x10, 0x00, 0x0a, // target
    ];
    const GARP: [u8; 28] = [
        0x00, 0x01, 0x08, 0x00, 0x06, 0x04, 0x00, 0x01, // ethernet, ipv4, request
        0xfa, 0x16, 0x3e, 0x00, 0x00, 0x0a, 0xac, 0x10, 0x00, 0x0a, // sender
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xac, 0x10, 0x00, 0x0a, // target = sender
    ];

    #[test]
    fn known_packets_encode_and_decode_to_the_byte() {
        let request = ArpPacket::request(POD, POD_IP, GATEWAY_IP);
        let cases = [
            ("request", request, REQUEST),
            ("reply", request.answer(GATEWAY), REPLY),
            ("announcement", ArpPacket::announcement(POD, POD_IP), GARP),
        ];
        for (name, packet, bytes) in cases {
            assert_eq!(packet.encode(), bytes, "{name}");
            assert_eq!(ArpPacket::decode(&bytes), Ok(packet), "{name}");
            assert_eq!(packet.is_announcement(), name == "announcement");
        }
    }

    #[test]
    fn padding_to_the_minimum_frame_is_ignored() {
        let mut padded = REPLY.to_vec();
        padded.resize(46, 0xee);
        assert_eq!(ArpPacket::decode(&padded).unwrap().encode(), REPLY);
    }

    #[test]
    fn other_or_broken_packets_are_refused() {
        for len in 0..LEN {
            assert_eq!(
                ArpPacket::decode(&REPLY[..len]),
                Err(ArpError::Truncated(len))
            );
        }
        let cases: [(&str, usize, u8, ArpError); 6] = [
            ("hardware type infiniband", 1, 32, ArpError::NotEthernetIpv4),
            ("protocol type ipv6", 2, 0x86, ArpError::NotEthernetIpv4),
            ("hardware length 8", 4, 8, ArpError::NotEthernetIpv4),
            ("protocol length 16", 5, 16, ArpError::NotEthernetIpv4),
            ("opcode 0", 7, 0, ArpError::Operation(0)),
            ("opcode rarp", 7, 3, ArpError::Operation(3)),
        ];
        for (name, at, value, error) in cases {
            let mut bytes = REPLY;
            bytes[at] = value;
            assert_eq!(ArpPacket::decode(&bytes), Err(error), "{name}");
        }
    }

    proptest! {
        #[test]
        fn decode_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            if let Ok(packet) = ArpPacket::decode(&bytes) {
                prop_assert_eq!(packet.encode(), &bytes[..LEN]);
            }
        }

        #[test]
        fn encode_then_decode_is_identity(
            reply: bool, sha: [u8; 6], spa: [u8; 4], tha: [u8; 6], tpa: [u8; 4],
        ) {
            let packet = ArpPacket {
                operation: if reply { Operation::Reply } else { Operation::Request },
                sha: Mac::new(sha),
                spa: spa.into(),
                tha: Mac::new(tha),
                tpa: tpa.into(),
            };
            prop_assert_eq!(ArpPacket::decode(&packet.encode()), Ok(packet));
        }
    }
}
