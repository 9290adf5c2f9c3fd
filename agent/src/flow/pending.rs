//! Releases that the provider has not accepted yet, in memory only: they are tried again with each
//! replay of the spool. Losing them leaves the work to GC.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use spiderpool_api::value::IfName;
use tokio::time::Instant;

use crate::store::ObjectKey;

/// Whose NIC goes.
#[derive(Debug, Clone)]
pub(crate) struct Leaving {
    /// The Pod.
    pub(crate) pod: ObjectKey,
    /// Its UID, if anybody knows it.
    pub(crate) uid: Option<String>,
    /// The NIC.
    pub(crate) ifname: IfName,
    /// Pools that the attachment file names.
    pub(crate) pools: Vec<String>,
    /// When waiting ends.
    pub(crate) deadline: Instant,
}

/// Pods whose release is not finished, by UID.
#[derive(Debug, Default)]
pub(crate) struct Pending(Mutex<HashMap<String, Leaving>>);

impl Pending {
    /// Keeps it for the next try.
    pub(crate) fn keep(&self, uid: &str, leaving: Leaving) {
        let mut pending = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pending.insert(uid.to_owned(), leaving);
    }

    /// Everything that waits; whoever takes it keeps again what fails.
    pub(crate) fn take(&self) -> Vec<(String, Leaving)> {
        let mut pending = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pending.drain().collect()
    }
}
