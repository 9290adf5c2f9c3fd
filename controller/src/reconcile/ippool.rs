//! Pools: `status.totalIPCount`, an initial `status.allocatedIPCount`, and the finalizer of a pool
//! that is being deleted and has no record left (spec ipam 6.6). The owner of a pool that overlaps an
//! older one is told ([`overlap`]).
//!
//! Watches metadata alone: a pool with many records is large, and changes with each ADD. It is read
//! when it appears, when its specification changes, at each change while it is being deleted, and
//! again after the resync time. One that cannot be brought in line does not hold up the others.

mod overlap;

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt};
use kube::api::{Patch, PatchParams};
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use spiderpool_api::allocation::Records;
use spiderpool_api::ippool::SpiderIPPool;
use spiderpool_ipam::range_set::RangeSet;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::finalizer;
use crate::chain::full;
use crate::client::bounded;
use crate::complaints::Complaints;
use crate::events::{Events, Note};
use crate::followed::follow;
use crate::objects::parsed::{Parsed, Unreadable, shown};
use overlap::Index;

/// Between two tries of a pool that could not be brought in line.
const RETRY: Duration = Duration::from_secs(5);
/// Writes of one pool in a row that may meet somebody else's.
const TRIES: u32 = 5;
/// `reason` of the event on a pool that gives out nothing.
const OVERLAP: &str = "IPPoolOverlap";

/// A pool could not be brought in line; which one is said with it.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    /// The API's words.
    #[error("cannot {tried} it")]
    Api {
        /// Verb.
        tried: &'static str,
        /// What it answered.
        source: Box<kube::Error>,
    },
    /// It is no pool object.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
}

impl ReconcileError {
    fn new(tried: &'static str, source: kube::Error) -> Self {
        Self::Api {
            tried,
            source: Box::new(source),
        }
    }
}

/// What a pool lacks.
#[derive(Debug, Clone, PartialEq)]
enum Change {
    /// Nothing.
    None,
    /// Fields of the status.
    Status(Value),
    /// Our finalizer has nothing to wait for.
    DropFinalizer(Value),
}

/// What becomes known of pools, for whoever looks at them too.
#[derive(Debug)]
pub enum News {
    /// A pool as it is.
    Is(Arc<SpiderIPPool>),
    /// A pool that cannot be read now.
    Unknown(String),
    /// A pool that is gone.
    Gone(String),
    /// Those were all.
    Listed,
}

/// Follows all pools until told to stop. Each is looked at again after `resync`.
pub async fn run(client: Client, events: Events, resync: Duration, stop: CancellationToken) {
    run_telling(client, events, resync, stop, |_| ()).await;
}

/// The same, and hands on what becomes known of each.
pub async fn run_telling(
    client: Client,
    events: Events,
    resync: Duration,
    stop: CancellationToken,
    tell: impl Fn(News),
) {
    let client = bounded(client);
    let watched: Api<PartialObjectMeta<SpiderIPPool>> = Api::all(client.clone());
    let watched = follow(watched, watcher::Config::default(), "SpiderIPPools");
    let mut pools = Pools {
        api: Api::all(client),
        events,
        resync,
        index: Index::default(),
        seen: BTreeMap::new(),
        complaints: Complaints::default(),
        tell,
    };
    tokio::select! {
        () = pools.follow(watched) => {}
        () = stop.cancelled() => {}
    }
}

/// What decides whether a pool has to be read.
#[derive(Debug, Clone, PartialEq)]
struct Mark {
    uid: Option<String>,
    generation: Option<i64>,
    /// While it is being deleted every change counts.
    dying: Option<Option<String>>,
}

impl Mark {
    fn of(pool: &PartialObjectMeta<SpiderIPPool>) -> Self {
        let meta = &pool.metadata;
        let dying = meta.deletion_timestamp.is_some();
        Self {
            uid: meta.uid.clone(),
            generation: meta.generation,
            dying: dying.then(|| meta.resource_version.clone()),
        }
    }
}

struct Seen {
    mark: Mark,
    /// When it is looked at next.
    due: Instant,
    /// Of which listing it was a part.
    listing: u64,
}

struct Pools<T> {
    api: Api<Parsed<SpiderIPPool>>,
    events: Events,
    resync: Duration,
    index: Index,
    seen: BTreeMap<String, Seen>,
    complaints: Complaints,
    tell: T,
}

type Watched = Result<Event<PartialObjectMeta<SpiderIPPool>>, watcher::Error>;

impl<T: Fn(News)> Pools<T> {
    async fn follow(&mut self, watched: impl Stream<Item = Watched>) {
        let mut watched = pin!(watched);
        let mut listing = 0;
        loop {
            let next = self.seen.values().map(|seen| seen.due).min();
            // With no pool there is nothing to wait for.
            let next = next.unwrap_or_else(|| Instant::now() + self.resync);
            let event = tokio::select! {
                biased;
                event = watched.next() => event,
                () = sleep_until(next) => {
                    self.look_at_due().await;
                    continue;
                }
            };
            match event {
                Some(Ok(Event::Init)) => listing += 1,
                Some(Ok(Event::InitApply(pool) | Event::Apply(pool))) => {
                    self.changed(&pool, listing).await;
                }
                Some(Ok(Event::InitDone)) => {
                    self.forget_unless_of(listing);
                    (self.tell)(News::Listed);
                }
                Some(Ok(Event::Delete(pool))) => self.forget(&pool.name_any()),
                // It begins anew, and has said why.
                Some(Err(_)) => {}
                // A watch begins anew for ever.
                None => return,
            }
        }
    }

    async fn changed(&mut self, pool: &PartialObjectMeta<SpiderIPPool>, listing: u64) {
        let (name, mark) = (pool.name_any(), Mark::of(pool));
        if let Some(seen) = self.seen.get_mut(&name)
            && seen.mark == mark
        {
            seen.listing = listing;
            return;
        }
        let due = Instant::now() + self.resync;
        let seen = Seen { mark, due, listing };
        self.seen.insert(name.clone(), seen);
        self.look(&name, false).await;
    }

    async fn look_at_due(&mut self) {
        let now = Instant::now();
        let due = self.seen.iter().filter(|(_, seen)| seen.due <= now);
        let due: Vec<String> = due.map(|(name, _)| name.clone()).collect();
        for name in due {
            self.look(&name, true).await;
        }
    }

    async fn look(&mut self, name: &str, again: bool) {
        let looked = reconcile(&self.api, name).await;
        let about = shown::<SpiderIPPool>(None, name);
        let wait = match &looked {
            Ok(_) => {
                self.complaints.over(&about);
                self.resync
            }
            Err(error) => {
                self.complaints.say(&about, &full(error));
                (self.tell)(News::Unknown(name.to_owned()));
                RETRY.min(self.resync)
            }
        };
        if let Some(seen) = self.seen.get_mut(name) {
            seen.due = Instant::now() + wait;
        }
        let Ok(Some(pool)) = looked else {
            return;
        };
        (self.tell)(News::Is(Arc::clone(&pool)));
        for loser in self.index.put(&pool, usable(&pool), again) {
            let note = Note {
                reason: OVERLAP,
                action: "Reconcile",
                text: &loser.text,
                related: Some(loser.winner),
            };
            self.events.warn(&loser.about, note).await;
        }
    }

    fn forget(&mut self, name: &str) {
        self.seen.remove(name);
        self.index.remove(name);
        (self.tell)(News::Gone(name.to_owned()));
        self.complaints.forget(&shown::<SpiderIPPool>(None, name));
    }

    /// What a listing did not name is gone.
    fn forget_unless_of(&mut self, listing: u64) {
        let gone = self.seen.iter().filter(|(_, seen)| seen.listing != listing);
        let gone: Vec<String> = gone.map(|(name, _)| name.clone()).collect();
        for name in gone {
            self.forget(&name);
        }
    }
}

/// Brings one pool in line with its specification; the pool as it was read, `None` when it is gone.
///
/// # Errors
/// [`ReconcileError`], a conflict only when others kept changing the pool.
async fn reconcile(
    pools: &Api<Parsed<SpiderIPPool>>,
    name: &str,
) -> Result<Option<Arc<SpiderIPPool>>, ReconcileError> {
    let mut tries = 0;
    loop {
        let read = pools.get_opt(name).await;
        let Some(found) = read.map_err(|error| ReconcileError::new("read", error))? else {
            return Ok(None);
        };
        let pool = found.object?;
        let (tried, written) = match change(&pool) {
            Change::None => return Ok(Some(pool)),
            Change::Status(status) => (
                "write the status of",
                write_status(pools, &pool, &status).await,
            ),
            Change::DropFinalizer(patch) => {
                let params = PatchParams::default();
                let patched = pools.patch(name, &params, &Patch::Merge(&patch)).await;
                ("take the finalizer off", patched.map(drop))
            }
        };
        tries += 1;
        match written {
            Ok(()) => return Ok(Some(pool)),
            // An agent wrote a record meanwhile; the status is ours all the same.
            Err(kube::Error::Api(status)) if status.code == 409 && tries < TRIES => {}
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(None),
            Err(error) => return Err(ReconcileError::new(tried, error)),
        }
    }
}

async fn write_status(
    pools: &Api<Parsed<SpiderIPPool>>,
    pool: &SpiderIPPool,
    status: &Value,
) -> Result<(), kube::Error> {
    // Conditional: the specification the count is of must still be the stored one.
    let patch = json!({"metadata": {"resourceVersion": pool.resource_version()}, "status": status});
    let patch = Patch::Merge(patch);
    let (name, params) = (pool.name_any(), PatchParams::default());
    pools.patch_status(&name, &params, &patch).await.map(drop)
}

fn change(pool: &SpiderIPPool) -> Change {
    let status = pool.status.clone().unwrap_or_default();
    if pool.metadata.deletion_timestamp.is_some() {
        // Absent, empty and `{}` all mean none (spec api 8.9); what cannot be read may hold some.
        let records = Records::decode(status.allocated_ips.as_deref());
        let empty = records.is_ok_and(|records| records.count() == 0);
        let removal = finalizer::removal(pool).filter(|_| empty);
        return removal.map_or(Change::None, Change::DropFinalizer);
    }
    let mut wanted = serde_json::Map::new();
    if let Some(total) = usable(pool).map(|usable| usable.count())
        && status.total_ip_count != Some(total)
    {
        wanted.insert("totalIPCount".into(), total.into());
    }
    if status.allocated_ip_count.is_none() {
        wanted.insert("allocatedIPCount".into(), 0.into());
    }
    if wanted.is_empty() {
        Change::None
    } else {
        Change::Status(Value::Object(wanted))
    }
}

/// Usable addresses, or nothing for ranges that admission would have refused.
fn usable(pool: &SpiderIPPool) -> Option<RangeSet> {
    RangeSet::usable(pool.spec.ips.as_deref(), pool.spec.exclude_ips.as_deref())
}

#[cfg(test)]
mod tests {
    use spiderpool_api::names;

    use super::*;

    fn pool(spec: Value, status: Value) -> SpiderIPPool {
        let raw = json!({"apiVersion": "spiderpool.spidernet.io/v2beta1", "kind": "SpiderIPPool",
            "metadata": {"name": "p", "finalizers": [names::FINALIZER]}, "spec": spec, "status": status});
        serde_json::from_value(raw).unwrap()
    }

    #[test]
    fn totals_follow_the_specification() {
        let spec = json!({"subnet": "10.0.0.0/24", "ips": ["10.0.0.9-10.0.0.20"], "excludeIPs": ["10.0.0.10"]});
        let want = Change::Status(json!({"totalIPCount": 11, "allocatedIPCount": 0}));
        assert_eq!(change(&pool(spec.clone(), json!({}))), want);
        let status = json!({"totalIPCount": 11, "allocatedIPCount": 4});
        assert_eq!(change(&pool(spec.clone(), status)), Change::None);
        let outdated = json!({"totalIPCount": 12, "allocatedIPCount": 4});
        assert_eq!(
            change(&pool(spec, outdated)),
            Change::Status(json!({"totalIPCount": 11}))
        );
        let unreadable = json!({"subnet": "10.0.0.0/24", "ips": ["ten"]});
        assert_eq!(
            change(&pool(unreadable, json!({"allocatedIPCount": 0}))),
            Change::None
        );
    }

    #[test]
    fn a_dying_pool_waits_for_its_records() {
        let mut dying = pool(
            json!({"subnet": "10.0.0.0/24"}),
            json!({"allocatedIPs": "{\"10.0.0.9\":{}}"}),
        );
        dying.metadata.deletion_timestamp =
            serde_json::from_value(json!("2026-11-29T00:00:00Z")).unwrap();
        assert_eq!(change(&dying), Change::None);
        for none in [json!(null), json!(""), json!("{}")] {
            dying.status = serde_json::from_value(json!({"allocatedIPs": none})).unwrap();
            assert!(matches!(change(&dying), Change::DropFinalizer(_)), "{none}");
        }
        for some in [r#"{"10.0.0.9":{"pod":"a/b","podUid":"u"}}"#, "["] {
            dying.status = serde_json::from_value(json!({"allocatedIPs": some})).unwrap();
            assert_eq!(change(&dying), Change::None, "{some}");
        }
        dying.status = None;
        assert!(matches!(change(&dying), Change::DropFinalizer(_)));
        dying.finalizers_mut().clear();
        assert_eq!(change(&dying), Change::None);
    }
}
