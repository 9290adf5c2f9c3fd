//! Whether a frame is what its sub-ENI may send, and how it counts (spec dataplane 5.5, 5.2).

use crate::kind::Kind;
use crate::layout::{Event, Neighbour, SubEni, Traffic};
use crate::parse::{Frame, Message, Protocol, widen};

/// `::` for duplicate address detection; `0.0.0.0` for DHCP and ARP probes (RFC 5227).
const UNSPECIFIED: [u8; 16] = [0; 16];

/// Kinds that a frame sent by a sub-ENI is of, by [`Kind::bit`].
#[inline(always)]
#[must_use]
pub fn sent(frame: &Frame, sub_eni: &SubEni) -> u32 {
    let mut kinds = 0;
    if frame.src_mac != sub_eni.mac {
        kinds |= Kind::SrcMac.bit();
    }
    let foreign_v4 = frame.src != widen(sub_eni.v4) && frame.src != UNSPECIFIED;
    match frame.protocol {
        Protocol::Arp => {
            if frame.sha != sub_eni.mac {
                kinds |= Kind::ArpSha.bit();
            }
            if foreign_v4 {
                kinds |= Kind::ArpSpa.bit();
            }
        }
        Protocol::Ipv4 => {
            if foreign_v4 {
                kinds |= Kind::SrcIp4.bit();
            }
        }
        Protocol::Ipv6 => {
            let foreign = frame.src != sub_eni.v6 && frame.src != UNSPECIFIED;
            if foreign && !is_link_local(frame.src) {
                kinds |= Kind::SrcIp6.bit();
            }
        }
        Protocol::Other => {}
    }
    kinds
}

/// `fe80::/10`.
#[inline(always)]
fn is_link_local([first, second, ..]: [u8; 16]) -> bool {
    first == 0xfe && second & 0xc0 == 0x80
}

impl Traffic {
    /// Counts a frame.
    #[inline(always)]
    pub fn count(&mut self, frame: &Frame) {
        self.frames = self.frames.wrapping_add(1);
        self.packets = self.packets.wrapping_add(u64::from(frame.packets));
        self.bytes = self.bytes.wrapping_add(u64::from(frame.bytes));
    }
}

impl Neighbour {
    /// Counts a frame if it is a neighbour message.
    #[inline(always)]
    pub fn count(&mut self, frame: &Frame) {
        let counter = match frame.message {
            Message::None => return,
            Message::ArpRequest => &mut self.arp_request,
            Message::ArpReply => &mut self.arp_reply,
            Message::ArpAnnouncement => &mut self.garp,
            Message::NeighbourSolicitation => &mut self.ns,
            Message::NeighbourAdvertisement => &mut self.na,
            Message::RouterSolicitation => &mut self.rs,
            Message::RouterAdvertisement => &mut self.ra,
        };
        *counter = counter.wrapping_add(1);
    }
}

impl Event {
    /// Notes what a frame that is of this kind tells of itself. In place: a copy of an event would
    /// be a seventh of a program's stack.
    #[inline(always)]
    pub fn describe(&mut self, frame: &Frame, kind: u8) {
        self.kind = kind;
        self.len = frame.bytes;
        self.ethertype = frame.ethertype;
        self.src_mac = if kind == Kind::ArpSha as u8 {
            frame.sha
        } else {
            frame.src_mac
        };
        self.dst_mac = frame.dst_mac;
        self.family = match frame.protocol {
            Protocol::Other => 0,
            Protocol::Arp | Protocol::Ipv4 => 4,
            Protocol::Ipv6 => 6,
        };
        self.src = frame.src;
        self.dst = frame.dst;
    }
}
