//! Counters with names: the bodies of the agent socket. Pure.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use spiderpool_api::observer_v1::{Counters, Finding, SubEniReport, Verdict, VerifyReport};
use spiderpool_api::value::{IfName, Mac};
use spiderpool_ebpf_common::kind::{Direction, Kind};
use spiderpool_ebpf_common::layout::{
    Event, Neighbour, State, Stats, Traffic, Unknown, UnknownKey,
};

use super::Entry;

/// A verification that could not be made.
pub(super) fn cannot_tell(why: &str) -> VerifyReport {
    VerifyReport {
        result: Verdict::Unknown,
        error: Some(why.to_owned()),
        findings: Vec::new(),
    }
}

pub(super) fn counters(rx: &Traffic, tx: &Traffic) -> Counters {
    Counters {
        rx_frames: rx.frames,
        rx_packets: rx.packets,
        rx_bytes: rx.bytes,
        tx_frames: tx.frames,
        tx_packets: tx.packets,
        tx_bytes: tx.bytes,
    }
}

pub(super) fn sub_eni(entry: &Entry, state: State, stats: &Stats) -> SubEniReport {
    let mismatch = Kind::ALL.into_iter().filter_map(|kind| {
        let count = count_of(stats, kind);
        (count > 0).then(|| (kind.as_str().to_owned(), count))
    });
    let directions = [
        (Direction::Rx, &stats.rx_neighbour),
        (Direction::Tx, &stats.tx_neighbour),
    ];
    let neighbor = directions.into_iter().filter_map(|(direction, messages)| {
        let messages = neighbour(messages);
        (!messages.is_empty()).then(|| (direction.as_str().to_owned(), messages))
    });
    SubEniReport {
        nic: entry.place.nic.clone(),
        vlan: entry.place.vlan,
        mac: entry.mac,
        ipv4: entry.ipv4,
        ipv6: entry.ipv6,
        interface: entry.ifname.clone(),
        pod_namespace: entry.pod_namespace.clone(),
        pod_name: entry.pod_name.clone(),
        pool: entry.pools.join(","),
        state: state.as_str().to_owned(),
        counters: counters(&stats.rx, &stats.tx),
        drops: stats.rx_drops + stats.tx_drops,
        dropped: BTreeMap::new(),
        mismatch: mismatch.collect(),
        neighbor: neighbor.collect(),
    }
}

pub(super) fn count_of(stats: &Stats, kind: Kind) -> u64 {
    stats.mismatch.get(kind.index()).copied().unwrap_or(0)
}

fn neighbour(messages: &Neighbour) -> BTreeMap<String, u64> {
    [
        ("arp_request", messages.arp_request),
        ("arp_reply", messages.arp_reply),
        ("garp", messages.garp),
        ("ns", messages.ns),
        ("na", messages.na),
        ("rs", messages.rs),
        ("ra", messages.ra),
    ]
    .into_iter()
    .filter(|(_, count)| *count > 0)
    .map(|(name, count)| (name.to_owned(), count))
    .collect()
}

/// What the cloud knows, for a kind.
pub(super) fn expected(entry: &Entry, kind: Kind) -> Option<String> {
    match kind {
        Kind::SrcMac | Kind::ArpSha => Some(entry.mac.to_string()),
        Kind::SrcIp4 | Kind::ArpSpa => entry.ipv4.map(|ip| ip.to_string()),
        Kind::SrcIp6 => entry.ipv6.map(|ip| ip.to_string()),
        Kind::UntaggedSubMac => Some(format!("vlan {}", entry.place.vlan)),
        Kind::UnknownVlan => None,
    }
}

/// What the frame had instead.
pub(super) fn observed(event: &Event, kind: Kind) -> String {
    let [a, b, c, d, ..] = event.src;
    match kind {
        Kind::SrcMac | Kind::ArpSha | Kind::UnknownVlan => Mac::new(event.src_mac).to_string(),
        Kind::SrcIp4 | Kind::ArpSpa => Ipv4Addr::new(a, b, c, d).to_string(),
        Kind::SrcIp6 => Ipv6Addr::from(event.src).to_string(),
        Kind::UntaggedSubMac => "untagged".to_owned(),
    }
}

/// The finding of a kind that a sub-ENI's counters have.
pub(super) fn finding(
    entry: &Entry,
    kind: Kind,
    count: u64,
    last: Option<&Event>,
    now_ns: u64,
) -> Finding {
    Finding {
        nic: entry.place.nic.clone(),
        vlan: entry.place.vlan.get(),
        interface: Some(entry.ifname.clone()),
        pod_namespace: Some(entry.pod_namespace.clone()),
        pod_name: Some(entry.pod_name.clone()),
        direction: Direction::Tx.as_str().to_owned(),
        kind: kind.as_str().to_owned(),
        expected: expected(entry, kind),
        observed: last.map(|last| observed(last, kind)),
        count,
        last_seconds_ago: last.map(|last| seconds_since(last.ns, now_ns)),
    }
}

/// The finding of a VLAN that something on this node sends on and no sub-ENI has. Received ones
/// are no fault of this node.
pub(super) fn unknown_finding(
    nic: &IfName,
    key: &UnknownKey,
    seen: &Unknown,
    now_ns: u64,
) -> Option<Finding> {
    let direction = Direction::from_u8(key.direction)?;
    (direction == Direction::Tx).then(|| Finding {
        nic: nic.clone(),
        vlan: key.vid,
        interface: None,
        pod_namespace: None,
        pod_name: None,
        direction: direction.as_str().to_owned(),
        kind: Kind::UnknownVlan.as_str().to_owned(),
        expected: None,
        observed: Some(Mac::new(seen.last_mac).to_string()),
        count: seen.packets,
        last_seconds_ago: Some(seconds_since(seen.last_ns, now_ns)),
    })
}

/// Both since boot.
pub(super) fn seconds_since(then_ns: u64, now_ns: u64) -> f64 {
    Duration::from_nanos(now_ns.saturating_sub(then_ns)).as_secs_f64()
}
