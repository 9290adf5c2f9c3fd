//! What the agent remembers of its own doing between calls, in memory only: which pools hold a
//! Pod's records, how often a NIC failed its validation, which addresses are shunned here, which faults
//! of metadata were told.
//! Losing it costs a slower cleanup, never a wrong one.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use spiderpool_api::ip_meta::BadEntry;
use spiderpool_ipam::batch::TAKEOVER_SECONDS;
use spiderpool_ipam::range_set::RangeSet;
use tokio::time::Instant;

/// Validation failures in a row after which an address is given up (spec dataplane 4.3).
const FAILURES: u32 = 5;
/// How long an address that was given up is not taken again on this node.
const SHUN: Duration = Duration::from_secs(300);

/// How long a release without an answer may still take effect: as long as others leave its mark.
const UNSETTLED: Duration = Duration::from_secs(TAKEOVER_SECONDS.unsigned_abs());

/// The memory.
#[derive(Debug, Default)]
pub struct Memory(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    pools: HashMap<String, BTreeSet<String>>,
    failures: HashMap<(String, String), u32>,
    shunned: HashMap<IpAddr, Instant>,
    unsettled: HashMap<(String, IpAddr), Instant>,
    bad_entries: HashMap<String, Vec<BadEntry>>,
}

impl Memory {
    /// Whether these entries of a pool's metadata were not told of yet.
    pub fn is_news(&self, pool: &str, bad: &[BadEntry]) -> bool {
        let mut inner = self.inner();
        if bad.is_empty() {
            inner.bad_entries.remove(pool);
            return false;
        }
        if inner
            .bad_entries
            .get(pool)
            .is_some_and(|known| known == bad)
        {
            return false;
        }
        inner.bad_entries.insert(pool.to_owned(), bad.to_vec());
        true
    }

    /// A release of this address is being called.
    pub fn calls(&self, pool: &str, address: IpAddr) {
        let key = (pool.to_owned(), address);
        self.inner().unsettled.insert(key, Instant::now());
    }

    /// The call is over: the provider is not at work on it any more.
    pub fn settled(&self, pool: &str, address: IpAddr) {
        let key = (pool.to_owned(), address);
        self.inner().unsettled.remove(&key);
    }

    /// Whether a call of ours may still be on its way. A second one would free the address, and the
    /// first then take it from the next Pod.
    #[must_use]
    pub fn is_unsettled(&self, pool: &str, address: IpAddr) -> bool {
        let mut inner = self.inner();
        let now = Instant::now();
        inner.unsettled.retain(|_, at| *at + UNSETTLED > now);
        let key = (pool.to_owned(), address);
        inner.unsettled.contains_key(&key)
    }

    /// A record of this Pod was written, or is about to be, in this pool.
    pub fn wrote(&self, uid: &str, pool: &str) {
        let mut inner = self.inner();
        let pools = inner.pools.entry(uid.to_owned()).or_default();
        pools.insert(pool.to_owned());
    }

    /// Pools that may hold records of this Pod.
    #[must_use]
    pub fn pools_of(&self, uid: &str) -> BTreeSet<String> {
        self.inner().pools.get(uid).cloned().unwrap_or_default()
    }

    /// The Pod is gone and its records are freed.
    pub fn forget(&self, uid: &str) {
        let mut inner = self.inner();
        inner.pools.remove(uid);
        inner.failures.retain(|(owner, _), _| owner != uid);
    }

    /// The NIC failed its validation; `true` when its addresses have to be given up. Counting
    /// then begins anew.
    #[must_use]
    pub fn failed(&self, uid: &str, nic: &str) -> bool {
        let mut inner = self.inner();
        let key = (uid.to_owned(), nic.to_owned());
        let count = inner.failures.entry(key.clone()).or_default();
        *count += 1;
        let enough = *count >= FAILURES;
        if enough {
            inner.failures.remove(&key);
        }
        enough
    }

    /// The NIC passed, or failed for another reason.
    pub fn passed(&self, uid: &str, nic: &str) {
        let mut inner = self.inner();
        inner.failures.remove(&(uid.to_owned(), nic.to_owned()));
    }

    /// Does not take this address again for five minutes.
    pub fn shun(&self, address: IpAddr) {
        let until = Instant::now() + SHUN;
        self.inner().shunned.insert(address, until);
    }

    /// Addresses that are not taken now.
    #[must_use]
    pub fn shunned(&self) -> RangeSet {
        let mut inner = self.inner();
        let now = Instant::now();
        inner.shunned.retain(|_, until| *until > now);
        inner.shunned.keys().copied().collect()
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn five_in_a_row_give_up_and_shunning_ends() {
        let memory = Memory::default();
        let address: IpAddr = "10.0.0.9".parse().unwrap();
        for _ in 0..2 {
            for _ in 0..4 {
                assert!(!memory.failed("u-1", "net1"));
            }
            memory.passed("u-1", "net1");
        }
        let counts: Vec<_> = (0..6).map(|_| memory.failed("u-1", "net1")).collect();
        assert_eq!(counts, [false, false, false, false, true, false]);
        memory.shun(address);
        assert!(memory.shunned().contains(address));
        tokio::time::advance(SHUN).await;
        assert!(memory.shunned().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_without_an_answer_is_waited_for() {
        let memory = Memory::default();
        let address: IpAddr = "10.0.0.9".parse().unwrap();
        memory.calls("p", address);
        tokio::time::advance(UNSETTLED - Duration::from_secs(1)).await;
        assert!(memory.is_unsettled("p", address) && !memory.is_unsettled("q", address));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(!memory.is_unsettled("p", address));
        memory.calls("p", address);
        memory.settled("p", address);
        assert!(!memory.is_unsettled("p", address));
    }

    #[test]
    fn pools_are_remembered_until_the_pod_is_forgotten() {
        let memory = Memory::default();
        memory.wrote("u-1", "p");
        memory.wrote("u-1", "q");
        assert_eq!(memory.pools_of("u-1").len(), 2);
        memory.forget("u-1");
        assert!(memory.pools_of("u-1").is_empty());
    }
}
