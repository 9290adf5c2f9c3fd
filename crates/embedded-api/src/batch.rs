//! Writes that will be committed together: an overlay over the committed objects. Each write of a
//! batch sees the ones before it. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::kinds::{self, Kind};
use crate::mirror::{self, Change, Objects, Stored};
use crate::object;
use crate::object_key::ObjectKey;

/// The overlay.
pub(crate) struct Batch<'a> {
    committed: &'a Objects,
    staged: BTreeMap<ObjectKey, Option<Stored>>,
    changes: Vec<Change>,
    version: u64,
}

impl<'a> Batch<'a> {
    pub(crate) fn new(committed: &'a Objects, version: u64) -> Self {
        Self {
            committed,
            staged: BTreeMap::new(),
            changes: Vec::new(),
            version,
        }
    }

    /// The object under a key, as the next write of this batch finds it.
    pub(crate) fn get(&self, key: &ObjectKey) -> Option<&Stored> {
        match self.staged.get(key) {
            Some(staged) => staged.as_ref(),
            None => self.committed.get(key),
        }
    }

    /// All objects whose key begins with `prefix`, as parsed values.
    pub(crate) fn list(&self, prefix: &str) -> Vec<Value> {
        self.entries(prefix)
            .filter_map(|(_, stored)| serde_json::from_slice(&stored.json).ok())
            .collect()
    }

    /// Keys and objects under a prefix; committed ones first, then those of this batch.
    pub(crate) fn entries<'b>(
        &'b self,
        prefix: &'b str,
    ) -> impl Iterator<Item = (&'b ObjectKey, &'b Stored)> {
        let kept = mirror::range(self.committed, prefix, None)
            .filter(|(key, _)| !self.staged.contains_key(*key));
        let staged = self.staged.range::<str, _>((
            std::ops::Bound::Included(prefix),
            std::ops::Bound::Unbounded,
        ));
        let staged = staged
            .take_while(move |(key, _)| key.as_str().starts_with(prefix))
            .filter_map(|(key, stored)| stored.as_ref().map(|stored| (key, stored)));
        kept.chain(staged)
    }

    /// Stages an object under the next version and gives back its stored text.
    pub(crate) fn put(&mut self, kind: &Kind, key: ObjectKey, mut object: Value) -> Bytes {
        self.version += 1;
        object::set_meta(
            &mut object,
            "resourceVersion",
            json!(self.version.to_string()),
        );
        let facts = stored_kind(kind).facts(&object);
        let json = Bytes::from(object.to_string());
        let stored = Stored {
            version: self.version,
            json: json.clone(),
            facts: Arc::new(facts),
        };
        let before = self.get(&key).map(|old| Arc::clone(&old.facts));
        let change = Change {
            key: key.clone(),
            object: stored.clone(),
            before,
            deleted: false,
        };
        self.changes.push(change);
        self.staged.insert(key, Some(stored));
        json
    }

    /// Stages a removal. `last` is the final state, which watches are sent.
    pub(crate) fn remove(&mut self, key: ObjectKey, mut last: Value) -> Bytes {
        self.version += 1;
        object::set_meta(
            &mut last,
            "resourceVersion",
            json!(self.version.to_string()),
        );
        let json = Bytes::from(last.to_string());
        let facts = self
            .get(&key)
            .map(|old| Arc::clone(&old.facts))
            .unwrap_or_default();
        let object = Stored {
            version: self.version,
            json: json.clone(),
            facts: Arc::clone(&facts),
        };
        let change = Change {
            key: key.clone(),
            object,
            before: Some(facts),
            deleted: true,
        };
        self.changes.push(change);
        self.staged.insert(key, None);
        json
    }

    /// What is to be committed, in order, and the version it ends at.
    pub(crate) fn into_changes(self) -> (u64, Vec<Change>) {
        (self.version, self.changes)
    }
}

fn stored_kind(kind: &Kind) -> &Kind {
    kinds::by_collection(kind.collection).unwrap_or(kind)
}
