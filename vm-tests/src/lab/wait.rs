//! Waiting for a state, with a deadline. The only place of the lab that sleeps.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// How often a state is looked at.
const POLL: Duration = Duration::from_millis(10);

/// Looks until `look` finds something; an error of `look` ends the wait at once.
///
/// # Errors
/// The error of `look`, or that `what` was not seen within `limit`.
pub fn until<T>(
    limit: Duration,
    what: &str,
    mut look: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        if Instant::now() > deadline {
            bail!("{what}: not seen within {} ms", limit.as_millis());
        }
        thread::sleep(POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends_with_the_state_the_error_or_the_deadline() {
        let mut looks = 0;
        let seen = until(Duration::from_secs(5), "three", || {
            looks += 1;
            Ok((looks == 3).then_some("three"))
        });
        assert_eq!(seen.unwrap(), "three");
        let error = until::<()>(Duration::from_secs(5), "x", || bail!("broken"));
        assert_eq!(error.unwrap_err().to_string(), "broken");
        let error = until::<()>(Duration::ZERO, "the link", || Ok(None)).unwrap_err();
        assert!(error.to_string().contains("the link"), "{error}");
    }
}
