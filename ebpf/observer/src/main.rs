//! The observer's programs: one classifier a direction on each parent NIC. They count frames by
//! (NIC, VLAN), check what sub-ENIs send and tell of what is wrong by a ring buffer. Spec:
//! dataplane section 5.
//!
//! The verdict is always "unspecified", so that other programs on the NIC see every frame. Needs
//! Linux 5.8 (ring buffer, boot clock); no kernel BTF.
#![no_std]
#![no_main]

mod skb;

use aya_ebpf::bindings::{BPF_F_NO_PREALLOC, TC_ACT_UNSPEC};
use aya_ebpf::helpers::generated::bpf_ktime_get_boot_ns;
use aya_ebpf::macros::{classifier, map};
use aya_ebpf::maps::{
    Array, HashMap, LruHashMap, LruPerCpuHashMap, PerCpuArray, PerCpuHashMap, RingBuf,
};
use aya_ebpf::programs::TcContext;
use spiderpool_ebpf_common::check;
use spiderpool_ebpf_common::kind::{Direction, Kind};
use spiderpool_ebpf_common::layout::{
    Config, EVENTS_BYTES, Event, MAX_NIC, MAX_RATE, MAX_SUBENI, MAX_UNKNOWN, MacKey, Nic, RateKey,
    Stats, SubEni, SubEniKey, Unknown, UnknownKey,
};
use spiderpool_ebpf_common::parse::Frame;

use skb::Skb;

/// What the cloud knows; written by the agent.
#[map]
static SUBENI: HashMap<SubEniKey, SubEni> = HashMap::with_max_entries(MAX_SUBENI, 0);

/// Which VLAN a MAC is of; written by the agent.
#[map]
static MACS: HashMap<MacKey, u32> = HashMap::with_max_entries(MAX_SUBENI, 0);

/// Counters of sub-ENIs; the agent makes the entries.
#[map]
static STATS: PerCpuHashMap<SubEniKey, Stats> =
    PerCpuHashMap::with_max_entries(MAX_SUBENI, BPF_F_NO_PREALLOC);

/// Counters of VLANs that no sub-ENI has.
#[map]
static UNKNOWN: LruPerCpuHashMap<UnknownKey, Unknown> =
    LruPerCpuHashMap::with_max_entries(MAX_UNKNOWN, 0);

/// Counters of NICs.
#[map]
static NIC: PerCpuArray<Nic> = PerCpuArray::with_max_entries(MAX_NIC, 0);

/// Which NIC's counters are where in NIC; written by the agent.
#[map]
static NICS: HashMap<u32, u32> = HashMap::with_max_entries(MAX_NIC, 0);

/// What was wrong, for the agent.
#[map]
static EVENTS: RingBuf = RingBuf::with_byte_size(EVENTS_BYTES, 0);

/// When the last event of each source was.
#[map]
static RATE: LruHashMap<RateKey, u64> = LruHashMap::with_max_entries(MAX_RATE, 0);

/// Events that found the ring buffer full.
#[map]
static LOST: PerCpuArray<u64> = PerCpuArray::with_max_entries(1, 0);

/// What to check; written by the agent.
#[map]
static CFG: Array<Config> = Array::with_max_entries(1, 0);

/// To Pods.
#[classifier]
pub fn subeni_rx(context: TcContext) -> i32 {
    observe(&Skb(&context), Direction::Rx);
    TC_ACT_UNSPEC
}

/// From Pods.
#[classifier]
pub fn subeni_tx(context: TcContext) -> i32 {
    observe(&Skb(&context), Direction::Tx);
    TC_ACT_UNSPEC
}

#[inline(always)]
fn observe(skb: &Skb, direction: Direction) {
    let mut frame = Frame::default();
    if !frame.read(skb) {
        return;
    }
    let ifindex = skb.ifindex();
    if frame.tagged {
        tagged(ifindex, frame.vid, &frame, direction);
    } else {
        untagged(ifindex, &frame, direction);
    }
}

/// Of a frame that is no sub-ENI's.
#[inline(always)]
fn count_foreign(ifindex: u32, frame: &Frame, direction: Direction) {
    // SAFETY: a place that another NIC gets meanwhile counts one frame too many.
    if let Some(place) = unsafe { NICS.get(ifindex) } {
        count_nic(*place, frame, direction);
    }
}

#[inline(always)]
fn count_nic(place: u32, frame: &Frame, direction: Direction) {
    let Some(nic) = NIC.get_ptr_mut(place) else {
        return;
    };
    // SAFETY: the value is this CPU's, and classifiers are not preempted by each other.
    let nic = unsafe { &mut *nic };
    match (frame.tagged, direction) {
        (true, Direction::Rx) => nic.tagged_rx.count(frame),
        (true, Direction::Tx) => nic.tagged_tx.count(frame),
        (false, Direction::Rx) => nic.untagged_rx.count(frame),
        (false, Direction::Tx) => nic.untagged_tx.count(frame),
    }
}

#[inline(always)]
fn tagged(ifindex: u32, vid: u16, frame: &Frame, direction: Direction) {
    let key = SubEniKey::new(ifindex, vid);
    // SAFETY: an entry that goes away meanwhile may be reused for another sub-ENI; one frame is
    // then judged by the wrong one, which is all the harm, as nothing is dropped by it.
    let Some(sub_eni) = (unsafe { SUBENI.get(key) }) else {
        count_foreign(ifindex, frame, direction);
        unknown(ifindex, vid, frame, direction);
        return;
    };
    count_nic(u32::from(sub_eni.nic), frame, direction);
    let Some(stats) = STATS.get_ptr_mut(key) else {
        return;
    };
    // SAFETY: the value is this CPU's.
    let stats = unsafe { &mut *stats };
    match direction {
        Direction::Rx => {
            stats.rx.count(frame);
            stats.rx_neighbour.count(frame);
        }
        Direction::Tx => {
            stats.tx.count(frame);
            stats.tx_neighbour.count(frame);
            let kinds = check::sent(frame, sub_eni) & config().kinds;
            if kinds != 0 {
                mismatch(ifindex, vid, frame, sub_eni.generation, stats, kinds);
            }
        }
    }
}

/// One counter and one event a kind.
#[inline(always)]
fn mismatch(ifindex: u32, vid: u16, frame: &Frame, generation: u32, stats: &mut Stats, kinds: u32) {
    for kind in [
        Kind::SrcMac,
        Kind::SrcIp4,
        Kind::SrcIp6,
        Kind::ArpSha,
        Kind::ArpSpa,
    ] {
        if kinds & kind.bit() != 0 {
            if let Some(counter) = stats.mismatch.get_mut(kind.index()) {
                *counter += 1;
            }
            event(
                &key_of(ifindex, vid, Direction::Tx, kind),
                frame,
                generation,
            );
        }
    }
}

#[inline(always)]
fn unknown(ifindex: u32, vid: u16, frame: &Frame, direction: Direction) {
    let key = UnknownKey {
        ifindex,
        vid,
        direction: direction as u8,
        zero: 0,
    };
    let now = now();
    let first = Unknown {
        packets: u64::from(frame.packets),
        bytes: u64::from(frame.bytes),
        last_ns: now,
        last_mac: frame.src_mac,
        zero: 0,
    };
    match UNKNOWN.get_ptr_mut(key) {
        Some(seen) => {
            // SAFETY: the value is this CPU's.
            let seen = unsafe { &mut *seen };
            seen.packets += first.packets;
            seen.bytes += first.bytes;
            seen.last_ns = now;
            seen.last_mac = first.last_mac;
        }
        // No room even after eviction: the NIC's counter still has the frame.
        None => {
            let _full = UNKNOWN.insert(key, first, 0);
        }
    }
    if config().kinds & Kind::UnknownVlan.bit() != 0 {
        event(
            &key_of(ifindex, vid, direction, Kind::UnknownVlan),
            frame,
            0,
        );
    }
}

/// A Pod's frame that lost its tag leaves the node as the node's own.
#[inline(always)]
fn untagged(ifindex: u32, frame: &Frame, direction: Direction) {
    count_foreign(ifindex, frame, direction);
    if !matches!(direction, Direction::Tx) || config().kinds & Kind::UntaggedSubMac.bit() == 0 {
        return;
    }
    // SAFETY: see `tagged`.
    let Some(vid) = (unsafe { MACS.get(MacKey::new(ifindex, frame.src_mac)) }) else {
        return;
    };
    let vid = *vid as u16;
    let key = SubEniKey::new(ifindex, vid);
    // SAFETY: see `tagged`.
    let Some(sub_eni) = (unsafe { SUBENI.get(key) }) else {
        return;
    };
    let generation = sub_eni.generation;
    if let Some(stats) = STATS.get_ptr_mut(key) {
        // SAFETY: the value is this CPU's.
        let stats = unsafe { &mut *stats };
        if let Some(counter) = stats.mismatch.get_mut(Kind::UntaggedSubMac.index()) {
            *counter += 1;
        }
    }
    let source = key_of(ifindex, vid, Direction::Tx, Kind::UntaggedSubMac);
    event(&source, frame, generation);
}

/// Tells the agent, unless it was told of the same source a moment ago. Never waits. A call of its
/// own, with at most five arguments: inlined seven times it would be most of the program.
#[inline(never)]
fn event(key: &RateKey, frame: &Frame, generation: u32) {
    let now = now();
    // SAFETY: a value of a reused entry only moves the time of the next event.
    let last = unsafe { RATE.get(key) }.copied();
    if last.is_some_and(|last| now.wrapping_sub(last) < config().event_interval_ns) {
        return;
    }
    // Fails when the map is full and all is in use; then one event more is told.
    let _full = RATE.insert(key, now, 0);
    let Some(mut slot) = EVENTS.reserve::<Event>(0) else {
        if let Some(lost) = LOST.get_ptr_mut(0) {
            // SAFETY: the value is this CPU's.
            unsafe { *lost += 1 };
        }
        return;
    };
    let event = slot.write(Event::default());
    event.ns = now;
    event.ifindex = key.ifindex;
    event.vid = key.vid;
    event.direction = key.direction;
    event.generation = generation;
    event.describe(frame, key.kind);
    slot.submit(0);
}

#[inline(always)]
fn key_of(ifindex: u32, vid: u16, direction: Direction, kind: Kind) -> RateKey {
    RateKey {
        ifindex,
        vid,
        direction: direction as u8,
        kind: kind as u8,
    }
}

/// All zero, so nothing checked, until the agent has written it.
#[inline(always)]
fn config() -> Config {
    CFG.get(0).copied().unwrap_or_default()
}

#[inline(always)]
fn now() -> u64 {
    // SAFETY: no arguments, no effects.
    unsafe { bpf_ktime_get_boot_ns() }
}

#[cfg(not(test))]
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo) -> ! {
    loop {}
}

#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
