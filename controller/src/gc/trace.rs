//! The trace of Pods that end (spec ipam 6.2): from the watch into a table of due times, and what is
//! released when one is due, after the API was asked.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::{StreamExt, stream};
use jiff::Timestamp;
use spiderpool_api::endpoint::SpiderEndpoint;
use spiderpool_ipam::gc::{
    Ending, Knobs, NodeState, Static, Trace, TraceRelease, plan_trace_release, trace,
};
use spiderpool_ipam::sticky::Sticky;
use tokio::time::{Instant, sleep, timeout};

use super::first_seen::FirstSeen;
use super::follow::PodChange;
use super::pod_row::PodRow;
use super::{Garbage, Gc, TAKEOVER, worst_node};
use crate::chain::full;
use crate::objects::{ObjectKey, StoreError};

/// The shortest pause between two looks for what is due.
const MIN_GAP: Duration = Duration::from_millis(100);
/// What is due later is looked at again after this time.
const LONGEST: Duration = Duration::from_secs(24 * 3600);
/// A kubelet makes a mirror anew within seconds, and tells its addresses a little later.
const MIRROR_RETURN: Duration = Duration::from_secs(60);

/// A Pod that ends.
#[derive(Debug, Clone)]
struct Traced {
    row: Arc<PodRow>,
    due: Instant,
    gone: bool,
    tries: u32,
}

/// Pods that end, by UID.
#[derive(Debug)]
pub(super) struct Traces {
    table: Mutex<BTreeMap<String, Traced>>,
    capacity: usize,
    /// Pods that are being deleted or have ended, by UID.
    endings: FirstSeen<String>,
    /// Mirrors of static Pods that went, by UID.
    mirrors: FirstSeen<String>,
}

/// What came of one that was due.
enum Outcome {
    /// Nothing is left to do.
    Done,
    /// It has so much time left.
    Later(Duration),
    /// Somebody else is at work on it.
    Deferred,
    /// It failed, with a log line.
    Failed,
}

impl Traces {
    pub(super) fn new(capacity: u32) -> Self {
        Self {
            table: Mutex::default(),
            endings: FirstSeen::default(),
            mirrors: FirstSeen::default(),
            capacity: usize::try_from(capacity).unwrap_or(usize::MAX),
        }
    }

    /// Takes a change of a Pod in. How its node is, and whether its identity still exists, is asked
    /// when it is due.
    pub(super) fn note(&self, knobs: &Knobs, change: &PodChange, now: Timestamp) {
        let (PodChange::Is(row) | PodChange::Gone(row)) = change;
        let gone = matches!(change, PodChange::Gone(_));
        let watched = self.watch(row, gone);
        if row.mirrored.is_some() && (gone || row.state.deletion.is_some()) {
            // The object says nothing about the containers; the scan sees what comes after it.
            self.lock().remove(&row.state.uid);
            if gone {
                self.mirrors.forget_older(MIRROR_RETURN);
                self.mirrors.see(row.state.uid.clone());
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
        let Some(wait) = wait(due, now, watched) else {
            table.remove(uid);
            return;
        };
        if !table.contains_key(uid) && table.len() >= self.capacity {
            tracing::warn!(pod = %row.key, "too many Pods end at once: this one is left to the scan");
            return;
        }
        let traced = Traced {
            row: Arc::clone(row),
            due: Instant::now() + wait,
            gone,
            tries: 0,
        };
        table.insert(uid.clone(), traced);
    }

    /// How long the Pod has been seen to end.
    fn watch(&self, row: &PodRow, gone: bool) -> Duration {
        let uid = &row.state.uid;
        if gone || !row.state.is_ending() {
            self.endings.forget(uid.as_str());
            return Duration::ZERO;
        }
        self.endings.see(uid.clone())
    }

    /// How long the Pod of this UID has been seen to end.
    pub(super) fn watched(&self, uid: &str) -> Duration {
        self.endings.age(uid).unwrap_or_default()
    }

    /// Whether this was a static Pod whose mirror has just gone: the next one, and the address it shows,
    /// may be on the way.
    pub(super) fn awaits_mirror(&self, uid: &str) -> bool {
        let gone = self.mirrors.age(uid);
        gone.is_some_and(|age| age < MIRROR_RETURN)
    }

    fn due(&self, most: usize) -> Vec<Traced> {
        let (now, table) = (Instant::now(), self.lock());
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
            let due = self.traces.due(most);
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
        let again = |wait| Traced {
            due: Instant::now() + wait,
            ..traced.clone()
        };
        let next = match outcome {
            Outcome::Done => None,
            Outcome::Later(wait) => Some(again(wait)),
            Outcome::Deferred => Some(again(TAKEOVER)),
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
        if self.is_shared(row, &key).await? {
            return Ok(Outcome::Done);
        }
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
            endpoint: status.map(|status| status.current.clone()),
            pod_node: Some(row.node.clone()),
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

    /// Whether another Pod of a machine may run on its addresses yet, as after a migration that failed: the
    /// end of that one frees them, or the scan.
    async fn is_shared(&self, row: &PodRow, key: &ObjectKey) -> Result<bool, StoreError> {
        let machine = self.reader.sticky().of_owner(&row.owner) == Some(Sticky::VirtualMachine);
        Ok(machine && self.reader.runs_elsewhere(key, &row.state.uid).await?)
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
        let due = trace(&self.knobs, ending, row.host_network, identity, node, now);
        let watched = self.traces.watched(&row.state.uid);
        Ok(match wait(due, now, watched) {
            None => Some(Outcome::Done),
            // It went when the watch saw it go, and that is long enough ago.
            Some(_) if pod.is_none() => None,
            Some(wait) => (!wait.is_zero()).then_some(Outcome::Later(wait)),
        })
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

/// How long until a trace is due, for a Pod that has been seen to end for so long already.
fn wait(due: Trace, now: Timestamp, watched: Duration) -> Option<Duration> {
    let Trace::Due {
        at,
        watched: needed,
    } = due
    else {
        return None;
    };
    let left = Duration::try_from(at.duration_since(now)).unwrap_or_default();
    let unwatched = Duration::try_from(needed).unwrap_or_default();
    Some(left.max(unwatched.saturating_sub(watched)).min(LONGEST))
}

fn changed(row: &PodRow) -> Ending<'_> {
    Ending::Changed {
        pod: &row.state,
        finished: row.finished,
        grace: row.grace,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gc::pod_row::RawPod;
    use jiff::SignedDuration;
    use serde_json::json;
    use tokio::time::advance;

    fn terminating(grace: i64, at: &str) -> PodChange {
        let pod = json!({"metadata": {"namespace": "ns", "name": "a", "uid": "u-1",
                "deletionTimestamp": at, "deletionGracePeriodSeconds": grace},
            "status": {"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}]}});
        let raw: RawPod = serde_json::from_value(pod).unwrap();
        PodChange::Is(Arc::new(raw.into()))
    }

    /// Traces what ends at 10:00:30, seen at `now`; the seconds until it is due.
    async fn due_after(now: &str, changes: &[(i64, &str)]) -> u64 {
        let (knobs, traces) = (Knobs::default(), Traces::new(10));
        let mut wall: Timestamp = now.parse().unwrap();
        let (second, mut waited) = (Duration::from_secs(1), 0);
        for (grace, at) in changes {
            if *at != changes[0].1 {
                advance(10 * second).await;
                wall += SignedDuration::from_secs(10);
                waited += 10;
            }
            traces.note(&knobs, &terminating(*grace, at), wall);
        }
        while traces.due(1).is_empty() {
            advance(second).await;
            waited += 1;
        }
        waited
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_has_its_grace_by_both_clocks() {
        let (end, sooner) = ("2027-01-05T10:00:30Z", "2027-01-05T10:00:17Z");
        // As the table says: deletionTimestamp, its grace, the delay.
        assert_eq!(due_after("2027-01-05T10:00:00Z", &[(30, end)]).await, 65);
        // First seen late, or by a clock that was set forward.
        for now in ["2027-01-05T10:30:00Z", "2099-01-05T10:30:00Z"] {
            assert_eq!(due_after(now, &[(30, end)]).await, 35);
            // It was seen to end ten seconds before its grace became shorter.
            assert_eq!(due_after(now, &[(30, end), (7, sooner)]).await, 12);
        }
        // By a clock that is behind: as long as that takes.
        assert_eq!(due_after("2027-01-05T09:59:00Z", &[(30, end)]).await, 125);
    }
}
