//! A watched copy of objects, reduced to what we need of them. Own writes go in at once; a watch
//! event older than what is there is ignored.

use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::Hash;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use futures::{Stream, TryStreamExt};
use kube::runtime::watcher::{self, Event};
use kube::{Resource, ResourceExt};
use tokio::task::AbortHandle;

use crate::flow::error::full;

/// Copies by key.
pub(super) struct Cache<K, V> {
    shared: Arc<Shared<K, V>>,
    task: AbortHandle,
}

struct Shared<K, V> {
    entries: RwLock<HashMap<K, Entry<V>>>,
    filled: AtomicBool,
}

struct Entry<V> {
    version: u64,
    value: V,
}

/// A resourceVersion as a number; versions we cannot read count as oldest, so that an event with
/// one always replaces what is there.
pub(super) fn version_number(version: Option<&str>) -> u64 {
    version.and_then(|text| text.parse().ok()).unwrap_or(0)
}

impl<K, V> Cache<K, V>
where
    K: Hash + Eq + Clone + Debug + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// Follows a watch until the cache is dropped. `reduce` takes from an object what is kept.
    pub(super) fn follow<R, S, F>(kind: &'static str, stream: S, reduce: F) -> Self
    where
        R: Resource + Send + 'static,
        S: Stream<Item = Result<Event<R>, watcher::Error>> + Send + 'static,
        F: Fn(&R) -> (K, V) + Send + 'static,
    {
        Self::follow_from(kind, stream, move |object, _| reduce(object))
    }

    /// The same where what is kept depends on the copy that was there.
    pub(super) fn follow_from<R, S, F>(kind: &'static str, stream: S, reduce: F) -> Self
    where
        R: Resource + Send + 'static,
        S: Stream<Item = Result<Event<R>, watcher::Error>> + Send + 'static,
        F: Fn(&R, &dyn Fn(&K) -> Option<V>) -> (K, V) + Send + 'static,
    {
        let shared = Arc::new(Shared {
            entries: RwLock::new(HashMap::new()),
            filled: AtomicBool::new(false),
        });
        let task = tokio::spawn(run(Arc::clone(&shared), kind, stream, reduce));
        Self {
            shared,
            task: task.abort_handle(),
        }
    }

    /// Whether the first list is in.
    pub(super) fn is_filled(&self) -> bool {
        self.shared.filled.load(Ordering::Acquire)
    }

    /// One copy.
    pub(super) fn get(&self, key: &K) -> Option<V> {
        self.shared.get(key)
    }

    /// All copies.
    pub(super) fn all(&self) -> Vec<V> {
        let entries = self
            .shared
            .entries
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        entries.values().map(|entry| entry.value.clone()).collect()
    }

    /// What we have just written ourselves.
    pub(super) fn put(&self, key: K, version: Option<&str>, value: V) {
        self.shared.put(key, version_number(version), value);
    }

    /// What we have just deleted ourselves.
    pub(super) fn forget(&self, key: &K) {
        self.shared.write(|entries| {
            entries.remove(key);
        });
    }
}

impl<K, V> Drop for Cache<K, V> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl<K: Hash + Eq, V: Clone> Shared<K, V> {
    fn get(&self, key: &K) -> Option<V> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        entries.get(key).map(|entry| entry.value.clone())
    }
}

impl<K: Hash + Eq, V> Shared<K, V> {
    fn write(&self, change: impl FnOnce(&mut HashMap<K, Entry<V>>)) {
        change(&mut self.entries.write().unwrap_or_else(PoisonError::into_inner));
    }

    fn put(&self, key: K, version: u64, value: V) {
        self.write(|entries| {
            if version == 0
                || entries
                    .get(&key)
                    .is_none_or(|entry| entry.version <= version)
            {
                entries.insert(key, Entry { version, value });
            }
        });
    }

    fn delete(&self, key: &K, version: u64) {
        self.write(|entries| {
            if version == 0
                || entries
                    .get(key)
                    .is_some_and(|entry| entry.version <= version)
            {
                entries.remove(key);
            }
        });
    }

    fn newest(&self) -> u64 {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        entries
            .values()
            .map(|entry| entry.version)
            .max()
            .unwrap_or(0)
    }

    /// A complete list replaces everything but what we wrote after it was begun.
    fn replace(&self, list: List<K, V>) {
        self.write(|entries| {
            entries.retain(|_, entry| entry.version > list.begun_at);
            for (key, entry) in list.entries {
                if entries
                    .get(&key)
                    .is_none_or(|own| own.version <= entry.version)
                {
                    entries.insert(key, entry);
                }
            }
        });
        self.filled.store(true, Ordering::Release);
    }
}

/// A list being received.
struct List<K, V> {
    /// Newest version known when it was begun.
    begun_at: u64,
    entries: HashMap<K, Entry<V>>,
}

impl<K, V> Default for List<K, V> {
    fn default() -> Self {
        Self {
            begun_at: 0,
            entries: HashMap::new(),
        }
    }
}

async fn run<K, V, R, S, F>(shared: Arc<Shared<K, V>>, kind: &'static str, stream: S, reduce: F)
where
    K: Hash + Eq,
    R: Resource + Send + 'static,
    S: Stream<Item = Result<Event<R>, watcher::Error>> + Send,
    V: Clone,
    F: Fn(&R, &dyn Fn(&K) -> Option<V>) -> (K, V) + Send,
{
    let mut stream = pin!(stream);
    let mut list = List::default();
    let mut health = Health::new(kind);
    loop {
        match stream.try_next().await {
            Ok(None) => return,
            Err(error) => health.failed(&error),
            Ok(Some(event)) => {
                health.heard(&event);
                let copy = |key: &K| shared.get(key);
                apply(&shared, &mut list, event, &|object| reduce(object, &copy));
            }
        }
    }
}

/// Whether a watch fails. Said once when that begins, since the client retries every few seconds and
/// a flood hides the cause, and once when it is over.
pub(super) struct Health {
    kind: &'static str,
    failing: bool,
}

impl Health {
    pub(super) const fn new(kind: &'static str) -> Self {
        let failing = false;
        Self { kind, failing }
    }

    pub(super) fn failed(&mut self, error: &watcher::Error) {
        if !std::mem::replace(&mut self.failing, true) {
            tracing::warn!(
                kind = self.kind,
                error = full(error),
                "the watch fails; what is cached may be outdated until it works again"
            );
        }
    }

    pub(super) fn heard<R>(&mut self, event: &Event<R>) {
        // Before each list, whether it will be answered or not.
        if !matches!(event, Event::Init) && std::mem::take(&mut self.failing) {
            tracing::info!(kind = self.kind, "the watch works again");
        }
    }
}

fn apply<K, V, R, F>(shared: &Shared<K, V>, list: &mut List<K, V>, event: Event<R>, reduce: &F)
where
    K: Hash + Eq,
    R: Resource,
    F: Fn(&R) -> (K, V),
{
    let version = |object: &R| version_number(object.resource_version().as_deref());
    match event {
        Event::Init => {
            *list = List {
                begun_at: shared.newest(),
                entries: HashMap::new(),
            };
        }
        Event::InitApply(object) => {
            let (key, value) = reduce(&object);
            list.entries.insert(
                key,
                Entry {
                    version: version(&object),
                    value,
                },
            );
        }
        Event::InitDone => shared.replace(std::mem::take(list)),
        Event::Apply(object) => {
            let (key, value) = reduce(&object);
            shared.put(key, version(&object), value);
        }
        Event::Delete(object) => {
            let (key, _) = reduce(&object);
            shared.delete(&key, version(&object));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Namespace;
    use std::collections::BTreeMap;

    fn namespace(name: &str, version: &str, label: &str) -> Namespace {
        let mut object = Namespace::default();
        object.metadata.name = Some(name.into());
        object.metadata.resource_version = Some(version.into());
        object.metadata.labels = Some(BTreeMap::from([("l".into(), label.into())]));
        object
    }

    fn reduce(object: &Namespace) -> (String, String) {
        (object.name_any(), object.labels()["l"].clone())
    }

    struct Bench {
        shared: Shared<String, String>,
        list: List<String, String>,
    }

    impl Bench {
        fn new() -> Self {
            let shared = Shared {
                entries: RwLock::new(HashMap::new()),
                filled: AtomicBool::new(false),
            };
            Self {
                shared,
                list: List::default(),
            }
        }

        fn event(&mut self, event: Event<Namespace>) {
            apply(&self.shared, &mut self.list, event, &reduce);
        }

        fn get(&self, name: &str) -> Option<String> {
            self.shared
                .entries
                .read()
                .unwrap()
                .get(name)
                .map(|entry| entry.value.clone())
        }
    }

    #[test]
    fn an_older_event_does_not_undo_our_own_write() {
        let mut bench = Bench::new();
        bench.event(Event::Apply(namespace("a", "5", "five")));
        bench.shared.put("a".into(), 9, "own".into());
        bench.event(Event::Apply(namespace("a", "7", "seven")));
        assert_eq!(bench.get("a").as_deref(), Some("own"));
        bench.event(Event::Delete(namespace("a", "8", "eight")));
        assert_eq!(bench.get("a").as_deref(), Some("own"));
        bench.event(Event::Apply(namespace("a", "10", "ten")));
        assert_eq!(bench.get("a").as_deref(), Some("ten"));
        bench.event(Event::Delete(namespace("a", "11", "ten")));
        assert_eq!(bench.get("a"), None);
    }

    #[test]
    fn a_new_list_forgets_what_is_gone_and_keeps_later_writes() {
        let mut bench = Bench::new();
        bench.event(Event::Apply(namespace("gone", "3", "x")));
        assert!(!bench.shared.filled.load(Ordering::Acquire));
        bench.event(Event::Init);
        bench
            .shared
            .put("own".into(), 30, "written after the list began".into());
        bench.event(Event::InitApply(namespace("kept", "20", "x")));
        bench.event(Event::InitDone);
        assert!(bench.shared.filled.load(Ordering::Acquire));
        assert_eq!(
            (bench.get("gone"), bench.get("kept").is_some()),
            (None, true)
        );
        assert!(bench.get("own").is_some());
        bench.event(Event::Init);
        bench.event(Event::InitDone);
        assert_eq!((bench.get("kept"), bench.get("own")), (None, None));
    }
}
