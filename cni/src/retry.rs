//! How long each verb waits for an agent that is not there: it may just be starting (design
//! section 1). Owns the waiting, not the calling.

use std::thread;
use std::time::{Duration, Instant};

use spiderpool_api::cni::CniCommand;

use crate::agent_client::CallError;

/// Between two tries; the socket has no event std could wait for.
const POLL: Duration = Duration::from_millis(25);

/// A verb's patience.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Patience {
    wait: Duration,
    repeats_cut_off: bool,
}

impl Patience {
    /// Of `command`. Only DEL repeats a call whose answer was cut off: it changes nothing twice,
    /// while another verb's caller decides itself.
    pub(crate) const fn of(command: CniCommand) -> Self {
        let (seconds, repeats_cut_off) = match command {
            CniCommand::Add => (20, false),
            CniCommand::Del => (3, true),
            _ => (0, false),
        };
        Self {
            wait: Duration::from_secs(seconds),
            repeats_cut_off,
        }
    }

    const fn covers(self, error: &CallError) -> bool {
        match error {
            CallError::Unreachable { .. } => true,
            CallError::CutOff { .. } => self.repeats_cut_off,
            _ => false,
        }
    }
}

/// Tries until there is an answer, another failure, or no patience. `attempt` gets the time
/// waited so far: zero at first.
///
/// # Errors
/// The last try's.
pub(crate) fn until_answered<T>(
    patience: Patience,
    mut attempt: impl FnMut(Duration) -> Result<T, CallError>,
) -> Result<T, CallError> {
    let started = Instant::now();
    let mut so_far = Duration::ZERO;
    loop {
        let mut result = attempt(so_far);
        let elapsed = started.elapsed();
        if let Err(CallError::Unreachable { waited, .. }) = &mut result {
            *waited = elapsed;
        }
        match &result {
            Err(error) if patience.covers(error) && elapsed < patience.wait => {
                thread::sleep(POLL.min(patience.wait.saturating_sub(elapsed)));
                so_far = started.elapsed();
            }
            _ => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn absent() -> CallError {
        CallError::Unreachable {
            socket: "/s".into(),
            waited: Duration::ZERO,
            source: std::io::Error::from(std::io::ErrorKind::NotFound),
        }
    }

    fn cut_off() -> CallError {
        CallError::CutOff {
            socket: "/s".into(),
            received: 0,
        }
    }

    /// Tries made before the given error is handed on.
    fn tries(command: CniCommand, error: fn() -> CallError) -> usize {
        let mut count = 0;
        let patience = Patience {
            wait: Patience::of(command).wait / 100,
            ..Patience::of(command)
        };
        let result = until_answered(patience, |_| {
            count += 1;
            Err::<(), _>(error())
        });
        assert!(result.is_err());
        count
    }

    #[test]
    fn waiting_is_as_the_design_says() {
        for (command, seconds) in [
            (CniCommand::Add, 20),
            (CniCommand::Del, 3),
            (CniCommand::Check, 0),
            (CniCommand::Gc, 0),
            (CniCommand::Status, 0),
        ] {
            assert_eq!(Patience::of(command).wait, Duration::from_secs(seconds));
            assert_eq!(tries(command, absent) > 1, seconds > 0, "{command}");
        }
        assert_eq!(tries(CniCommand::Add, cut_off), 1);
        assert!(tries(CniCommand::Del, cut_off) > 1);
    }

    #[test]
    fn an_agent_that_comes_is_called_with_the_time_that_is_left() {
        let mut seen = Vec::new();
        let answer = until_answered(Patience::of(CniCommand::Add), |waited| {
            seen.push(waited);
            if seen.len() < 3 { Err(absent()) } else { Ok(7) }
        });
        assert_eq!(answer.unwrap(), 7);
        assert_eq!(seen[0], Duration::ZERO);
        assert!(seen[2] >= POLL * 2);
    }
}
