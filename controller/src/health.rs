//! Whether this process does what it is there for. Who does a part of it adds a check; the probes of
//! the kubelet ask them all (spec api 4.4).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::{BoxFuture, join_all};

/// What a probe asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Probe {
    /// Whether the process must be started again.
    Liveness,
    /// Whether it may be asked.
    Readiness,
}

/// Which probes a check counts for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counts {
    /// Readiness alone.
    ForReadiness,
    /// Both.
    ForBoth,
}

/// Answers a check: nothing, or what is wrong. It ends within a second or two.
type Ask = Arc<dyn Fn() -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

#[derive(Clone)]
struct Check {
    id: u64,
    name: &'static str,
    counts: Counts,
    ask: Ask,
}

/// All checks of a process.
#[derive(Default)]
pub struct Health {
    checks: Mutex<(u64, Vec<Check>)>,
}

/// A check that is asked until this is dropped.
#[must_use = "the check is asked only while this is kept"]
pub struct Checked {
    health: Arc<Health>,
    id: u64,
}

impl Drop for Checked {
    fn drop(&mut self) {
        self.health.lock().1.retain(|check| check.id != self.id);
    }
}

impl Health {
    /// Adds a check for as long as the answer is kept.
    pub fn add(
        self: &Arc<Self>,
        name: &'static str,
        counts: Counts,
        ask: impl Fn() -> BoxFuture<'static, Result<(), String>> + Send + Sync + 'static,
    ) -> Checked {
        let mut checks = self.lock();
        let id = checks.0;
        checks.0 += 1;
        checks.1.push(Check {
            id,
            name,
            counts,
            ask: Arc::new(ask),
        });
        Checked {
            health: Arc::clone(self),
            id,
        }
    }

    /// What is wrong, a line each.
    ///
    /// # Errors
    /// The lines, when there are any.
    pub async fn ask(&self, probe: Probe) -> Result<(), String> {
        let mut asked = self.lock().1.clone();
        asked.retain(|check| probe == Probe::Readiness || check.counts == Counts::ForBoth);
        let answers = join_all(asked.iter().map(|check| (check.ask)())).await;
        let wrong = asked.iter().zip(answers);
        let wrong = wrong.filter_map(|(check, answer)| Some((check.name, answer.err()?)));
        let lines: String = wrong
            .map(|(name, why)| format!("{name}: {why}\n"))
            .collect();
        if lines.is_empty() { Ok(()) } else { Err(lines) }
    }

    fn lock(&self) -> MutexGuard<'_, (u64, Vec<Check>)> {
        self.checks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    fn answer(text: &'static str) -> impl Fn() -> BoxFuture<'static, Result<(), String>> {
        move || {
            let answer = if text.is_empty() {
                Ok(())
            } else {
                Err(text.to_owned())
            };
            async move { answer }.boxed()
        }
    }

    #[tokio::test]
    async fn probes_name_what_is_wrong_as_long_as_it_is_checked() {
        let health = Arc::new(Health::default());
        assert_eq!(health.ask(Probe::Readiness).await, Ok(()));
        let _fine = health.add("webhook", Counts::ForBoth, answer(""));
        let late = health.add("gc", Counts::ForReadiness, answer("no scan for 30 min"));
        assert_eq!(health.ask(Probe::Liveness).await, Ok(()));
        let wrong = Err("gc: no scan for 30 min\n".to_owned());
        assert_eq!(health.ask(Probe::Readiness).await, wrong);
        let _dead = health.add("webhook", Counts::ForBoth, answer("refused"));
        let wrong = Err("webhook: refused\n".to_owned());
        assert_eq!(health.ask(Probe::Liveness).await, wrong);
        drop(late);
        assert_eq!(health.ask(Probe::Readiness).await, wrong);
    }
}
