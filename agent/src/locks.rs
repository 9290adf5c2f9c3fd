//! One lock per (Pod UID, interface): two calls for one NIC run one after the other, calls for
//! different NICs side by side. Entries go when nobody holds or waits for them.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

type Entries<K> = Mutex<HashMap<K, Arc<AsyncMutex<()>>>>;

/// Locks by key.
#[derive(Debug)]
pub struct KeyedLocks<K: Eq + Hash>(Arc<Entries<K>>);

impl<K: Eq + Hash> Default for KeyedLocks<K> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(HashMap::new())))
    }
}

/// The key is held until this is dropped.
#[derive(Debug)]
pub struct KeyGuard<K: Eq + Hash> {
    // Declared, and so dropped, before the ticket, which counts who is left.
    _held: OwnedMutexGuard<()>,
    _ticket: Ticket<K>,
}

/// A holder or waiter. The last one takes the entry away.
#[derive(Debug)]
struct Ticket<K: Eq + Hash> {
    key: K,
    lock: Arc<AsyncMutex<()>>,
    entries: Arc<Entries<K>>,
}

impl<K: Eq + Hash + Clone> KeyedLocks<K> {
    /// Waits for the key. Dropping the future leaves the queue.
    pub async fn lock(&self, key: K) -> KeyGuard<K> {
        let lock = {
            let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(entries.entry(key.clone()).or_default())
        };
        let ticket = Ticket {
            key,
            lock,
            entries: Arc::clone(&self.0),
        };
        let held = Arc::clone(&ticket.lock).lock_owned().await;
        KeyGuard {
            _held: held,
            _ticket: ticket,
        }
    }

    /// Keys held or waited for.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Whether no key is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<K: Eq + Hash> Drop for Ticket<K> {
    fn drop(&mut self) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        // Ours and the map's: new tickets are only made under the lock we hold.
        if Arc::strong_count(&self.lock) == 2 {
            entries.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[tokio::test]
    async fn one_holder_per_key_and_no_entry_left() {
        let locks = KeyedLocks::default();
        let first = locks.lock("a").await;
        let other = locks.lock("b").await;
        let mut second = Box::pin(locks.lock("a"));
        assert!((&mut second).now_or_never().is_none());
        assert_eq!(locks.len(), 2);
        drop(first);
        let second = second.await;
        drop((second, other));
        assert!(locks.is_empty());
    }

    #[tokio::test]
    async fn a_waiter_that_gives_up_leaves_nothing() {
        let locks = KeyedLocks::default();
        let first = locks.lock(1).await;
        {
            let mut gone = Box::pin(locks.lock(1));
            assert!((&mut gone).now_or_never().is_none());
        }
        assert_eq!(locks.len(), 1);
        drop(first);
        assert!(locks.is_empty());
        drop(locks.lock(1).await);
        assert!(locks.is_empty());
    }
}
