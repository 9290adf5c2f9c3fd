//! Numbers of the simulated provider; the defaults are those of spec iaas 15.2.

pub mod reclaim;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::{self, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::bucket::Rate;
use crate::cloud::Operation;
use crate::topology;

pub use self::reclaim::Reclaim;

/// Longest time of a setting, milliseconds: a day.
pub const MAX_MS: u64 = 86_400_000;

/// All of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Settings {
    /// Longest wait for a token, milliseconds.
    #[serde(deserialize_with = "milliseconds")]
    pub queue_timeout_ms: u64,
    /// Longest cloud work of one call, milliseconds.
    #[serde(deserialize_with = "milliseconds")]
    pub transaction_timeout_ms: u64,
    /// Rate of calls.
    pub rate: Rate,
    /// Time of the cloud's operations.
    pub latency: Latency,
    /// How long a VLAN stays unused on its parent NIC after a detach, milliseconds.
    #[serde(deserialize_with = "milliseconds")]
    pub vlan_quarantine_ms: u64,
    /// Between "bound" and the first frame the fabric forwards, milliseconds.
    #[serde(deserialize_with = "milliseconds")]
    pub forwarding_delay_ms: u64,
    /// Between a change and its publication in a global pool, milliseconds.
    #[serde(deserialize_with = "milliseconds")]
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
    /// Longer than anything here lasts.
    #[error("{key} is {value}; it must be at most a day, {MAX_MS} ms")]
    Long {
        /// As in the file.
        key: &'static str,
        /// As given, milliseconds.
        value: u64,
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
    #[serde(deserialize_with = "milliseconds")]
    pub create_ms: u64,
    /// Attach.
    #[serde(deserialize_with = "milliseconds")]
    pub attach_ms: u64,
    /// Detach.
    #[serde(deserialize_with = "milliseconds")]
    pub detach_ms: u64,
    /// Delete.
    #[serde(deserialize_with = "milliseconds")]
    pub delete_ms: u64,
    /// Another IPv6 address.
    #[serde(deserialize_with = "milliseconds")]
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

/// Settings cannot be read. Names the file.
#[derive(Debug, thiserror::Error)]
pub enum SettingsFileError {
    /// Not readable.
    #[error("cannot read settings {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// Not YAML, an unknown key or a value of another type.
    #[error("settings {} are not valid; `provider-sim settings` prints all keys", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// Line, column and what was expected.
        source: Box<serde_saphyr::Error>,
    },
    /// Impossible.
    #[error("settings {} cannot be used", path.display())]
    Check {
        /// The file.
        path: PathBuf,
        /// The first that is impossible.
        source: SettingsError,
    },
}

impl Settings {
    /// Those of a file, or the defaults without one. Blocks.
    ///
    /// # Errors
    /// [`SettingsFileError`].
    pub fn read(path: Option<&Path>) -> Result<Self, SettingsFileError> {
        let Some(path) = path else {
            return Ok(Self::default());
        };
        let path_of = || path.to_owned();
        let text = topology::read_text(path).map_err(|source| SettingsFileError::Read {
            path: path_of(),
            source,
        })?;
        let settings: Self =
            serde_saphyr::from_str(&text).map_err(|error| SettingsFileError::Parse {
                path: path_of(),
                source: Box::new(error),
            })?;
        settings
            .check()
            .map_err(|source| SettingsFileError::Check {
                path: path_of(),
                source,
            })?;
        Ok(settings)
    }

    /// Whether a provider can work with them.
    ///
    /// # Errors
    /// [`SettingsError`] for the first that is impossible.
    pub fn check(&self) -> Result<(), SettingsError> {
        self.rate.check("rate.qps", "rate.burst")?;
        self.reclaim.check()?;
        let Latency {
            create_ms,
            attach_ms,
            detach_ms,
            delete_ms,
            update_ms,
        } = self.latency;
        for (key, value) in [
            ("queueTimeoutMs", self.queue_timeout_ms),
            ("transactionTimeoutMs", self.transaction_timeout_ms),
            ("vlanQuarantineMs", self.vlan_quarantine_ms),
            ("forwardingDelayMs", self.forwarding_delay_ms),
            ("flushMs", self.flush_ms),
            ("latency.createMs", create_ms),
            ("latency.attachMs", attach_ms),
            ("latency.detachMs", detach_ms),
            ("latency.deleteMs", delete_ms),
            ("latency.updateMs", update_ms),
            ("reclaim.idleTtlMs", self.reclaim.idle_ttl_ms),
            ("reclaim.graceMs", self.reclaim.grace_ms),
            ("reclaim.debounceMs", self.reclaim.debounce_ms),
        ] {
            if value > MAX_MS {
                return Err(SettingsError::Long { key, value });
            }
        }
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

/// A number whose mistakes are told in the words of who writes it.
fn milliseconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    struct Milliseconds;

    impl Visitor<'_> for Milliseconds {
        type Value = u64;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a whole number of milliseconds, 0 or more")
        }

        fn visit_u64<E: de::Error>(self, value: u64) -> Result<u64, E> {
            Ok(value)
        }

        fn visit_i64<E: de::Error>(self, value: i64) -> Result<u64, E> {
            let wrong = || E::invalid_value(Unexpected::Signed(value), &self);
            u64::try_from(value).map_err(|_| wrong())
        }
    }

    deserializer.deserialize_any(Milliseconds)
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
    #[rustfmt::skip] // a case a line
    fn impossible_numbers_are_refused_by_name() {
        assert_eq!(Settings::default().check(), Ok(()));
        for (yaml, text) in [
            ("rate: {qps: 0, burst: 1}", "rate.qps is 0; it must be a number of calls a second above 0"),
            ("rate: {qps: -1, burst: 1}", "rate.qps is -1; it must be a number of calls a second above 0"),
            ("rate: {qps: .nan, burst: 1}", "rate.qps is NaN; it must be a number of calls a second above 0"),
            ("rate: {qps: .inf, burst: 1}", "rate.qps is inf; it must be a number of calls a second above 0"),
            ("rate: {qps: 2, burst: 0.5}", "rate.burst is 0.5; it must be a number of calls, 1 at least"),
            ("prewarmConcurrency: 0", "prewarmConcurrency is 0; nothing would ever be done"),
            ("transactionTimeoutMs: 0", "transactionTimeoutMs is 0; nothing would ever be done"),
            ("queueTimeoutMs: 18446744073709551615", "queueTimeoutMs is 18446744073709551615; it must be at most a day, 86400000 ms"),
            ("reclaim: {bound: 1.5}", "reclaim.bound is 1.5; it must be a share of the pool, above 0 and at most 1"),
            ("reclaim: {created: .nan}", "reclaim.created is NaN; it must be a share of the pool, above 0 and at most 1"),
            ("reclaim: {batch: 0}", "reclaim.batch is 0; nothing would ever be done"),
            ("reclaim: {rate: {qps: -2, burst: 1}}", "reclaim.rate.qps is -2; it must be a number of calls a second above 0"),
        ] {
            let settings: Settings = serde_saphyr::from_str(yaml).unwrap();
            assert_eq!(settings.check().unwrap_err().to_string(), text);
        }
    }

    #[test]
    fn no_number_of_milliseconds_is_told_so() {
        for yaml in ["flushMs: -1", "flushMs: 1.5", "latency: {createMs: soon}"] {
            let error = serde_saphyr::from_str::<Settings>(yaml).unwrap_err();
            let text = error.to_string();
            let wanted = "expected a whole number of milliseconds, 0 or more";
            assert!(text.contains(wanted), "{yaml}: {text}");
        }
    }
}
