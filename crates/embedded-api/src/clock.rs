//! The only reader of the wall clock in this crate.

use jiff::Timestamp;

/// Now, by the wall clock.
pub(crate) fn now() -> Timestamp {
    Timestamp::now()
}

/// A time as Kubernetes writes it: RFC 3339, UTC, whole seconds.
pub(crate) fn stamp(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
