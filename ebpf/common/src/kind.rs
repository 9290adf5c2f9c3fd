//! Directions of frames, and what can be wrong with one (spec dataplane 5.5).

/// Slots for kinds in [`Stats`](crate::layout::Stats); more than there are.
pub const MAX_KINDS: usize = 16;

/// Which way a frame goes, seen from the Pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Direction {
    /// To the Pod: ingress of the parent NIC.
    Rx = 0,
    /// From the Pod: egress of the parent NIC.
    Tx = 1,
}

impl Direction {
    /// The direction with this number.
    #[must_use]
    pub const fn from_u8(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Rx),
            1 => Some(Self::Tx),
            _ => None,
        }
    }

    /// Value of the label `direction`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Rx => "rx",
            Self::Tx => "tx",
        }
    }
}

/// What can be wrong with a frame (spec dataplane 5.5). The numbers are indexes into
/// [`Stats::mismatch`](crate::layout::Stats::mismatch) and follow the spec's table; kinds that are not checked have none here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// Tagged, and no sub-ENI has the tag.
    UnknownVlan = 0,
    /// The Ethernet source is not the sub-ENI's MAC.
    SrcMac = 1,
    /// The IPv4 source is not the sub-ENI's address.
    SrcIp4 = 2,
    /// The IPv6 source is neither the sub-ENI's address nor link-local.
    SrcIp6 = 3,
    /// ARP sender MAC is not the sub-ENI's.
    ArpSha = 5,
    /// ARP sender address is not the sub-ENI's.
    ArpSpa = 6,
    /// Untagged, with the MAC of a sub-ENI.
    UntaggedSubMac = 9,
}

impl Kind {
    /// All that are checked.
    pub const ALL: [Self; 7] = [
        Self::UnknownVlan,
        Self::SrcMac,
        Self::SrcIp4,
        Self::SrcIp6,
        Self::ArpSha,
        Self::ArpSpa,
        Self::UntaggedSubMac,
    ];

    /// The kind with this number.
    #[must_use]
    pub fn from_u8(number: u8) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.index() == usize::from(number))
    }

    /// Place in [`Stats::mismatch`](crate::layout::Stats::mismatch).
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Bit in a set of kinds.
    #[must_use]
    pub const fn bit(self) -> u32 {
        1 << self as u32
    }

    /// Value of the label `kind`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::UnknownVlan => "unknown_vlan",
            Self::SrcMac => "src_mac",
            Self::SrcIp4 => "src_ip4",
            Self::SrcIp6 => "src_ip6",
            Self::ArpSha => "arp_sha",
            Self::ArpSpa => "arp_spa",
            Self::UntaggedSubMac => "untagged_sub_mac",
        }
    }
}

/// The set of all kinds that are checked.
#[must_use]
pub const fn all_kinds() -> u32 {
    Kind::UnknownVlan.bit()
        | Kind::SrcMac.bit()
        | Kind::SrcIp4.bit()
        | Kind::SrcIp6.bit()
        | Kind::ArpSha.bit()
        | Kind::ArpSpa.bit()
        | Kind::UntaggedSubMac.bit()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_lead_back_to_kinds_and_directions() {
        let mut set = 0;
        for kind in Kind::ALL {
            assert_eq!(Kind::from_u8(kind as u8), Some(kind));
            assert!(kind.index() < MAX_KINDS, "{}", kind.as_str());
            assert_eq!(set & kind.bit(), 0, "{}", kind.as_str());
            set |= kind.bit();
        }
        assert_eq!(set, all_kinds());
        assert_eq!(Kind::from_u8(4), None);
        for direction in [Direction::Rx, Direction::Tx] {
            assert_eq!(Direction::from_u8(direction as u8), Some(direction));
        }
        assert_eq!(Direction::from_u8(2), None);
    }
}
