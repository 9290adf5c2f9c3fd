//! Keys and values of the maps, as they lie in kernel memory (spec dataplane 5.3). A change of any
//! of them is a new pin version: the agent compares sizes with those of an existing pin.
//!
//! All are plain integers without hidden padding: bytes the compiler leaves undefined could never
//! be a key, and the verifier refuses to copy them.

use crate::kind::MAX_KINDS;
#[cfg(doc)]
use crate::kind::{Direction, Kind};

/// Sub-ENIs of a node at most.
pub const MAX_SUBENI: u32 = 4096;
/// (NIC, VLAN, direction) without a sub-ENI that are remembered.
pub const MAX_UNKNOWN: u32 = 1024;
/// Parent NICs of a node at most.
pub const MAX_NIC: u32 = 64;
/// Event sources whose last event is remembered.
pub const MAX_RATE: u32 = 8192;
/// Bytes of the event ring buffer.
pub const EVENTS_BYTES: u32 = 256 * 1024;

/// Key of SUBENI and STATS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(C)]
pub struct SubEniKey {
    /// Parent NIC.
    pub ifindex: u32,
    /// VLAN id.
    pub vid: u16,
    /// Zero.
    pub zero: u16,
}

impl SubEniKey {
    /// Of a VLAN on a NIC.
    #[must_use]
    pub const fn new(ifindex: u32, vid: u16) -> Self {
        Self {
            ifindex,
            vid,
            zero: 0,
        }
    }
}

/// Where in its life an entry is (spec dataplane 5.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// The address is allocated, the link not yet there.
    Pending = 0,
    /// The Pod's link is configured.
    Active = 1,
    /// DEL is under way.
    Draining = 2,
}

impl State {
    /// The state with this number.
    #[must_use]
    pub const fn from_u8(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Pending),
            1 => Some(Self::Active),
            2 => Some(Self::Draining),
            _ => None,
        }
    }

    /// As shown to people.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Active => "active",
            Self::Draining => "draining",
        }
    }
}

/// Value of SUBENI: what the cloud knows of the sub-ENI. An absent address is all zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct SubEni {
    /// Its MAC.
    pub mac: [u8; 6],
    /// A [`State`].
    pub state: u8,
    /// Zero.
    pub flags: u8,
    /// Its IPv4 address.
    pub v4: [u8; 4],
    /// Its IPv6 address.
    pub v6: [u8; 16],
    /// IPv4 gateway.
    pub gw4: [u8; 4],
    /// IPv6 gateway.
    pub gw6: [u8; 16],
    /// MAC that answered for the gateway in the pre-flight.
    pub gwmac: [u8; 6],
    /// Place of its parent NIC's counters in NIC: spares each of its frames a look-up in NICS.
    pub nic: u16,
    /// Grows with each Pod that gets this key.
    pub generation: u32,
}

/// Key of MACS: finds the sub-ENI of an untagged frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct MacKey {
    /// Parent NIC.
    pub ifindex: u32,
    /// MAC of the sub-ENI.
    pub mac: [u8; 6],
    /// Zero.
    pub zero: u16,
}

impl MacKey {
    /// Of a MAC on a NIC.
    #[must_use]
    pub const fn new(ifindex: u32, mac: [u8; 6]) -> Self {
        Self {
            ifindex,
            mac,
            zero: 0,
        }
    }
}

/// Traffic of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Traffic {
    /// Frames as the stack hands them over: with GRO or GSO one stands for many packets.
    pub frames: u64,
    /// Packets, as far as the stack says how many a frame stands for.
    pub packets: u64,
    /// Bytes with the Ethernet header, without the tag.
    pub bytes: u64,
}

/// Neighbour protocol messages of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Neighbour {
    /// ARP requests for another address.
    pub arp_request: u64,
    /// ARP replies.
    pub arp_reply: u64,
    /// ARP announcements: sender and target address are the same.
    pub garp: u64,
    /// Neighbour solicitations.
    pub ns: u64,
    /// Neighbour advertisements.
    pub na: u64,
    /// Router solicitations.
    pub rs: u64,
    /// Router advertisements.
    pub ra: u64,
}

/// Value of STATS, per CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Stats {
    /// To the Pod.
    pub rx: Traffic,
    /// From the Pod.
    pub tx: Traffic,
    /// Dropped on the way to the Pod.
    pub rx_drops: u64,
    /// Dropped on the way from the Pod.
    pub tx_drops: u64,
    /// To the Pod.
    pub rx_neighbour: Neighbour,
    /// From the Pod.
    pub tx_neighbour: Neighbour,
    /// By [`Kind::index`].
    pub mismatch: [u64; MAX_KINDS],
}

/// Key of UNKNOWN.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(C)]
pub struct UnknownKey {
    /// Parent NIC.
    pub ifindex: u32,
    /// VLAN id; 0 is a priority tag.
    pub vid: u16,
    /// A [`Direction`].
    pub direction: u8,
    /// Zero.
    pub zero: u8,
}

/// Value of UNKNOWN, per CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Unknown {
    /// Packets.
    pub packets: u64,
    /// Bytes, as [`Traffic::bytes`].
    pub bytes: u64,
    /// When the last came, nanoseconds since boot.
    pub last_ns: u64,
    /// Its Ethernet source.
    pub last_mac: [u8; 6],
    /// Zero.
    pub zero: u16,
}

/// Value of NIC, per CPU, at the place that NICS tells for the index of the NIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Nic {
    /// Received without a tag.
    pub untagged_rx: Traffic,
    /// Sent without a tag.
    pub untagged_tx: Traffic,
    /// Received with a tag, of a sub-ENI or not.
    pub tagged_rx: Traffic,
    /// Sent with a tag, of a sub-ENI or not.
    pub tagged_tx: Traffic,
}

/// Record of EVENTS, 72 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Event {
    /// Nanoseconds since boot.
    pub ns: u64,
    /// Parent NIC.
    pub ifindex: u32,
    /// Bytes of the frame, as [`Traffic::bytes`].
    pub len: u32,
    /// VLAN id; for an untagged frame the one of the sub-ENI with its MAC.
    pub vid: u16,
    /// EtherType behind the tag.
    pub ethertype: u16,
    /// A [`Direction`].
    pub direction: u8,
    /// A [`Kind`].
    pub kind: u8,
    /// 4 or 6 when there are addresses, else 0.
    pub family: u8,
    /// Zero.
    pub zero: u8,
    /// Ethernet source; of kind [`Kind::ArpSha`] the sender MAC within the packet.
    pub src_mac: [u8; 6],
    /// Ethernet destination.
    pub dst_mac: [u8; 6],
    /// Source, IPv4 in the first four bytes; for ARP the sender's.
    pub src: [u8; 16],
    /// Destination; for ARP the target's.
    pub dst: [u8; 16],
    /// [`SubEni::generation`] then; 0 without a sub-ENI.
    pub generation: u32,
}

/// Key of RATE; the value is the time of the last event, nanoseconds since boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct RateKey {
    /// Parent NIC.
    pub ifindex: u32,
    /// VLAN id.
    pub vid: u16,
    /// A [`Direction`].
    pub direction: u8,
    /// A [`Kind`].
    pub kind: u8,
}

/// Value of CFG.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Config {
    /// Zero: monitor.
    pub mode: u32,
    /// Kinds that are checked, by [`Kind::bit`].
    pub kinds: u32,
    /// Kinds that are enforced: none in monitor mode.
    pub enforce_kinds: u32,
    /// Zero.
    pub flags: u32,
    /// Until when kinds are enforced, nanoseconds since boot.
    pub enforce_until: u64,
    /// Time between two events of one key of RATE, nanoseconds.
    pub event_interval_ns: u64,
}

#[cfg(feature = "user")]
#[expect(
    unsafe_code,
    reason = "aya::Pod promises plain data; the tests below check for padding"
)]
mod pod {
    use super::{
        Config, Event, MacKey, Nic, RateKey, Stats, SubEni, SubEniKey, Unknown, UnknownKey,
    };

    macro_rules! pod {
        ($($name:ty),*) => {$(
            // SAFETY: repr(C) over integers and arrays of them, no padding, valid for any bits.
            unsafe impl aya::Pod for $name {}
        )*};
    }

    pod!(
        Config, Event, MacKey, Nic, RateKey, Stats, SubEni, SubEniKey, Unknown, UnknownKey
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Field sizes added up: equal to the size of the whole when there is no padding.
    #[test]
    fn sizes_are_those_of_the_spec_and_nothing_is_padding() {
        assert_eq!(size_of::<SubEniKey>(), 8);
        assert_eq!(size_of::<MacKey>(), 4 + 6 + 2);
        assert_eq!(size_of::<SubEni>(), 6 + 1 + 1 + 4 + 16 + 4 + 16 + 6 + 2 + 4);
        assert_eq!(size_of::<UnknownKey>(), 8);
        assert_eq!(size_of::<Unknown>(), 3 * 8 + 6 + 2);
        assert_eq!(size_of::<Traffic>(), 24);
        assert_eq!(size_of::<Nic>(), 4 * 24);
        assert_eq!(size_of::<Stats>(), 2 * 24 + 2 * 8 + 2 * 7 * 8 + 16 * 8);
        assert_eq!(size_of::<Event>(), 72);
        assert_eq!(size_of::<RateKey>(), 8);
        assert_eq!(size_of::<Config>(), 4 * 4 + 2 * 8);
    }

    #[test]
    fn states_have_their_numbers() {
        for state in [State::Pending, State::Active, State::Draining] {
            assert_eq!(State::from_u8(state as u8), Some(state));
        }
        assert_eq!(State::from_u8(3), None);
    }
}
