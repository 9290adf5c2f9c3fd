//! The parser and the checks on frames in memory: case B35, cut frames, any bytes at all.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, its helpers too"
)]

use proptest::collection::vec;
use proptest::prelude::{Strategy, any, prop_assert, prop_assert_eq, proptest};
use proptest::sample::select;
use spiderpool_ebpf_common::check;
use spiderpool_ebpf_common::kind::{Kind, all_kinds};
use spiderpool_ebpf_common::layout::{Event, Neighbour, SubEni, Traffic};
use spiderpool_ebpf_common::parse::{Frame, Message, Protocol, Sliced, widen};

const DST: [u8; 6] = [2, 0, 0, 0, 0, 9];
const MAC: [u8; 6] = [0xfa, 0x16, 0x3e, 0, 0, 1];
const OTHER_MAC: [u8; 6] = [0xfa, 0x16, 0x3e, 0, 0, 2];
const V4: [u8; 4] = [172, 91, 0, 100];
const OTHER_V4: [u8; 4] = [10, 9, 9, 9];
const GATEWAY: [u8; 4] = [172, 91, 0, 1];
const V6: [u8; 16] = [0xfd, 0x91, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0];
const OTHER_V6: [u8; 16] = [0xfd, 0x91, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 9];

fn sub_eni() -> SubEni {
    SubEni {
        mac: MAC,
        v4: V4,
        v6: V6,
        generation: 1,
        ..SubEni::default()
    }
}

fn bytes(src: [u8; 6], tags: &[(u16, u16)], ethertype: u16, payload: &[u8]) -> Vec<u8> {
    let mut bytes = [DST, src].concat();
    for (tpid, tci) in tags {
        bytes.extend(tpid.to_be_bytes());
        bytes.extend(tci.to_be_bytes());
    }
    bytes.extend(ethertype.to_be_bytes());
    bytes.extend(payload);
    bytes
}

fn parse(sliced: &Sliced<'_>) -> Option<Frame> {
    let mut frame = Frame::default();
    frame.read(sliced).then_some(frame)
}

fn read(bytes: &[u8], tag: Option<u16>) -> Frame {
    parse(&Sliced {
        bytes,
        tag,
        segments: 0,
    })
    .unwrap()
}

fn ipv4(src: [u8; 4]) -> Vec<u8> {
    [
        &[0x45, 0, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0][..],
        &src,
        &GATEWAY,
    ]
    .concat()
}

fn ipv6(src: [u8; 16], next_header: u8, icmp_type: u8) -> Vec<u8> {
    let head = [0x60, 0, 0, 0, 0, 1, next_header, 255];
    [&head[..], &src, &V6, &[icmp_type]].concat()
}

fn arp(operation: u8, sha: [u8; 6], spa: [u8; 4], tpa: [u8; 4]) -> Vec<u8> {
    let head = [0, 1, 8, 0, 6, 4, 0, operation];
    [&head[..], &sha, &spa, &[0; 6], &tpa].concat()
}

/// B35: (tags on the wire, outer id, EtherType that is seen behind it).
#[expect(clippy::type_complexity, reason = "a table of a test")]
fn b35() -> Vec<(Vec<(u16, u16)>, Option<u16>, u16)> {
    vec![
        (vec![(0x8100, 101)], Some(101), 0x0800),
        (vec![(0x8100, 0xe000 | 101)], Some(101), 0x0800),
        (vec![(0x8100, 0xf000 | 101)], Some(101), 0x0800),
        (vec![(0x8100, 0x6000)], Some(0), 0x0800),
        (vec![], None, 0x0800),
        (vec![(0x88a8, 10), (0x8100, 101)], Some(10), 0x8100),
        (vec![(0x8100, 4094)], Some(4094), 0x0800),
        (vec![(0x8100, 4095)], Some(4095), 0x0800),
    ]
}

#[test]
fn the_tag_is_found_in_the_bytes_and_beside_them() {
    for (tags, vid, ethertype) in b35() {
        let wire = bytes(MAC, &tags, 0x0800, &ipv4(V4));
        let in_bytes = read(&wire, None);
        // What an offload leaves: the outer tag is beside the bytes.
        let (tci, rest) = match tags.split_first() {
            Some(((_, tci), rest)) => (Some(*tci), rest),
            None => (None, &[][..]),
        };
        let offloaded = bytes(MAC, rest, 0x0800, &ipv4(V4));
        let beside = read(&offloaded, tci);
        assert_eq!(in_bytes, beside, "{tags:?}");
        assert_eq!(in_bytes.tagged, vid.is_some(), "{tags:?}");
        assert_eq!(in_bytes.vid, vid.unwrap_or(0));
        assert_eq!(in_bytes.ethertype, ethertype);
        let outer = 4 * usize::from(vid.is_some());
        assert_eq!(usize::try_from(in_bytes.bytes).unwrap(), wire.len() - outer);
        assert_eq!((in_bytes.src_mac, in_bytes.dst_mac), (MAC, DST));
        let (protocol, src) = match ethertype {
            0x0800 => (Protocol::Ipv4, widen(V4)),
            _ => (Protocol::Other, [0; 16]),
        };
        assert_eq!((in_bytes.protocol, in_bytes.src), (protocol, src));
    }
}

#[test]
fn aggregates_count_as_many_packets() {
    let bytes = bytes(MAC, &[], 0x0800, &ipv4(V4));
    for (segments, packets) in [(0, 1), (1, 1), (44, 44)] {
        let frame = parse(&Sliced {
            bytes: &bytes,
            tag: Some(1),
            segments,
        });
        let mut traffic = Traffic::default();
        traffic.count(&frame.unwrap());
        assert_eq!((traffic.frames, traffic.packets), (1, packets));
        assert_eq!(traffic.bytes, 34);
    }
}

#[test]
fn neighbour_messages_are_told_apart() {
    for (operation, spa, tpa, message) in [
        (1, V4, GATEWAY, Message::ArpRequest),
        (2, V4, GATEWAY, Message::ArpReply),
        (1, V4, V4, Message::ArpAnnouncement),
        (2, V4, V4, Message::ArpAnnouncement),
        (1, [0; 4], V4, Message::ArpRequest),
        (8, V4, GATEWAY, Message::None),
    ] {
        let packet = bytes(MAC, &[], 0x0806, &arp(operation, OTHER_MAC, spa, tpa));
        let frame = read(&packet, None);
        assert_eq!((frame.protocol, frame.message), (Protocol::Arp, message));
        assert_eq!((frame.sha, frame.src), (OTHER_MAC, widen(spa)));
        assert_eq!(frame.dst, widen(tpa));
    }
    let mut token_ring = arp(1, MAC, V4, GATEWAY);
    token_ring[1] = 6;
    let frame = read(&bytes(MAC, &[], 0x0806, &token_ring), None);
    assert_eq!(frame.protocol, Protocol::Other);
    for (icmp_type, message) in [
        (133, Message::RouterSolicitation),
        (134, Message::RouterAdvertisement),
        (135, Message::NeighbourSolicitation),
        (136, Message::NeighbourAdvertisement),
        (128, Message::None),
    ] {
        let packet = bytes(MAC, &[], 0x86dd, &ipv6(V6, 58, icmp_type));
        let frame = read(&packet, None);
        assert_eq!((frame.protocol, frame.message), (Protocol::Ipv6, message));
        assert_eq!((frame.src, frame.dst), (V6, V6));
        let packet = bytes(MAC, &[], 0x86dd, &ipv6(V6, 17, icmp_type));
        assert_eq!(read(&packet, None).message, Message::None);
    }
}

#[test]
fn neighbour_messages_count_once() {
    let mut counted = Neighbour::default();
    for packet in [
        bytes(MAC, &[], 0x0806, &arp(1, MAC, V4, GATEWAY)),
        bytes(MAC, &[], 0x0806, &arp(2, MAC, V4, GATEWAY)),
        bytes(MAC, &[], 0x0806, &arp(2, MAC, V4, V4)),
        bytes(MAC, &[], 0x0806, &arp(9, MAC, V4, V4)),
        bytes(MAC, &[], 0x86dd, &ipv6(V6, 58, 133)),
        bytes(MAC, &[], 0x86dd, &ipv6(V6, 58, 134)),
        bytes(MAC, &[], 0x86dd, &ipv6(V6, 58, 135)),
        bytes(MAC, &[], 0x86dd, &ipv6(V6, 58, 136)),
        bytes(MAC, &[], 0x86dd, &ipv6(V6, 58, 128)),
        bytes(MAC, &[], 0x0800, &ipv4(V4)),
    ] {
        counted.count(&read(&packet, None));
    }
    let Neighbour {
        arp_request,
        arp_reply,
        garp,
        ns,
        na,
        rs,
        ra,
    } = counted;
    assert_eq!([arp_request, arp_reply, garp, ns, na, rs, ra], [1; 7]);
}

/// What a sub-ENI sends, and what of it is a fault.
struct Sent {
    name: &'static str,
    src: [u8; 6],
    ethertype: u16,
    payload: Vec<u8>,
    kinds: &'static [Kind],
}

fn of(name: &'static str, ethertype: u16, payload: Vec<u8>, kinds: &'static [Kind]) -> Sent {
    Sent {
        name,
        src: MAC,
        ethertype,
        payload,
        kinds,
    }
}

fn sent_frames() -> Vec<Sent> {
    let link_local = [0xfe, 0xbf, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    let site_local = [0xfe, 0xc0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    let forged_spa = arp(2, MAC, OTHER_V4, GATEWAY);
    vec![
        of("ipv4", 0x0800, ipv4(V4), &[]),
        of("dhcp", 0x0800, ipv4([0; 4]), &[]),
        of("forged ipv4", 0x0800, ipv4(OTHER_V4), &[Kind::SrcIp4]),
        of("ipv6", 0x86dd, ipv6(V6, 17, 0), &[]),
        of("dad", 0x86dd, ipv6([0; 16], 58, 135), &[]),
        of("link-local", 0x86dd, ipv6(link_local, 17, 0), &[]),
        of(
            "behind it",
            0x86dd,
            ipv6(site_local, 17, 0),
            &[Kind::SrcIp6],
        ),
        of(
            "forged ipv6",
            0x86dd,
            ipv6(OTHER_V6, 17, 0),
            &[Kind::SrcIp6],
        ),
        of("arp", 0x0806, arp(1, MAC, V4, GATEWAY), &[]),
        of("arp probe", 0x0806, arp(1, MAC, [0; 4], V4), &[]),
        of(
            "forged sha",
            0x0806,
            arp(2, OTHER_MAC, V4, GATEWAY),
            &[Kind::ArpSha],
        ),
        of("forged spa", 0x0806, forged_spa, &[Kind::ArpSpa]),
        of("another protocol", 0x88cc, vec![], &[]),
        Sent {
            src: OTHER_MAC,
            ..of("forged mac", 0x0800, ipv4(V4), &[Kind::SrcMac])
        },
        Sent {
            src: OTHER_MAC,
            ..of(
                "forged both",
                0x0800,
                ipv4(OTHER_V4),
                &[Kind::SrcMac, Kind::SrcIp4],
            )
        },
    ]
}

#[test]
fn only_what_a_sub_eni_may_send_is_no_fault() {
    for sent in sent_frames() {
        let wanted = sent.kinds.iter().fold(0, |set, kind| set | kind.bit());
        for tags in [&[][..], &[(0x8100, 301)]] {
            let packet = bytes(sent.src, tags, sent.ethertype, &sent.payload);
            let kinds = check::sent(&read(&packet, None), &sub_eni());
            assert_eq!(kinds, wanted, "{}", sent.name);
        }
    }
}

/// Every address of a family that the sub-ENI has not is somebody else's.
#[test]
fn a_family_without_an_address_is_a_fault() {
    let v6_only = SubEni {
        v4: [0; 4],
        ..sub_eni()
    };
    let packet = bytes(MAC, &[], 0x0800, &ipv4(V4));
    let kinds = check::sent(&read(&packet, None), &v6_only);
    assert_eq!(kinds, Kind::SrcIp4.bit());
}

#[test]
fn events_show_the_address_that_was_judged() {
    let mut event = Event::default();
    let packet = bytes(MAC, &[], 0x0806, &arp(1, OTHER_MAC, OTHER_V4, GATEWAY));
    event.describe(&read(&packet, None), Kind::ArpSpa as u8);
    assert_eq!((event.src_mac, event.family), (MAC, 4));
    assert_eq!(event.src[..4], OTHER_V4);
    assert_eq!(event.dst[..4], GATEWAY);
    event.describe(&read(&packet, None), Kind::ArpSha as u8);
    assert_eq!(event.src_mac, OTHER_MAC);
    let packet = bytes(MAC, &[], 0x86dd, &ipv6(OTHER_V6, 17, 0));
    event.describe(&read(&packet, None), Kind::SrcIp6 as u8);
    assert_eq!((event.family, event.src, event.dst), (6, OTHER_V6, V6));
}

/// Any bytes, often with an EtherType that is looked behind.
fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    let types = select(vec![0x8100_u16, 0x88a8, 0x0800, 0x0806, 0x86dd, 0x1234]);
    (vec(any::<u8>(), 0..80), types).prop_map(|(mut bytes, ethertype)| {
        if let Some(place) = bytes.get_mut(12..14) {
            place.copy_from_slice(&ethertype.to_be_bytes());
        }
        bytes
    })
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_a_panic_and_within_bounds(
        bytes in any_frame(), tag in any::<Option<u16>>(), segments in any::<u32>(),
    ) {
        let frame = parse(&Sliced { bytes: &bytes, tag, segments });
        prop_assert_eq!(frame.is_some(), bytes.len() >= 14);
        if let Some(frame) = frame {
            prop_assert!(usize::try_from(frame.bytes).unwrap() <= bytes.len());
            prop_assert!(frame.vid <= 4095 && (frame.tagged || frame.vid == 0));
            prop_assert!(frame.packets >= 1);
            prop_assert_eq!(check::sent(&frame, &sub_eni()) & !all_kinds(), 0);
        }
    }

    #[test]
    fn a_cut_frame_is_never_judged_by_what_is_missing(len in 14_usize..60) {
        for whole in [
            bytes(MAC, &[(0x8100, 301)], 0x0800, &ipv4(OTHER_V4)),
            bytes(MAC, &[(0x8100, 301)], 0x0806, &arp(1, OTHER_MAC, OTHER_V4, GATEWAY)),
            bytes(MAC, &[(0x8100, 301)], 0x86dd, &ipv6(OTHER_V6, 17, 0)),
        ] {
            let cut = &whole[..len.min(whole.len())];
            let kinds = check::sent(&read(cut, None), &sub_eni());
            let whole_kinds = check::sent(&read(&whole, None), &sub_eni());
            prop_assert!(kinds == 0 || kinds == whole_kinds, "{} of {}", cut.len(), whole.len());
        }
    }
}
