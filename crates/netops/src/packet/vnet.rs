//! What travels beside a frame: the offload header (`struct virtio_net_hdr`) and the VLAN tag.
//! Pure arithmetic; the socket is next door.
//!
//! A veth hands over frames as the sending stack made them: TCP segments far beyond the MTU, their
//! checksum still to be filled in. Both facts are in the offload header only. Who forwards the
//! bytes without it delivers damaged TCP while ping goes on working.

/// Bytes of a VLAN tag between the source address and the EtherType.
pub const TAG_LEN: u16 = 4;

/// TPID of a customer VLAN (IEEE 802.1Q).
pub const TPID_8021Q: u16 = 0x8100;

/// `VIRTIO_NET_HDR_F_NEEDS_CSUM`: `csum_start` and `csum_offset` are meant.
const NEEDS_CSUM: u8 = 1;

/// A VLAN tag as the kernel keeps it beside the frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VlanTag {
    /// Tag protocol: [`TPID_8021Q`] or another.
    pub tpid: u16,
    /// Priority (3 bits), drop eligible (1 bit), VLAN id (12 bits).
    pub tci: u16,
}

impl VlanTag {
    /// An 802.1Q tag of priority 0.
    #[must_use]
    pub const fn customer(id: u16) -> Self {
        Self {
            tpid: TPID_8021Q,
            tci: id & 0x0fff,
        }
    }

    /// The VLAN id: 0 (priority tag) to 4095.
    #[must_use]
    pub const fn id(self) -> u16 {
        self.tci & 0x0fff
    }

    /// The four bytes as they stand in a frame.
    #[must_use]
    pub const fn octets(self) -> [u8; 4] {
        let [a, b] = self.tpid.to_be_bytes();
        let [c, d] = self.tci.to_be_bytes();
        [a, b, c, d]
    }
}

/// Offload header of one frame, byte order of the machine (packet(7), `PACKET_VNET_HDR`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct VnetHdr {
    /// `VIRTIO_NET_HDR_F_*`.
    pub flags: u8,
    /// `VIRTIO_NET_HDR_GSO_*`; 0 = an ordinary frame.
    pub gso_type: u8,
    /// Bytes of headers in front of the payload; 0 where there is no segmentation to do.
    pub hdr_len: u16,
    /// Payload bytes of each segment.
    pub gso_size: u16,
    /// Where checksumming starts, counted from the first byte of the frame.
    pub csum_start: u16,
    /// Where the checksum goes, counted from `csum_start`.
    pub csum_offset: u16,
}

impl VnetHdr {
    /// Bytes on the socket.
    pub const LEN: usize = 10;

    /// The same header for the frame with a VLAN tag inserted behind the source address.
    #[must_use]
    pub const fn tagged(self) -> Self {
        let mut shifted = self;
        if self.flags & NEEDS_CSUM != 0 {
            shifted.csum_start = self.csum_start.saturating_add(TAG_LEN);
        }
        if self.hdr_len != 0 {
            shifted.hdr_len = self.hdr_len.saturating_add(TAG_LEN);
        }
        shifted
    }

    /// As written to the socket in front of the frame.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; Self::LEN] {
        let [h0, h1] = self.hdr_len.to_ne_bytes();
        let [g0, g1] = self.gso_size.to_ne_bytes();
        let [s0, s1] = self.csum_start.to_ne_bytes();
        let [o0, o1] = self.csum_offset.to_ne_bytes();
        [self.flags, self.gso_type, h0, h1, g0, g1, s0, s1, o0, o1]
    }

    /// As read from the socket.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        let [flags, gso_type, h0, h1, g0, g1, s0, s1, o0, o1] = bytes;
        Self {
            flags,
            gso_type,
            hdr_len: u16::from_ne_bytes([h0, h1]),
            gso_size: u16::from_ne_bytes([g0, g1]),
            csum_start: u16::from_ne_bytes([s0, s1]),
            csum_offset: u16::from_ne_bytes([o0, o1]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TCP_SEGMENTS: VnetHdr = VnetHdr {
        flags: 1,
        gso_type: 1,
        hdr_len: 66,
        gso_size: 1448,
        csum_start: 34,
        csum_offset: 16,
    };

    #[test]
    fn a_tag_moves_what_counts_from_the_frame_start_and_nothing_else() {
        let no_checksum = VnetHdr {
            flags: 0,
            gso_type: 0,
            hdr_len: 0,
            gso_size: 0,
            csum_start: 0,
            csum_offset: 0,
        };
        let checked = VnetHdr {
            flags: 2,
            ..no_checksum
        };
        let cases = [
            ("plain", no_checksum, no_checksum),
            ("already checked", checked, checked),
            (
                "partial checksum",
                VnetHdr {
                    gso_type: 0,
                    gso_size: 0,
                    hdr_len: 0,
                    ..TCP_SEGMENTS
                },
                VnetHdr {
                    gso_type: 0,
                    gso_size: 0,
                    hdr_len: 0,
                    csum_start: 38,
                    ..TCP_SEGMENTS
                },
            ),
            (
                "segments",
                TCP_SEGMENTS,
                VnetHdr {
                    hdr_len: 70,
                    csum_start: 38,
                    ..TCP_SEGMENTS
                },
            ),
        ];
        for (name, before, after) in cases {
            assert_eq!(before.tagged(), after, "{name}");
        }
    }

    #[test]
    fn the_bytes_are_the_kernels() {
        let bytes = TCP_SEGMENTS.to_bytes();
        assert_eq!(bytes[..2], [1, 1]);
        assert_eq!(bytes[2..4], 66u16.to_ne_bytes());
        assert_eq!(bytes[8..], 16u16.to_ne_bytes());
        assert_eq!(VnetHdr::from_bytes(bytes), TCP_SEGMENTS);
    }

    #[test]
    fn tags_read_and_write_as_8021q_has_them() {
        assert_eq!(VlanTag::customer(100).octets(), [0x81, 0, 0, 100]);
        let prioritised = VlanTag {
            tpid: TPID_8021Q,
            tci: 0xe064,
        };
        assert_eq!(prioritised.id(), 100);
    }
}
