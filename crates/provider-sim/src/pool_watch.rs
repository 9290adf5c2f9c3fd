//! Follows the pools of a Kubernetes API and tells the provider. Reads only.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::ResourceExt;
use kube::api::{Api, DynamicObject};
use kube::runtime::WatchStreamExt;
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{self, Event, watcher};
use spiderpool_api::causes::with_causes;
use tracing::{info, warn};

use crate::cloud::SubEni;
use crate::pool::{Pool, is_held};
use crate::service::Service;

/// Between two tries to watch.
const RETRY: Duration = Duration::from_millis(500);

/// A pause that does not grow: one simulator cannot overrun a server, and tests wait for it.
struct Steady;

impl Iterator for Steady {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(RETRY)
    }
}

impl Backoff for Steady {
    fn reset(&mut self) {}
}

impl Service {
    /// Follows the pools; the provider serves from the first complete list on. Never ends: a
    /// watch that breaks is begun again.
    pub async fn watch_pools(self: Arc<Self>, pools: Api<DynamicObject>) {
        let begin = || watcher(pools.clone(), watcher::Config::default()).backoff(Steady);
        let mut events = Box::pin(begin());
        let mut listed = BTreeMap::new();
        loop {
            let event = tokio::select! {
                biased;
                () = self.relist.notified() => {
                    events = Box::pin(begin());
                    continue;
                }
                event = events.next() => event,
            };
            let Some(event) = event else {
                return;
            };
            match event {
                // a list follows that has it too
                Ok(Event::Apply(_) | Event::Delete(_)) if self.is_down() => {}
                Ok(Event::Init) => listed.clear(),
                Ok(Event::InitApply(object)) => match Pool::of_object(&object) {
                    Some(pool) => drop(listed.insert(pool.name.clone(), pool)),
                    None => self.note_abandoned(&object),
                },
                Ok(Event::InitDone) => {
                    info!(pools = listed.len(), "pools are listed");
                    self.replace_pools(std::mem::take(&mut listed));
                    self.set_ready(true);
                }
                Ok(Event::Apply(object)) => self.take_pool(&object),
                Ok(Event::Delete(object)) => {
                    self.drop_pools(|name, _| object.metadata.name.as_deref() == Some(name));
                    self.with(|world| world.memory.abandoned.remove(&object.name_any()));
                }
                Err(cause) => {
                    warn!(cause = %with_causes(&cause), "the watch of pools broke");
                    // A server that was away may have been restored from a copy, and is silent about
                    // what changes until it has reached the version we know.
                    if matches!(cause, watcher::Error::WatchStartFailed(_)) {
                        tokio::time::sleep(RETRY).await;
                        events = Box::pin(begin());
                    }
                }
            }
        }
    }

    fn take_pool(self: &Arc<Self>, object: &DynamicObject) {
        match Pool::of_object(object) {
            Some(pool) => self.update_pools(|memory| {
                memory.abandoned.remove(&pool.name);
                memory.pools.insert(pool.name.clone(), pool);
            }),
            // the marker is gone: no longer the provider's business
            None => {
                self.drop_pools(|name, _| object.metadata.name.as_deref() == Some(name));
                self.note_abandoned(object);
            }
        }
    }

    /// A pool that is nobody's must not wait for the provider when it is deleted.
    fn note_abandoned(&self, object: &DynamicObject) {
        let name = object.name_any();
        self.with(|world| {
            if is_held(object) {
                world.memory.abandoned.insert(name);
            } else {
                world.memory.abandoned.remove(&name);
            }
        });
        self.hold_due.notify_one();
    }

    fn replace_pools(self: &Arc<Self>, listed: BTreeMap<String, Pool>) {
        self.drop_pools(|name, _| !listed.contains_key(name));
        self.update_pools(|memory| memory.pools.extend(listed));
    }

    /// Forgets pools and tears down what was made for them (P16).
    fn drop_pools(self: &Arc<Self>, gone: impl Fn(&str, &Pool) -> bool) {
        let orphans: Vec<SubEni> = self.with(|world| {
            let memory = &mut world.memory;
            let all = std::mem::take(&mut memory.pools);
            let (dropped, kept): (BTreeMap<_, _>, BTreeMap<_, _>) =
                all.into_iter().partition(|(name, pool)| gone(name, pool));
            memory.pools = kept;
            for name in dropped.keys() {
                memory.prewarmed.remove(name);
                memory.lacking.remove(name);
            }
            let names = dropped.into_keys();
            names
                .flat_map(|name| memory.of_pool(&name).cloned().collect::<Vec<_>>())
                .collect()
        });
        if orphans.is_empty() {
            return;
        }
        let service = Arc::clone(self);
        tokio::spawn(async move {
            service.remove_surplus(orphans).await;
            service.hold_due.notify_one();
        });
    }
}
