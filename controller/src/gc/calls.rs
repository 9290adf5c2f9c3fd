//! Release calls to the provider that are under way, or that had no answer and may still take effect:
//! a second one would free the address, and the first then take it from the next Pod.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use super::TAKEOVER;

type Key = (String, IpAddr);

#[derive(Debug, Clone, Copy)]
enum State {
    UnderWay,
    UnsettledSince(Instant),
}

/// By pool and address.
#[derive(Debug, Default)]
pub(super) struct Calls(Mutex<BTreeMap<Key, State>>);

/// A call under way. Dropped without having been settled, it counts as one without an answer.
#[derive(Debug)]
pub(super) struct Call<'a> {
    calls: &'a Calls,
    key: Key,
    settled: bool,
}

impl Calls {
    /// Begins a call; `None` while another may be at work.
    pub(super) fn begin(&self, pool: &str, address: IpAddr) -> Option<Call<'_>> {
        let key = (pool.to_owned(), address);
        let mut states = self.lock();
        let now = Instant::now();
        states.retain(|_, state| match state {
            State::UnderWay => true,
            State::UnsettledSince(at) => *at + TAKEOVER > now,
        });
        if states.contains_key(&key) {
            return None;
        }
        states.insert(key.clone(), State::UnderWay);
        Some(Call {
            calls: self,
            key,
            settled: false,
        })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, State>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Call<'_> {
    /// Nobody is at work on it any more.
    pub(super) fn settle(mut self) {
        self.settled = true;
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        let mut states = self.calls.lock();
        if self.settled {
            states.remove(&self.key);
        } else {
            states.insert(self.key.clone(), State::UnsettledSince(Instant::now()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use tokio::time::advance;

    #[tokio::test(start_paused = true)]
    async fn a_second_call_waits_for_the_first() {
        let calls = Calls::default();
        let address = "10.0.0.1".parse().unwrap();
        let first = calls.begin("p", address).unwrap();
        assert!(calls.begin("p", address).is_none());
        calls.begin("q", address).unwrap().settle();
        first.settle();
        let lost = calls.begin("p", address).unwrap();
        drop(lost);
        advance(TAKEOVER - Duration::from_secs(1)).await;
        assert!(calls.begin("p", address).is_none());
        advance(Duration::from_secs(1)).await;
        assert!(calls.begin("p", address).is_some());
    }
}
