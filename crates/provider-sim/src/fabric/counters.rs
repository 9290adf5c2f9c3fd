//! What became of the frames: counts by reason and the last drops in detail.
//!
//! Written by every port task without a lock on the fast path; read by `admin`.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use serde::Serialize;

use super::packets::Seen;

/// Drops kept in detail: enough to explain a failed test, small enough to print.
const RECENT_LIMIT: usize = 64;

/// Why a frame was dropped (spec: iaas 15.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The VLAN is not in use on that parent, or the tag is not 802.1Q.
    UnknownVlan,
    /// The sub-ENI of that VLAN is not attached.
    Unbound,
    /// The sub-ENI of that VLAN is being detached.
    Detaching,
    /// The source MAC, or the one an ARP or ND packet claims, is not the sub-ENI's.
    SrcMac,
    /// The source address, or the one an ARP or ND packet claims, is not bound to the sub-ENI.
    SrcIp,
    /// ARP with sender address 0.0.0.0 (a conflict probe).
    ArpUnspecified,
    /// Untagged, and not from the parent NIC's own MAC.
    UntaggedForeignMac,
    /// Nothing is bound at the destination, or not in the sender's subnet.
    DstUnbound,
    /// An address is held back by the administrator.
    Held,
    /// A second VLAN tag.
    DoubleTag,
    /// Neither ARP nor IPv4 nor IPv6.
    Protocol,
    /// Too short or contradictory headers.
    Malformed,
}

impl Reason {
    /// All of them: the counters show zeros too.
    pub const ALL: [Self; 12] = [
        Self::UnknownVlan,
        Self::Unbound,
        Self::Detaching,
        Self::SrcMac,
        Self::SrcIp,
        Self::ArpUnspecified,
        Self::UntaggedForeignMac,
        Self::DstUnbound,
        Self::Held,
        Self::DoubleTag,
        Self::Protocol,
        Self::Malformed,
    ];
}

/// Why a legitimate frame went nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Absorbed {
    /// Untagged traffic of the node itself: it has its own network.
    UntaggedOwn,
    /// The gateway's own announcements: answers come from the table.
    Announcement,
    /// Duplicate address detection for an address nobody else has.
    AddressProbe,
    /// A question for a link-local address, which no binding has: Linux checks that way who asked
    /// it from such an address.
    LinkLocal,
    /// IP multicast and broadcast: router and listener discovery.
    Multicast,
}

impl Absorbed {
    /// All of them: the counters show zeros too.
    pub const ALL: [Self; 5] = [
        Self::UntaggedOwn,
        Self::Announcement,
        Self::AddressProbe,
        Self::LinkLocal,
        Self::Multicast,
    ];
}

/// Why a frame that may pass did not: the simulation's own limits, not the cloud's rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Lost {
    /// Send buffer full.
    Busy,
    /// Longer than the receiver's MTU, or the receive buffer.
    TooLong,
    /// The receiving link is down or gone.
    LinkDown,
    /// Offload the packet socket cannot express, or another refusal of the kernel.
    Refused,
}

impl Lost {
    /// All of them: the counters show zeros too.
    pub const ALL: [Self; 4] = [Self::Busy, Self::TooLong, Self::LinkDown, Self::Refused];
}

/// One dropped frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DropRecord {
    /// Why.
    pub reason: Reason,
    /// The frame.
    #[serde(flatten)]
    pub frame: Seen,
}

/// All counts since the start.
#[derive(Debug)]
pub struct Counters {
    forwarded: AtomicU64,
    answered: AtomicU64,
    dropped: BTreeMap<Reason, AtomicU64>,
    absorbed: BTreeMap<Absorbed, AtomicU64>,
    lost: BTreeMap<Lost, AtomicU64>,
    recent: Mutex<VecDeque<DropRecord>>,
}

/// A copy of the counts, as `GET /admin/drops` shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Snapshot {
    /// Frames that passed.
    pub forwarded: u64,
    /// ARP requests and solicitations answered by the fabric.
    pub answered: u64,
    /// Sum of `drops`.
    pub dropped: u64,
    /// Frames dropped, by reason.
    pub drops: BTreeMap<Reason, u64>,
    /// Legitimate frames nobody was to receive.
    pub absorbed: BTreeMap<Absorbed, u64>,
    /// Frames lost in the simulation.
    pub lost: BTreeMap<Lost, u64>,
    /// The last drops, oldest first.
    pub recent: Vec<DropRecord>,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            forwarded: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            dropped: zeros(&Reason::ALL),
            absorbed: zeros(&Absorbed::ALL),
            lost: zeros(&Lost::ALL),
            recent: Mutex::new(VecDeque::with_capacity(RECENT_LIMIT)),
        }
    }
}

impl Counters {
    /// One frame passed.
    pub fn forwarded(&self) {
        self.forwarded.fetch_add(1, Ordering::Relaxed);
    }

    /// One question was answered.
    pub fn answered(&self) {
        self.answered.fetch_add(1, Ordering::Relaxed);
    }

    /// One legitimate frame went nowhere.
    pub fn absorbed(&self, why: Absorbed) {
        add(&self.absorbed, why);
    }

    /// One frame was lost in the simulation.
    pub fn lost(&self, why: Lost) {
        add(&self.lost, why);
    }

    /// One frame was dropped.
    pub fn dropped(&self, record: DropRecord) {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if recent.len() == RECENT_LIMIT {
            recent.pop_front();
        }
        add(&self.dropped, record.reason);
        recent.push_back(record);
    }

    /// The counts as they are now.
    pub fn snapshot(&self) -> Snapshot {
        // The lock keeps counts and records of drops together.
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let drops = copy(&self.dropped);
        Snapshot {
            forwarded: self.forwarded.load(Ordering::Relaxed),
            answered: self.answered.load(Ordering::Relaxed),
            dropped: drops.values().sum(),
            drops,
            absorbed: copy(&self.absorbed),
            lost: copy(&self.lost),
            recent: recent.iter().cloned().collect(),
        }
    }
}

fn zeros<K: Ord + Copy>(keys: &[K]) -> BTreeMap<K, AtomicU64> {
    keys.iter().map(|key| (*key, AtomicU64::new(0))).collect()
}

fn add<K: Ord>(counts: &BTreeMap<K, AtomicU64>, key: K) {
    if let Some(count) = counts.get(&key) {
        count.fetch_add(1, Ordering::Relaxed);
    }
}

fn copy<K: Ord + Copy>(counts: &BTreeMap<K, AtomicU64>) -> BTreeMap<K, u64> {
    let load = |(key, count): (&K, &AtomicU64)| (*key, count.load(Ordering::Relaxed));
    counts.iter().map(load).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(reason: Reason, vlan: u16) -> DropRecord {
        DropRecord {
            reason,
            frame: Seen {
                port: "gateway".to_owned(),
                vlan: Some(vlan),
                src_mac: None,
                dst_mac: None,
                src_ip: None,
                dst_ip: None,
            },
        }
    }

    #[test]
    fn every_kind_is_shown_and_counted() {
        let counters = Counters::default();
        for reason in Reason::ALL {
            counters.dropped(record(reason, 1));
        }
        Absorbed::ALL
            .into_iter()
            .for_each(|why| counters.absorbed(why));
        Lost::ALL.into_iter().for_each(|why| counters.lost(why));
        counters.forwarded();
        let snapshot = counters.snapshot();
        assert_eq!(snapshot.dropped, 12);
        assert!(snapshot.drops.values().all(|n| *n == 1));
        assert!(
            snapshot
                .absorbed
                .values()
                .chain(snapshot.lost.values())
                .all(|n| *n == 1)
        );
        let json = serde_json::to_value(&snapshot).unwrap();
        assert_eq!(json["drops"]["arp_unspecified"], 1);
        assert_eq!(json["absorbed"]["untagged_own"], 1);
        assert_eq!(json["recent"][0]["port"], "gateway");
    }

    #[test]
    fn only_the_last_drops_are_kept() {
        let counters = Counters::default();
        for vlan in 0..100 {
            counters.dropped(record(Reason::UnknownVlan, vlan));
        }
        let snapshot = counters.snapshot();
        assert_eq!(snapshot.dropped, 100);
        assert_eq!(snapshot.recent.len(), RECENT_LIMIT);
        assert_eq!(snapshot.recent.last().unwrap().frame.vlan, Some(99));
    }
}
