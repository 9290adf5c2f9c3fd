//! Token bucket of the contract calls (P6). Pure: the caller gives the time.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Rate and depth.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Rate {
    /// Calls per second.
    pub qps: f64,
    /// Calls at once after a rest.
    pub burst: f64,
}

/// The bucket. Below zero it owes tokens to those who wait.
#[derive(Debug, Clone)]
pub struct Bucket {
    rate: Rate,
    level: f64,
    filled_at: Duration,
}

impl Bucket {
    /// A full bucket.
    #[must_use]
    pub const fn new(rate: Rate) -> Self {
        Self {
            rate,
            level: rate.burst,
            filled_at: Duration::ZERO,
        }
    }

    /// Takes a token and says how long to wait for it; `None` when that is longer than
    /// `patience`, and then none was taken.
    pub fn take(&mut self, now: Duration, patience: Duration) -> Option<Duration> {
        self.fill(now);
        let missing = (1.0 - self.level).max(0.0);
        let wait = Duration::try_from_secs_f64(missing / self.rate.qps).ok()?;
        if wait > patience {
            return None;
        }
        self.level -= 1.0;
        Some(wait)
    }

    /// Gives back the token of a caller that went away while it waited.
    pub fn give_back(&mut self) {
        self.level = (self.level + 1.0).min(self.rate.burst);
    }

    /// Tokens there are; negative: owed.
    #[must_use]
    pub fn level(&mut self, now: Duration) -> f64 {
        self.fill(now);
        self.level
    }

    fn fill(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.filled_at).as_secs_f64();
        self.level = (self.level + passed * self.rate.qps).min(self.rate.burst);
        self.filled_at = self.filled_at.max(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_taken_waited_for_refused_and_given_back() {
        let second = Duration::from_secs(1);
        let mut bucket = Bucket::new(Rate {
            qps: 2.0,
            burst: 2.0,
        });
        let take = |bucket: &mut Bucket, at| bucket.take(second * at, second);
        assert_eq!(take(&mut bucket, 0), Some(Duration::ZERO));
        assert_eq!(take(&mut bucket, 0), Some(Duration::ZERO));
        assert_eq!(take(&mut bucket, 0), Some(second / 2));
        assert_eq!(take(&mut bucket, 0), Some(second));
        assert_eq!(take(&mut bucket, 0), None);
        bucket.give_back();
        assert_eq!(take(&mut bucket, 0), Some(second));
        assert!((bucket.level(second) - 0.0).abs() < 1e-9);
        assert!(
            (bucket.level(second * 100) - 2.0).abs() < 1e-9,
            "no more than the burst"
        );
    }
}
