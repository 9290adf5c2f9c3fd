//! The maps, typed: entries written, counters summed over the CPUs.

use std::collections::BTreeSet;
use std::io;

use aya::Ebpf;
use aya::maps::{Array, HashMap, MapData, MapError, PerCpuArray, PerCpuHashMap, PerCpuValues};
use aya::util::nr_cpus;
use spiderpool_ebpf_common::kind::all_kinds;
use spiderpool_ebpf_common::layout::{
    Config, MAX_NIC, MacKey, Neighbour, Nic, Stats, SubEni, SubEniKey, Traffic, Unknown, UnknownKey,
};

use super::error::ObserverError;

/// The maps but the ring buffer.
pub(super) struct Maps {
    sub_eni: HashMap<MapData, SubEniKey, SubEni>,
    macs: HashMap<MapData, MacKey, u32>,
    stats: PerCpuHashMap<MapData, SubEniKey, Stats>,
    unknown: PerCpuHashMap<MapData, UnknownKey, Unknown>,
    nic: PerCpuArray<MapData, Nic>,
    nics: HashMap<MapData, u32, u32>,
    lost: PerCpuArray<MapData, u64>,
    config: Array<MapData, Config>,
    cpus: usize,
}

fn failed(name: &'static str) -> impl Fn(MapError) -> ObserverError {
    move |source| ObserverError::Map {
        name,
        source: Box::new(source),
    }
}

fn take<M>(ebpf: &mut Ebpf, name: &'static str) -> Result<M, ObserverError>
where
    M: TryFrom<aya::maps::Map, Error = MapError>,
{
    let map = ebpf.take_map(name).ok_or(ObserverError::Lacks(name))?;
    M::try_from(map).map_err(failed(name))
}

impl Maps {
    pub(super) fn take(ebpf: &mut Ebpf) -> Result<Self, ObserverError> {
        let cpus = nr_cpus().map_err(|(path, source)| ObserverError::Cpus { path, source })?;
        Ok(Self {
            sub_eni: take(ebpf, "SUBENI")?,
            macs: take(ebpf, "MACS")?,
            stats: take(ebpf, "STATS")?,
            unknown: take(ebpf, "UNKNOWN")?,
            nic: take(ebpf, "NIC")?,
            nics: take(ebpf, "NICS")?,
            lost: take(ebpf, "LOST")?,
            config: take(ebpf, "CFG")?,
            cpus,
        })
    }

    /// Monitor mode: all kinds are checked, none is enforced.
    pub(super) fn configure(&mut self, event_interval_ns: u64) -> Result<(), ObserverError> {
        let config = Config {
            kinds: all_kinds(),
            event_interval_ns,
            ..Config::default()
        };
        self.config.set(0, config, 0).map_err(failed("CFG"))
    }

    /// Makes the counters of a NIC, zero, unless they are there; tells their place.
    pub(super) fn add_nic(&mut self, ifindex: u32) -> Result<u32, ObserverError> {
        if let Some(place) = self.place(ifindex)? {
            return Ok(place);
        }
        let taken: Result<BTreeSet<u32>, _> = self.nics.iter().map(|entry| Ok(entry?.1)).collect();
        let taken = taken.map_err(failed("NICS"))?;
        let free = (0..MAX_NIC).find(|place| !taken.contains(place));
        let place = free.ok_or(ObserverError::TooManyNics(MAX_NIC))?;
        let zero = zeroed(self.cpus).map_err(io_failed("NIC"))?;
        self.nic.set(place, zero, 0).map_err(failed("NIC"))?;
        let written = self.nics.insert(ifindex, place, 0);
        written.map(|()| place).map_err(failed("NICS"))
    }

    /// Where the counters of a NIC are; `None`: it has none.
    fn place(&self, ifindex: u32) -> Result<Option<u32>, ObserverError> {
        match self.nics.get(&ifindex, 0) {
            Ok(place) => Ok(Some(place)),
            Err(MapError::KeyNotFound) => Ok(None),
            Err(error) => Err(failed("NICS")(error)),
        }
    }

    /// Removes the counters of a NIC and of the unknown VLANs on it.
    pub(super) fn remove_nic(&mut self, ifindex: u32) -> Result<(), ObserverError> {
        gone_is_fine(self.nics.remove(&ifindex)).map_err(failed("NICS"))?;
        let stale: Vec<UnknownKey> = self
            .unknown
            .keys()
            .flatten()
            .filter(|key| key.ifindex == ifindex)
            .collect();
        for key in stale {
            gone_is_fine(self.unknown.remove(&key)).map_err(failed("UNKNOWN"))?;
        }
        Ok(())
    }

    /// The sub-ENI of a key.
    pub(super) fn sub_eni(&self, key: SubEniKey) -> Result<Option<SubEni>, ObserverError> {
        match self.sub_eni.get(&key, 0) {
            Ok(found) => Ok(Some(found)),
            Err(MapError::KeyNotFound) => Ok(None),
            Err(error) => Err(failed("SUBENI")(error)),
        }
    }

    /// All keys with a sub-ENI.
    pub(super) fn keys(&self) -> Result<Vec<SubEniKey>, ObserverError> {
        let keys: Result<_, _> = self.sub_eni.keys().collect();
        keys.map_err(failed("SUBENI"))
    }

    /// Writes a sub-ENI. Its counters start at zero with `fresh`, or when there are none; they are
    /// made first, so that no frame of it finds none.
    pub(super) fn put(
        &mut self,
        key: SubEniKey,
        mut sub_eni: SubEni,
        counters: Counters,
    ) -> Result<(), ObserverError> {
        let place = self.add_nic(key.ifindex)?;
        sub_eni.nic = u16::try_from(place).map_err(|_| ObserverError::TooManyNics(MAX_NIC))?;
        let old = self.sub_eni(key)?;
        let kept = counters == Counters::Kept && self.stats.get(&key, 0).is_ok();
        if !kept {
            let zero = zeroed(self.cpus).map_err(io_failed("STATS"))?;
            self.stats.insert(key, zero, 0).map_err(failed("STATS"))?;
        }
        if let Some(old) = old.filter(|old| old.mac != sub_eni.mac) {
            self.remove_mac(key, old.mac)?;
        }
        let mac = MacKey::new(key.ifindex, sub_eni.mac);
        let vid = u32::from(key.vid);
        self.macs.insert(mac, vid, 0).map_err(failed("MACS"))?;
        self.sub_eni
            .insert(key, sub_eni, 0)
            .map_err(failed("SUBENI"))
    }

    /// Removes a sub-ENI and its counters; gone already is success.
    pub(super) fn remove(&mut self, key: SubEniKey) -> Result<(), ObserverError> {
        if let Some(old) = self.sub_eni(key)? {
            self.remove_mac(key, old.mac)?;
        }
        gone_is_fine(self.sub_eni.remove(&key)).map_err(failed("SUBENI"))?;
        gone_is_fine(self.stats.remove(&key)).map_err(failed("STATS"))
    }

    /// A MAC may be another sub-ENI's by now.
    fn remove_mac(&mut self, key: SubEniKey, mac: [u8; 6]) -> Result<(), ObserverError> {
        let mac = MacKey::new(key.ifindex, mac);
        match self.macs.get(&mac, 0) {
            Ok(vid) if vid == u32::from(key.vid) => {
                gone_is_fine(self.macs.remove(&mac)).map_err(failed("MACS"))
            }
            _ => Ok(()),
        }
    }

    /// Counters of a sub-ENI; zero when there are none.
    pub(super) fn stats(&self, key: SubEniKey) -> Result<Stats, ObserverError> {
        match self.stats.get(&key, 0) {
            Ok(values) => Ok(values.iter().fold(Stats::default(), add_stats)),
            Err(MapError::KeyNotFound) => Ok(Stats::default()),
            Err(error) => Err(failed("STATS")(error)),
        }
    }

    /// Counters of a NIC; zero when there are none.
    pub(super) fn nic(&self, ifindex: u32) -> Result<Nic, ObserverError> {
        let Some(place) = self.place(ifindex)? else {
            return Ok(Nic::default());
        };
        let values = self.nic.get(&place, 0).map_err(failed("NIC"))?;
        Ok(values.iter().fold(Nic::default(), add_nic))
    }

    /// Counters of VLANs that no sub-ENI has.
    pub(super) fn unknown(&self) -> Result<Vec<(UnknownKey, Unknown)>, ObserverError> {
        let mut found = Vec::new();
        for key in self.unknown.keys() {
            let key = key.map_err(failed("UNKNOWN"))?;
            match self.unknown.get(&key, 0) {
                Ok(values) => {
                    found.push((key, values.iter().fold(Unknown::default(), add_unknown)));
                }
                // Evicted meanwhile.
                Err(MapError::KeyNotFound) => {}
                Err(error) => return Err(failed("UNKNOWN")(error)),
            }
        }
        found.sort_by_key(|(key, _)| *key);
        Ok(found)
    }

    /// Events that found the ring buffer full.
    pub(super) fn lost(&self) -> Result<u64, ObserverError> {
        let values = self.lost.get(&0, 0).map_err(failed("LOST"))?;
        Ok(values.iter().sum())
    }
}

/// Whether counters go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Counters {
    /// The same Pod: they go on.
    Kept,
    /// Another Pod: they start at zero.
    Fresh,
}

fn zeroed<T: aya::Pod + Default>(cpus: usize) -> io::Result<PerCpuValues<T>> {
    PerCpuValues::try_from(vec![T::default(); cpus])
}

fn io_failed(name: &'static str) -> impl Fn(io::Error) -> ObserverError {
    move |source| failed(name)(MapError::IoError(source))
}

fn gone_is_fine(removed: Result<(), MapError>) -> Result<(), MapError> {
    match removed {
        Err(MapError::KeyNotFound) => Ok(()),
        Err(MapError::SyscallError(error)) if error.io_error.kind() == io::ErrorKind::NotFound => {
            Ok(())
        }
        other => other,
    }
}

fn add_traffic(sum: Traffic, one: &Traffic) -> Traffic {
    Traffic {
        frames: sum.frames + one.frames,
        packets: sum.packets + one.packets,
        bytes: sum.bytes + one.bytes,
    }
}

fn add_neighbour(sum: Neighbour, one: &Neighbour) -> Neighbour {
    Neighbour {
        arp_request: sum.arp_request + one.arp_request,
        arp_reply: sum.arp_reply + one.arp_reply,
        garp: sum.garp + one.garp,
        ns: sum.ns + one.ns,
        na: sum.na + one.na,
        rs: sum.rs + one.rs,
        ra: sum.ra + one.ra,
    }
}

fn add_stats(sum: Stats, one: &Stats) -> Stats {
    let mut mismatch = sum.mismatch;
    for (total, count) in mismatch.iter_mut().zip(one.mismatch) {
        *total += count;
    }
    Stats {
        rx: add_traffic(sum.rx, &one.rx),
        tx: add_traffic(sum.tx, &one.tx),
        rx_drops: sum.rx_drops + one.rx_drops,
        tx_drops: sum.tx_drops + one.tx_drops,
        rx_neighbour: add_neighbour(sum.rx_neighbour, &one.rx_neighbour),
        tx_neighbour: add_neighbour(sum.tx_neighbour, &one.tx_neighbour),
        mismatch,
    }
}

fn add_nic(sum: Nic, one: &Nic) -> Nic {
    Nic {
        untagged_rx: add_traffic(sum.untagged_rx, &one.untagged_rx),
        untagged_tx: add_traffic(sum.untagged_tx, &one.untagged_tx),
        tagged_rx: add_traffic(sum.tagged_rx, &one.tagged_rx),
        tagged_tx: add_traffic(sum.tagged_tx, &one.tagged_tx),
    }
}

/// The MAC is that of the CPU that saw the last frame.
fn add_unknown(sum: Unknown, one: &Unknown) -> Unknown {
    let last = if one.last_ns > sum.last_ns { *one } else { sum };
    Unknown {
        packets: sum.packets + one.packets,
        bytes: sum.bytes + one.bytes,
        ..last
    }
}
