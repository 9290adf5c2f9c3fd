//! The probe as a table: which frames answer, when to ask again.

use super::*;
use crate::ndp::AdvertisementFlags;

const POD: Mac = Mac::new([0xfa, 0x16, 0x3e, 0, 0, 0x0a]);
const GATEWAY: Mac = Mac::new([0xfa, 0x16, 0x3e, 0xff, 0xff, 0xfe]);
const STRANGER: Mac = Mac::new([0xfa, 0x16, 0x3e, 0, 0, 0x63]);
const POD_IP: Ipv4Addr = Ipv4Addr::new(172, 16, 0, 10);
const GATEWAY_IP: Ipv4Addr = Ipv4Addr::new(172, 16, 0, 1);
const OTHER_IP: Ipv4Addr = Ipv4Addr::new(172, 16, 0, 99);

fn v6(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

#[test]
fn only_the_gateways_reply_to_us_answers_an_arp_request() {
    let question = Question::Arp {
        link_mac: POD,
        ip: POD_IP,
        gateway: GATEWAY_IP,
    };
    let reply = ArpPacket {
        operation: Operation::Reply,
        sha: GATEWAY,
        spa: GATEWAY_IP,
        tha: POD,
        tpa: POD_IP,
    };
    #[rustfmt::skip] // a row a line
    let cases = [
        ("reply", reply, Some(GATEWAY)),
        ("THA ours alone", ArpPacket { tpa: OTHER_IP, ..reply }, Some(GATEWAY)),
        ("TPA ours alone", ArpPacket { tha: STRANGER, ..reply }, Some(GATEWAY)),
        ("to somebody else", ArpPacket { tha: STRANGER, tpa: OTHER_IP, ..reply }, None),
        ("from another address", ArpPacket { spa: OTHER_IP, ..reply }, None),
        ("request of the gateway", ArpPacket { operation: Operation::Request, ..reply }, None),
        ("our own request", ArpPacket::request(POD, POD_IP, GATEWAY_IP), None),
        ("group address", ArpPacket { sha: Mac::BROADCAST, ..reply }, None),
        ("no address", ArpPacket { sha: Mac::ZERO, ..reply }, None),
    ];
    for (name, packet, mac) in cases {
        assert_eq!(
            question.answered_by(&packet.encode(), STRANGER),
            mac,
            "{name}"
        );
    }
    assert_eq!(
        question.answered_by(&reply.encode()[..27], GATEWAY),
        None,
        "truncated"
    );
}

#[test]
fn only_the_gateways_advertisement_to_us_answers_a_solicitation() {
    let (ip, gateway) = (v6("fd00:16::a"), v6("fd00:16::1"));
    let question = Question::Ndp {
        link_mac: POD,
        ip,
        gateway,
    };
    let asked = NdpPacket::decode(&question.encode()).unwrap();
    assert_eq!((asked.source, asked.target), (ip, gateway));
    let answer = asked.answer(GATEWAY, true);
    let bare = NdpPacket {
        message: NdpMessage::Advertisement {
            flags: AdvertisementFlags {
                router: true,
                solicited: true,
                override_known: false,
            },
            target_link: None,
        },
        ..answer
    };
    #[rustfmt::skip] // a row a line
    let cases = [
        ("advertisement", answer, Some(GATEWAY)),
        ("without options: the frame's sender", bare, Some(STRANGER)),
        ("other target", NdpPacket { target: v6("fd00:16::9"), ..answer }, None),
        ("to another address", NdpPacket { destination: v6("fd00:16::b"), ..answer }, None),
        ("announcement to all", NdpPacket::announcement(gateway, GATEWAY), None),
        ("solicitation", asked, None),
    ];
    for (name, packet, mac) in cases {
        assert_eq!(
            question.answered_by(&packet.encode(), STRANGER),
            mac,
            "{name}"
        );
    }
    let mut damaged = answer.encode();
    for (name, at, value) in [("hop limit", 7, 64), ("checksum", 42, !damaged[42])] {
        let kept = damaged[at];
        damaged[at] = value;
        assert_eq!(question.answered_by(&damaged, GATEWAY), None, "{name}");
        damaged[at] = kept;
    }
    assert_eq!(
        question.answered_by(&damaged, STRANGER),
        Some(GATEWAY),
        "whole again"
    );
}

#[test]
fn questions_go_where_the_gateway_listens() {
    let arp = Question::Arp {
        link_mac: POD,
        ip: POD_IP,
        gateway: GATEWAY_IP,
    };
    assert_eq!(
        (arp.ethertype(), arp.destination()),
        (0x0806, Mac::BROADCAST)
    );
    let ndp = Question::Ndp {
        link_mac: POD,
        ip: v6("fd00::a"),
        gateway: v6("fd00::12:3456"),
    };
    assert_eq!(ndp.ethertype(), 0x86dd);
    assert_eq!(ndp.destination().to_string(), "33:33:ff:12:34:56");
}

#[test]
fn attempts_follow_their_deadlines() {
    const MS: fn(u64) -> Duration = Duration::from_millis;
    let mut probe = Probe::new(3, MS(500));
    let script = [
        (MS(0), Step::Send, 1),
        (MS(1), Step::WaitUntil(MS(500)), 1),
        (MS(499), Step::WaitUntil(MS(500)), 1),
        (MS(500), Step::Send, 2),
        (MS(500), Step::WaitUntil(MS(1000)), 2),
        // Late by 100 ms: the third question has its whole time all the same.
        (MS(1100), Step::Send, 3),
        (MS(1599), Step::WaitUntil(MS(1600)), 3),
        (MS(1600), Step::Exhausted, 3),
        (MS(9000), Step::Exhausted, 3),
    ];
    for (now, step, sent) in script {
        assert_eq!(probe.step(now), step, "at {now:?}");
        assert_eq!(probe.sent(), sent, "at {now:?}");
    }
}

#[test]
fn zero_attempts_and_zero_timeouts_end() {
    assert_eq!(
        Probe::new(0, Duration::from_secs(1)).step(Duration::ZERO),
        Step::Exhausted
    );
    let mut hasty = Probe::new(2, Duration::ZERO);
    let steps: Vec<Step> = (0..3).map(|_| hasty.step(Duration::ZERO)).collect();
    assert_eq!(steps, [Step::Send, Step::Send, Step::Exhausted]);
}
