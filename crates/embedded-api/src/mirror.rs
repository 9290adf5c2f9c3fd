//! What readers see: every committed object, and the last changes for watches. Filled from the
//! store at start and by the writer after each commit; nothing here touches the disk.
//!
//! A watch keeps a position, not a queue: it reads changes from the shared history when its client
//! reads, and is told to list again if the history has moved past it. So no watch costs memory or
//! time on the write path, however slow its client is.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use bytes::Bytes;
use tokio::sync::watch;

use crate::kinds::Facts;
use crate::object_key::ObjectKey;

/// A committed object.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    /// resourceVersion.
    pub(crate) version: u64,
    /// The whole object, resourceVersion included.
    pub(crate) json: Bytes,
    /// What selectors look at.
    pub(crate) facts: Arc<Facts>,
}

/// One committed change.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    pub(crate) key: ObjectKey,
    /// The object after the change; for a deletion its last state under the deletion's version.
    pub(crate) object: Stored,
    /// What selectors saw before; none if the object is new.
    pub(crate) before: Option<Arc<Facts>>,
    pub(crate) deleted: bool,
}

/// Limits of the history kept for watches.
#[derive(Debug, Clone, Copy)]
pub struct HistoryLimits {
    /// At most this many changes.
    pub changes: usize,
    /// At most about this many bytes of objects, except that the last 16 changes always stay.
    pub bytes: usize,
}

impl Default for HistoryLimits {
    /// 1,024 changes, 8 MiB: seconds of heavy traffic on a pool of 5,000 records (0.5 MB each).
    fn default() -> Self {
        Self {
            changes: 1024,
            bytes: 8 << 20,
        }
    }
}

const ALWAYS_KEPT: usize = 16;

/// Objects by key, in key order.
pub(crate) type Objects = BTreeMap<ObjectKey, Stored>;

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) version: u64,
    pub(crate) objects: Objects,
    history: VecDeque<Change>,
    history_bytes: usize,
    /// Changes up to and including this version are no longer known one by one.
    floor: u64,
}

impl State {
    pub(crate) fn loaded(version: u64, objects: Objects) -> Self {
        Self {
            version,
            objects,
            floor: version,
            ..Self::default()
        }
    }

    /// Changes after `position`, oldest first, at most `limit`; none if some are forgotten.
    pub(crate) fn changes_after(&self, position: u64, limit: usize) -> Option<Vec<Change>> {
        if position < self.floor || position > self.version {
            return None;
        }
        let start = self
            .history
            .partition_point(|change| change.object.version <= position);
        Some(
            self.history
                .iter()
                .skip(start)
                .take(limit)
                .cloned()
                .collect(),
        )
    }

    fn publish(&mut self, changes: Vec<Change>, limits: HistoryLimits) {
        for change in changes {
            self.version = change.object.version;
            if change.deleted {
                self.objects.remove(&change.key);
            } else {
                self.objects
                    .insert(change.key.clone(), change.object.clone());
            }
            self.history_bytes += change.object.json.len();
            self.history.push_back(change);
        }
        while self.history.len() > limits.changes
            || (self.history_bytes > limits.bytes && self.history.len() > ALWAYS_KEPT)
        {
            let Some(oldest) = self.history.pop_front() else {
                break;
            };
            self.history_bytes -= oldest.object.json.len();
            self.floor = oldest.object.version;
        }
    }
}

/// Objects under a key prefix, from just after `after` if given.
pub(crate) fn range<'a>(
    objects: &'a Objects,
    prefix: &'a str,
    after: Option<&'a str>,
) -> impl Iterator<Item = (&'a ObjectKey, &'a Stored)> {
    let start = after.map_or(Bound::Included(prefix), Bound::Excluded);
    objects
        .range::<str, _>((start, Bound::Unbounded))
        .take_while(move |(key, _)| key.as_str().starts_with(prefix))
}

/// The shared state and its bell.
#[derive(Debug)]
pub(crate) struct Mirror {
    state: RwLock<State>,
    bell: watch::Sender<u64>,
    limits: HistoryLimits,
}

impl Mirror {
    pub(crate) fn new(state: State, limits: HistoryLimits) -> Self {
        let (bell, _) = watch::channel(state.version);
        Self {
            state: RwLock::new(state),
            bell,
            limits,
        }
    }

    /// The state for reading. Never held across an await: all uses are short and synchronous.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, State> {
        // a poisoned lock means a panic in `publish`; the map is still a map
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes committed changes visible and wakes the watches.
    pub(crate) fn publish(&self, changes: Vec<Change>) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        state.publish(changes, self.limits);
        let version = state.version;
        drop(state);
        self.bell.send_replace(version);
    }

    /// Replaces everything; watches are told to list again.
    pub(crate) fn reload(&self, fresh: State) {
        let version = fresh.version;
        *self.state.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        self.bell.send_replace(version);
    }

    /// Rings after every publication.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.bell.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(version: u64, size: usize) -> Change {
        let json = Bytes::from(vec![b'x'; size]);
        let object = Stored {
            version,
            json,
            facts: Arc::default(),
        };
        Change {
            key: ObjectKey::new("c", "", "n"),
            object,
            before: None,
            deleted: false,
        }
    }

    #[test]
    fn history_forgets_by_count_and_by_size_and_says_so() {
        let limits = HistoryLimits {
            changes: 20,
            bytes: 100,
        };
        let mut state = State::loaded(5, Objects::new());
        assert!(state.changes_after(5, 9).unwrap().is_empty());
        assert!(state.changes_after(4, 9).is_none(), "before the start");
        assert!(state.changes_after(6, 9).is_none(), "from the future");
        state.publish((6..=30).map(|v| change(v, 1)).collect(), limits);
        assert!(state.changes_after(9, 99).is_none());
        let versions: Vec<_> = state
            .changes_after(10, 3)
            .unwrap()
            .iter()
            .map(|c| c.object.version)
            .collect();
        assert_eq!(versions, [11, 12, 13]);
        state.publish(vec![change(31, 1000)], limits);
        assert_eq!(state.changes_after(15, 99).unwrap().len(), ALWAYS_KEPT);
        assert!(state.changes_after(14, 99).is_none());
    }

    #[test]
    fn ranges_stay_in_their_collection_and_namespace() {
        let mut objects = Objects::new();
        for (collection, namespace, name) in [
            ("pods", "a", "x"),
            ("pods", "a", "y"),
            ("pods", "ab", "z"),
            ("podsx", "a", "x"),
        ] {
            let key = ObjectKey::new(collection, namespace, name);
            objects.insert(key, change(1, 1).object);
        }
        let count = |ns, after| range(&objects, &ObjectKey::prefix("pods", ns), after).count();
        assert_eq!(count(None, None), 3);
        assert_eq!(count(Some("a"), None), 2);
        assert_eq!(count(Some("a"), Some("pods\0a\0x")), 1);
    }
}
