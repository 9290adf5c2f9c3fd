//! Endpoints that no record answers for (spec ipam 6.4).

use std::net::IpAddr;

use spiderpool_api::endpoint::EndpointStatus;

use super::Knobs;
use crate::plan::held_by;
use crate::pool::Pool;

/// What becomes of an endpoint that no record of the scan was about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndpointVerdict {
    /// `enableCleanOutdatedEndpoint` is off.
    Off,
    /// A record answers for it.
    Recorded(IpAddr),
    /// No record does: it goes, finalizer included.
    Delete,
}

/// Judges an endpoint of `key` (`namespace/name`). `pools` are those that it names, read past the
/// caches; one that was deleted is not among them and answers for nothing.
#[must_use]
pub fn judge_endpoint<'a>(
    knobs: &Knobs,
    key: &str,
    endpoint: &EndpointStatus,
    pools: impl Iterator<Item = &'a Pool> + Clone,
) -> EndpointVerdict {
    if !knobs.enabled || !knobs.clean_outdated_endpoints {
        return EndpointVerdict::Off;
    }
    let named: Vec<String> = held_by(&endpoint.current)
        .into_iter()
        .map(|held| held.pool)
        .collect();
    let of_key = |pool: &Pool| {
        let mut records = pool.records.iter();
        records
            .find(|(_, record)| record.pod == key)
            .map(|(address, _)| address)
    };
    let mut named = pools.filter(|pool| named.contains(&pool.name));
    match named.find_map(of_key) {
        Some(address) => EndpointVerdict::Recorded(address),
        None => EndpointVerdict::Delete,
    }
}
