//! How a record that is garbage goes (spec ipam 6.5, 7.5): the provider of a prewarm pool first, under
//! the marker, once per sub-ENI.

use std::net::IpAddr;

use jiff::Timestamp;
use spiderpool_api::allocation::{Record, Releasing};

use crate::batch::gives_way;
use crate::pool::{Mode, Pool};
use crate::range::Family;

/// Whose release a record's mark says is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Marked {
    /// Nobody's.
    No,
    /// The asking process's, or one that it may take over.
    Ours,
    /// Somebody else's, who has not had his time yet.
    Foreign,
}

/// Whose mark a record carries.
pub(super) fn marked(record: &Record, actor: &str, now: Timestamp) -> Marked {
    let new = Releasing {
        by: actor.to_owned(),
        at: now.to_string(),
    };
    match &record.releasing {
        None => Marked::No,
        Some(there) if gives_way(there, &new) => Marked::Ours,
        Some(_) => Marked::Foreign,
    }
}

/// The order in which a record is freed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum How {
    /// Plain and global pools: the record alone.
    Record,
    /// Prewarm, or bound by a provider of contract version 1: [`crate::batch::Op::Mark`], the provider's call, then the records; a failure keeps them
    /// for the next round.
    ProviderFirst {
        /// The other address of a pair, with its pool: it goes with the same call.
        half: Option<(String, IpAddr)>,
    },
    /// The IPv6 half of a prewarmed pair whose primary record is still there: it goes with that.
    WithPrimary {
        /// Pool of the primary record.
        pool: String,
        /// Its address.
        address: IpAddr,
    },
}

/// How the record of `address` in `pool` is freed. `others` are all pools that can be read; a
/// deleted one has no records, and its sub-ENIs are the provider's to clean up.
#[must_use]
pub fn how_to_release<'a>(
    pool: &Pool,
    address: IpAddr,
    record: &Record,
    others: impl Iterator<Item = &'a Pool> + Clone,
) -> How {
    if record.node.is_some() {
        // Contract version 1: whatever the pool, and an address alone.
        return How::ProviderFirst { half: None };
    }
    if !matches!(pool.mode, Mode::Prewarm { .. }) {
        return How::Record;
    }
    let same_nic = |other: &Pool| {
        let own = other.records_of(&record.pod_uid).into_iter();
        own.filter(|(_, found)| found.nic == record.nic)
            .map(|(found, _)| found)
            .next()
    };
    let primary = |other: &&Pool| {
        let names_it = other.pair.as_deref() == Some(pool.name.as_str());
        names_it && other.family == Family::V4 && other.is_iaas()
    };
    if pool.family == Family::V6 {
        let mut primaries = others.filter(primary);
        return match primaries.find_map(|other| Some((other.name.clone(), same_nic(other)?))) {
            Some((pool, address)) => How::WithPrimary { pool, address },
            // The primary is gone, with it the sub-ENI; a pool of IPv6 alone has its own.
            None if pool.pair.is_some() => How::Record,
            None => How::ProviderFirst { half: None },
        };
    }
    let sibling = pool.pair.as_ref();
    let mut siblings = others.filter(|other| Some(&other.name) == sibling);
    let half = siblings.find_map(|other| Some((other.name.clone(), same_nic(other)?)));
    How::ProviderFirst {
        half: half.filter(|(_, other)| *other != address),
    }
}
