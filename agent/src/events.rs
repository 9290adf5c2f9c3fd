//! Warnings on Pods, for their users: written beside the calls, never instead of them.
//!
//! Owns the limits: one event a Pod, reason and subject in a time, so many at once, so many
//! remembered. What does not fit is left out; the log has it all the same.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::store::{Freshness, ObjectKey, PodEvent, Store};

/// Between two equal events about one Pod, unless somebody says otherwise.
const PAUSE: Duration = Duration::from_secs(60);
/// Events remembered: more than a node has Pods, times reasons.
const MAX_TOLD: usize = 4096;
/// Events on their way at once.
const MAX_UNDER_WAY: usize = 32;
/// Time one has to be written; without the API nothing shall pile up.
const PATIENCE: Duration = Duration::from_secs(10);

/// Which Pod object an event is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum PodUid {
    /// As the API has it.
    Known(String),
    /// As the runtime says, which may be nothing, or a static Pod's hash: the object is looked up.
    Named(Option<String>),
}

/// What to tell.
#[derive(Debug, Clone)]
pub(crate) struct Notice {
    pub(crate) pod: ObjectKey,
    pub(crate) uid: PodUid,
    pub(crate) reason: &'static str,
    /// Tells notices of one reason apart, such as the pool each is about.
    pub(crate) about: String,
    pub(crate) message: String,
}

/// All notices of this agent.
pub(crate) struct Events {
    store: Arc<dyn Store>,
    tasks: TaskTracker,
    room: Arc<Semaphore>,
    /// Until when each is not told again.
    told: Mutex<HashMap<Key, Instant>>,
}

type Key = (ObjectKey, PodUid, &'static str, String);

impl Events {
    /// `tasks` joins what is under way at shutdown.
    pub(crate) fn new(store: Arc<dyn Store>, tasks: TaskTracker) -> Self {
        Self {
            store,
            tasks,
            room: Arc::new(Semaphore::new(MAX_UNDER_WAY)),
            told: Mutex::default(),
        }
    }

    /// Tells, unless the same was told within a minute. Does not wait. Needs a runtime.
    pub(crate) fn tell(&self, notice: Notice) {
        self.tell_once_in(PAUSE, notice);
    }

    /// The same with a time of its own.
    pub(crate) fn tell_once_in(&self, pause: Duration, notice: Notice) {
        let Ok(room) = Arc::clone(&self.room).try_acquire_owned() else {
            return;
        };
        if !self.may_tell(&notice, pause) {
            return;
        }
        let store = Arc::clone(&self.store);
        self.tasks.spawn(async move {
            let told = tokio::time::timeout(PATIENCE, write(store.as_ref(), notice)).await;
            if told.is_err() {
                tracing::warn!("an event could not be written in time");
            }
            drop(room);
        });
    }

    fn may_tell(&self, notice: &Notice, pause: Duration) -> bool {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        told.retain(|_, until| *until > now);
        let key = (
            notice.pod.clone(),
            notice.uid.clone(),
            notice.reason,
            notice.about.clone(),
        );
        if told.len() >= MAX_TOLD || told.contains_key(&key) {
            return false;
        }
        told.insert(key, now + pause);
        true
    }
}

async fn write(store: &dyn Store, notice: Notice) {
    let uid = match notice.uid {
        PodUid::Known(uid) => uid,
        PodUid::Named(named) => {
            let Ok(Some(pod)) = store.pod(&notice.pod, Freshness::Cached).await else {
                // Nobody to show it to.
                return;
            };
            if named.is_some_and(|named| !pod.answers_to(&named)) {
                return;
            }
            pod.uid().to_owned()
        }
    };
    let event = PodEvent {
        pod: notice.pod,
        uid,
        reason: notice.reason,
        message: notice.message,
    };
    store.event(event).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::memory::MemoryStore;

    fn notice(uid: &str, reason: &'static str, about: &str) -> Notice {
        Notice {
            pod: ObjectKey::new("shop", "web-0"),
            uid: PodUid::Known(uid.into()),
            reason,
            about: about.into(),
            message: format!("{uid} {reason} {about}"),
        }
    }

    fn events() -> (Arc<MemoryStore>, Events, TaskTracker) {
        let store = Arc::new(MemoryStore::new("n1"));
        let tasks = TaskTracker::new();
        let events = Events::new(Arc::clone(&store) as _, tasks.clone());
        (store, events, tasks)
    }

    async fn written(store: &MemoryStore, tasks: &TaskTracker) -> Vec<String> {
        tasks.close();
        tasks.wait().await;
        tasks.reopen();
        store
            .events()
            .into_iter()
            .map(|event| event.message)
            .collect()
    }

    #[tokio::test(start_paused = true)]
    async fn the_same_is_told_once_a_minute() {
        let (store, events, tasks) = events();
        for (uid, reason, about) in [
            ("u-1", "A", ""),
            ("u-1", "A", ""),
            ("u-1", "A", "p"),
            ("u-1", "B", ""),
            ("u-2", "A", ""),
        ] {
            events.tell(notice(uid, reason, about));
        }
        assert_eq!(
            written(&store, &tasks).await,
            ["u-1 A ", "u-1 A p", "u-1 B ", "u-2 A "]
        );
        tokio::time::advance(PAUSE).await;
        events.tell(notice("u-1", "A", ""));
        events.tell_once_in(PAUSE * 2, notice("u-1", "A", "p"));
        assert_eq!(written(&store, &tasks).await.len(), 6);
        // Each waits its own time.
        tokio::time::advance(PAUSE).await;
        events.tell(notice("u-1", "A", ""));
        events.tell(notice("u-1", "A", "p"));
        assert_eq!(written(&store, &tasks).await.len(), 7);
    }

    #[tokio::test(start_paused = true)]
    async fn memory_and_tasks_are_bounded() {
        let (store, events, tasks) = events();
        for n in 0..MAX_UNDER_WAY + 5 {
            events.tell(notice(&n.to_string(), "A", ""));
        }
        assert_eq!(written(&store, &tasks).await.len(), MAX_UNDER_WAY);
        for n in 0..MAX_TOLD {
            events.tell(notice(&format!("x{n}"), "A", ""));
            tokio::task::yield_now().await;
        }
        assert_eq!(written(&store, &tasks).await.len(), MAX_TOLD);
    }

    #[tokio::test]
    async fn a_pod_that_is_not_there_is_told_nothing() {
        let (store, events, tasks) = events();
        let named = |uid: &str| Notice {
            uid: PodUid::Named(Some(uid.into())),
            ..notice("", "A", uid)
        };
        events.tell(named("u-1"));
        assert!(written(&store, &tasks).await.is_empty());
        let mut pod = crate::store::PodObject::default();
        pod.facts.namespace = "shop".into();
        pod.facts.name = "web-0".into();
        pod.facts.uid = "u-2".into();
        store.set_pod(pod);
        events.tell(named("u-2"));
        events.tell(named("u-3"));
        assert_eq!(written(&store, &tasks).await.len(), 1);
        assert_eq!(store.events()[0].uid, "u-2");
    }
}
