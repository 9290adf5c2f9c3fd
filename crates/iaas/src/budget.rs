//! How long one provider call may take (spec iaas section 6). Pure: the caller says what time it is.

use std::time::Duration;

use tokio::time::Instant;

/// What a provider may take at worst, 30 s in its queue and 16 s in the cloud: under the first
/// generation of the contract it is not called with less left, as its work would outlive the call.
pub const WORST_CASE: Duration = Duration::from_secs(48);

/// What is left of the calling operation, if that is too little for a provider of the first
/// generation.
#[must_use]
pub fn shortfall(now: Instant, parent: Option<Instant>) -> Option<Duration> {
    let left = parent?.saturating_duration_since(now);
    (left < WORST_CASE).then_some(left)
}

/// The moment a call has to be over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// When.
    pub at: Instant,
    /// Whether the calling operation ends then, not the configured timeout. It wins a tie: there
    /// is nobody left to tell that the provider was slow.
    pub by_parent: bool,
}

impl Budget {
    /// The earlier of `now + timeout` and the deadline of the calling operation; `None` when that
    /// one is over.
    #[must_use]
    pub fn new(now: Instant, timeout: Duration, parent: Option<Instant>) -> Option<Self> {
        let own = now + timeout;
        match parent {
            Some(parent) if parent <= now => None,
            Some(parent) if parent <= own => Some(Self {
                at: parent,
                by_parent: true,
            }),
            _ => Some(Self {
                at: own,
                by_parent: false,
            }),
        }
    }

    /// What the call may still take, for the header: milliseconds, rounded up. `None` when nothing
    /// is left.
    #[must_use]
    pub fn header(&self, now: Instant) -> Option<u64> {
        let left = self.at.saturating_duration_since(now);
        let milliseconds = left.as_nanos().div_ceil(1_000_000);
        (milliseconds > 0).then(|| u64::try_from(milliseconds).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[tokio::test(start_paused = true)]
    async fn the_earlier_deadline_counts_and_the_parent_wins_a_tie() {
        let now = Instant::now();
        let timeout = 50 * MS;
        for (parent, left, by_parent) in [
            (None, 50, false),
            (Some(51), 50, false),
            (Some(50), 50, true),
            (Some(49), 49, true),
            (Some(1), 1, true),
        ] {
            let parent = parent.map(|ms: u32| now + MS * ms);
            let budget = Budget::new(now, timeout, parent).unwrap();
            assert_eq!(
                budget,
                Budget {
                    at: now + MS * left,
                    by_parent
                }
            );
        }
        assert_eq!(Budget::new(now, timeout, Some(now)), None);
        assert_eq!(Budget::new(now + MS, timeout, Some(now)), None);
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_generation_needs_48_seconds() {
        let now = Instant::now();
        let parent = |ms: u32| Some(now + MS * ms);
        assert_eq!(shortfall(now, None), None);
        assert_eq!(shortfall(now, parent(48_000)), None);
        assert_eq!(shortfall(now, parent(47_999)), Some(MS * 47_999));
        assert_eq!(shortfall(now + MS * 2, parent(1)), Some(Duration::ZERO));
    }

    #[tokio::test(start_paused = true)]
    async fn the_header_is_rounded_up_and_never_zero() {
        let now = Instant::now();
        let budget = Budget {
            at: now + 10 * MS,
            by_parent: false,
        };
        let after = |nanoseconds| budget.header(now + Duration::from_nanos(nanoseconds));
        assert_eq!(after(0), Some(10));
        assert_eq!(after(1), Some(10));
        assert_eq!(after(1_000_000), Some(9));
        assert_eq!(after(9_999_999), Some(1));
        assert_eq!(after(10_000_000), None);
        assert_eq!(after(11_000_000), None);
    }
}
