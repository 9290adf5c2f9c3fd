//! Numbers of the simulated provider; the defaults are those of spec iaas 15.2.

pub mod reclaim;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::bucket::Rate;
use crate::cloud::Operation;

pub use self::reclaim::Reclaim;

/// All of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Settings {
    /// Longest wait for a token, milliseconds.
    pub queue_timeout_ms: u64,
    /// Longest cloud work of one call, milliseconds.
    pub transaction_timeout_ms: u64,
    /// Rate of calls.
    pub rate: Rate,
    /// Time of the cloud's operations.
    pub latency: Latency,
    /// How long a VLAN stays unused on its parent NIC after a detach, milliseconds.
    pub vlan_quarantine_ms: u64,
    /// Between "bound" and the first frame the fabric forwards, milliseconds.
    pub forwarding_delay_ms: u64,
    /// Between a change and its publication in a global pool, milliseconds.
    pub flush_ms: u64,
    /// Whether a call without the budget header is refused.
    pub require_timeout_header: bool,
    /// Whether a call with too small a budget is refused.
    pub budget_check: bool,
    /// Whether a release is answered only when it is done.
    pub sync_release: bool,
    /// Whether a release that is not awaited needs the budget of one that is.
    pub strict_release: bool,
    /// Whether bodies of contract version 1 are served too.
    pub accept_v1: bool,
    /// What becomes of a released sub-ENI of a prewarm pool.
    pub release_policy: ReleasePolicy,
    /// Whether a sub-ENI may have only an IPv6 address.
    pub allow_v6_only: bool,
    /// Sub-ENIs made at a time for a prewarm pool.
    pub prewarm_concurrency: usize,
    /// Idle cache of global pools.
    pub reclaim: Reclaim,
    /// Seed of MACs, VLANs and jitter.
    pub seed: u64,
}

/// Settings under which no call could succeed. Names the key.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SettingsError {
    /// Too small, or no number.
    #[error("{key} is {value}; it must be {wanted}")]
    Value {
        /// As in the file.
        key: &'static str,
        /// As given.
        value: f64,
        /// What would do.
        wanted: &'static str,
    },
    /// Nothing would ever be done.
    #[error("{0} is 0; nothing would ever be done")]
    Zero(&'static str),
}

/// Mean times, milliseconds, each ±20 %.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Latency {
    /// Create.
    pub create_ms: u64,
    /// Attach.
    pub attach_ms: u64,
    /// Detach.
    pub detach_ms: u64,
    /// Delete.
    pub delete_ms: u64,
    /// Another IPv6 address.
    pub update_ms: u64,
}

/// What becomes of a released sub-ENI of a prewarm pool (P10).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReleasePolicy {
    /// It stays as it is.
    Keep,
    /// Its entry is withdrawn before the answer; then it is torn down and made anew.
    Recycle,
}

impl Default for Latency {
    fn default() -> Self {
        Self {
            create_ms: 800,
            attach_ms: 400,
            detach_ms: 400,
            delete_ms: 200,
            update_ms: 200,
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            queue_timeout_ms: 30_000,
            transaction_timeout_ms: 16_000,
            rate: Rate {
                qps: 2.0,
                burst: 10.0,
            },
            latency: Latency::default(),
            vlan_quarantine_ms: 30_000,
            forwarding_delay_ms: 0,
            flush_ms: 500,
            require_timeout_header: true,
            budget_check: true,
            sync_release: false,
            strict_release: false,
            accept_v1: false,
            release_policy: ReleasePolicy::Keep,
            allow_v6_only: false,
            prewarm_concurrency: 8,
            reclaim: Reclaim::default(),
            seed: 1,
        }
    }
}

impl Settings {
    /// Whether a provider can work with them.
    ///
    /// # Errors
    /// [`SettingsError`] for the first that is impossible.
    pub fn check(&self) -> Result<(), SettingsError> {
        self.rate.check("rate.qps", "rate.burst")?;
        self.reclaim.check()?;
        if self.prewarm_concurrency == 0 {
            return Err(SettingsError::Zero("prewarmConcurrency"));
        }
        if self.transaction_timeout_ms == 0 {
            return Err(SettingsError::Zero("transactionTimeoutMs"));
        }
        Ok(())
    }

    /// How long a VLAN stays unused after a detach.
    #[must_use]
    pub const fn vlan_quarantine(&self) -> Duration {
        Duration::from_millis(self.vlan_quarantine_ms)
    }

    /// The longest a call may wait for a token.
    #[must_use]
    pub const fn queue_timeout(&self) -> Duration {
        Duration::from_millis(self.queue_timeout_ms)
    }

    /// What an allocate call may take: less budget is refused (P5).
    #[must_use]
    pub const fn longest_allocate(&self) -> Duration {
        self.queue_timeout()
            .saturating_add(self.transaction_timeout())
    }

    /// What a release call may take. One that is answered before the cloud's work needs no more
    /// than its turn, unless it is held to the rule of the others.
    #[must_use]
    pub const fn longest_release(&self) -> Duration {
        if self.sync_release || self.strict_release {
            self.longest_allocate()
        } else {
            self.queue_timeout()
        }
    }

    /// The longest cloud work of one call.
    #[must_use]
    pub const fn transaction_timeout(&self) -> Duration {
        Duration::from_millis(self.transaction_timeout_ms)
    }
}

impl Rate {
    /// Whether calls could ever pass.
    ///
    /// # Errors
    /// [`SettingsError`] with the name that fits.
    pub fn check(&self, qps: &'static str, burst: &'static str) -> Result<(), SettingsError> {
        let refused = |key, value, wanted| Err(SettingsError::Value { key, value, wanted });
        if !(self.qps.is_finite() && self.qps > 0.0) {
            return refused(qps, self.qps, "a number of calls a second above 0");
        }
        if !(self.burst.is_finite() && self.burst >= 1.0) {
            return refused(burst, self.burst, "a number of calls, 1 at least");
        }
        Ok(())
    }
}

impl Latency {
    /// Mean time of an operation.
    #[must_use]
    pub const fn of(&self, operation: Operation) -> Duration {
        Duration::from_millis(match operation {
            Operation::Create => self.create_ms,
            Operation::Attach => self.attach_ms,
            Operation::Detach => self.detach_ms,
            Operation::Delete => self.delete_ms,
            Operation::Update => self.update_ms,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_numbers_are_refused_by_name() {
        assert_eq!(Settings::default().check(), Ok(()));
        for (yaml, text) in [
            (
                "rate: {qps: 0, burst: 1}",
                "rate.qps is 0; it must be a number of calls a second above 0",
            ),
            (
                "rate: {qps: -1, burst: 1}",
                "rate.qps is -1; it must be a number of calls a second above 0",
            ),
            (
                "rate: {qps: .nan, burst: 1}",
                "rate.qps is NaN; it must be a number of calls a second above 0",
            ),
            (
                "rate: {qps: .inf, burst: 1}",
                "rate.qps is inf; it must be a number of calls a second above 0",
            ),
            (
                "rate: {qps: 2, burst: 0.5}",
                "rate.burst is 0.5; it must be a number of calls, 1 at least",
            ),
            (
                "prewarmConcurrency: 0",
                "prewarmConcurrency is 0; nothing would ever be done",
            ),
            (
                "transactionTimeoutMs: 0",
                "transactionTimeoutMs is 0; nothing would ever be done",
            ),
            (
                "reclaim: {bound: 1.5}",
                "reclaim.bound is 1.5; it must be a share of the pool, above 0 and at most 1",
            ),
            (
                "reclaim: {created: .nan}",
                "reclaim.created is NaN; it must be a share of the pool, above 0 and at most 1",
            ),
            (
                "reclaim: {batch: 0}",
                "reclaim.batch is 0; nothing would ever be done",
            ),
            (
                "reclaim: {rate: {qps: -2, burst: 1}}",
                "reclaim.rate.qps is -2; it must be a number of calls a second above 0",
            ),
        ] {
            let settings: Settings = serde_saphyr::from_str(yaml).unwrap();
            assert_eq!(settings.check().unwrap_err().to_string(), text);
        }
    }
}
