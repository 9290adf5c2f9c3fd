//! The trace of Pods that end (spec ipam 6.2): from the watch into a table of due times, and what is
//! released when one is due, after the API was asked.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::{StreamExt, stream};
use jiff::{SignedDuration, Timestamp};
use spiderpool_api::endpoint::SpiderEndpoint;
use spiderpool_ipam::batch::TAKEOVER_SECONDS;
use spiderpool_ipam::gc::{
    Ending, Knobs, NodeState, Static, Trace, TraceRelease, plan_trace_release, trace,
};
use spiderpool_ipam::sticky::Sticky;
use tokio::time::{Instant, sleep, timeout};

use super::follow::PodChange;
use super::pod_row::PodRow;
use super::{Garbage, Gc, worst_node};
use crate::chain::full;
use crate::objects::{ObjectKey, StoreError};

/// The shortest pause between two looks for what is due.
const MIN_GAP: Duration = Duration::from_millis(100);
/// A kubelet makes a mirror anew within seconds, and tells its addresses a little later.
const MIRROR_RETURN: Duration = Duration::from_secs(60);

/// A Pod that ends.
#[derive(Debug, Clone)]
struct Traced {
    row: Arc<PodRow>,
    due: Timestamp,
    gone: bool,
    tries: u32,
}

/// Pods that end, by UID.
#[derive(Debug)]
pub(super) struct Traces {
    table: Mutex<BTreeMap<String, Traced>>,
    capacity: usize,
    /// When the mirrors of static Pods went, by UID.
    mirrors: Mutex<BTreeMap<String, Instant>>,
}

/// What came of one that was due.
enum Outcome {
    /// Nothing is left to do.
    Done,
    /// Its time is later.
    Later(Timestamp),
    /// Somebody else is at work on it.
    Deferred,
    /// It failed, with a log line.
    Failed,
}

impl Traces {
    pub(super) fn new(capacity: u32) -> Self {
        Self {
            table: Mutex::default(),
            mirrors: Mutex::default(),
            capacity: usize::try_from(capacity).unwrap_or(usize::MAX),
        }
    }

    /// Takes a change of a Pod in. How its node is, and whether its identity still exists, is asked
    /// when it is due.
    pub(super) fn note(&self, knobs: &Knobs, change: &PodChange, now: Timestamp) {
        let (PodChange::Is(row) | PodChange::Gone(row)) = change;
        let gone = matches!(change, PodChange::Gone(_));
        if row.mirrored.is_some() && (gone || row.state.deletion.is_some()) {
            // The object says nothing about the containers; the scan sees what comes after it.
            self.lock().remove(&row.state.uid);
            if gone {
                self.note_mirror(&row.state.uid);
            }
            return;
        }
        let ending = if gone { Ending::Deleted } else { changed(row) };
        let due = trace(
            knobs,
            ending,
            row.host_network,
            None,
            worst_node(knobs),
            now,
        );
        let mut table = self.lock();
        let uid = &row.state.uid;
        let Trace::Due(due) = due else {
            table.remove(uid);
            return;
        };
        if !table.contains_key(uid) && table.len() >= self.capacity {
            tracing::warn!(pod = %row.key, "too many Pods end at once: this one is left to the scan");
            return;
        }
        let traced = Traced {
            row: Arc::clone(row),
            due,
            gone,
            tries: 0,
        };
        table.insert(uid.clone(), traced);
    }

    fn note_mirror(&self, uid: &str) {
        let mut mirrors = self.mirrors();
        mirrors.retain(|_, gone| gone.elapsed() < MIRROR_RETURN);
        mirrors.insert(uid.to_owned(), Instant::now());
    }

    /// Whether this was a static Pod whose mirror has just gone: the next one, and the address it shows,
    /// may be on the way.
    pub(super) fn awaits_mirror(&self, uid: &str) -> bool {
        let mirrors = self.mirrors();
        let gone = mirrors.get(uid);
        gone.is_some_and(|gone| gone.elapsed() < MIRROR_RETURN)
    }

    fn mirrors(&self) -> MutexGuard<'_, BTreeMap<String, Instant>> {
        self.mirrors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn due(&self, now: Timestamp, most: usize) -> Vec<Traced> {
        let table = self.lock();
        let due = table.values().filter(|traced| traced.due <= now);
        due.take(most).cloned().collect()
    }

    /// Unless the Pod's state has changed meanwhile.
    fn settle(&self, was: &Traced, next: Option<Traced>) {
        let mut table = self.lock();
        let uid = &was.row.state.uid;
        if table
            .get(uid)
            .is_none_or(|now| !Arc::ptr_eq(&now.row, &was.row) || now.gone != was.gone)
        {
            return;
        }
        match next {
            Some(next) => drop(table.insert(uid.clone(), next)),
            None => drop(table.remove(uid)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Traced>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Gc {
    pub(super) async fn trace_for_ever(&self) {
        let gap = self.knobs.trace_gap.unsigned_abs().max(MIN_GAP);
        let most = usize::try_from(self.knobs.buffer)
            .unwrap_or(usize::MAX)
            .max(1);
        loop {
            sleep(gap).await;
            let due = self.traces.due(self.now(), most);
            let workers = usize::try_from(self.knobs.workers).unwrap_or(1).max(1);
            stream::iter(due)
                .for_each_concurrent(workers, |traced| self.trace_one(traced))
                .await;
        }
    }

    async fn trace_one(&self, traced: Traced) {
        let patience = self.knobs.signal_timeout.unsigned_abs();
        // The scan has all workers: the next round comes soon.
        let Ok(_worker) = timeout(patience, self.worker()).await else {
            return;
        };
        let outcome = self.release_traced(&traced).await.unwrap_or_else(|error| {
            tracing::warn!(pod = %traced.row.key, "nothing is freed for now: {}", full(&error));
            Outcome::Failed
        });
        let next = match outcome {
            Outcome::Done => None,
            Outcome::Later(due) => Some(Traced {
                due,
                ..traced.clone()
            }),
            Outcome::Deferred => {
                let wait = SignedDuration::from_secs(TAKEOVER_SECONDS);
                let due = self.now().checked_add(wait).unwrap_or(Timestamp::MAX);
                Some(Traced {
                    due,
                    ..traced.clone()
                })
            }
            Outcome::Failed if traced.tries >= self.knobs.retries => {
                tracing::warn!(pod = %traced.row.key, "its addresses are left to the scan");
                None
            }
            Outcome::Failed => Some(Traced {
                tries: traced.tries + 1,
                ..traced.clone()
            }),
        };
        self.traces.settle(&traced, next);
    }

    /// Asks the API how the Pod is, and releases what is due.
    async fn release_traced(&self, traced: &Traced) -> Result<Outcome, StoreError> {
        let (row, uid) = (&traced.row, &traced.row.state.uid);
        let pod = self.reader.pod(&row.key).await?;
        let pod = pod.filter(|pod| pod.state.uid == *uid);
        let identity = self.reader.identity(&row.key, Some(row), None).await?;
        if let Some(outcome) = self.not_due(pod.as_ref(), row, identity).await? {
            return Ok(outcome);
        }
        let key = self.record_key(row);
        let endpoint = self.reader.endpoint(&key).await?;
        let status = endpoint.as_ref().map(|endpoint| &endpoint.status);
        let TraceRelease::Release {
            uid,
            held,
            delete_endpoint,
        } = plan_trace_release(uid, status, identity)
        else {
            return Ok(Outcome::Done);
        };
        let garbage = held.into_iter().map(|held| Garbage {
            pool: held.pool,
            address: held.address,
            uid: uid.clone(),
            key: key.clone(),
            node: status.and_then(|status| {
                Some(status.current.node.clone()).filter(|node| !node.is_empty())
            }),
            why: if pod.is_some() {
                "its Pod has ended"
            } else {
                "its Pod is gone"
            },
        });
        let garbage: Vec<Garbage> = garbage.collect();
        let outcome = self.free_traced(&garbage).await;
        if let (Outcome::Done, Some(endpoint)) = (&outcome, &endpoint) {
            self.end_endpoint(endpoint, pod.is_none() || delete_endpoint)
                .await?;
        }
        Ok(outcome)
    }

    /// What to do instead of a release, by how the Pod is now.
    async fn not_due(
        &self,
        pod: Option<&PodRow>,
        row: &PodRow,
        identity: Option<Static>,
    ) -> Result<Option<Outcome>, StoreError> {
        let now = self.now();
        let ending = pod.map_or(Ending::Deleted, changed);
        let node = match pod {
            Some(pod) => self.reader.node(&pod.node).await?,
            None => NodeState::Missing,
        };
        Ok(
            match trace(&self.knobs, ending, row.host_network, identity, node, now) {
                Trace::None => Some(Outcome::Done),
                // It went when the watch saw it go, and that is long enough ago.
                Trace::Due(_) if pod.is_none() => None,
                Trace::Due(due) if due > now => Some(Outcome::Later(due)),
                Trace::Due(_) => None,
            },
        )
    }

    async fn free_traced(&self, garbage: &[Garbage]) -> Outcome {
        let freed = self.free_all(garbage).await;
        let (mut failed, mut deferred) = (0, false);
        for one in garbage {
            let place = (one.pool.clone(), one.address);
            if freed.gone.contains(&place) {
                self.metrics.freed.inc();
            } else if freed.deferred.contains(&place) {
                deferred = true;
            } else {
                self.metrics.not_freed.inc();
                failed += 1;
            }
        }
        match (failed, deferred) {
            (0, false) => Outcome::Done,
            (0, true) => Outcome::Deferred,
            _ => Outcome::Failed,
        }
    }

    /// The object goes with its Pod; one whose Pod is still there is left to who owns it.
    async fn end_endpoint(
        &self,
        endpoint: &SpiderEndpoint,
        delete: bool,
    ) -> Result<(), StoreError> {
        if delete {
            self.remove_endpoint(endpoint).await;
            return Ok(());
        }
        self.let_go(endpoint).await
    }

    /// Key of a Pod's endpoint and records.
    fn record_key(&self, row: &PodRow) -> ObjectKey {
        match self.reader.sticky().of_owner(&row.owner) {
            Some(Sticky::VirtualMachine) => ObjectKey::new(&row.key.namespace, &row.owner.name),
            Some(Sticky::StatefulSet) | None => row.key.clone(),
        }
    }
}

fn changed(row: &PodRow) -> Ending<'_> {
    Ending::Changed {
        pod: &row.state,
        finished: row.finished,
        grace: row.grace,
    }
}
