//! The verdicts, frame by frame. Pods 10 and 12 are on node 1, 11 on node 2, all in one subnet;
//! 20 is in the other subnet; 30 is unbound, 31 detaching.

use spiderpool_netops::arp::{ArpPacket, Operation};
use spiderpool_netops::ndp::{AdvertisementFlags, NdpMessage, NdpPacket};
use spiderpool_netops::packet::vnet::VlanTag;

use super::build_tests::{GATEWAY_MAC, PARENT_1, binding, pod_mac, topology};
use super::*;
use crate::fabric::counters::{Absorbed, Reason};
use crate::fabric::frame::{Content, FrameView};

const N1: Port = Port::Parent(0);
const N2: Port = Port::Parent(1);
const DROP: fn(Reason) -> Verdict = Verdict::Drop;

fn v4(host: u8) -> Ipv4Addr {
    Ipv4Addr::new(172, 16, 0, host)
}

fn v6(host: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, 0x16, 0, 0, 0, 0, 0, host)
}

fn link_local(host: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfe80, 0, 0, 0, 0xf816, 0x3eff, 0xfe00, host)
}

fn gateway() -> Mac {
    GATEWAY_MAC.parse().unwrap()
}

fn table_with_held(held: &[IpAddr]) -> Table {
    let mut other_subnet = binding(2, 200, 20);
    other_subnet.ipv4 = Some([172, 17, 0, 20].into());
    other_subnet.ipv6 = None;
    let mut unbound = binding(1, 130, 30);
    unbound.state = BindingState::Unbound;
    let mut detaching = binding(1, 131, 31);
    detaching.state = BindingState::Detaching;
    let bindings = [
        binding(1, 100, 10),
        binding(2, 100, 11),
        binding(1, 101, 12),
        other_subnet,
        unbound,
        detaching,
    ];
    Table::build(&topology(), &bindings, held.iter().copied().collect()).unwrap()
}

fn tag(id: u16) -> Option<VlanTag> {
    Some(VlanTag::customer(id))
}

fn raw_tag(tpid: u16, tci: u16) -> Option<VlanTag> {
    Some(VlanTag { tpid, tci })
}

fn to(port: Port, vlan: i64) -> Verdict {
    Verdict::Forward {
        to: port,
        vlan: Some(vlan.try_into().unwrap()),
    }
}

fn to_gateway() -> Verdict {
    Verdict::Forward {
        to: Port::Gateway,
        vlan: None,
    }
}

fn ip_frame(source: Mac, destination: Mac, from: Ipv4Addr, to: Ipv4Addr) -> FrameView {
    FrameView {
        destination,
        source,
        content: Content::Ipv4 {
            source: from,
            destination: to,
        },
    }
}

fn ip6_frame(source: Mac, destination: Mac, from: Ipv6Addr, to: Ipv6Addr) -> FrameView {
    FrameView {
        destination,
        source,
        content: Content::Ipv6 {
            source: from,
            destination: to,
        },
    }
}

fn arp_frame(source: Mac, packet: ArpPacket) -> FrameView {
    let destination = match packet.operation {
        Operation::Request => Mac::BROADCAST,
        Operation::Reply => packet.tha,
    };
    FrameView {
        destination,
        source,
        content: Content::Arp(packet),
    }
}

fn ndp_frame(source: Mac, destination: Mac, packet: NdpPacket) -> FrameView {
    FrameView {
        destination,
        source,
        content: Content::Ndp(packet),
    }
}

/// The frame an [`Verdict::Answer`] carries.
fn answer(verdict: &Verdict) -> FrameView {
    match verdict {
        Verdict::Answer(frame) => FrameView::parse(frame).unwrap(),
        other => panic!("{other:?} is no answer"),
    }
}

const GROUP: Mac = Mac::new([0x33, 0x33, 0, 0, 0, 1]);

#[test]
fn ip_frames_of_pods() {
    let (p10, p11, p12, p20) = (pod_mac(10), pod_mac(11), pod_mac(12), pod_mac(20));
    let table = table_with_held(&[]);
    let there = ip_frame(p10, p11, v4(10), v4(11));
    let raw = |content| FrameView {
        destination: p11,
        source: p10,
        content,
    };
    #[rustfmt::skip] // a row a line
    let cases = [
        ("other node", N1, tag(100), there, to(N2, 100)),
        ("same node", N1, tag(100), ip_frame(p10, p12, v4(10), v4(12)), to(N1, 101)),
        ("ipv6", N1, tag(100), ip6_frame(p10, p11, v6(10), v6(11)), to(N2, 100)),
        ("priority bits", N1, raw_tag(0x8100, 0xe064), there, to(N2, 100)),
        ("to the gateway", N1, tag(100), ip_frame(p10, gateway(), v4(10), [9, 9, 9, 9].into()), to_gateway()),
        ("other subnet directly", N1, tag(100), ip_frame(p10, p20, v4(10), v4(20)), DROP(Reason::DstUnbound)),
        ("itself", N1, tag(100), ip_frame(p10, p10, v4(10), v4(10)), DROP(Reason::DstUnbound)),
        ("nobody", N1, tag(100), ip_frame(p10, pod_mac(99), v4(10), v4(99)), DROP(Reason::DstUnbound)),
        ("to unbound", N1, tag(100), ip_frame(p10, pod_mac(30), v4(10), v4(30)), DROP(Reason::DstUnbound)),
        ("to detaching", N1, tag(100), ip_frame(p10, pod_mac(31), v4(10), v4(31)), DROP(Reason::DstUnbound)),
        ("vlan of another node", N2, tag(101), there, DROP(Reason::UnknownVlan)),
        ("vlan 0", N1, tag(0), there, DROP(Reason::UnknownVlan)),
        ("provider tag", N1, raw_tag(0x88a8, 100), there, DROP(Reason::UnknownVlan)),
        ("vlan of a neighbour", N1, tag(101), there, DROP(Reason::SrcMac)),
        ("foreign mac", N1, tag(100), ip_frame(p12, p11, v4(10), v4(11)), DROP(Reason::SrcMac)),
        ("foreign ip", N1, tag(100), ip_frame(p10, p11, v4(12), v4(11)), DROP(Reason::SrcIp)),
        ("no ip", N1, tag(100), ip_frame(p10, Mac::BROADCAST, [0; 4].into(), [255; 4].into()), DROP(Reason::SrcIp)),
        ("foreign ipv6", N1, tag(100), ip6_frame(p10, p11, v6(12), v6(11)), DROP(Reason::SrcIp)),
        ("link-local to one", N1, tag(100), ip6_frame(p10, p11, link_local(10), v6(11)), DROP(Reason::SrcIp)),
        ("listener report", N1, tag(100), ip6_frame(p10, GROUP, link_local(10), "ff02::16".parse().unwrap()), Verdict::Absorb(Absorbed::Multicast)),
        ("broadcast", N1, tag(100), ip_frame(p10, Mac::BROADCAST, v4(10), v4(255)), Verdict::Absorb(Absorbed::Multicast)),
        ("from unbound", N1, tag(130), ip_frame(pod_mac(30), p11, v4(30), v4(11)), DROP(Reason::Unbound)),
        ("from detaching", N1, tag(131), ip_frame(pod_mac(31), p11, v4(31), v4(11)), DROP(Reason::Detaching)),
        ("untagged foreign", N1, None, there, DROP(Reason::UntaggedForeignMac)),
        ("untagged own", N1, None, ip_frame(PARENT_1.parse().unwrap(), p11, v4(9), v4(11)), Verdict::Absorb(Absorbed::UntaggedOwn)),
        ("untagged own of another node", N2, None, ip_frame(PARENT_1.parse().unwrap(), p11, v4(9), v4(11)), DROP(Reason::UntaggedForeignMac)),
        ("second tag", N1, tag(100), raw(Content::DoubleTag), DROP(Reason::DoubleTag)),
        ("lldp", N1, tag(100), raw(Content::OtherProtocol), DROP(Reason::Protocol)),
        ("malformed", N1, tag(100), raw(Content::Malformed), DROP(Reason::Malformed)),
    ];
    for (name, port, tag, frame, verdict) in cases {
        assert_eq!(table.judge(port, tag, &frame), verdict, "{name}");
    }
}

#[test]
fn arp_of_pods() {
    let (p10, p11) = (pod_mac(10), pod_mac(11));
    let table = table_with_held(&[]);
    let ask = |target| ArpPacket::request(p10, v4(10), target);
    let reply = ArpPacket::request(p11, v4(11), v4(10)).answer(p10);
    let probe = ArpPacket {
        spa: Ipv4Addr::UNSPECIFIED,
        ..ask(v4(10))
    };
    #[rustfmt::skip] // a row a line
    let cases = [
        ("neighbour", ask(v4(11)), to(N2, 100)),
        ("reply", reply, to(N2, 100)),
        ("reply to the gateway", ArpPacket { tha: gateway(), tpa: v4(1), ..reply }, to_gateway()),
        ("announcement", ArpPacket::announcement(p10, v4(10)), to_gateway()),
        ("nobody", ask(v4(99)), DROP(Reason::DstUnbound)),
        ("other subnet", ask([172, 17, 0, 20].into()), DROP(Reason::DstUnbound)),
        ("gateway of the other subnet", ask([172, 17, 0, 1].into()), DROP(Reason::DstUnbound)),
        ("unbound", ask(v4(30)), DROP(Reason::DstUnbound)),
        ("conflict probe", probe, DROP(Reason::ArpUnspecified)),
        ("foreign sender address", ArpPacket { spa: v4(11), ..ask(v4(1)) }, DROP(Reason::SrcIp)),
        ("foreign sender mac", ArpPacket { sha: p11, ..ask(v4(1)) }, DROP(Reason::SrcMac)),
        ("announcement for another", ArpPacket::announcement(p10, v4(11)), DROP(Reason::SrcIp)),
    ];
    for (name, packet, verdict) in cases {
        assert_eq!(
            table.judge(N1, tag(100), &arp_frame(p10, packet)),
            verdict,
            "{name}"
        );
    }
    let answered = answer(&table.judge(N1, tag(100), &arp_frame(p10, ask(v4(1)))));
    assert_eq!((answered.source, answered.destination), (gateway(), p10));
    assert_eq!(answered.content, Content::Arp(ask(v4(1)).answer(gateway())));
}

#[test]
fn ndp_of_pods() {
    let (p10, p11) = (pod_mac(10), pod_mac(11));
    let table = table_with_held(&[]);
    let ask = |target| NdpPacket::solicitation(v6(10), p10, target);
    let from = |source, packet| NdpPacket { source, ..packet };
    let anonymous = |target| NdpPacket {
        source: Ipv6Addr::UNSPECIFIED,
        message: NdpMessage::Solicitation { source_link: None },
        ..ask(target)
    };
    let tell = NdpPacket::solicitation(v6(11), p11, v6(10)).answer(p10, false);
    let absorbed = Verdict::Absorb(Absorbed::AddressProbe);
    #[rustfmt::skip] // a row a line
    let cases = [
        ("neighbour", ask(v6(11)), GROUP, to(N2, 100)),
        ("from link-local", from(link_local(10), ask(v6(11))), p11, to(N2, 100)),
        ("own address probed", anonymous(v6(10)), GROUP, absorbed.clone()),
        ("own link-local probed", anonymous(link_local(10)), GROUP, absorbed),
        ("link-local checked", from(link_local(10), ask(link_local(11))), p11, Verdict::Absorb(Absorbed::LinkLocal)),
        ("taken address probed", anonymous(v6(11)), GROUP, to(N2, 100)),
        ("nobody", ask(v6(99)), GROUP, DROP(Reason::DstUnbound)),
        ("foreign source", from(v6(12), ask(v6(11))), GROUP, DROP(Reason::SrcIp)),
        ("foreign link", NdpPacket::solicitation(v6(10), p11, v6(11)), GROUP, DROP(Reason::SrcMac)),
        ("advertisement", tell, p11, to(N2, 100)),
        ("to the gateway", NdpPacket { destination: v6(1), ..tell }, gateway(), to_gateway()),
        ("announcement", NdpPacket::announcement(v6(10), p10), GROUP, to_gateway()),
        ("foreign target", NdpPacket { target: v6(11), ..tell }, p11, DROP(Reason::SrcIp)),
        ("foreign target link", NdpPacket::announcement(v6(10), p11), GROUP, DROP(Reason::SrcMac)),
        ("advertised from link-local", from(link_local(10), tell), p11, DROP(Reason::SrcIp)),
    ];
    for (name, packet, destination, verdict) in cases {
        let frame = ndp_frame(p10, destination, packet);
        assert_eq!(table.judge(N1, tag(100), &frame), verdict, "{name}");
    }
    let answered = answer(&table.judge(N1, tag(100), &ndp_frame(p10, GROUP, ask(v6(1)))));
    assert_eq!((answered.source, answered.destination), (gateway(), p10));
    assert_eq!(
        answered.content,
        Content::Ndp(ask(v6(1)).answer(gateway(), true))
    );
}

#[test]
fn link_local_questions_can_be_forbidden() {
    let mut strict = topology();
    strict.allow_link_local = false;
    let table = Table::build(&strict, &[binding(1, 100, 10)], BTreeSet::new()).unwrap();
    let packet = NdpPacket::solicitation(link_local(10), pod_mac(10), v6(1));
    let frame = ndp_frame(pod_mac(10), GROUP, packet);
    assert_eq!(table.judge(N1, tag(100), &frame), DROP(Reason::SrcIp));
    let packet = NdpPacket::solicitation(v6(10), pod_mac(10), link_local(11));
    let frame = ndp_frame(pod_mac(10), pod_mac(11), packet);
    assert_eq!(table.judge(N1, tag(100), &frame), DROP(Reason::DstUnbound));
}

#[test]
fn frames_of_the_gateway() {
    let table = table_with_held(&[]);
    let gw = gateway();
    let arp = |target| arp_frame(gw, ArpPacket::request(gw, v4(1), target));
    let ask = |target| {
        ndp_frame(
            gw,
            GROUP,
            NdpPacket::solicitation(link_local(1), gw, target),
        )
    };
    let outside: Ipv4Addr = [9, 9, 9, 9].into();
    #[rustfmt::skip] // a row a line
    let untagged = [
        ("routed", ip_frame(gw, pod_mac(10), outside, v4(10)), to(N1, 100)),
        ("any subnet", ip_frame(gw, pod_mac(20), outside, [172, 17, 0, 20].into()), to(N2, 200)),
        ("routed ipv6", ip6_frame(gw, pod_mac(11), v6(1), v6(11)), to(N2, 100)),
        ("nobody", ip_frame(gw, pod_mac(99), outside, v4(99)), DROP(Reason::DstUnbound)),
        ("unbound", ip_frame(gw, pod_mac(30), outside, v4(30)), DROP(Reason::DstUnbound)),
        ("arp for nobody", arp(v4(99)), DROP(Reason::DstUnbound)),
        ("arp for unbound", arp(v4(30)), DROP(Reason::DstUnbound)),
        ("ndp for nobody", ask(v6(99)), DROP(Reason::DstUnbound)),
        ("gratuitous arp", arp(v4(1)), Verdict::Absorb(Absorbed::Announcement)),
        ("announcement", ndp_frame(gw, GROUP, NdpPacket::announcement(v6(1), gw)), Verdict::Absorb(Absorbed::Announcement)),
        ("router solicitation", ip6_frame(gw, GROUP, link_local(1), "ff02::2".parse().unwrap()), Verdict::Absorb(Absorbed::Multicast)),
    ];
    for (name, frame, verdict) in untagged {
        assert_eq!(table.judge(Port::Gateway, None, &frame), verdict, "{name}");
        let tagged = table.judge(Port::Gateway, tag(100), &frame);
        assert_eq!(tagged, DROP(Reason::UnknownVlan), "{name}");
    }
    let told = answer(&table.judge(Port::Gateway, None, &arp(v4(11))));
    assert_eq!((told.source, told.destination), (pod_mac(11), gw));
    let told = answer(&table.judge(Port::Gateway, None, &ask(v6(11))));
    assert!(matches!(
        told.content,
        Content::Ndp(NdpPacket {
            message: NdpMessage::Advertisement {
                flags: AdvertisementFlags { router: false, solicited: true, .. },
                target_link: Some(link),
            },
            ..
        }) if link == pod_mac(11)
    ));
}

#[test]
fn held_addresses_are_silent_in_every_direction() {
    let (p10, p11, gw) = (pod_mac(10), pod_mac(11), gateway());
    let held = table_with_held(&[v4(10).into(), v6(10).into()]);
    let free = table_with_held(&[]);
    let ask4 = ArpPacket::request(p10, v4(10), v4(1));
    let ask6 = NdpPacket::solicitation(v6(10), p10, v6(1));
    #[rustfmt::skip] // a row a line
    let cases = [
        ("arp for the gateway", N1, tag(100), arp_frame(p10, ask4)),
        ("ndp for the gateway", N1, tag(100), ndp_frame(p10, GROUP, ask6)),
        ("announcement", N1, tag(100), arp_frame(p10, ArpPacket::announcement(p10, v4(10)))),
        ("out", N1, tag(100), ip_frame(p10, p11, v4(10), v4(11))),
        ("out ipv6", N1, tag(100), ip6_frame(p10, p11, v6(10), v6(11))),
        ("in", N2, tag(100), ip_frame(p11, p10, v4(11), v4(10))),
        ("neighbour asks", N2, tag(100), arp_frame(p11, ArpPacket::request(p11, v4(11), v4(10)))),
        ("gateway asks", Port::Gateway, None, arp_frame(gw, ArpPacket::request(gw, v4(1), v4(10)))),
        ("gateway sends", Port::Gateway, None, ip_frame(gw, p10, [9; 4].into(), v4(10))),
    ];
    for (name, port, tag, frame) in cases {
        assert_eq!(held.judge(port, tag, &frame), DROP(Reason::Held), "{name}");
        let passes = free.judge(port, tag, &frame);
        assert!(!matches!(passes, Verdict::Drop(_)), "{name}: {passes:?}");
    }
    let neighbour = ip_frame(p11, pod_mac(12), v4(11), v4(12));
    assert_eq!(
        held.judge(N2, tag(100), &neighbour),
        to(N1, 101),
        "others go on"
    );
    let silent_gateway = table_with_held(&[v4(1).into()]);
    assert_eq!(
        silent_gateway.judge(N1, tag(100), &arp_frame(p10, ask4)),
        DROP(Reason::Held)
    );
}
