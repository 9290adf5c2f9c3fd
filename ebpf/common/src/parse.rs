//! From bytes to what the checks need: tag, addresses, neighbour message (spec dataplane 5.2).
//!
//! Written so that the kernel's verifier follows it: fixed-size loads at small offsets, no slices,
//! no panics. Everything is inlined, because the frame would not fit the registers of a call.

/// IEEE 802.1Q tag.
const ETHERTYPE_VLAN: u16 = 0x8100;
/// IEEE 802.1ad service tag.
const ETHERTYPE_SERVICE_VLAN: u16 = 0x88a8;
/// IPv4.
pub const ETHERTYPE_IPV4: u16 = 0x0800;
/// ARP.
pub const ETHERTYPE_ARP: u16 = 0x0806;
/// IPv6.
pub const ETHERTYPE_IPV6: u16 = 0x86dd;

/// Where the EtherType, or a tag in the bytes, is.
const TYPE_OFFSET: u32 = 12;
/// Length of the Ethernet header.
const HEADER_LEN: u32 = 14;
/// Length of a tag.
const TAG_LEN: u32 = 4;
/// The id within tag control information; priority and drop bits are above it.
const VID_MASK: u16 = 0x0fff;
/// Where the type of an ICMPv6 message is, from the IPv6 header on, without extension headers:
/// neighbour discovery has none (RFC 6980 forbids fragments).
const ICMPV6_TYPE_OFFSET: u32 = 40;
/// ICMPv6 as next header.
const NEXT_HEADER_ICMPV6: u8 = 58;
/// Ethernet and IPv4 with their address lengths: the only ARP there is (RFC 826).
const ARP_ETHERNET_IPV4: [u8; 6] = [0, 1, 8, 0, 6, 4];

/// A frame that can be read from: a socket buffer in the kernel, [`Sliced`] on the host.
pub trait Load {
    /// Bytes of the frame as it is, a tag in the bytes included.
    fn len(&self) -> u32;

    /// Whether there is nothing.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the stack holds a tag beside the bytes.
    fn is_tagged(&self) -> bool;

    /// Its control information.
    fn tag(&self) -> u16;

    /// Packets the frame stands for; 0 when it is no aggregate.
    fn segments(&self) -> u32;

    /// Fills `bytes` from `offset` on; `false`, with zeros or what was there before in it, when the
    /// frame ends before. Into a place, not as an `Option`: the compiler would merge the bytes
    /// that nobody wrote with those that came, and kernels before 6.3 refuse to read such.
    fn load<const N: usize>(&self, offset: u32, bytes: &mut [u8; N]) -> bool;
}

/// A frame in memory.
#[derive(Debug, Clone, Copy)]
pub struct Sliced<'a> {
    /// Its bytes.
    pub bytes: &'a [u8],
    /// See [`Load::is_tagged`] and [`Load::tag`].
    pub tag: Option<u16>,
    /// See [`Load::segments`].
    pub segments: u32,
}

impl Load for Sliced<'_> {
    fn len(&self) -> u32 {
        u32::try_from(self.bytes.len()).unwrap_or(u32::MAX)
    }

    fn is_tagged(&self) -> bool {
        self.tag.is_some()
    }

    fn tag(&self) -> u16 {
        self.tag.unwrap_or_default()
    }

    fn segments(&self) -> u32 {
        self.segments
    }

    fn load<const N: usize>(&self, offset: u32, bytes: &mut [u8; N]) -> bool {
        let found = usize::try_from(offset)
            .ok()
            .and_then(|offset| self.bytes.get(offset..)?.first_chunk());
        match found {
            Some(found) => {
                *bytes = *found;
                true
            }
            None => false,
        }
    }
}

/// What a frame is. All of it is always written: kernels before 6.3 refuse a program that copies
/// bytes nobody wrote, so there is no enum with data in here, whose unused half would be such.
///
/// Aligned, and the largest fields first, so that it is emptied by a few stores of eight bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C, align(8))]
pub struct Frame {
    /// Source address, or ARP sender's; IPv4 in the first four bytes.
    pub src: [u8; 16],
    /// Destination address, or ARP target's; IPv4 in the first four bytes.
    pub dst: [u8; 16],
    /// Bytes with the Ethernet header, without the outer tag.
    pub bytes: u32,
    /// Packets, at least one.
    pub packets: u32,
    /// Id of the outer tag; 0 for a priority tag, and without a tag.
    pub vid: u16,
    /// EtherType behind the outer tag.
    pub ethertype: u16,
    /// Ethernet destination.
    pub dst_mac: [u8; 6],
    /// Ethernet source.
    pub src_mac: [u8; 6],
    /// ARP: sender MAC.
    pub sha: [u8; 6],
    /// It has a tag.
    pub tagged: bool,
    /// What it carries.
    pub protocol: Protocol,
    /// What a neighbour protocol says by it.
    pub message: Message,
    /// Zero: without it the last store would be a loop over bytes.
    pub zero: [u8; 7],
}

/// What a frame carries, as far as it is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Protocol {
    /// Something else, or cut short.
    #[default]
    Other,
    /// ARP for IPv4 on Ethernet.
    Arp,
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

/// What a neighbour protocol says: ARP, or neighbour discovery (RFC 4861).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Message {
    /// No such message, or another operation.
    #[default]
    None,
    /// ARP asks for another address.
    ArpRequest,
    /// ARP answers.
    ArpReply,
    /// ARP announces the sender's address (RFC 5227 section 3), as request or reply.
    ArpAnnouncement,
    /// Router solicitation.
    RouterSolicitation,
    /// Router advertisement.
    RouterAdvertisement,
    /// Neighbour solicitation.
    NeighbourSolicitation,
    /// Neighbour advertisement.
    NeighbourAdvertisement,
}

impl Frame {
    /// Reads a frame into an empty value. `false`: it is shorter than an Ethernet header.
    #[inline(always)]
    #[must_use]
    pub fn read<L: Load>(&mut self, from: &L) -> bool {
        let mut outer = [0; 2];
        if !from.load(0, &mut self.dst_mac)
            || !from.load(6, &mut self.src_mac)
            || !from.load(TYPE_OFFSET, &mut outer)
        {
            return false;
        }
        self.ethertype = u16::from_be_bytes(outer);
        let in_bytes = self.read_tag(from);
        self.bytes = from.len().saturating_sub(in_bytes);
        let segments = from.segments();
        self.packets = if segments == 0 { 1 } else { segments };
        let offset = HEADER_LEN + in_bytes;
        match self.ethertype {
            ETHERTYPE_ARP => self.read_arp(from, offset),
            ETHERTYPE_IPV4 => self.read_ipv4(from, offset),
            ETHERTYPE_IPV6 => self.read_ipv6(from, offset),
            _ => {}
        }
        true
    }

    /// Length of the tag in the bytes. Metadata first: then the bytes hold at most an inner one.
    #[inline(always)]
    fn read_tag<L: Load>(&mut self, from: &L) -> u32 {
        if from.is_tagged() {
            self.tagged = true;
            self.vid = from.tag() & VID_MASK;
            return 0;
        }
        if self.ethertype != ETHERTYPE_VLAN && self.ethertype != ETHERTYPE_SERVICE_VLAN {
            return 0;
        }
        let mut tag = [0; 4];
        if !from.load(HEADER_LEN, &mut tag) {
            return 0;
        }
        let [high, low, inner_high, inner_low] = tag;
        self.tagged = true;
        self.vid = u16::from_be_bytes([high, low]) & VID_MASK;
        self.ethertype = u16::from_be_bytes([inner_high, inner_low]);
        TAG_LEN
    }

    #[inline(always)]
    fn read_arp<L: Load>(&mut self, from: &L, offset: u32) {
        let (mut head, mut spa, mut tpa) = ([0; 8], [0; 4], [0; 4]);
        if !from.load(offset, &mut head)
            || !from.load(offset + 8, &mut self.sha)
            || !from.load(offset + 14, &mut spa)
            || !from.load(offset + 24, &mut tpa)
        {
            return;
        }
        let [a, b, c, d, e, f, high, low] = head;
        if [a, b, c, d, e, f] != ARP_ETHERNET_IPV4 {
            return;
        }
        self.protocol = Protocol::Arp;
        self.message = match u16::from_be_bytes([high, low]) {
            1 | 2 if spa == tpa => Message::ArpAnnouncement,
            1 => Message::ArpRequest,
            2 => Message::ArpReply,
            _ => Message::None,
        };
        self.src = widen(spa);
        self.dst = widen(tpa);
    }

    #[inline(always)]
    fn read_ipv4<L: Load>(&mut self, from: &L, offset: u32) {
        let (mut version, mut src, mut dst) = ([0; 1], [0; 4], [0; 4]);
        if !from.load(offset, &mut version)
            || !from.load(offset + 12, &mut src)
            || !from.load(offset + 16, &mut dst)
        {
            return;
        }
        let [version] = version;
        if version >> 4 == 4 {
            self.protocol = Protocol::Ipv4;
            self.src = widen(src);
            self.dst = widen(dst);
        }
    }

    #[inline(always)]
    fn read_ipv6<L: Load>(&mut self, from: &L, offset: u32) {
        let mut head = [0; 8];
        if !from.load(offset, &mut head)
            || !from.load(offset + 8, &mut self.src)
            || !from.load(offset + 24, &mut self.dst)
        {
            return;
        }
        let [version, _, _, _, _, _, next_header, _] = head;
        if version >> 4 != 6 {
            return;
        }
        self.protocol = Protocol::Ipv6;
        let mut message = [0; 1];
        if next_header == NEXT_HEADER_ICMPV6 && from.load(offset + ICMPV6_TYPE_OFFSET, &mut message)
        {
            let [message] = message;
            self.message = match message {
                133 => Message::RouterSolicitation,
                134 => Message::RouterAdvertisement,
                135 => Message::NeighbourSolicitation,
                136 => Message::NeighbourAdvertisement,
                _ => Message::None,
            };
        }
    }
}

/// An IPv4 address in the place of any.
#[inline(always)]
#[must_use]
pub const fn widen([a, b, c, d]: [u8; 4]) -> [u8; 16] {
    [a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
}
