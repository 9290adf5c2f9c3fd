//! The IPv6 side of a pair: which partner addresses are to be had (spec iaas 7.5).

use std::net::{IpAddr, Ipv6Addr};

use spiderpool_api::ip_meta::Entry;

use super::{Rules, Taken, View, may_give, own_addresses};
use crate::pool::Pool;
use crate::range_set::RangeSet;

/// Which partner addresses are to be had in the sibling pool.
pub(super) struct Halves<'a> {
    sibling: &'a Pool,
    rules: &'a Rules,
    taken: &'a Taken,
    own: Vec<IpAddr>,
}

impl<'a> Halves<'a> {
    pub(super) fn of(view: &View<'a>) -> Option<Self> {
        let sibling = view.sibling?;
        Some(Self {
            sibling,
            rules: view.rules,
            taken: view.taken,
            own: own_addresses(sibling, view.who),
        })
    }

    /// A partner for a sub-ENI that does not exist yet: the one the NIC has already, else the lowest
    /// that no entry names.
    pub(super) fn fresh(&self) -> Option<Ipv6Addr> {
        let unlocked = |v6: &Ipv6Addr| !self.taken.locked.contains(v6);
        let own = self.own.iter().find_map(|address| match address {
            IpAddr::V6(v6) => Some(*v6).filter(unlocked),
            IpAddr::V4(_) => None,
        });
        if own.is_some() || self.sibling.closed().is_some() {
            return own;
        }
        let locked: RangeSet = self.taken.locked.iter().copied().map(IpAddr::V6).collect();
        let free = self.sibling.usable.subtract(&self.rules.reserved);
        let mut free = free.subtract(&self.taken.sibling).subtract(&locked);
        if let Some(gateway) = self.sibling.gateway {
            free = free.subtract(&std::iter::once(gateway).collect());
        }
        match free.first() {
            Some(IpAddr::V6(v6)) => Some(v6),
            _ => None,
        }
    }

    /// The entry's partner, if it is free or the asking NIC's already.
    pub(super) fn free(&self, entry: &Entry) -> Option<Ipv6Addr> {
        let v6 = entry.ipv6.filter(|v6| !self.taken.shared.contains(v6))?;
        let address = IpAddr::V6(v6);
        let new = self.sibling.closed().is_none()
            && may_give(self.sibling, self.rules, address)
            && !self.taken.sibling.contains(address);
        (new || self.own.contains(&address)).then_some(v6)
    }
}
