//! The scan of all records (spec ipam 6.3): pools page by page, each record judged by what the watches
//! know; what looks like garbage is read past them, judged again, and freed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::PoisonError;
use std::time::Duration;

use futures::{StreamExt, stream};
use jiff::SignedDuration;
use spiderpool_api::allocation::Record;
use spiderpool_api::endpoint::SpiderEndpoint;
use spiderpool_ipam::gc::{Facts, Free, Static, Verdict, judge};
use tokio::time::Instant;

use super::pod_row::PodRow;
use super::read::{Launchers, key_of};
use super::{Garbage, Gc, worst_node};
use crate::chain::full;
use crate::objects::pool::PoolObject;
use crate::objects::{ObjectKey, StoreError};

/// A scan that failed is made again so soon.
const SOON: Duration = Duration::from_secs(10);

/// A record that may be garbage.
#[derive(Debug, Clone)]
struct Suspect {
    pool: String,
    address: IpAddr,
    record: Record,
}

/// What the records of all pools say.
#[derive(Debug, Default)]
pub(super) struct Found {
    suspects: Vec<Suspect>,
    /// Keys with a record; whether one of them is of the UID of the living Pod.
    pub(super) keys: HashMap<Box<str>, bool>,
    /// When the first of the markers of others may be taken over.
    takeover: Option<Instant>,
    records: usize,
}

/// A suspect's verdict.
enum Confirmed {
    /// It stays; the endpoint may go all the same.
    Kept(Option<SpiderEndpoint>),
    /// It goes, and the endpoint with the last record.
    Garbage(Box<Garbage>, Option<SpiderEndpoint>),
    /// Something could not be read.
    Unknown,
}

/// What came of garbage of several pools, by pool and address; the rest has failed.
#[derive(Debug, Default)]
pub(super) struct Places {
    pub(super) gone: BTreeSet<(String, IpAddr)>,
    pub(super) deferred: BTreeSet<(String, IpAddr)>,
}

/// An endpoint that goes when all of these are gone.
struct Leaving {
    endpoint: SpiderEndpoint,
    held: Vec<(String, IpAddr)>,
}

impl Gc {
    /// Scans; the answer is when to scan again.
    pub(super) async fn scan_once(&self) -> Duration {
        match self.scan().await {
            Ok(wait) => {
                *self.scanned.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
                wait
            }
            Err(error) => {
                tracing::warn!("the scan has failed and freed nothing: {}", full(&error));
                SOON.min(self.period())
            }
        }
    }

    async fn scan(&self) -> Result<Duration, StoreError> {
        let begun = Instant::now();
        self.marks.forget_old();
        let mut found = Found::default();
        self.pools
            .list(|object| self.look_at(&object, &mut found))
            .await?;
        let suspects = std::mem::take(&mut found.suspects);
        let (records, suspected) = (found.records, suspects.len());
        let (freed, unknown) = self.free_suspects(suspects).await;
        self.scan_endpoints(&found).await?;
        tracing::info!(
            records,
            suspected,
            freed,
            unknown,
            ms = begun.elapsed().as_millis(),
            "scanned all records"
        );
        Ok(self.next_scan(found.takeover))
    }

    /// In time for the first marker that may be taken over.
    fn next_scan(&self, takeover: Option<Instant>) -> Duration {
        let period = self.period();
        let until = takeover.map(|at| at.saturating_duration_since(Instant::now()));
        until.map_or(period, |until| until.max(SOON).min(period))
    }

    /// Judges the records of a pool by what the watches know.
    fn look_at(&self, object: &PoolObject, found: &mut Found) {
        let pool = match object.pool() {
            Ok(pool) => pool,
            Err(error) => {
                tracing::warn!(
                    pool = object.name(),
                    "its records are left alone: {}",
                    full(error.as_ref())
                );
                return;
            }
        };
        let now = self.now();
        for (address, record) in pool.records.iter() {
            found.records += 1;
            if let Some(left) = self.marked(&pool.name, address, record, now) {
                let at = Instant::now() + left;
                found.takeover = Some(found.takeover.map_or(at, |known| known.min(at)));
            }
            let Ok(key) = key_of(record) else { continue };
            let row = self.pods.of(&key, &record.pod_uid);
            let own = row
                .as_ref()
                .is_some_and(|row| row.state.uid == record.pod_uid);
            let entry = found.keys.entry(record.pod.as_str().into()).or_default();
            *entry |= own;
            let kind = row
                .as_ref()
                .and_then(|row| self.reader.sticky().of_owner(&row.owner));
            let facts = Facts {
                record,
                pod: row.as_ref().map(|row| &row.state),
                direct: false,
                endpoint_uid: None,
                listed: false,
                reported: false,
                // Whether it still exists, and how the node is, is asked when something depends on it.
                identity: kind.map(|kind| Static { kind, valid: false }),
                node: worst_node(&self.knobs),
                actor: &self.actor,
                now,
                ending_for: self.watched(row.as_deref()),
            };
            let garbage = matches!(judge(&self.knobs, &facts), Verdict::Confirm(_));
            if garbage && !self.traces.awaits_mirror(&record.pod_uid) {
                found.suspects.push(Suspect {
                    pool: pool.name.clone(),
                    address,
                    record: record.clone(),
                });
            }
        }
    }

    /// How long the Pod has been seen to end.
    fn watched(&self, row: Option<&PodRow>) -> SignedDuration {
        let ending = row.filter(|row| row.state.is_ending());
        let watched = ending.map(|row| self.traces.watched(&row.state.uid));
        SignedDuration::try_from(watched.unwrap_or_default()).unwrap_or(SignedDuration::MAX)
    }

    /// The answer is how many records were freed, and about how many nothing could be found out.
    async fn free_suspects(&self, suspects: Vec<Suspect>) -> (usize, usize) {
        let launchers = Launchers::default();
        let confirmed = stream::iter(suspects)
            .map(|suspect| self.confirm(suspect, &launchers))
            .buffered(usize::try_from(self.knobs.workers).unwrap_or(1).max(1));
        let confirmed: Vec<Confirmed> = confirmed.collect().await;
        let unknown = confirmed
            .iter()
            .filter(|one| matches!(one, Confirmed::Unknown))
            .count();
        let mut garbage = Vec::new();
        let mut leaving: BTreeMap<ObjectKey, Leaving> = BTreeMap::new();
        for one in confirmed {
            match one {
                Confirmed::Garbage(one, endpoint) => {
                    if let Some(endpoint) = endpoint {
                        let leaving = leaving.entry(one.key.clone());
                        let held = &mut leaving.or_insert_with(|| Leaving::new(endpoint)).held;
                        held.push((one.pool.clone(), one.address));
                    }
                    garbage.push(*one);
                }
                Confirmed::Kept(Some(endpoint)) => self.remove_endpoint(&endpoint).await,
                Confirmed::Kept(None) | Confirmed::Unknown => {}
            }
        }
        let gone = self.free_all(&garbage).await.gone;
        for Leaving { endpoint, held } in leaving.into_values() {
            if held.iter().all(|one| gone.contains(one)) {
                self.remove_endpoint(&endpoint).await;
            }
        }
        (gone.len(), unknown)
    }

    /// Frees garbage of any pools. IPv6 pools come last: the halves of pairs go with the others.
    pub(super) async fn free_all(&self, garbage: &[Garbage]) -> Places {
        let mut by_pool: BTreeMap<(bool, &str), Vec<&Garbage>> = BTreeMap::new();
        for one in garbage {
            let pool = (one.address.is_ipv6(), one.pool.as_str());
            by_pool.entry(pool).or_default().push(one);
        }
        let mut places = Places::default();
        for ((_, pool), garbage) in by_pool {
            let freed = self.free(pool, &garbage).await;
            let place = |address| (pool.to_owned(), address);
            places.gone.extend(freed.gone.into_iter().map(place));
            places
                .deferred
                .extend(freed.deferred.into_iter().map(place));
        }
        places
    }

    /// Reads past the watches and judges again.
    async fn confirm(&self, suspect: Suspect, launchers: &Launchers) -> Confirmed {
        let _worker = self.worker().await;
        let Suspect {
            pool,
            address,
            record,
        } = suspect;
        let hint = key_of(&record).ok();
        let hint = hint.and_then(|key| self.pods.of(&key, &record.pod_uid));
        let hint = hint.as_ref().map(|row| &row.key);
        let read = self.reader.direct(address, &record, hint, launchers).await;
        let direct = match read {
            Ok(direct) => direct,
            Err(error) => {
                let pod = &record.pod;
                tracing::warn!(pod, ip = %address, pool, "the record is left alone: {}", full(&error));
                return Confirmed::Unknown;
            }
        };
        let watched = self.watched(direct.pod.as_ref());
        match direct.judge(&self.knobs, &record, &self.actor, self.now(), watched) {
            Verdict::Free { why, endpoint } => {
                let Ok(key) = key_of(&record) else {
                    return Confirmed::Unknown;
                };
                let garbage = Garbage {
                    pool,
                    address,
                    node: direct.node_of(&record.pod_uid),
                    endpoint: direct.told(),
                    pod_node: direct.pod_node(&record.pod_uid),
                    uid: record.pod_uid,
                    key,
                    why: Free::reason(why),
                };
                Confirmed::Garbage(Box::new(garbage), direct.endpoint.filter(|_| endpoint))
            }
            Verdict::Keep {
                stale_endpoint: true,
                ..
            } => Confirmed::Kept(direct.endpoint),
            _ => Confirmed::Kept(None),
        }
    }
}

impl Leaving {
    const fn new(endpoint: SpiderEndpoint) -> Self {
        Self {
            endpoint,
            held: Vec::new(),
        }
    }
}
