//! One pick in one pool: the address the NIC has, else the lowest that is free and, with a provider,
//! ready where the Pod is (spec ipam 4.1, 7.2).

use std::net::{IpAddr, Ipv6Addr};

use spiderpool_api::ip_meta::{Entry, EntryState, Metadata};

use super::halves::Halves;
use super::{
    Binding, Claimant, Path, Pick, PickError, PickKind, Rules, Taken, own_addresses, room,
};
use crate::pool::{Mode, Pool};
use crate::range_set::RangeSet;

/// One question.
pub(crate) struct View<'a> {
    pub(crate) pool: &'a Pool,
    pub(crate) sibling: Option<&'a Pool>,
    pub(crate) who: &'a Claimant,
    pub(crate) rules: &'a Rules,
    pub(crate) taken: &'a Taken,
    /// Nothing but this address will do.
    pub(crate) only: Option<IpAddr>,
}

impl View<'_> {
    pub(crate) fn pick(&self) -> Result<Pick, PickError> {
        match (&self.pool.mode, &self.pool.metadata) {
            (Mode::Plain, _) | (_, None) => self.plain(),
            (_, Some(Ok(metadata))) => self.ready(metadata),
            (_, Some(Err(not_ready))) => Err(not_ready.clone().into()),
        }
    }

    /// Addresses without a record that may get one.
    fn free(&self) -> RangeSet {
        let mut free = self
            .pool
            .usable
            .subtract(&self.rules.reserved)
            .subtract(&self.taken.own);
        if let Some(gateway) = self.pool.gateway {
            free = free.subtract(&std::iter::once(gateway).collect());
        }
        match self.only {
            Some(only) => free.intersect(&std::iter::once(only).collect()),
            None => free,
        }
    }

    /// Names an entry of the metadata that was skipped: it may be the address that is missed.
    fn used_out(&self, why: &str) -> PickError {
        let bad = match &self.pool.metadata {
            Some(Ok(metadata)) => metadata.bad.as_slice(),
            _ => &[],
        };
        let why = match bad {
            [] => why.to_owned(),
            [first, rest @ ..] => format!(
                "{why}; {} of its sub-ENIs cannot be used, {}: {}",
                rest.len() + 1,
                first.key,
                first.reason
            ),
        };
        PickError::UsedOut {
            pool: self.pool.name.clone(),
            why,
        }
    }

    fn plain(&self) -> Result<Pick, PickError> {
        let chosen = |address, kind| Pick {
            address,
            pair_v6: None,
            binding: None,
            kind,
            path: Path::Plain,
            stale: Vec::new(),
        };
        if let Some(address) = own_addresses(self.pool, self.who).first() {
            return Ok(chosen(*address, PickKind::Existing));
        }
        room(self.pool, self.rules, 0)?;
        self.free()
            .first_free(&self.pool.order)
            .map(|address| chosen(address, PickKind::New))
            .ok_or_else(|| self.used_out("no free address"))
    }

    fn ready(&self, metadata: &Metadata) -> Result<Pick, PickError> {
        let own = own_addresses(self.pool, self.who);
        let stale = match self.own_hit(metadata, &own)? {
            Some(pick) => return Ok(pick),
            None => own,
        };
        room(self.pool, self.rules, stale.len())?;
        let free = self.free();
        let halves = Halves::of(self);
        for (address, entry) in &metadata.entries {
            let Some(binding) = self.here(entry).filter(|_| free.contains(*address)) else {
                continue;
            };
            let pair_v6 = match &halves {
                None => None,
                Some(halves) => match halves.free(entry) {
                    Some(v6) => Some(v6),
                    None => continue,
                },
            };
            return Ok(hit(*address, pair_v6, binding, PickKind::New, stale));
        }
        Err(self.no_hit(metadata, &free))
    }

    /// The address the NIC has already, if its sub-ENI is still ready here. `None` when the NIC has
    /// none, or only addresses whose sub-ENI is gone or leaving or whose partner is somebody
    /// else's: those claims are stale.
    fn own_hit(&self, metadata: &Metadata, own: &[IpAddr]) -> Result<Option<Pick>, PickError> {
        let halves = Halves::of(self);
        for address in own {
            let entry = metadata.entries.get(address);
            match (&self.pool.mode, entry.map(|entry| &entry.state)) {
                (_, Some(EntryState::Reclaiming { .. })) | (Mode::Prewarm { .. }, None) => continue,
                _ => {}
            }
            let Some((entry, binding)) = entry.and_then(|entry| Some((entry, self.here(entry)?)))
            else {
                // A claim of ours, bound elsewhere or nowhere: only the provider can move it here.
                return Err(self.needs_provider());
            };
            let pair_v6 = match &halves {
                None => None,
                Some(halves) => match halves.free(entry) {
                    Some(v6) => Some(v6),
                    // The pair cannot be completed and is never mixed: the claim is given up.
                    None => continue,
                },
            };
            let stale = own
                .iter()
                .copied()
                .filter(|other| other != address)
                .collect();
            return Ok(Some(hit(
                *address,
                pair_v6,
                binding,
                PickKind::Existing,
                stale,
            )));
        }
        Ok(None)
    }

    /// VLAN and MAC if the sub-ENI is attached where the Pod is.
    fn here(&self, entry: &Entry) -> Option<Binding> {
        match (&self.pool.mode, &entry.state) {
            (Mode::Prewarm { node }, EntryState::Attached { vlan, mac, .. })
                if *node == self.who.node =>
            {
                Some(Binding {
                    vlan: *vlan,
                    mac: *mac,
                })
            }
            (
                Mode::Global,
                EntryState::Attached {
                    node: Some(node),
                    vlan,
                    mac,
                },
            ) if *node == self.who.node => Some(Binding {
                vlan: *vlan,
                mac: *mac,
            }),
            _ => None,
        }
    }

    fn needs_provider(&self) -> PickError {
        PickError::NeedsProvider {
            pool: self.pool.name.clone(),
            node: self.who.node.clone(),
        }
    }

    /// Why no entry is a hit: in a global pool a provider may help, unless what is left is leaving.
    fn no_hit(&self, metadata: &Metadata, free: &RangeSet) -> PickError {
        if self.pool.mode != Mode::Global {
            return self.used_out("no free address with a ready sub-ENI");
        }
        let dead: RangeSet = metadata
            .entries
            .iter()
            .filter(|(_, entry)| matches!(entry.state, EntryState::Reclaiming { .. }))
            .map(|(address, _)| *address)
            .chain(metadata.bad.iter().filter_map(|bad| bad.key.parse().ok()))
            .collect();
        if free.is_subset(&dead) {
            self.used_out("no free address that is not being detached")
        } else {
            self.needs_provider()
        }
    }
}

fn hit(
    address: IpAddr,
    pair_v6: Option<Ipv6Addr>,
    binding: Binding,
    kind: PickKind,
    stale: Vec<IpAddr>,
) -> Pick {
    Pick {
        address,
        pair_v6,
        binding: Some(binding),
        kind,
        path: Path::CacheHit,
        stale,
    }
}
