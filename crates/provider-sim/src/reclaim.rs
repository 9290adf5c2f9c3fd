//! Gives idle cache back to the cloud in the order that cannot take an address from under a Pod
//! (P13): announce, look at the claims again, detach. [`choose`] says which, [`rounds`] when; a full
//! parent NIC makes room at once (P14).

mod choose;
mod rounds;

use std::net::IpAddr;
use std::time::Duration;

use spiderpool_api::causes::with_causes;
use spiderpool_api::ip_meta::{EntryState, Metadata};
use spiderpool_api::value::Mac;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use crate::cloud::{State, SubEni};
use crate::memory::Chosen;
use crate::pool::Pool;
use crate::service::Service;

pub use self::rounds::Reclaimed;

/// A wait no rate in its right mind asks for.
const NEVER: Duration = Duration::from_secs(86_400);

/// What became of one sub-ENI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// It went.
    Gone,
    /// Somebody claimed it meanwhile, or had it in hand: it stays as it was.
    Kept,
    /// The cloud or the API server failed: it stays, and may be tried again.
    Failed,
}

impl Service {
    /// Frees a place on a parent NIC if it has none and somebody's is idle; tries no more of them
    /// after `by`. Whether it did shows at the attach.
    pub(crate) async fn make_room(&self, parent: Mac, by: Option<Instant>) {
        let now = self.now();
        let idle = self.with(|world| world.idle_on_full(parent, now));
        for sub_eni in idle {
            if by.is_some_and(|by| Instant::now() >= by) {
                return;
            }
            if self.detach_idle(&sub_eni).await == Outcome::Gone {
                info!(mac = %sub_eni.mac, %parent, "idle sub-ENI detached to make room");
                return;
            }
        }
    }

    /// Detaches an idle sub-ENI unless somebody claims it first.
    async fn detach_idle(&self, sub_eni: &SubEni) -> Outcome {
        let Some(key) = sub_eni.address() else {
            return Outcome::Kept;
        };
        // Without waiting: the caller may hold turns, and an address in turn is not idle.
        let Some(_turn) = self.locks.try_lock(key) else {
            return Outcome::Kept;
        };
        let now = self.now();
        let announced = self.with(|world| world.announce(sub_eni, key, now));
        if !announced {
            return Outcome::Kept;
        }
        let outcome = self.detach_announced(sub_eni).await;
        self.with(|world| world.memory.chosen.remove(&key));
        if outcome != Outcome::Gone {
            // back to what was published before, at once: a Pod may wait for it
            self.publish_one(&sub_eni.pool).await;
        }
        self.changed.notify_one();
        outcome
    }

    async fn detach_announced(&self, sub_eni: &SubEni) -> Outcome {
        if !self.publish_one(&sub_eni.pool).await {
            return Outcome::Failed;
        }
        match self.is_free(sub_eni, Entry::Leaving).await {
            Some(true) => {}
            Some(false) => return Outcome::Kept,
            None => return Outcome::Failed,
        }
        match self.detach(sub_eni.mac, None).await {
            Ok(()) => Outcome::Gone,
            Err(cause) => {
                warn!(mac = %sub_eni.mac, %cause, "an idle sub-ENI is not detached");
                Outcome::Failed
            }
        }
    }

    /// Deletes a detached sub-ENI unless somebody claims it. Whoever claims it later finds no
    /// sub-ENI and makes one: its entry promises nothing.
    async fn delete_idle(&self, sub_eni: &SubEni) -> Outcome {
        let Some(_turn) = sub_eni.address().and_then(|key| self.locks.try_lock(key)) else {
            return Outcome::Kept;
        };
        let state = self.with(|world| world.cloud.get(sub_eni.mac).map(|found| found.state));
        if state != Some(State::Unbound) {
            return Outcome::Kept;
        }
        match self.is_free(sub_eni, Entry::Any).await {
            Some(true) => {}
            Some(false) => return Outcome::Kept,
            None => return Outcome::Failed,
        }
        match self.delete(sub_eni.mac, None).await {
            Ok(()) => Outcome::Gone,
            Err(cause) => {
                warn!(mac = %sub_eni.mac, %cause, "a detached sub-ENI is not deleted");
                Outcome::Failed
            }
        }
    }

    /// Waits for a turn of the reclaim's own rate (P6).
    async fn pace(&self) {
        let now = self.now();
        let wait = self.with(|world| world.reclaim_bucket.take(now, Duration::MAX));
        sleep(wait.unwrap_or(NEVER)).await;
    }

    /// Whether nobody claims a sub-ENI and its entry is as it has to be; `None` when that cannot
    /// be read. Asks the API server: what the watch brought may be old.
    pub(crate) async fn is_free(&self, sub_eni: &SubEni, entry: Entry) -> Option<bool> {
        let publisher = self.publisher.as_ref()?;
        let sibling = self.with(|world| {
            let pool = world.memory.pools.get(&sub_eni.pool);
            pool.and_then(|pool| pool.pair.clone())
        });
        for name in [Some(sub_eni.pool.clone()), sibling].into_iter().flatten() {
            let object = match publisher.pools().get_opt(&name).await {
                Ok(object) => object,
                Err(cause) => {
                    warn!(pool = name, cause = %with_causes(&cause), "claims cannot be read");
                    return None;
                }
            };
            let Some(pool) = object.as_ref().and_then(Pool::of_object) else {
                continue;
            };
            if pool.claims.keys().any(|ip| sub_eni.has(*ip)) {
                return Some(false);
            }
            if name == sub_eni.pool && !entry.fits(&pool, sub_eni) {
                return None;
            }
        }
        Some(true)
    }
}

impl Service {
    /// Publishes, and finds that nobody will be given this sub-ENI from now on. False: it may be.
    pub(crate) async fn is_withdrawn(&self, sub_eni: &SubEni) -> bool {
        let Some(publisher) = &self.publisher else {
            return true;
        };
        // version 1 knows no pools: nothing is published of an address that is in none of ours
        if sub_eni.pool.is_empty() {
            return true;
        }
        if !self.publish_one(&sub_eni.pool).await {
            return false;
        }
        match publisher.pools().get_opt(&sub_eni.pool).await {
            Ok(object) => {
                let pool = object.as_ref().and_then(Pool::of_object);
                pool.is_none_or(|pool| Entry::Leaving.fits(&pool, sub_eni))
            }
            Err(cause) => {
                warn!(pool = sub_eni.pool, cause = %with_causes(&cause), "metadata cannot be read");
                false
            }
        }
    }
}

/// What has to be published of a sub-ENI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entry {
    /// No matter.
    Any,
    /// Nothing an agent would give to a Pod.
    Leaving,
}

impl Entry {
    /// A stalled publication must not be taken for an announcement.
    fn fits(self, pool: &Pool, sub_eni: &SubEni) -> bool {
        let (Self::Leaving, Some(published)) = (self, &pool.published) else {
            return true;
        };
        // what is of another generation or cannot be read is not allocated from either
        if published.generation != pool.generation {
            return true;
        }
        let Ok(read) = Metadata::decode(&published.metadata) else {
            return true;
        };
        let key = sub_eni.address();
        let entry = key.and_then(|key: IpAddr| read.entries.get(&key));
        entry.is_none_or(|entry| !matches!(entry.state, EntryState::Attached { .. }))
    }
}

impl crate::service::World {
    /// Marks a sub-ENI as leaving if it is still where it was seen.
    fn announce(&mut self, seen: &SubEni, key: IpAddr, now: Duration) -> bool {
        if self.cloud.get(seen.mac).map(|found| found.state) != Some(seen.state) {
            self.memory.chosen.remove(&key);
            return false;
        }
        let chosen = Chosen {
            at: now,
            leaving: false,
        };
        self.memory.chosen.entry(key).or_insert(chosen).leaving = true;
        true
    }
}
