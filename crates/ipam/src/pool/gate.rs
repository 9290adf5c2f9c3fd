//! The gate before any use of a provider's metadata: fails closed, always worth a retry (spec iaas
//! section 4).

use std::sync::Arc;

use spiderpool_api::ip_meta::{BadEntry, Entry, EntryState, Metadata, MetadataError};
use spiderpool_api::ippool::IpPoolStatus;
use spiderpool_api::value::Mac;

use super::{Mode, PoolMeta};

/// Why metadata cannot be used now; always worth a retry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("IaaS IP metadata not ready: {text}")]
pub struct NotReady {
    /// `reason` label of `iaas_metadata_decode_failure_total`, where the metric counts it.
    pub reason: Option<&'static str>,
    /// What is missing.
    pub text: String,
}

/// The gate before any use of metadata: fails closed (spec iaas section 4).
pub(super) fn gate(
    meta: &PoolMeta,
    status: &IpPoolStatus,
    mode: &Mode,
    decoded: Option<Result<Arc<Metadata>, MetadataError>>,
) -> Result<Arc<Metadata>, NotReady> {
    let not_ready = |reason, text| Err(NotReady { reason, text });
    let pool = &meta.name;
    let observed = status
        .ip_meta_data
        .as_ref()
        .and_then(|data| data.observed_generation);
    match observed {
        None => {
            let text = format!("the provider has not published IPPool {pool} yet");
            return not_ready(None, text);
        }
        Some(seen) if seen != meta.generation => {
            let now = meta.generation;
            let text = format!(
                "the provider published IPPool {pool} for generation {seen}, the pool is at {now}"
            );
            return not_ready(None, text);
        }
        Some(_) => {}
    }
    let metadata = match decoded {
        Some(Ok(metadata)) => metadata,
        Some(Err(error)) => {
            return not_ready(Some(error.reason()), format!("IPPool {pool}: {error}"));
        }
        None => {
            let text = format!("IPPool {pool} has no status.ipMetaData.metadata");
            return not_ready(Some("bad_json"), text);
        }
    };
    match scope_mismatch(mode, &metadata) {
        Some(text) => not_ready(Some("scope_mismatch"), format!("IPPool {pool}: {text}")),
        None => Ok(metadata),
    }
}

/// The same without sub-ENIs that have the MAC of the NIC they hang on: their frames would be taken
/// for the parent's.
pub(super) fn without_parent(metadata: Arc<Metadata>, parent: Option<Mac>) -> Arc<Metadata> {
    let Some(parent) = parent else {
        return metadata;
    };
    let is_parents = |entry: &Entry| match &entry.state {
        EntryState::Attached { mac, .. } => *mac == parent,
        EntryState::Unattached { mac } => *mac == Some(parent),
        EntryState::Reclaiming { .. } => false,
    };
    if !metadata.entries.values().any(is_parents) {
        return metadata;
    }
    let mut metadata = Arc::unwrap_or_clone(metadata);
    let parents = metadata
        .entries
        .extract_if(.., |_, entry| is_parents(entry));
    let bad = parents.map(|(address, _)| BadEntry {
        key: address.to_string(),
        reason: format!("mac {parent} is that of the parent NIC"),
    });
    metadata.bad.extend(bad);
    Arc::new(metadata)
}

fn scope_mismatch(mode: &Mode, metadata: &Metadata) -> Option<String> {
    let want = match mode {
        Mode::Prewarm { node } => node.as_str(),
        Mode::Plain | Mode::Global => "",
    };
    if metadata.scope != want {
        return Some(format!(
            "metadata scope {:?} is not {want:?}",
            metadata.scope
        ));
    }
    if want.is_empty() {
        return None;
    }
    metadata.entries.iter().find_map(|(address, entry)| {
        let named = match &entry.state {
            EntryState::Attached { node, .. } => node.as_ref(),
            // The codec fills the scope in where an entry names no node.
            EntryState::Reclaiming { node } => Some(node).filter(|node| *node != want),
            EntryState::Unattached { .. } => None,
        };
        named.map(|node| format!("the entry of {address} names node {node} in a prewarm pool"))
    })
}
