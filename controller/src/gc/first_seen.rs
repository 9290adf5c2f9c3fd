//! Since when something is so, by this process's own monotonic clock. Wall times in objects are other
//! machines', and one step of the own wall clock would make all of them old at once: whatever is taken
//! away because of its age has also been watched for that long.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// When each was seen first.
#[derive(Debug)]
pub(super) struct FirstSeen<K>(Mutex<BTreeMap<K, Instant>>);

impl<K> Default for FirstSeen<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Ord> FirstSeen<K> {
    /// Sees it; how long ago that was for the first time.
    pub(super) fn see(&self, what: K) -> Duration {
        self.lock()
            .entry(what)
            .or_insert_with(Instant::now)
            .elapsed()
    }

    /// How long ago it was seen first; `None` for what was never seen, or is forgotten.
    pub(super) fn age<Q>(&self, what: &Q) -> Option<Duration>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.lock().get(what).map(Instant::elapsed)
    }

    /// It is not so any more.
    pub(super) fn forget<Q>(&self, what: &Q)
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.lock().remove(what);
    }

    /// Forgets what was seen first so long ago.
    pub(super) fn forget_older(&self, than: Duration) {
        self.lock().retain(|_, seen| seen.elapsed() < than);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<K, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    #[tokio::test(start_paused = true)]
    async fn what_is_seen_again_keeps_its_first_time() {
        let seen = FirstSeen::<String>::default();
        let second = Duration::from_secs(1);
        assert_eq!(seen.age("a"), None);
        assert_eq!(seen.see("a".into()), Duration::ZERO);
        advance(second).await;
        assert_eq!(seen.see("a".into()), second);
        seen.see("b".into());
        seen.forget_older(second);
        assert_eq!((seen.age("a"), seen.age("b")), (None, Some(Duration::ZERO)));
        seen.forget("b");
        assert_eq!(seen.age("b"), None);
    }
}
