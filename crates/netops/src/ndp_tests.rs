//! Tables and properties of the neighbour discovery codec.

use proptest::prelude::*;

use super::*;

const POD: Mac = Mac::new([0xfa, 0x16, 0x3e, 0, 0, 0x0a]);
const GATEWAY: Mac = Mac::new([0xfa, 0x16, 0x3e, 0xff, 0xff, 0xfe]);

fn pod_ip() -> Ipv6Addr {
    "fd00:16::a".parse().unwrap()
}

fn gateway_ip() -> Ipv6Addr {
    "fd00:16::1".parse().unwrap()
}

// The checksums below were computed apart from this code: one's complement sum of both addresses,
// length, next header 58 and the message.

/// fd00:16::a asks ff02::1:ff00:1 for fd00:16::1.
const SOLICITATION: [u8; 72] = [
    0x60, 0, 0, 0, 0, 32, 58, 255, // IPv6, 32 bytes of ICMPv6, hop limit 255
    0xfd, 0, 0, 0x16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x0a, // source
    0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0, 0, 1, // destination
    135, 0, 0x47, 0x44, 0, 0, 0, 0, // solicitation, code, checksum, reserved
    0xfd, 0, 0, 0x16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, // target
    1, 1, 0xfa, 0x16, 0x3e, 0, 0, 0x0a, // source link-layer address
];

/// The router's answer with R, S and O.
const ADVERTISEMENT: [u8; 72] = [
    0x60, 0, 0, 0, 0, 32, 58, 255, // IPv6
    0xfd, 0, 0, 0x16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, // source
    0xfd, 0, 0, 0x16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x0a, // destination
    136, 0, 0x65, 0x3d, 0xe0, 0, 0, 0, // advertisement, code, checksum, R S O
    0xfd, 0, 0, 0x16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, // target
    2, 1, 0xfa, 0x16, 0x3e, 0xff, 0xff, 0xfe, // target link-layer address
];

/// Unsolicited: override alone, to all nodes.
const ANNOUNCEMENT: [u8; 72] = [
    0x60, 0, 0, 0, 0, 32, 58, 255, // IPv6
    0xfd, 0, 0, 0x16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x0a, // source
    0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, // ff02::1
    136, 0, 0x24, 0x3d, 0x20, 0, 0, 0, // advertisement, code, checksum, O
    0xfd, 0, 0, 0x16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x0a, // target
    2, 1, 0xfa, 0x16, 0x3e, 0, 0, 0x0a, // target link-layer address
];

/// An answer without options, R and S.
const BARE_ADVERTISEMENT: [u8; 64] = [
    0x60, 0, 0, 0, 0, 24, 58, 255, // IPv6
    0xfd, 0, 0, 0x16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, // source
    0xfd, 0, 0, 0x16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x0a, // destination
    136, 0, 0x20, 0x5c, 0x60, 0, 0, 0, // advertisement, code, checksum, S O
    0xfd, 0, 0, 0x16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, // target
];

#[test]
fn known_packets_encode_and_decode_to_the_byte() {
    let ask = NdpPacket::solicitation(pod_ip(), POD, gateway_ip());
    let bare = NdpPacket {
        message: NdpMessage::Advertisement {
            flags: AdvertisementFlags {
                router: false,
                solicited: true,
                override_known: true,
            },
            target_link: None,
        },
        ..ask.answer(GATEWAY, false)
    };
    #[rustfmt::skip] // a row a line
    let cases: [(&str, NdpPacket, &[u8]); 4] = [
        ("solicitation", ask, &SOLICITATION),
        ("advertisement", ask.answer(GATEWAY, true), &ADVERTISEMENT),
        ("announcement", NdpPacket::announcement(pod_ip(), POD), &ANNOUNCEMENT),
        ("no options", bare, &BARE_ADVERTISEMENT),
    ];
    for (name, packet, bytes) in cases {
        assert_eq!(packet.encode(), bytes, "{name}");
        assert_eq!(NdpPacket::decode(bytes), Ok(packet), "{name}");
    }
}

#[test]
fn groups_follow_the_target() {
    let group = solicited_node("fd00:16::1234:5678".parse().unwrap());
    assert_eq!(group, "ff02::1:ff34:5678".parse::<Ipv6Addr>().unwrap());
    assert_eq!(multicast_mac(group).to_string(), "33:33:ff:34:56:78");
}

#[test]
fn a_question_from_nobody_is_answered_to_all_nodes() {
    let dad = NdpPacket {
        source: Ipv6Addr::UNSPECIFIED,
        message: NdpMessage::Solicitation { source_link: None },
        ..NdpPacket::solicitation(pod_ip(), POD, gateway_ip())
    };
    assert_eq!(NdpPacket::decode(&dad.encode()), Ok(dad));
    let answer = dad.answer(GATEWAY, false);
    assert_eq!(answer.destination, "ff02::1".parse::<Ipv6Addr>().unwrap());
    assert_eq!(NdpPacket::decode(&answer.encode()), Ok(answer));
}

/// `bytes` with one octet replaced and the checksum made right again, so that the rule under test
/// and not the checksum speaks.
fn altered(bytes: &[u8], at: usize, value: u8) -> Vec<u8> {
    let mut out = bytes.to_vec();
    out[at] = value;
    let source = Ipv6Addr::from(<[u8; 16]>::try_from(&out[8..24]).unwrap());
    let destination = Ipv6Addr::from(<[u8; 16]>::try_from(&out[24..40]).unwrap());
    let sum = checksum(&out[40..], source, destination).to_be_bytes();
    out[42..44].copy_from_slice(&sum);
    out
}

#[test]
fn broken_and_hostile_packets_are_refused() {
    for len in 0..SOLICITATION.len() {
        assert_eq!(
            NdpPacket::decode(&SOLICITATION[..len]),
            Err(NdpError::Truncated(len))
        );
    }
    let mut flipped = ADVERTISEMENT;
    flipped[60] ^= 1;
    let mut forged_source = ADVERTISEMENT;
    forged_source[20] ^= 1;
    let mut from_nobody = altered(&SOLICITATION, 8, 0);
    for at in [11, 23] {
        from_nobody = altered(&from_nobody, at, 0);
    }
    let invalid = NdpError::Invalid;
    #[rustfmt::skip] // a row a line
    let cases: Vec<(&str, Vec<u8>, NdpError)> = vec![
        ("target bit flipped", flipped.to_vec(), NdpError::Checksum),
        ("source forged", forged_source.to_vec(), NdpError::Checksum),
        ("hop limit 254", altered(&ADVERTISEMENT, 7, 254), NdpError::HopLimit(254)),
        ("ipv4", altered(&ADVERTISEMENT, 0, 0x45), NdpError::OtherProtocol),
        ("udp", altered(&ADVERTISEMENT, 6, 17), NdpError::OtherProtocol),
        ("echo", altered(&ADVERTISEMENT, 40, 128), NdpError::OtherProtocol),
        ("code 1", altered(&ADVERTISEMENT, 41, 1), invalid("ICMP code is not zero")),
        ("multicast target", altered(&ADVERTISEMENT, 48, 0xff), invalid("target is a multicast address")),
        ("solicited to all nodes", altered(&ANNOUNCEMENT, 44, 0x60), invalid("solicited advertisement to a multicast group")),
        ("option of length zero", altered(&ADVERTISEMENT, 65, 0), invalid("option of length zero")),
        ("option past the end", altered(&ADVERTISEMENT, 65, 2), invalid("option runs past the packet")),
        ("source link of ::", from_nobody, invalid("solicitation from :: has a source link-layer address")),
    ];
    for (name, bytes, error) in cases {
        assert_eq!(NdpPacket::decode(&bytes), Err(error), "{name}");
    }
}

#[test]
fn unknown_options_are_skipped() {
    // A nonce option (14) before the link address.
    let mut bytes = ADVERTISEMENT[..64].to_vec();
    bytes.extend_from_slice(&[14, 1, 9, 9, 9, 9, 9, 9]);
    bytes.extend_from_slice(&ADVERTISEMENT[64..]);
    bytes[5] = 40;
    // The length is part of the pseudo-header, so the sum is made anew.
    let bytes = altered(&bytes, 5, 40);
    let packet = NdpPacket::decode(&bytes).unwrap();
    assert!(matches!(
        packet.message,
        NdpMessage::Advertisement { target_link: Some(link), .. } if link == GATEWAY
    ));
}

fn unicast() -> impl Strategy<Value = Ipv6Addr> {
    any::<[u8; 15]>().prop_map(|tail| {
        let mut octets = [0xfd; 16];
        octets[1..].copy_from_slice(&tail);
        Ipv6Addr::from(octets)
    })
}

proptest! {
    #[test]
    fn decode_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
        prop_assert!(NdpPacket::decode(&bytes).is_err());
    }

    #[test]
    fn decode_of_damaged_packets_never_panics(at in 0usize..72, value: u8, cut in 0usize..73) {
        let damaged = altered(&ADVERTISEMENT, at, value);
        let read = NdpPacket::decode(&damaged[..cut]);
        prop_assert!(read.is_err() || cut == 72);
    }

    #[test]
    fn solicitations_survive(source in unicast(), target in unicast(), link: [u8; 6]) {
        let packet = NdpPacket::solicitation(source, Mac::new(link), target);
        prop_assert_eq!(NdpPacket::decode(&packet.encode()), Ok(packet));
    }

    #[test]
    fn advertisements_survive(
        source in unicast(), target in unicast(), link: Option<[u8; 6]>,
        router: bool, solicited: bool, override_known: bool,
    ) {
        let packet = NdpPacket {
            source,
            destination: source,
            target,
            message: NdpMessage::Advertisement {
                flags: AdvertisementFlags { router, solicited, override_known },
                target_link: link.map(Mac::new),
            },
        };
        prop_assert_eq!(NdpPacket::decode(&packet.encode()), Ok(packet));
    }
}
