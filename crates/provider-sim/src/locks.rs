//! One lock for each address, so that calls about it follow one another (P3).

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Mutex as Turn, OwnedMutexGuard};

/// The locks. An address once locked keeps its own; there are as many as pools have addresses.
#[derive(Debug, Default)]
pub struct Locks {
    turns: Mutex<HashMap<IpAddr, Arc<Turn<()>>>>,
}

impl Locks {
    /// Waits its turn for all of them. They are taken in order, so that two that want the same
    /// never wait for each other.
    pub async fn lock(&self, addresses: &BTreeSet<IpAddr>) -> Vec<OwnedMutexGuard<()>> {
        let mut held = Vec::with_capacity(addresses.len());
        for ip in addresses {
            held.push(self.turn(*ip).lock_owned().await);
        }
        held
    }

    /// The lock of one address if nobody has it.
    pub fn try_lock(&self, ip: IpAddr) -> Option<OwnedMutexGuard<()>> {
        self.turn(ip).try_lock_owned().ok()
    }

    fn turn(&self, ip: IpAddr) -> Arc<Turn<()>> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(turns.entry(ip).or_default())
    }
}
