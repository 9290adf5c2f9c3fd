//! Which idle sub-ENIs go (P12, P14): the choice of a round, from what is known. Pure; whether
//! nobody claimed them meanwhile is found out by [`super`].

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use spiderpool_api::value::Mac;

use crate::cloud::{State, SubEni};
use crate::memory::Chosen;
use crate::pool::Pool;
use crate::service::World;
use crate::settings::reclaim::{Mode, Reclaim};

/// What a round does.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Round {
    /// To be detached now, by the address they are known by.
    pub(super) detach: Vec<IpAddr>,
    /// To be deleted now.
    pub(super) delete: Vec<IpAddr>,
    /// When there will be more to do, as far as is known.
    pub(super) next: Option<Duration>,
}

/// Idle sub-ENIs of a pool or a parent NIC, coldest first.
type Idle<'a> = Vec<(Duration, IpAddr, &'a SubEni)>;

impl World {
    /// The round of now. What is chosen and has its grace is marked in the memory.
    pub(super) fn choose(&mut self, mode: Mode, now: Duration) -> Round {
        self.memory.note_rest(now);
        let settings = Reclaim {
            mode,
            ..self.settings.reclaim
        };
        let mut round = Round::default();
        let (wanted, next) = self.wanted(&settings, now);
        round.next = next;
        for key in wanted {
            let chosen = Chosen {
                at: now,
                leaving: false,
            };
            self.memory.chosen.entry(key).or_insert(chosen);
        }
        let mut due = Vec::new();
        let chosen = self.memory.chosen.iter();
        for (key, chosen) in chosen.filter(|(_, chosen)| !chosen.leaving) {
            let at = chosen.at.saturating_add(settings.grace());
            if at > now {
                round.soon(at);
            } else {
                due.push((self.memory.resting_since(*key), *key));
            }
        }
        due.sort_unstable();
        round.detach = due.into_iter().map(|(_, key)| key).collect();
        round.delete = self.too_many(&settings);
        round.limit(settings.batch, now.saturating_add(settings.debounce()));
        round
    }

    /// Idle sub-ENIs that shall be detached, those already chosen among them, and when time
    /// alone will make another one.
    fn wanted(&self, settings: &Reclaim, now: Duration) -> (BTreeSet<IpAddr>, Option<Duration>) {
        let mut wanted = BTreeSet::new();
        let mut next: Option<Duration> = None;
        for pool in self.memory.pools.values().filter(|pool| pool.is_global()) {
            let idle = self.idle(|sub_eni| sub_eni.pool == pool.name);
            match settings.mode {
                Mode::Off => {}
                Mode::Watermark => {
                    let attached = self.memory.of_pool(&pool.name);
                    let attached = attached.filter(|s| s.state.attachment().is_some()).count();
                    let above = above(attached, settings.bound, pool);
                    self.take(above, &idle, &mut wanted);
                }
                Mode::IdleTtl => {
                    for (since, key, _) in &idle {
                        let due = since.saturating_add(settings.idle_ttl());
                        if due <= now {
                            wanted.insert(*key);
                        } else {
                            next = Some(next.map_or(due, |next| next.min(due)));
                        }
                    }
                }
            }
        }
        if settings.mode != Mode::Off {
            for (parent, missing) in self.crowded(settings) {
                let idle = self.idle(|sub_eni| is_at(sub_eni, parent));
                self.take(missing, &idle, &mut wanted);
            }
        }
        (wanted, next)
    }

    /// The coldest `count`; those chosen before count first, they will go anyway.
    fn take(&self, count: usize, idle: &Idle<'_>, wanted: &mut BTreeSet<IpAddr>) {
        let is_chosen = |key: &IpAddr| self.memory.chosen.contains_key(key);
        let keys = idle.iter().map(|(_, key, _)| *key);
        let (chosen, others): (Vec<_>, Vec<_>) = keys.partition(is_chosen);
        wanted.extend(chosen.into_iter().chain(others).take(count));
    }

    /// Parent NICs with too few free places, and how many they lack.
    fn crowded(&self, settings: &Reclaim) -> BTreeMap<Mac, usize> {
        let parents = self.topology.parents.iter().filter_map(|parent| {
            let free = settings.guard_of(parent.sub_eni_limit);
            let attached = self.cloud.attached_to(parent.mac);
            let missing = (attached + free).saturating_sub(parent.sub_eni_limit);
            (missing > 0).then_some((parent.mac, missing))
        });
        parents.collect()
    }

    /// Detached sub-ENIs of pools that have made too many, the longest detached first.
    fn too_many(&self, settings: &Reclaim) -> Vec<IpAddr> {
        let mut found = Vec::new();
        for pool in self.memory.pools.values().filter(|pool| pool.is_global()) {
            let made = self.memory.of_pool(&pool.name).count();
            let above = above(made, settings.created, pool);
            let unbound = self
                .resting(|sub_eni| sub_eni.pool == pool.name && sub_eni.state == State::Unbound);
            found.extend(unbound.into_iter().map(|(_, key, _)| key).take(above));
        }
        found
    }

    /// Unclaimed sub-ENIs of global pools on a parent NIC that has no free place, coldest first.
    pub(super) fn idle_on_full(&mut self, parent: Mac, now: Duration) -> Vec<SubEni> {
        let limit = self.cloud.limit_of(parent);
        if limit.is_none_or(|limit| self.cloud.attached_to(parent) < limit) {
            return Vec::new();
        }
        self.memory.note_rest(now);
        let idle = self.idle(|sub_eni| is_at(sub_eni, parent));
        idle.into_iter()
            .map(|(.., sub_eni)| sub_eni.clone())
            .collect()
    }

    /// Unclaimed bound sub-ENIs of global pools, coldest first.
    fn idle(&self, fits: impl Fn(&SubEni) -> bool) -> Idle<'_> {
        self.resting(|sub_eni| matches!(sub_eni.state, State::Bound(_)) && fits(sub_eni))
    }

    /// Unclaimed sub-ENIs of global pools, the longest unclaimed in their state first.
    fn resting(&self, fits: impl Fn(&SubEni) -> bool) -> Idle<'_> {
        let pools = &self.memory.pools;
        let mut found: Idle<'_> = self
            .memory
            .all()
            .filter(|sub_eni| pools.get(&sub_eni.pool).is_some_and(Pool::is_global))
            .filter(|sub_eni| fits(sub_eni))
            .filter_map(|sub_eni| {
                let key = sub_eni.address()?;
                Some((self.memory.resting_since(key)?, key, sub_eni))
            })
            .collect();
        found.sort_by_key(|(since, key, _)| (*since, *key));
        found
    }
}

impl Round {
    fn soon(&mut self, at: Duration) {
        self.next = Some(self.next.map_or(at, |next| next.min(at)));
    }

    /// At most `batch`; what is left is looked at again at `then`.
    fn limit(&mut self, batch: usize, then: Duration) {
        let left = batch.saturating_sub(self.detach.len());
        if self.detach.len() > batch || self.delete.len() > left {
            self.soon(then);
        }
        self.detach.truncate(batch);
        self.delete.truncate(left);
    }
}

fn is_at(sub_eni: &SubEni, parent: Mac) -> bool {
    matches!(sub_eni.state, State::Bound(at) if at.parent == parent)
}

/// How many of `count` are too many for a share of a pool's addresses: the share is not to be
/// reached.
fn above(count: usize, share: f64, pool: &Pool) -> usize {
    let total = pool.addresses.count();
    let mut left = u128::try_from(count).unwrap_or(u128::MAX);
    let mut above = 0;
    while left > 0 && reaches(left, total, share) {
        left -= 1;
        above += 1;
    }
    above
}

#[expect(
    clippy::cast_precision_loss,
    reason = "counts of sub-ENIs; a pool of 2^53 addresses is never filled"
)]
fn reaches(part: u128, total: u128, share: f64) -> bool {
    part as f64 >= share * total as f64
}

#[cfg(test)]
#[path = "choose_tests.rs"]
mod tests;
