//! What is wrong and stays wrong is said once, again after a while, and that it is over.
//!
//! Owns which complaints are open; each reconciler has its own. Writes the log and nothing else.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

/// Until a complaint that is still the same is repeated: whoever looks at the last minutes of a log finds it.
const AGAIN: Duration = Duration::from_mins(10);
/// Until one is said again whose words changed: a fault that alternates must not flood the log.
const CHANGED: Duration = Duration::from_secs(30);

struct Open {
    words: String,
    said: Instant,
}

/// Those that are open, by what they are about.
#[derive(Default)]
pub struct Complaints(HashMap<String, Open>);

impl Complaints {
    /// Something about `about` is wrong: a warning, unless that was said just now.
    pub fn say(&mut self, about: &str, words: &str) {
        if self.is_news(about, words) {
            tracing::warn!("{about}: {words}");
        }
    }

    /// A listener that accepts nobody, tried again at once: too many open files, most of the time.
    pub fn of_accept(&mut self, whom: &str, error: &std::io::Error) {
        let words = format!(
            "no connection can be accepted: {error}; with \"too many open files\", raise the process's limit (LimitNOFILE, ulimit -n)"
        );
        self.say(whom, &words);
    }

    /// Nothing is wrong with `about`, any more.
    pub fn over(&mut self, about: &str) {
        if self.0.remove(about).is_some() {
            tracing::info!("{about}: recovered");
        }
    }

    /// `about` is gone.
    pub fn forget(&mut self, about: &str) {
        self.0.remove(about);
    }

    fn is_news(&mut self, about: &str, words: &str) -> bool {
        let now = Instant::now();
        if let Some(open) = self.0.get(about) {
            let wait = if open.words == words { AGAIN } else { CHANGED };
            if now < open.said + wait {
                return false;
            }
        }
        let words = words.to_owned();
        self.0.insert(about.to_owned(), Open { words, said: now });
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    #[tokio::test(start_paused = true)]
    async fn a_listener_without_descriptors_is_told_once_in_a_while() {
        let (mut complaints, mut said) = (Complaints::default(), 0);
        let error = std::io::Error::from_raw_os_error(24);
        for _ in 0..600 {
            complaints.of_accept("the agent socket", &error);
            said += usize::from(
                complaints
                    .0
                    .values()
                    .all(|open| open.said == Instant::now()),
            );
            advance(std::time::Duration::from_millis(100)).await;
        }
        assert_eq!(said, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_said_once_and_again_after_a_while() {
        let mut complaints = Complaints::default();
        assert!(complaints.is_news("a", "x"));
        assert!(!complaints.is_news("a", "x"));
        assert!(complaints.is_news("b", "x"), "another object");
        assert!(!complaints.is_news("a", "y"), "it alternates");
        advance(CHANGED).await;
        assert!(!complaints.is_news("a", "x"), "it is the same");
        assert!(complaints.is_news("a", "y"));
        advance(AGAIN).await;
        assert!(complaints.is_news("a", "y"));
        complaints.over("a");
        assert!(complaints.is_news("a", "y"));
        complaints.forget("a");
        assert!(complaints.is_news("a", "y"));
    }
}
