//! Addresses of a global pool that only a provider call makes usable here (spec iaas 7.4): first
//! those that cost one cloud call, then those that are taken from another node.

use std::net::{IpAddr, Ipv6Addr};

use jiff::Timestamp;
use spiderpool_api::ip_meta::{Entry, EntryState, Metadata};
use spiderpool_api::value::Mac;

use super::halves::Halves;
use super::{Path, Pick, PickError, PickKind, View};
use crate::range_set::RangeSet;

/// An address the provider can bring here.
pub(super) struct Cold {
    address: IpAddr,
    pair_v6: Option<Ipv6Addr>,
    mac: Option<Mac>,
    path: Path,
}

impl View<'_> {
    /// The best address of `free`: the lowest that has no sub-ENI or an unattached one, else one
    /// of another node, those chosen for reclaim first and of these the oldest.
    pub(super) fn coldest(
        &self,
        metadata: &Metadata,
        free: &RangeSet,
        halves: Option<&Halves<'_>>,
    ) -> Option<Cold> {
        let known: RangeSet = metadata.entries.keys().copied().collect();
        let unknown = free.subtract(&known).subtract(&unusable(metadata)).first();
        let created = unknown.and_then(|address| self.cold(metadata, address, halves));
        let existing = |path: Path| {
            metadata
                .entries
                .keys()
                .filter(|address| free.contains(**address))
                .filter_map(move |address| self.cold(metadata, *address, halves))
                .filter(move |cold| cold.path == path)
        };
        let rebound = existing(Path::ColdRebind).next();
        let cheap = created.into_iter().chain(rebound);
        cheap.min_by_key(|cold| cold.address).or_else(|| {
            existing(Path::ColdSteal).min_by_key(|cold| {
                let entry = metadata.entries.get(&cold.address);
                (detached_since(entry), cold.address)
            })
        })
    }

    /// How the provider would bring this address here; `None` for one that is leaving, that
    /// contradicts itself, or whose partner is not to be had.
    pub(super) fn cold(
        &self,
        metadata: &Metadata,
        address: IpAddr,
        halves: Option<&Halves<'_>>,
    ) -> Option<Cold> {
        let entry = metadata.entries.get(&address);
        let (path, mac) = match entry.map(|entry| &entry.state) {
            None if unusable(metadata).contains(address) => return None,
            None => (Path::ColdCreate, None),
            Some(EntryState::Unattached { mac }) => (Path::ColdRebind, *mac),
            Some(EntryState::Attached { mac, .. }) => (Path::ColdSteal, Some(*mac)),
            Some(EntryState::Reclaiming { .. }) => return None,
        };
        let pair_v6 = match (halves, entry) {
            (None, _) => None,
            // A sub-ENI keeps its partner for life: one without partner cannot be of a pair.
            (Some(halves), Some(entry)) => Some(halves.free(entry)?),
            (Some(halves), None) => Some(halves.fresh()?),
        };
        Some(Cold {
            address,
            pair_v6,
            mac,
            path,
        })
    }

    /// The pick, if there is a provider to call.
    pub(super) fn call_for(
        &self,
        cold: Cold,
        kind: PickKind,
        stale: Vec<IpAddr>,
    ) -> Result<Pick, PickError> {
        if !self.rules.provider {
            return Err(PickError::NeedsProvider {
                pool: self.pool.name.clone(),
                node: self.who.node.clone(),
            });
        }
        Ok(Pick {
            address: cold.address,
            pair_v6: cold.pair_v6,
            binding: None,
            known_mac: cold.mac,
            kind,
            path: cold.path,
            stale,
        })
    }
}

/// Addresses whose entries contradict themselves.
fn unusable(metadata: &Metadata) -> RangeSet {
    let bad = metadata.bad.iter();
    bad.filter_map(|bad| bad.key.parse::<IpAddr>().ok())
        .collect()
}

/// Orders entries by the time they were chosen for reclaim: those that were not come last, one
/// whose time cannot be read just before them.
fn detached_since(entry: Option<&Entry>) -> (bool, Timestamp) {
    match entry.and_then(|entry| entry.detach_time.as_deref()) {
        None => (true, Timestamp::MAX),
        Some(text) => (false, text.parse().unwrap_or(Timestamp::MAX)),
    }
}
