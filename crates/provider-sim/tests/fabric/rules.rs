//! What passes, what is dropped and counted, who answers and when.

use std::net::Ipv4Addr;
use std::time::Duration;

use provider_sim::fabric::counters::Reason;
use provider_sim::fabric::frame::{Content, FrameView, build};
use spiderpool_api::value::Mac;
use spiderpool_netops::arp::{self, ArpPacket};
use spiderpool_netops::ndp::{self, NdpMessage, NdpPacket};
use spiderpool_netops::packet::AsyncRaw;
use spiderpool_netops::packet::vnet::{VlanTag, VnetHdr};
use tokio::time::Instant;

use crate::lab::{DEADLINE, GATEWAY, Lab, expect_frame, pod, root_or_skip};

const DELAY: Duration = Duration::from_millis(48);

fn v4(host: u8) -> Ipv4Addr {
    Ipv4Addr::new(172, 16, 0, host)
}

pub(crate) fn arp_frame(source: Mac, packet: ArpPacket) -> Vec<u8> {
    build(Mac::BROADCAST, source, arp::ETHERTYPE, &packet.encode())
}

fn ask_gateway(host: u8) -> Vec<u8> {
    arp_frame(pod(host), ArpPacket::request(pod(host), v4(host), v4(1)))
}

fn ip_frame(source: Mac, destination: Mac, from: Ipv4Addr, to: Ipv4Addr) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 20, 0, 0, 0, 0, 64, 253, 0, 0];
    packet.extend_from_slice(&from.octets());
    packet.extend_from_slice(&to.octets());
    build(destination, source, 0x0800, &packet)
}

pub(crate) fn send(socket: &AsyncRaw, vlan: Option<u16>, frame: &[u8]) {
    let tag = vlan.map(VlanTag::customer);
    socket.try_send(frame, tag, VnetHdr::default()).unwrap();
}

/// Waits for the gateway's ARP answer to Pod `host` on `socket`.
async fn expect_answer(socket: &AsyncRaw, host: u8) -> Instant {
    let answered = |frame: &[u8]| match FrameView::parse(frame).map(|view| view.content) {
        Some(Content::Arp(packet)) => {
            packet.spa == v4(1) && packet.sha == GATEWAY && packet.tha == pod(host)
        }
        _ => false,
    };
    let what = format!("ARP answer for Pod {host}");
    expect_frame(socket, &what, |received, frame| {
        received.tag == Some(VlanTag::customer(100)) && answered(frame)
    })
    .await
    .0
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_violation_is_dropped_and_counted_under_its_own_reason() {
    if !root_or_skip("each_violation_is_dropped_and_counted_under_its_own_reason") {
        return;
    }
    let lab = Lab::new().await;
    let n1 = lab.wires.open("n1");
    let ask = ArpPacket::request(pod(10), v4(10), v4(1));
    let there = ip_frame(pod(10), pod(11), v4(10), v4(11));
    let mut double = there.clone();
    double.splice(12..12, VlanTag::customer(7).octets());
    #[rustfmt::skip] // a row a line
    let cases = [
        (Some(999), there.clone(), Reason::UnknownVlan),
        (Some(100), ip_frame(pod(11), pod(10), v4(11), v4(10)), Reason::SrcMac),
        (Some(100), ip_frame(pod(10), pod(11), v4(77), v4(11)), Reason::SrcIp),
        (Some(100), arp_frame(pod(10), ArpPacket { spa: [0; 4].into(), ..ask }), Reason::ArpUnspecified),
        (Some(130), ask_gateway(30), Reason::Unbound),
        (Some(131), ask_gateway(31), Reason::Detaching),
        (None, there.clone(), Reason::UntaggedForeignMac),
        (Some(100), ip_frame(pod(10), pod(99), v4(10), v4(99)), Reason::DstUnbound),
        (Some(100), double, Reason::DoubleTag),
        (Some(100), build(pod(11), pod(10), 0x88cc, &[2, 7]), Reason::Protocol),
        (Some(100), build(pod(11), pod(10), 0x0800, &[0x60; 46]), Reason::Malformed),
    ];
    let mut expected = std::collections::BTreeMap::new();
    for (vlan, frame, reason) in cases {
        send(&n1, vlan, &frame);
        // The answer to a good question is behind the bad frame in the same queue.
        send(&n1, Some(100), &ask_gateway(10));
        expect_answer(&n1, 10).await;
        expected.insert(reason, 1);
        assert_eq!(lab.drops(), expected, "after {reason:?}");
    }
    let last = lab.running.fabric.counters().recent.pop().unwrap();
    assert_eq!(
        (last.reason, last.frame.vlan),
        (Reason::Malformed, Some(100))
    );
    assert_eq!(
        (last.frame.src_mac, last.frame.dst_mac),
        (Some(pod(10)), Some(pod(11)))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_gateway_answers_late_and_forwarding_does_not_wait() {
    if !root_or_skip("the_gateway_answers_late_and_forwarding_does_not_wait") {
        return;
    }
    let lab = Lab::new().await;
    let (n1, n2) = (lab.wires.open("n1"), lab.wires.open("n2"));
    let there = ip_frame(pod(10), pod(11), v4(10), v4(11));
    let asked = Instant::now();
    send(&n1, Some(100), &ask_gateway(10));
    send(&n1, Some(100), &there);
    let arrived = expect_frame(&n2, "forwarded frame", |received, frame| {
        received.tag == Some(VlanTag::customer(100)) && frame == there
    });
    let (arrived, _) = arrived.await;
    let answered = expect_answer(&n1, 10).await;
    assert!(answered - asked >= DELAY, "after {:?}", answered - asked);
    assert!(
        arrived < answered,
        "the frame behind the question came first"
    );
    let counters = lab.running.fabric.counters();
    assert_eq!(
        (counters.answered, counters.forwarded, counters.dropped),
        (1, 1, 0)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_gateway_answers_solicitations() {
    if !root_or_skip("the_gateway_answers_solicitations") {
        return;
    }
    let lab = Lab::new().await;
    let n1 = lab.wires.open("n1");
    let ask = NdpPacket::solicitation(
        "fd00:16::a".parse().unwrap(),
        pod(10),
        "fd00:16::1".parse().unwrap(),
    );
    let group = ndp::multicast_mac(ask.destination);
    send(
        &n1,
        Some(100),
        &build(group, pod(10), ndp::ETHERTYPE, &ask.encode()),
    );
    expect_frame(&n1, "advertisement", |_, frame| {
        let view = FrameView::parse(frame).unwrap();
        matches!(view.content, Content::Ndp(NdpPacket {
            message: NdpMessage::Advertisement { target_link: Some(GATEWAY), .. },
            target,
            ..
        }) if target == ask.target && view.destination == pod(10))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_address_gets_no_answer_until_it_is_let_through() {
    if !root_or_skip("a_held_address_gets_no_answer_until_it_is_let_through") {
        return;
    }
    let lab = Lab::new().await;
    let (n1, n2) = (lab.wires.open("n1"), lab.wires.open("n2"));
    let fabric = &lab.running.fabric;
    fabric.hold(v4(10).into()).unwrap();
    send(&n1, Some(100), &ask_gateway(10));
    send(&n1, Some(100), &ip_frame(pod(10), pod(11), v4(10), v4(11)));
    // Other addresses go on; their answer also says that the held frames had their turn.
    let held = || fabric.counters().drops[&Reason::Held];
    let deadline = Instant::now() + DEADLINE;
    while held() < 2 {
        assert!(
            Instant::now() < deadline,
            "{} of 2 frames held back",
            held()
        );
        tokio::task::yield_now().await;
    }
    send(&n2, Some(100), &ask_gateway(11));
    expect_answer(&n2, 11).await;
    assert_eq!(fabric.counters().answered, 1);
    fabric.unhold(v4(10).into()).unwrap();
    send(&n1, Some(100), &ask_gateway(10));
    expect_answer(&n1, 10).await;
    assert_eq!(held(), 2);
}
