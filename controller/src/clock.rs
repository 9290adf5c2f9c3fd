//! Wall time and randomness of agent and controller. With the agent's own clock module the only
//! one that asks the system for either; waiting uses tokio's clock, which tests can stop.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;

/// Wall time, for what other processes read: file stamps, release markers, events.
pub trait Clock: Send + Sync {
    /// Now.
    fn wall(&self) -> Timestamp;

    /// Now as RFC 3339 in UTC, whole seconds.
    fn rfc3339(&self) -> String {
        let now = self.wall();
        Timestamp::from_second(now.as_second())
            .unwrap_or(now)
            .to_string()
    }
}

/// The system's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn wall(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// A clock that stands still until it is told to go on.
#[derive(Debug, Default)]
pub struct FakeClock(Mutex<Timestamp>);

impl FakeClock {
    /// Moves the clock.
    pub fn set(&self, now: Timestamp) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = now;
    }
}

impl Clock for FakeClock {
    fn wall(&self) -> Timestamp {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A seeded stream of random waits, one per purpose.
#[derive(Debug)]
pub struct Jitter(Mutex<fastrand::Rng>);

impl Jitter {
    /// A stream that no other process repeats.
    #[must_use]
    pub fn from_entropy() -> Self {
        Self(Mutex::new(fastrand::Rng::new()))
    }

    /// A stream that repeats itself.
    #[must_use]
    pub fn from_seed(seed: u64) -> Self {
        Self(Mutex::new(fastrand::Rng::with_seed(seed)))
    }

    /// A wait between half of `around` and one and a half of it.
    #[must_use]
    pub fn around(&self, around: Duration) -> Duration {
        let mut rng = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        around.mul_f64(0.5 + rng.f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_repeats_by_seed_and_stays_in_range() {
        let wait = Duration::from_millis(10);
        let series = |seed| -> Vec<_> {
            let jitter = Jitter::from_seed(seed);
            (0..50).map(|_| jitter.around(wait)).collect()
        };
        assert_eq!(series(7), series(7));
        assert_ne!(series(7), series(8));
        assert!(
            series(7)
                .iter()
                .all(|w| (wait / 2..wait * 3 / 2).contains(w))
        );
    }

    #[test]
    fn times_have_whole_seconds() {
        let clock = FakeClock::default();
        clock.set("2027-01-05T10:00:01.123Z".parse().unwrap());
        assert_eq!(clock.rfc3339(), "2027-01-05T10:00:01Z");
    }
}
