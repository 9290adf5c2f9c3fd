//! Neighbor Solicitation and Advertisement (RFC 4861 sections 4.3, 4.4, 7.1), from the IPv6 header
//! on. Pure: no socket, no clock. A decoded packet has passed every check that section 7.1
//! demands, hop limit 255 and checksum included: what exists is what a host would act on.

use std::net::Ipv6Addr;

use pnet_packet::ip::IpNextHeaderProtocols;
use pnet_packet::util::ipv6_checksum;
use spiderpool_api::value::Mac;

/// EtherType of IPv6.
pub const ETHERTYPE: u16 = 0x86dd;

/// Hop limit of every neighbour discovery packet: a router would have lowered it.
pub const HOP_LIMIT: u8 = 255;

const NEXT_HEADER_ICMPV6: u8 = 58;
const TYPE_SOLICITATION: u8 = 135;
const TYPE_ADVERTISEMENT: u8 = 136;
const OPTION_SOURCE_LINK: u8 = 1;
const OPTION_TARGET_LINK: u8 = 2;
const FLAG_ROUTER: u8 = 0x80;
const FLAG_SOLICITED: u8 = 0x40;
const FLAG_OVERRIDE: u8 = 0x20;
/// ICMPv6 header (type, code, checksum, flags) and target address.
const FIXED_LEN: usize = 24;
/// The checksum is the second 16-bit word of the ICMPv6 header.
const CHECKSUM_WORD: usize = 1;

/// Why bytes are not a Neighbor Solicitation or Advertisement a host would act on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NdpError {
    /// Ends before the header, the target or the announced payload does.
    #[error("neighbour discovery packet is truncated after {0} bytes")]
    Truncated(usize),
    /// Another IP version, next header or ICMPv6 type.
    #[error("IPv6 packet is not a neighbour solicitation or advertisement")]
    OtherProtocol,
    /// Came through a router.
    #[error("neighbour discovery packet has hop limit {0} instead of 255")]
    HopLimit(u8),
    /// Damaged or forged.
    #[error("neighbour discovery packet has a wrong checksum")]
    Checksum,
    /// A rule of RFC 4861 section 7.1 is broken; the text says which.
    #[error("neighbour discovery packet is invalid: {0}")]
    Invalid(&'static str),
}

/// Flags of a Neighbor Advertisement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AdvertisementFlags {
    /// R: the sender routes.
    pub router: bool,
    /// S: the answer to a solicitation.
    pub solicited: bool,
    /// O: a known link address is to be replaced.
    pub override_known: bool,
}

/// What the packet says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NdpMessage {
    /// "Who has the target address?"
    Solicitation {
        /// Source link-layer address option.
        source_link: Option<Mac>,
    },
    /// "The target address is here."
    Advertisement {
        /// R, S, O.
        flags: AdvertisementFlags,
        /// Target link-layer address option; answers to a unicast solicitation may lack it.
        target_link: Option<Mac>,
    },
}

/// One packet with the part of the IPv6 header that matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NdpPacket {
    /// IPv6 source.
    pub source: Ipv6Addr,
    /// IPv6 destination.
    pub destination: Ipv6Addr,
    /// The address asked for or advertised.
    pub target: Ipv6Addr,
    /// Solicitation or advertisement.
    pub message: NdpMessage,
}

/// The solicited-node multicast group of `target` (RFC 4291 section 2.7.1).
#[must_use]
pub const fn solicited_node(target: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = target.octets();
    Ipv6Addr::from_octets([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, a, b, c])
}

/// The Ethernet address a multicast group is sent to (RFC 2464 section 7).
#[must_use]
pub const fn multicast_mac(group: Ipv6Addr) -> Mac {
    let [.., a, b, c, d] = group.octets();
    Mac::new([0x33, 0x33, a, b, c, d])
}

impl NdpPacket {
    /// Asks the solicited-node group of `target` who has it, with our link address.
    #[must_use]
    pub const fn solicitation(source: Ipv6Addr, source_link: Mac, target: Ipv6Addr) -> Self {
        Self {
            source,
            destination: solicited_node(target),
            target,
            message: NdpMessage::Solicitation {
                source_link: Some(source_link),
            },
        }
    }

    /// An unsolicited advertisement to all nodes that replaces what neighbours knew
    /// (RFC 4861 section 7.2.6).
    #[must_use]
    pub const fn announcement(address: Ipv6Addr, link: Mac) -> Self {
        Self {
            source: address,
            destination: Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1),
            target: address,
            message: NdpMessage::Advertisement {
                flags: AdvertisementFlags {
                    router: false,
                    solicited: false,
                    override_known: true,
                },
                target_link: Some(link),
            },
        }
    }

    /// The advertisement that answers solicitation `self`: `link` has the target. A solicitation
    /// from `::` is answered to all nodes without the solicited flag (RFC 4861 section 7.2.4).
    #[must_use]
    pub const fn answer(&self, link: Mac, router: bool) -> Self {
        let anonymous = self.source.is_unspecified();
        Self {
            source: self.target,
            destination: if anonymous {
                Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1)
            } else {
                self.source
            },
            target: self.target,
            message: NdpMessage::Advertisement {
                flags: AdvertisementFlags {
                    router,
                    solicited: !anonymous,
                    override_known: true,
                },
                target_link: Some(link),
            },
        }
    }

    /// The packet from the IPv6 header on, checksum filled in.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let icmp = self.encode_icmp();
        let payload_len: u8 = if icmp.len() == FIXED_LEN { 24 } else { 32 };
        let mut out = Vec::with_capacity(40 + icmp.len());
        out.extend_from_slice(&[0x60, 0, 0, 0, 0, payload_len, NEXT_HEADER_ICMPV6, HOP_LIMIT]);
        out.extend_from_slice(&self.source.octets());
        out.extend_from_slice(&self.destination.octets());
        out.extend_from_slice(&icmp);
        out
    }

    fn encode_icmp(&self) -> Vec<u8> {
        let (kind, flags, option, link) = match self.message {
            NdpMessage::Solicitation { source_link } => {
                (TYPE_SOLICITATION, 0, OPTION_SOURCE_LINK, source_link)
            }
            NdpMessage::Advertisement { flags, target_link } => (
                TYPE_ADVERTISEMENT,
                flags.octet(),
                OPTION_TARGET_LINK,
                target_link,
            ),
        };
        let head = [kind, 0, 0, 0, flags, 0, 0, 0];
        let mut body = Vec::with_capacity(32);
        body.extend_from_slice(&head);
        body.extend_from_slice(&self.target.octets());
        if let Some(link) = link {
            body.extend_from_slice(&[option, 1]);
            body.extend_from_slice(&link.octets());
        }
        let sum = checksum(&body, self.source, self.destination).to_be_bytes();
        for (slot, octet) in body.iter_mut().skip(2).zip(sum) {
            *slot = octet;
        }
        body
    }

    /// Reads a packet from the IPv6 header on. Bytes after the announced payload are padding.
    ///
    /// # Errors
    /// [`NdpError`] where RFC 4861 section 7.1 tells a host to discard the packet, or it is no
    /// neighbour solicitation or advertisement. Extension headers are not followed: neighbour
    /// discovery has none.
    pub fn decode(bytes: &[u8]) -> Result<Self, NdpError> {
        let truncated = || NdpError::Truncated(bytes.len());
        let (head, rest) = bytes.split_first_chunk::<8>().ok_or_else(truncated)?;
        let (source, rest) = rest.split_first_chunk::<16>().ok_or_else(truncated)?;
        let (destination, rest) = rest.split_first_chunk::<16>().ok_or_else(truncated)?;
        let [version, _, _, _, len_high, len_low, next_header, hop_limit] = *head;
        if version >> 4 != 6 || next_header != NEXT_HEADER_ICMPV6 {
            return Err(NdpError::OtherProtocol);
        }
        let payload_len = usize::from(u16::from_be_bytes([len_high, len_low]));
        let icmp = rest.get(..payload_len).ok_or_else(truncated)?;
        let kind = *icmp.first().ok_or_else(truncated)?;
        if !matches!(kind, TYPE_SOLICITATION | TYPE_ADVERTISEMENT) {
            return Err(NdpError::OtherProtocol);
        }
        if hop_limit != HOP_LIMIT {
            return Err(NdpError::HopLimit(hop_limit));
        }
        let (fixed, options) = icmp
            .split_first_chunk::<FIXED_LEN>()
            .ok_or_else(truncated)?;
        let source = Ipv6Addr::from(*source);
        let destination = Ipv6Addr::from(*destination);
        let [_, code, sum_high, sum_low, flags, _, _, _, target @ ..] = *fixed;
        if checksum(icmp, source, destination) != u16::from_be_bytes([sum_high, sum_low]) {
            return Err(NdpError::Checksum);
        }
        let packet = Self {
            source,
            destination,
            target: Ipv6Addr::from(target),
            message: decode_message(kind, flags, options)?,
        };
        packet.check(code)?;
        Ok(packet)
    }

    /// The rules of RFC 4861 sections 7.1.1 and 7.1.2 that concern single fields.
    fn check(&self, code: u8) -> Result<(), NdpError> {
        if code != 0 {
            return Err(NdpError::Invalid("ICMP code is not zero"));
        }
        if self.target.is_multicast() {
            return Err(NdpError::Invalid("target is a multicast address"));
        }
        match self.message {
            NdpMessage::Solicitation { source_link } if self.source.is_unspecified() => {
                if self.destination != solicited_node(self.target) {
                    return Err(NdpError::Invalid(
                        "solicitation from :: is not sent to the solicited-node group",
                    ));
                }
                if source_link.is_some() {
                    return Err(NdpError::Invalid(
                        "solicitation from :: has a source link-layer address",
                    ));
                }
            }
            NdpMessage::Advertisement { flags, .. }
                if flags.solicited && self.destination.is_multicast() =>
            {
                return Err(NdpError::Invalid(
                    "solicited advertisement to a multicast group",
                ));
            }
            NdpMessage::Solicitation { .. } | NdpMessage::Advertisement { .. } => {}
        }
        Ok(())
    }
}

impl AdvertisementFlags {
    const fn octet(self) -> u8 {
        let mut octet = 0;
        if self.router {
            octet |= FLAG_ROUTER;
        }
        if self.solicited {
            octet |= FLAG_SOLICITED;
        }
        if self.override_known {
            octet |= FLAG_OVERRIDE;
        }
        octet
    }

    const fn from_octet(octet: u8) -> Self {
        Self {
            router: octet & FLAG_ROUTER != 0,
            solicited: octet & FLAG_SOLICITED != 0,
            override_known: octet & FLAG_OVERRIDE != 0,
        }
    }
}

fn checksum(icmp: &[u8], source: Ipv6Addr, destination: Ipv6Addr) -> u16 {
    ipv6_checksum(
        icmp,
        CHECKSUM_WORD,
        &[],
        &source,
        &destination,
        IpNextHeaderProtocols::Icmpv6,
    )
}

fn decode_message(kind: u8, flags: u8, options: &[u8]) -> Result<NdpMessage, NdpError> {
    if kind == TYPE_SOLICITATION {
        return Ok(NdpMessage::Solicitation {
            source_link: link_option(options, OPTION_SOURCE_LINK)?,
        });
    }
    Ok(NdpMessage::Advertisement {
        flags: AdvertisementFlags::from_octet(flags),
        target_link: link_option(options, OPTION_TARGET_LINK)?,
    })
}

/// The first link-layer address option of kind `wanted`; other options are skipped.
fn link_option(mut options: &[u8], wanted: u8) -> Result<Option<Mac>, NdpError> {
    let mut found = None;
    while let Some((&[kind, units], _)) = options.split_first_chunk::<2>() {
        if units == 0 {
            return Err(NdpError::Invalid("option of length zero"));
        }
        let (option, rest) = options
            .split_at_checked(usize::from(units) * 8)
            .ok_or(NdpError::Invalid("option runs past the packet"))?;
        if kind == wanted && found.is_none() {
            found = match option {
                [_, 1, a, b, c, d, e, f] => Some(Mac::new([*a, *b, *c, *d, *e, *f])),
                _ => return Err(NdpError::Invalid("link-layer address is not 6 octets")),
            };
        }
        options = rest;
    }
    if options.is_empty() {
        Ok(found)
    } else {
        Err(NdpError::Invalid("option runs past the packet"))
    }
}

#[cfg(test)]
#[path = "ndp_tests.rs"]
mod tests;
