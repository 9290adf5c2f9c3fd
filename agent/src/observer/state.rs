//! What is observed: NICs, entries with their Pods, last events. Lives under one lock; every call
//! into the kernel here takes microseconds but attaching, which is rare.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;

use spiderpool_api::observer_v1::{Attach, NicReport, ObserverReport, UnknownReport};
use spiderpool_api::value::{IfName, Mac};
use spiderpool_ebpf_common::kind::{Direction, Kind};
use spiderpool_ebpf_common::layout::{Event, State as Life, SubEni, SubEniKey};

use super::error::ObserverError;
use super::events::{self, Observed};
use super::load::Loaded;
use super::maps::Counters;
use super::{Entry, Place, report};

/// A parent NIC.
#[derive(Debug, Clone)]
pub(super) struct Nic {
    pub(super) ifindex: u32,
    pub(super) attach: Attach,
    /// Why it is not observed.
    pub(super) error: Option<String>,
}

/// An entry in the maps, with its Pod.
struct Known {
    entry: Entry,
    life: Life,
    generation: u32,
    /// Nobody wanted it at the last reconciliation.
    missed: bool,
}

/// The observer while it is loaded.
pub(super) struct State {
    pub(super) loaded: Loaded,
    pub(super) nics: BTreeMap<IfName, Nic>,
    entries: BTreeMap<SubEniKey, Known>,
    last: HashMap<(SubEniKey, Kind), Event>,
    /// Removed while their attachment file is still there.
    removed: HashSet<Place>,
}

impl State {
    pub(super) fn new(loaded: Loaded) -> Self {
        Self {
            loaded,
            nics: BTreeMap::new(),
            entries: BTreeMap::new(),
            last: HashMap::new(),
            removed: HashSet::new(),
        }
    }

    /// Writes an entry. The same Pod's counters go on, another Pod's start at zero.
    pub(super) fn put(&mut self, entry: Entry, life: Life) -> Result<(), ObserverError> {
        let Some(key) = self.key(&entry.place) else {
            return Ok(());
        };
        self.removed.remove(&entry.place);
        let stored = self.loaded.maps.sub_eni(key)?;
        let known = self.entries.get(&key);
        let same_pod = match (known, &stored) {
            (Some(known), Some(_)) => is_same_nic(&known.entry, &entry),
            // An earlier agent wrote it: the map has no Pod, but the sub-ENI is the same.
            (None, Some(stored)) => life == Life::Active && is_same_sub_eni(stored, &entry),
            _ => false,
        };
        let before = stored.map(|stored| stored.generation);
        let generation = match before {
            Some(generation) if same_pod => generation,
            before => before.unwrap_or(0).wrapping_add(1),
        };
        let counters = if same_pod {
            Counters::Kept
        } else {
            self.forget_events(key);
            Counters::Fresh
        };
        let mut value = value_of(&entry, life, generation);
        if same_pod && let Some(stored) = stored {
            value.gwmac = stored.gwmac;
        }
        self.loaded.maps.put(key, value, counters)?;
        let known = Known {
            entry,
            life,
            generation,
            missed: false,
        };
        self.entries.insert(key, known);
        Ok(())
    }

    /// Moves an entry on in its life.
    pub(super) fn advance(
        &mut self,
        place: &Place,
        life: Life,
        gateway: Option<Mac>,
    ) -> Result<(), ObserverError> {
        let Some((key, known)) = self.own(place) else {
            return Ok(());
        };
        known.life = life;
        let mut value = value_of(&known.entry, life, known.generation);
        if let Some(gateway) = gateway {
            value.gwmac = gateway.octets();
        }
        self.loaded.maps.put(key, value, Counters::Kept)
    }

    /// Takes an entry away, unless a newer sandbox has it.
    pub(super) fn remove(&mut self, place: &Place) -> Result<(), ObserverError> {
        self.removed.insert(place.clone());
        match self.own(place) {
            Some((key, _)) => self.drop_entry(key),
            None => Ok(()),
        }
    }

    fn own(&mut self, place: &Place) -> Option<(SubEniKey, &mut Known)> {
        let key = self.key(place)?;
        let known = self.entries.get_mut(&key)?;
        (known.entry.place == *place).then_some((key, known))
    }

    fn key(&self, place: &Place) -> Option<SubEniKey> {
        let nic = self.nics.get(&place.nic)?;
        Some(SubEniKey::new(nic.ifindex, place.vlan.get()))
    }

    fn drop_entry(&mut self, key: SubEniKey) -> Result<(), ObserverError> {
        self.entries.remove(&key);
        self.forget_events(key);
        self.loaded.maps.remove(key)
    }

    fn forget_events(&mut self, key: SubEniKey) {
        self.last.retain(|(of, _), _| *of != key);
    }

    /// A NIC came with another index: what hung on the old one is gone with it.
    pub(super) fn drop_nic(&mut self, ifindex: u32) -> Result<(), ObserverError> {
        self.nics.retain(|_, nic| nic.ifindex != ifindex);
        let mut result = self.loaded.maps.remove_nic(ifindex);
        for key in self.loaded.maps.keys()? {
            if key.ifindex == ifindex {
                result = result.and(self.drop_entry(key));
            }
        }
        result
    }

    /// Makes the entries the wanted ones. What is missing twice in a row goes, and at once what an
    /// earlier agent left and nobody wants.
    pub(super) fn reconcile(&mut self, wanted: Vec<Entry>) -> Result<(), ObserverError> {
        self.removed
            .retain(|place| wanted.iter().any(|entry| entry.place == *place));
        let mut wanted_keys = HashSet::new();
        let mut result = Ok(());
        for entry in wanted {
            let Some(key) = self.key(&entry.place) else {
                continue;
            };
            if self.removed.contains(&entry.place) || !wanted_keys.insert(key) {
                continue;
            }
            match self.entries.get_mut(&key) {
                Some(known) => known.missed = false,
                None => result = result.and(self.put(entry, Life::Active)),
            }
        }
        for key in self.loaded.maps.keys()? {
            if wanted_keys.contains(&key) {
                continue;
            }
            match self.entries.get_mut(&key) {
                Some(known) if !known.missed => known.missed = true,
                _ => result = result.and(self.drop_entry(key)),
            }
        }
        result
    }

    /// Names an event and keeps it as the last of its kind.
    pub(super) fn join(&mut self, event: Event) -> Option<Observed> {
        let nic = self.nic_name(event.ifindex)?;
        let key = events::key_of(&event);
        let known = self.entries.get(&key);
        // An event of the Pod that had the VLAN before is nobody's any more.
        let known = known.filter(|known| known.generation == event.generation);
        let observed = events::join(&event, nic, known.map(|known| &known.entry))?;
        if known.is_some() {
            self.last.insert((key, observed.kind), event);
        }
        Some(observed)
    }

    fn nic_name(&self, ifindex: u32) -> Option<&IfName> {
        self.nics
            .iter()
            .find(|(_, nic)| nic.ifindex == ifindex)
            .map(|(name, _)| name)
    }

    pub(super) fn report(&self, now_ns: u64) -> Result<ObserverReport, ObserverError> {
        let maps = &self.loaded.maps;
        let mut nics = Vec::new();
        for (name, nic) in &self.nics {
            let counted = maps.nic(nic.ifindex)?;
            nics.push(NicReport {
                nic: name.clone(),
                ifindex: nic.ifindex,
                attach: nic.attach,
                error: nic.error.clone(),
                untagged: report::counters(&counted.untagged_rx, &counted.untagged_tx),
                tagged: report::counters(&counted.tagged_rx, &counted.tagged_tx),
            });
        }
        let mut subeni = Vec::new();
        for (key, known) in &self.entries {
            let stats = maps.stats(*key)?;
            subeni.push(report::sub_eni(&known.entry, known.life, &stats));
        }
        let unknown = maps.unknown()?.into_iter().filter_map(|(key, seen)| {
            Some(UnknownReport {
                nic: self.nic_name(key.ifindex)?.clone(),
                vlan: key.vid,
                direction: Direction::from_u8(key.direction)?.as_str().to_owned(),
                packets: seen.packets,
                bytes: seen.bytes,
                last_mac: Mac::new(seen.last_mac),
                last_seconds_ago: report::seconds_since(seen.last_ns, now_ns),
            })
        });
        Ok(ObserverReport {
            error: None,
            nics,
            subeni,
            unknown: unknown.collect(),
            events_lost: maps.lost()?,
        })
    }

    pub(super) fn findings(
        &self,
        now_ns: u64,
    ) -> Result<Vec<spiderpool_api::observer_v1::Finding>, ObserverError> {
        let maps = &self.loaded.maps;
        let mut findings = Vec::new();
        for (key, known) in &self.entries {
            let stats = maps.stats(*key)?;
            for kind in Kind::ALL {
                let count = report::count_of(&stats, kind);
                let last = self.last.get(&(*key, kind));
                if count > 0 {
                    findings.push(report::finding(&known.entry, kind, count, last, now_ns));
                }
            }
        }
        for (key, seen) in maps.unknown()? {
            if let Some(nic) = self.nic_name(key.ifindex) {
                findings.extend(report::unknown_finding(nic, &key, &seen, now_ns));
            }
        }
        Ok(findings)
    }
}

fn is_same_nic(known: &Entry, entry: &Entry) -> bool {
    known.pod_uid == entry.pod_uid && known.ifname == entry.ifname && known.mac == entry.mac
}

fn is_same_sub_eni(stored: &SubEni, entry: &Entry) -> bool {
    let value = value_of(entry, Life::Active, 0);
    (stored.mac, stored.v4, stored.v6) == (value.mac, value.v4, value.v6)
}

fn value_of(entry: &Entry, life: Life, generation: u32) -> SubEni {
    let mut value = SubEni {
        mac: entry.mac.octets(),
        state: life as u8,
        v4: entry.ipv4.map_or([0; 4], |ip| ip.octets()),
        v6: entry.ipv6.map_or([0; 16], |ip| ip.octets()),
        generation,
        ..SubEni::default()
    };
    for gateway in &entry.gateways {
        match gateway {
            IpAddr::V4(ip) => value.gw4 = ip.octets(),
            IpAddr::V6(ip) => value.gw6 = ip.octets(),
        }
    }
    value
}
