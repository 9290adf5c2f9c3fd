//! Frames are counted by (NIC, VLAN) and direction, and each kind of fault is caught.

use std::collections::BTreeMap;
use std::time::Duration;

use spiderpool_agent::observer::{KernelObserver, ObserverOps};
use spiderpool_api::observer_v1::{Counters, Finding, ObserverReport, Verdict};
use spiderpool_ebpf_common::kind::Kind;

use crate::rig::{
    FORGED_MAC, From, PARENT_MAC, PEER_MAC, Rig, SUB_MAC, SUB_V4, SUB_V6, VLAN, arp, entry, frame,
    ipv4, ipv6, place, rig, sent, sub_eni, until,
};

const TIMES: u64 = 10;
const ROWS: u64 = 6;
/// Length of each row's frame without its outer tag.
const BYTES: u64 = 60;

/// Case B35: what is sent ten times each.
fn rows() -> Vec<Vec<u8>> {
    let of = |tags: &[(u16, u16)]| {
        let mut frame = frame(PARENT_MAC, PEER_MAC, tags, 0x88b5, &[]);
        frame.resize(60 + 4 * tags.len().min(1), 0);
        frame
    };
    vec![
        of(&[(0x8100, 101)]),
        of(&[(0x8100, 7 << 13 | 101)]),
        of(&[(0x8100, 3 << 13)]),
        of(&[]),
        of(&[(0x88a8, 10), (0x8100, 101)]),
        of(&[(0x8100, 4094)]),
    ]
}

fn all_seen(report: &ObserverReport, direction: &str) -> bool {
    report.nics.first().is_some_and(|nic| {
        let (tagged, untagged) = (&nic.tagged, &nic.untagged);
        let seen = match direction {
            "rx" => tagged.rx_frames + untagged.rx_frames,
            _ => tagged.tx_frames + untagged.tx_frames,
        };
        seen >= ROWS * TIMES
    })
}

/// (vid, packets, bytes) of the VLANs without a sub-ENI.
fn unknown(report: &ObserverReport, direction: &str) -> Vec<(u16, u64, u64)> {
    let of = report
        .unknown
        .iter()
        .filter(|seen| seen.direction == direction);
    of.map(|seen| (seen.vlan, seen.packets, seen.bytes))
        .collect()
}

async fn b35(rig: &Rig) {
    let observer = rig.start(vec![entry(VLAN, "c-1")]).await;
    let before = observer.report().await;
    assert_eq!(before.error, None, "{before:#?}");
    for row in rows() {
        for _ in 0..TIMES {
            rig.send(From::Fabric, &row);
        }
    }
    let report = until(&observer, |report| all_seen(report, "rx")).await;
    let nic = &report.nics[0];
    assert_eq!(sub_eni(&report).counters, rx(20, 20 * BYTES));
    assert_eq!(nic.untagged, rx(10, 10 * BYTES));
    assert_eq!(nic.tagged, rx(50, 50 * BYTES));
    let ten = |vid| (vid, 10, 10 * BYTES);
    assert_eq!(unknown(&report, "rx"), [ten(0), ten(10), ten(4094)]);
    observer.close().await;
    observer.detach().await;
}

fn rx(frames: u64, bytes: u64) -> Counters {
    Counters {
        rx_frames: frames,
        rx_packets: frames,
        rx_bytes: bytes,
        ..Counters::default()
    }
}

/// Case B35, with the tag taken out by the NIC and left in the bytes.
pub(crate) async fn vlans_are_told_apart_with_and_without_offload(test: &str) {
    let Some(on) = rig(test).await else { return };
    b35(&on).await;
    drop(on);
    let off = rig(test).await.unwrap();
    off.without_vlan_offload();
    b35(&off).await;
}

/// The same on the way out, where the tag of a raw socket's frame is in the bytes.
pub(crate) async fn frames_that_leave_are_counted_by_the_same_length(test: &str) {
    let Some(rig) = rig(test).await else { return };
    let observer = rig.start(vec![entry(VLAN, "c-1")]).await;
    for row in rows() {
        for _ in 0..TIMES {
            rig.send(From::Node, &row);
        }
    }
    let report = until(&observer, |report| all_seen(report, "tx")).await;
    let counters = &sub_eni(&report).counters;
    assert_eq!((counters.tx_frames, counters.tx_packets), (20, 20));
    assert_eq!(counters.tx_bytes, 20 * BYTES);
    assert_eq!(report.nics[0].untagged.tx_bytes, 10 * BYTES);
    let ten = |vid| (vid, 10, 10 * BYTES);
    assert_eq!(unknown(&report, "tx"), [ten(0), ten(10), ten(4094)]);
    assert_eq!(
        sub_eni(&report).mismatch,
        BTreeMap::from([("src_mac".to_owned(), 20)])
    );
    observer.close().await;
}

/// What is sent for each kind, and what is observed.
fn forgeries() -> Vec<(Kind, Vec<u8>, String)> {
    let (v4, v6) = ("10.9.9.9".parse().unwrap(), "fd91::bad".parse().unwrap());
    let mac = "fa:16:3e:09:09:09".to_owned();
    vec![
        (
            Kind::SrcMac,
            sent(FORGED_MAC, 0x0800, &ipv4(SUB_V4)),
            mac.clone(),
        ),
        (
            Kind::SrcIp4,
            sent(SUB_MAC, 0x0800, &ipv4(v4)),
            v4.to_string(),
        ),
        (
            Kind::SrcIp6,
            sent(SUB_MAC, 0x86dd, &ipv6(v6)),
            v6.to_string(),
        ),
        (
            Kind::ArpSha,
            sent(SUB_MAC, 0x0806, &arp(FORGED_MAC, SUB_V4)),
            mac.clone(),
        ),
        (
            Kind::ArpSpa,
            sent(SUB_MAC, 0x0806, &arp(SUB_MAC, v4)),
            v4.to_string(),
        ),
        (
            Kind::UntaggedSubMac,
            frame(PEER_MAC, SUB_MAC, &[], 0x0800, &ipv4(SUB_V4)),
            "untagged".to_owned(),
        ),
        (
            Kind::UnknownVlan,
            frame(
                PEER_MAC,
                FORGED_MAC,
                &[(0x8100, 300)],
                0x0800,
                &ipv4(SUB_V4),
            ),
            mac,
        ),
    ]
}

/// What a Pod may send: none of it is a fault.
fn honest() -> Vec<Vec<u8>> {
    let unspecified_v6 = "::".parse().unwrap();
    vec![
        sent(SUB_MAC, 0x0800, &ipv4(SUB_V4)),
        sent(SUB_MAC, 0x0800, &ipv4("0.0.0.0".parse().unwrap())),
        sent(SUB_MAC, 0x86dd, &ipv6(SUB_V6)),
        sent(SUB_MAC, 0x86dd, &ipv6("fe80::1".parse().unwrap())),
        sent(SUB_MAC, 0x86dd, &ipv6(unspecified_v6)),
        sent(SUB_MAC, 0x0806, &arp(SUB_MAC, SUB_V4)),
        sent(SUB_MAC, 0x0806, &arp(SUB_MAC, "0.0.0.0".parse().unwrap())),
        frame(PEER_MAC, PARENT_MAC, &[], 0x0800, &ipv4(SUB_V4)),
    ]
}

pub(crate) async fn each_kind_is_caught_once(test: &str) {
    let Some(rig) = rig(test).await else { return };
    let observer = rig.start(vec![entry(VLAN, "c-1")]).await;
    let mut events = observer.events();
    for frame in honest() {
        rig.send(From::Node, &frame);
    }
    until(&observer, |report| report.nics[0].untagged.tx_frames == 1).await;
    let clean = observer.verify().await;
    assert_eq!((clean.result, clean.findings), (Verdict::Clean, vec![]));
    for (kind, frame, observed) in forgeries() {
        rig.send(From::Node, &frame);
        let event = tokio::time::timeout(Duration::from_secs(5), events.recv());
        let event = event.await.expect("an event").unwrap();
        assert_eq!((event.kind, &event.observed), (kind, &observed));
        let pod = event.entry.map(|entry| entry.pod_name);
        let wanted = (kind != Kind::UnknownVlan).then(|| "c-1".to_owned());
        assert_eq!(pod, wanted, "{}", kind.as_str());
        // A second one within the second is counted and not told.
        rig.send(From::Node, &frame);
    }
    let report = observer.verify().await;
    assert_eq!(report.result, Verdict::Mismatch);
    let counted: BTreeMap<&str, u64> = report
        .findings
        .iter()
        .map(|f| (f.kind.as_str(), f.count))
        .collect();
    let wanted: BTreeMap<&str, u64> = forgeries()
        .iter()
        .map(|(kind, ..)| (kind.as_str(), 2))
        .collect();
    assert_eq!(counted, wanted, "{report:#?}");
    let arp: &Finding = report
        .findings
        .iter()
        .find(|f| f.kind == "arp_spa")
        .unwrap();
    assert_eq!(arp.expected.as_deref(), Some("172.91.0.100"));
    assert_eq!(arp.observed.as_deref(), Some("10.9.9.9"));
    assert!(events.try_recv().is_err(), "one event a second and source");
    observer.close().await;
}

/// Entries live as long as their Pod; the next Pod of the VLAN starts at zero.
pub(crate) async fn entries_follow_the_pod(test: &str) {
    let Some(rig) = rig(test).await else { return };
    let observer = rig.start(vec![]).await;
    let forged = sent(FORGED_MAC, 0x0800, &ipv4(SUB_V4));
    observer.prepare(entry(VLAN, "c-1"), rig.ifindex).await;
    assert_eq!(sub_eni(&observer.report().await).state, "pending");
    observer.activate(&place(VLAN, "c-1"), &[]).await;
    rig.send(From::Node, &forged);
    let report = until(&observer, |report| sub_eni(report).counters.tx_frames == 1).await;
    assert_eq!(sub_eni(&report).state, "active");
    // The retry of an ADD goes on, a second sandbox of another Pod does not.
    observer.prepare(entry(VLAN, "c-1"), rig.ifindex).await;
    assert_eq!(sub_eni(&observer.report().await).counters.tx_frames, 1);
    observer.prepare(entry(VLAN, "c-2"), rig.ifindex).await;
    let report = observer.report().await;
    assert_eq!(sub_eni(&report).counters, Counters::default());
    assert_eq!(sub_eni(&report).mismatch, BTreeMap::new());
    // The late DEL of the first is not the second's.
    observer.remove(&place(VLAN, "c-1")).await;
    observer.draining(&place(VLAN, "c-2")).await;
    assert_eq!(sub_eni(&observer.report().await).state, "draining");
    observer.remove(&place(VLAN, "c-2")).await;
    assert!(observer.report().await.subeni.is_empty());
    assert!(is_empty(&observer, &rig).await);
    observer.close().await;
}

/// A frame of the VLAN is one of nobody.
async fn is_empty(observer: &KernelObserver, rig: &Rig) -> bool {
    rig.send(From::Node, &sent(SUB_MAC, 0x0800, &ipv4(SUB_V4)));
    let report = until(observer, |report| !report.unknown.is_empty()).await;
    report.unknown.iter().any(|seen| seen.vlan == VLAN)
}
