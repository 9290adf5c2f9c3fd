//! Probes on a veth: one end is the link under test, the kernel or a script is the gateway behind
//! the other.

use nix::net::if_::if_nametoindex;

use super::*;
use crate::arp::Operation;
use crate::packet::vnet::VnetHdr;
use crate::packet::{AsyncRaw, RawSocket};
use crate::rtnl::{Rtnl, VethSpec};
use crate::testing::{TestNetns, root_or_skip};

const POD: Mac = Mac::new([0xfa, 0x16, 0x3e, 0, 0, 0x0a]);
const GATEWAY: Mac = Mac::new([0xfa, 0x16, 0x3e, 0xff, 0xff, 0xfe]);
const POD_IP: Ipv4Addr = Ipv4Addr::new(172, 16, 0, 10);
const GATEWAY_IP: Ipv4Addr = Ipv4Addr::new(172, 16, 0, 1);
const POD_IP6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x16, 0, 0, 0, 0, 0, 10);
const GATEWAY_IP6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x16, 0, 0, 0, 0, 0, 1);
/// Long enough that a loaded machine answers in time.
const PATIENT: Duration = Duration::from_secs(5);
const HASTY: Duration = Duration::from_millis(60);

struct Wire {
    pod: TestNetns,
    gateway: TestNetns,
    ifindex: u32,
}

impl Wire {
    /// A veth without addresses, both ends up.
    async fn new() -> Self {
        let (pod, gateway) = (TestNetns::new("pod"), TestNetns::new("gateway"));
        let here = Rtnl::open_in(&pod.netns).await.unwrap();
        let spec = VethSpec {
            name: "net1",
            peer: "gw0",
            peer_target: Some(&gateway.netns),
            mac: Some(POD),
            peer_mac: Some(GATEWAY),
        };
        here.add_veth(&spec).await.unwrap();
        let there = Rtnl::open_in(&gateway.netns).await.unwrap();
        let ifindex = here.link_by_name("net1").await.unwrap().unwrap().ifindex;
        let peer = there.link_by_name("gw0").await.unwrap().unwrap().ifindex;
        here.set_up(ifindex).await.unwrap();
        there.set_up(peer).await.unwrap();
        let wire = Self {
            pod,
            gateway,
            ifindex,
        };
        wire.wait_until_it_carries().await;
        wire
    }

    /// The kernel notices the carrier of a fresh veth a little after both ends are up and loses
    /// frames silently until then.
    async fn wait_until_it_carries(&self) {
        let (pod, gateway) = (listen(&self.pod, "net1"), listen(&self.gateway, "gw0"));
        let marker = [[0xfe; 12].as_slice(), &[0x88, 0xb5], &[0xee; 46]].concat();
        let start = Instant::now();
        for (from, to) in [(&pod, &gateway), (&gateway, &pod)] {
            let mut buffer = vec![0; BUFFER_LEN];
            let mut arrived = false;
            while !arrived {
                assert!(start.elapsed() < PATIENT, "the veth carries nothing");
                from.try_send(&marker, None, VnetHdr::default()).unwrap();
                let round = Instant::now() + Duration::from_millis(100);
                while let Ok(received) = timeout_at(round, to.recv(&mut buffer)).await {
                    arrived = buffer[..received.unwrap().len] == marker;
                    if arrived {
                        break;
                    }
                }
            }
        }
    }

    async fn give_gateway(&self, address: &str) {
        let there = Rtnl::open_in(&self.gateway.netns).await.unwrap();
        let peer = there.link_by_name("gw0").await.unwrap().unwrap().ifindex;
        there
            .add_address(peer, address.parse().unwrap())
            .await
            .unwrap();
    }

    async fn probe_v4(&self, attempts: u32, timeout: Duration) -> Result<ProbeReply, ProbeError> {
        let netns = &self.pod.netns;
        run_arp(
            netns,
            self.ifindex,
            POD,
            POD_IP,
            GATEWAY_IP,
            attempts,
            timeout,
        )
        .await
    }
}

fn listen(end: &TestNetns, ifname: &'static str) -> AsyncRaw {
    let open = move || RawSocket::open(if_nametoindex(ifname).unwrap()).unwrap();
    AsyncRaw::register(end.netns.run(open).unwrap()).unwrap()
}

#[tokio::test]
async fn the_kernel_as_gateway_answers_both_families() {
    if !root_or_skip("the_kernel_as_gateway_answers_both_families") {
        return;
    }
    let wire = Wire::new().await;
    wire.give_gateway("172.16.0.1/24").await;
    wire.give_gateway("fd00:16::1/64").await;
    let v4 = wire.probe_v4(3, PATIENT).await.unwrap();
    let netns = &wire.pod.netns;
    let v6 = run_ndp(netns, wire.ifindex, POD, POD_IP6, GATEWAY_IP6, 3, PATIENT)
        .await
        .unwrap();
    for reply in [v4, v6] {
        assert_eq!((reply.mac, reply.attempts), (GATEWAY, 1));
        assert!(reply.elapsed < PATIENT);
    }
}

#[tokio::test]
async fn silence_ends_after_the_last_deadline_and_names_the_question() {
    if !root_or_skip("silence_ends_after_the_last_deadline_and_names_the_question") {
        return;
    }
    let wire = Wire::new().await;
    let start = Instant::now();
    let error = wire.probe_v4(2, HASTY).await.unwrap_err();
    assert!(start.elapsed() >= HASTY * 2, "{:?}", start.elapsed());
    let text = error.to_string();
    for part in [
        "172.16.0.1",
        "172.16.0.10",
        "fa:16:3e:00:00:0a",
        "2 attempts",
        "60ms",
    ] {
        assert!(text.contains(part), "{part} missing in {text:?}");
    }
    assert!(matches!(
        error,
        ProbeError::Timeout {
            attempts: 2,
            last_send: None,
            ..
        }
    ));
}

/// Waits for the next ARP packet and gives it back with the address its frame went to.
async fn next_arp(gateway: &AsyncRaw) -> (ArpPacket, Vec<u8>) {
    let mut buffer = vec![0; BUFFER_LEN];
    loop {
        let received = tokio::time::timeout(PATIENT, gateway.recv(&mut buffer)).await;
        let frame = &buffer[..received.expect("no ARP packet in time").unwrap().len];
        if frame[12..14] == [8, 6] {
            return (
                ArpPacket::decode(&frame[14..]).unwrap(),
                frame[..12].to_vec(),
            );
        }
    }
}

fn reply_frame(packet: ArpPacket) -> Vec<u8> {
    let mut frame = POD.octets().to_vec();
    frame.extend_from_slice(&GATEWAY.octets());
    frame.extend_from_slice(&[8, 6]);
    frame.extend_from_slice(&packet.encode());
    frame
}

#[tokio::test]
async fn foreign_replies_are_ignored_and_the_second_question_is_answered() {
    if !root_or_skip("foreign_replies_are_ignored_and_the_second_question_is_answered") {
        return;
    }
    let wire = Wire::new().await;
    let gateway = listen(&wire.gateway, "gw0");
    let script = async {
        let (first, addresses) = next_arp(&gateway).await;
        assert_eq!(addresses, [Mac::BROADCAST.octets(), POD.octets()].concat());
        assert_eq!(first, ArpPacket::request(POD, POD_IP, GATEWAY_IP));
        let good = first.answer(GATEWAY);
        let other = Ipv4Addr::new(172, 16, 0, 99);
        for foreign in [
            ArpPacket { spa: other, ..good },
            ArpPacket {
                tha: GATEWAY,
                tpa: other,
                ..good
            },
            ArpPacket {
                operation: Operation::Request,
                ..good
            },
        ] {
            gateway
                .try_send(&reply_frame(foreign), None, VnetHdr::default())
                .unwrap();
        }
        next_arp(&gateway).await;
        gateway
            .try_send(&reply_frame(good), None, VnetHdr::default())
            .unwrap();
    };
    let (reply, ()) = tokio::join!(wire.probe_v4(20, Duration::from_millis(250)), script);
    let reply = reply.unwrap();
    assert_eq!(reply.mac, GATEWAY);
    assert!(reply.attempts >= 2, "a foreign reply counted");
}

#[tokio::test]
async fn a_link_that_is_down_or_gone_ends_the_probe_at_once() {
    if !root_or_skip("a_link_that_is_down_or_gone_ends_the_probe_at_once") {
        return;
    }
    let wire = Wire::new().await;
    let gateway = listen(&wire.gateway, "gw0");
    let rtnl = Rtnl::open_in(&wire.pod.netns).await.unwrap();
    let deleted_meanwhile = async {
        next_arp(&gateway).await;
        assert!(rtnl.delete_link(wire.ifindex).await.unwrap());
    };
    let start = Instant::now();
    let (result, ()) = tokio::join!(wire.probe_v4(3, PATIENT), deleted_meanwhile);
    assert!(
        matches!(result, Err(ProbeError::LinkGone { .. })),
        "{result:?}"
    );
    let result = wire.probe_v4(3, PATIENT).await;
    assert!(
        matches!(result, Err(ProbeError::LinkGone { .. })),
        "{result:?}"
    );
    assert!(
        start.elapsed() < PATIENT,
        "the attempts were not waited for"
    );

    let wire = Wire::new().await;
    let rtnl = Rtnl::open_in(&wire.pod.netns).await.unwrap();
    rtnl.set_down(wire.ifindex).await.unwrap();
    let result = wire.probe_v4(3, PATIENT).await;
    assert!(
        matches!(result, Err(ProbeError::LinkGone { .. })),
        "{result:?}"
    );
}

#[tokio::test]
async fn announcements_reach_the_neighbours() {
    if !root_or_skip("announcements_reach_the_neighbours") {
        return;
    }
    let wire = Wire::new().await;
    let neighbour = listen(&wire.gateway, "gw0");
    announce_arp(&wire.pod.netns, wire.ifindex, POD, POD_IP)
        .await
        .unwrap();
    for _ in 0..2 {
        let (packet, addresses) = next_arp(&neighbour).await;
        assert_eq!(packet, ArpPacket::announcement(POD, POD_IP));
        assert_eq!(addresses, [Mac::BROADCAST.octets(), POD.octets()].concat());
    }
    announce_ndp(&wire.pod.netns, wire.ifindex, POD, POD_IP6)
        .await
        .unwrap();
    let mut buffer = vec![0; BUFFER_LEN];
    loop {
        let received = tokio::time::timeout(PATIENT, neighbour.recv(&mut buffer)).await;
        let frame = &buffer[..received.expect("no advertisement in time").unwrap().len];
        // The kernels' own solicitations and reports are on the wire too.
        let packet = NdpPacket::decode(&frame[14..]);
        if packet == Ok(NdpPacket::announcement(POD_IP6, POD)) {
            assert_eq!(frame[..6], [0x33, 0x33, 0, 0, 0, 1]);
            assert_eq!(frame[6..12], POD.octets());
            return;
        }
    }
}
