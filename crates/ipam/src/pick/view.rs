//! One pick in one pool: the address the NIC has, else the lowest that is free and, with a provider,
//! ready where the Pod is, else one that a call makes ready (spec ipam 4.1, 7.2).

use std::net::{IpAddr, Ipv6Addr};

use spiderpool_api::ip_meta::{Entry, EntryState, Metadata};

use super::halves::Halves;
use super::{
    Binding, Claimant, Path, Pick, PickError, PickKind, Rules, Taken, own_addresses, path_of, room,
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
    pub(super) fn used_out(&self, why: &str) -> PickError {
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
            known_mac: None,
            kind,
            path: path_of(self.who),
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
        let halves = Halves::of(self);
        let stale = match self.own(metadata, &own, halves.as_ref())? {
            Some(pick) => return Ok(pick),
            None => own,
        };
        room(self.pool, self.rules, stale.len())?;
        let free = self.free();
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
        if self.pool.mode != Mode::Global {
            return Err(self.used_out("no free address with a ready sub-ENI"));
        }
        match self.coldest(metadata, &free, halves.as_ref()) {
            Some(cold) => self.call_for(cold, PickKind::New, stale),
            None => Err(self.used_out("no free address that is not being detached")),
        }
    }

    /// The address the NIC has already, ready here or to be made ready by the provider. `None` when
    /// the NIC has none, or only addresses whose sub-ENI is gone or leaving or whose partner is
    /// somebody else's: those claims are stale.
    fn own(
        &self,
        metadata: &Metadata,
        own: &[IpAddr],
        halves: Option<&Halves<'_>>,
    ) -> Result<Option<Pick>, PickError> {
        for address in own {
            let entry = metadata.entries.get(address);
            let others = || own.iter().copied().filter(|other| other != address);
            if let Some((entry, binding)) = entry.and_then(|entry| Some((entry, self.here(entry)?)))
            {
                let pair_v6 = match halves {
                    None => None,
                    Some(halves) => match halves.free(entry) {
                        Some(v6) => Some(v6),
                        // The pair cannot be completed and is never mixed: the claim is given up.
                        None => continue,
                    },
                };
                let stale = others().collect();
                let existing = PickKind::Existing;
                return Ok(Some(hit(*address, pair_v6, binding, existing, stale)));
            }
            if self.pool.mode == Mode::Global
                && let Some(cold) = self.cold(metadata, *address, halves)
            {
                let stale = others().collect();
                return self.call_for(cold, PickKind::Existing, stale).map(Some);
            }
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
        known_mac: None,
        kind,
        path: Path::CacheHit,
        stale,
    }
}
