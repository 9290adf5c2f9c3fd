//! Rounds of reclaim: one after each change of allocations, or when somebody asks (P12).

use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::sleep;
use tracing::info;

use super::Outcome;
use crate::service::Service;
use crate::settings::reclaim::Mode;

/// Before another try with a cloud or an API server that failed.
const RETRY: Duration = Duration::from_secs(5);
/// Rounds without effect before a command ends, for claims that are not yet heard of.
const LOOKS: usize = 3;
/// Before such a round.
const LOOK: Duration = Duration::from_millis(50);
/// Most rounds on one command: more than a pool has addresses.
const MAX_ROUNDS: usize = 1_000;

/// What was done.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reclaimed {
    /// Detached, by the address the sub-ENI is known by.
    pub detached: Vec<IpAddr>,
    /// Deleted.
    pub deleted: Vec<IpAddr>,
    /// Claimed or in use after all: nothing changed.
    pub kept: Vec<IpAddr>,
    /// The cloud or the API server failed.
    pub failed: Vec<IpAddr>,
}

impl Service {
    /// A round after each change of allocations, changes of a moment together. Never ends.
    pub async fn reclaim_forever(&self) {
        let mut next = None;
        loop {
            let wait = async {
                match next {
                    Some(at) => sleep(Duration::saturating_sub(at, self.now())).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = self.reclaim_due.notified() => {}
                () = wait => {}
            }
            let (mode, debounce) = self.with(|world| {
                let reclaim = &world.settings.reclaim;
                (reclaim.mode, reclaim.debounce())
            });
            sleep(debounce).await;
            let (_, later) = self.reclaim_once(mode).await;
            next = later;
        }
    }

    /// Rounds until there is nothing more to do now. With mode `off` by shares, as it was asked
    /// for.
    pub async fn reclaim_now(&self) -> Reclaimed {
        let mode = match self.with(|world| world.settings.reclaim.mode) {
            Mode::Off => Mode::Watermark,
            mode => mode,
        };
        let mut all = Reclaimed::default();
        let mut looks = 0..LOOKS;
        for _ in 0..MAX_ROUNDS {
            let (done, _) = self.reclaim_once(mode).await;
            let progress = !done.detached.is_empty() || !done.deleted.is_empty();
            let surprised = !done.kept.is_empty();
            all.add(done);
            if progress {
                looks = 0..LOOKS;
            } else if surprised && looks.next().is_some() {
                // the claim that kept one is about to be heard of, and another one may go
                sleep(LOOK).await;
            } else {
                break;
            }
        }
        all
    }

    /// One round; also when the next one is due if nothing happens.
    async fn reclaim_once(&self, mode: Mode) -> (Reclaimed, Option<Duration>) {
        let mut done = Reclaimed::default();
        // who claims what is known from an API server alone
        if self.publisher.is_none() || !self.is_ready() || mode == Mode::Off {
            return (done, None);
        }
        let _round = self.reclaiming.lock().await;
        let now = self.now();
        let round = self.with(|world| world.choose(mode, now));
        for key in round.detach {
            let found = self.with(|world| world.memory.find(key).cloned());
            let outcome = match found {
                Some(sub_eni) => {
                    self.pace().await;
                    self.detach_idle(&sub_eni).await
                }
                None => Outcome::Kept,
            };
            done.note(outcome, key, true);
        }
        for key in round.delete {
            let found = self.with(|world| world.memory.find(key).cloned());
            let outcome = match found {
                Some(sub_eni) => {
                    self.pace().await;
                    self.delete_idle(&sub_eni).await
                }
                None => Outcome::Kept,
            };
            done.note(outcome, key, false);
        }
        if done != Reclaimed::default() {
            info!(detached = ?done.detached, deleted = ?done.deleted, kept = ?done.kept, failed = ?done.failed, "idle cache is reclaimed");
        }
        // a choice with its grace has to be seen
        self.changed.notify_one();
        let again = (!done.failed.is_empty()).then(|| self.now().saturating_add(RETRY));
        let next = [round.next, again].into_iter().flatten().min();
        (done, next)
    }
}

impl Reclaimed {
    fn add(&mut self, other: Self) {
        self.detached.extend(other.detached);
        self.deleted.extend(other.deleted);
        for (list, more) in [
            (&mut self.kept, other.kept),
            (&mut self.failed, other.failed),
        ] {
            list.extend(more);
            list.sort_unstable();
            list.dedup();
        }
    }

    fn note(&mut self, outcome: Outcome, key: IpAddr, detach: bool) {
        match outcome {
            Outcome::Gone if detach => self.detached.push(key),
            Outcome::Gone => self.deleted.push(key),
            Outcome::Kept => self.kept.push(key),
            Outcome::Failed => self.failed.push(key),
        }
    }
}
