//! When idle cache of global pools is given back to the cloud (spec iaas 15.2, P12 and P14).

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{SettingsError, milliseconds};
use crate::bucket::Rate;

/// All of it; may be changed while the provider runs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Reclaim {
    /// What decides that an idle sub-ENI is detached.
    pub mode: Mode,
    /// From this share of a pool's addresses attached on, idle ones are detached, coldest first.
    pub bound: f64,
    /// From this share of a pool's addresses made on, detached ones are deleted, the longest
    /// detached first; in all modes.
    pub created: f64,
    /// Longest idle time with mode `idleTtl`, milliseconds.
    #[serde(deserialize_with = "milliseconds")]
    pub idle_ttl_ms: u64,
    /// Between the choice of a sub-ENI and its detach, milliseconds: it has a `detachTime` and
    /// can still be allocated.
    #[serde(deserialize_with = "milliseconds")]
    pub grace_ms: u64,
    /// Between a change and the round that follows it, milliseconds.
    #[serde(deserialize_with = "milliseconds")]
    pub debounce_ms: u64,
    /// Most sub-ENIs of a round.
    pub batch: usize,
    /// Cloud operations of rounds.
    pub rate: Rate,
    /// Free places a parent NIC shall have: below that its idle cache goes, whatever the shares.
    /// Never more than an eighth of the parent's limit.
    pub guard: usize,
}

/// What decides that an idle sub-ENI is detached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Mode {
    /// The share of the pool that is attached.
    Watermark,
    /// The time it has been idle.
    IdleTtl,
    /// Nothing, until it is asked for (`/admin/reclaim`, by shares) or a parent NIC is full.
    Off,
}

impl Default for Reclaim {
    fn default() -> Self {
        Self {
            mode: Mode::Watermark,
            bound: 0.60,
            created: 0.90,
            idle_ttl_ms: 60_000,
            grace_ms: 0,
            debounce_ms: 1_000,
            batch: 10,
            rate: Rate {
                qps: 1.0,
                burst: 1.0,
            },
            guard: 8,
        }
    }
}

impl Reclaim {
    /// Whether a round could ever do something, and end.
    pub(super) fn check(&self) -> Result<(), SettingsError> {
        for (key, value) in [
            ("reclaim.bound", self.bound),
            ("reclaim.created", self.created),
        ] {
            if !(value > 0.0 && value <= 1.0) {
                let wanted = "a share of the pool, above 0 and at most 1";
                return Err(SettingsError::Value { key, value, wanted });
            }
        }
        if self.batch == 0 {
            return Err(SettingsError::Zero("reclaim.batch"));
        }
        self.rate.check("reclaim.rate.qps", "reclaim.rate.burst")
    }

    /// How many free places a parent NIC of this limit shall have.
    #[must_use]
    pub fn guard_of(&self, limit: usize) -> usize {
        self.guard.min(limit / 8)
    }

    /// Longest idle time.
    #[must_use]
    pub const fn idle_ttl(&self) -> Duration {
        Duration::from_millis(self.idle_ttl_ms)
    }

    /// Between choice and detach.
    #[must_use]
    pub const fn grace(&self) -> Duration {
        Duration::from_millis(self.grace_ms)
    }

    /// Between a change and its round.
    #[must_use]
    pub const fn debounce(&self) -> Duration {
        Duration::from_millis(self.debounce_ms)
    }
}
