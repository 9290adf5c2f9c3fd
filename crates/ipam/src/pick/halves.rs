//! The IPv6 side of a pair: which partner addresses are to be had (spec iaas 7.5).

use std::net::{IpAddr, Ipv6Addr};

use spiderpool_api::ip_meta::Entry;

use super::{Rules, Taken, View, may_give, own_addresses};
use crate::pool::Pool;

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
