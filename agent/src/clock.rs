//! Wall time and randomness of the agent: what it shares with the controller, and the clock of the
//! kernel's programs. Nothing else here asks the system for a time.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

pub use spiderpool_controller::clock::{Clock, FakeClock, Jitter, SystemClock};

/// Nanoseconds since boot, suspended time included: what BPF programs stamp events with. Zero where
/// the kernel has no such clock.
#[must_use]
pub fn since_boot_ns() -> u64 {
    let since_boot = clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(Duration::ZERO, Duration::from);
    u64::try_from(since_boot.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_boot_clock_goes_on() {
        let first = since_boot_ns();
        assert!(first > 0 && since_boot_ns() >= first);
    }
}
