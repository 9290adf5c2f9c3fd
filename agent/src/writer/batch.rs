//! One pool's writer: from the members that wait to one stored write.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use spiderpool_ipam::batch::{self, Op, Outcome};
use spiderpool_ipam::pick::Rules;
use spiderpool_ipam::pool::Pool;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::{Answer, Committed, Member, WriteError};
use crate::clock::Jitter;
use crate::metrics::Metrics;
use crate::store::{Freshness, PoolObject, Store, StoreError};

/// Share of writes that met a conflict above which a batch waits for company.
const BUSY: f64 = 0.05;
/// Weight of the latest write in both averages.
const WEIGHT: f64 = 0.1;
/// A batch never waits longer for company.
const MAX_LINGER: Duration = Duration::from_millis(20);
/// Sleep after a first conflict, when no write has been measured yet.
const FIRST_BACKOFF: Duration = Duration::from_millis(5);
/// Sleep after a conflict at most, before jitter.
const MAX_BACKOFF: Duration = Duration::from_millis(200);

/// Nothing is promised for so long after a conflict.
const CALM: Duration = Duration::from_secs(10);

/// The writer of one pool and what it has learnt about it.
pub(super) struct Writer {
    pool: String,
    store: Arc<dyn Store>,
    jitter: Arc<Jitter>,
    metrics: Arc<Metrics>,
    conflicts: f64,
    last_conflict: Option<Instant>,
    write_time: Duration,
}

/// A plan for the members that wait, on one copy of the pool.
struct Plan {
    read: Arc<PoolObject>,
    pool: Arc<Pool>,
    batch: batch::Batch,
}

impl Writer {
    pub(super) fn new(
        pool: String,
        store: Arc<dyn Store>,
        jitter: Arc<Jitter>,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            pool,
            store,
            jitter,
            metrics,
            conflicts: 0.0,
            last_conflict: None,
            write_time: Duration::ZERO,
        }
    }

    /// Commits `first` and whoever waits by then; returns when all of them are answered.
    pub(super) async fn commit(
        &mut self,
        first: Member,
        waiting: &mut mpsc::UnboundedReceiver<Member>,
    ) {
        let mut freshness = Freshness::Cached;
        let mut tries = 0;
        if self.conflicts > BUSY {
            tokio::time::sleep(self.write_time.min(MAX_LINGER)).await;
        }
        self.count_wait(&first);
        let mut members = vec![first];
        loop {
            while let Ok(late) = waiting.try_recv() {
                self.count_wait(&late);
                members.push(late);
            }
            self.drop_gone(&mut members);
            if members.is_empty() {
                return;
            }
            let plan = match self.plan(&members, freshness).await {
                Ok(plan) => plan,
                Err(error) => return answer_all(members, &error),
            };
            // An old copy must not turn anybody away; and what needs no write has no version to
            // be checked against: the answer to our own latest write may have been lost.
            let settled = plan.batch.changed && plan.batch.outcomes.iter().all(Result::is_ok);
            if freshness == Freshness::Cached && !settled {
                freshness = Freshness::Fresh;
                continue;
            }
            let (stored, outcomes) = settle(&mut members, &plan);
            if !plan.batch.changed || members.is_empty() {
                return answer_each(members, outcomes, &stored);
            }
            self.promise(&mut members, &outcomes, &stored);
            match self.write(&plan).await {
                Ok(()) => return answer_each(members, outcomes, &stored),
                Err(StoreError::Conflict(_)) => {
                    self.count_conflict(&members);
                    for member in &members {
                        member.met_conflict.store(true, Ordering::Relaxed);
                    }
                    tries += 1;
                    tokio::time::sleep(self.backoff(tries)).await;
                    freshness = Freshness::Fresh;
                }
                Err(error) => return answer_all(members, &self.failed(error)),
            }
        }
    }

    /// What is about to be written is all but sure where nobody else writes.
    fn promise(&self, members: &mut [Member], outcomes: &[Outcome], pool: &Arc<Pool>) {
        let calm = self.last_conflict.is_none_or(|at| at.elapsed() >= CALM);
        for (member, outcome) in members.iter_mut().zip(outcomes) {
            // Without calm it is dropped: nobody shall wait for it.
            let promise = member.promise.take();
            // What waits for a provider, or for its other half, may still come to something else.
            let sure = matches!(outcome, Outcome::Claimed(pick)
                if !pick.path.is_cold() && pick.pair_v6.is_none());
            if let Some(promise) = promise.filter(|_| calm && sure) {
                let (outcome, pool) = (outcome.clone(), Arc::clone(pool));
                drop(promise.send(Committed { outcome, pool }));
            }
        }
    }

    fn count_wait(&self, member: &Member) {
        let waited = member.since.elapsed();
        if member.change.op.claims() {
            self.metrics.allocation.waited(waited);
        } else {
            self.metrics.release.waited(waited);
        }
    }

    /// For each verb that the write was for.
    fn count_conflict(&self, members: &[Member]) {
        if members.iter().any(|member| member.change.op.claims()) {
            self.metrics.allocation.conflict();
        }
        if members.iter().any(|member| !member.change.op.claims()) {
            self.metrics.release.conflict();
        }
    }

    /// Callers that are gone, or whose time is over, leave before the write.
    fn drop_gone(&self, members: &mut Vec<Member>) {
        let now = Instant::now();
        members.retain(|member| !member.reply.is_closed() && member.change.deadline > now);
    }

    async fn plan(&self, members: &[Member], freshness: Freshness) -> Result<Plan, WriteError> {
        let read = self.store.pool(&self.pool, freshness).await;
        let read = read
            .map_err(|error| self.failed(error))?
            .ok_or_else(|| WriteError::NoPool(self.pool.clone()))?;
        let pool = read.pool().map_err(|source| WriteError::Unusable {
            pool: self.pool.clone(),
            source: Arc::clone(source),
        })?;
        let pool = Arc::clone(pool);
        let sibling = self.sibling(members, freshness).await?;
        let ops: Vec<Op> = members
            .iter()
            .map(|member| member.change.op.clone())
            .collect();
        // The latest claim has seen the latest reservations; what gives back needs none.
        let latest = members.iter().rfind(|member| member.change.op.claims());
        let rules = latest.map_or_else(
            || Arc::new(Rules::default()),
            |member| Arc::clone(&member.change.rules),
        );
        let batch = batch::apply(&pool, sibling.as_deref(), &rules, &ops);
        Ok(Plan { read, pool, batch })
    }

    /// The other half's pool, as all members of a pair primary name it.
    async fn sibling(
        &self,
        members: &[Member],
        freshness: Freshness,
    ) -> Result<Option<Arc<Pool>>, WriteError> {
        let name = members
            .iter()
            .find_map(|member| member.change.sibling.as_deref());
        let Some(name) = name else { return Ok(None) };
        let read = self.store.pool(name, freshness).await;
        let read = read
            .map_err(|error| self.failed(error))?
            .ok_or_else(|| WriteError::NoPool(name.to_owned()))?;
        match read.pool() {
            Ok(pool) => Ok(Some(Arc::clone(pool))),
            Err(source) => Err(WriteError::Unusable {
                pool: name.to_owned(),
                source: Arc::clone(source),
            }),
        }
    }

    async fn write(&mut self, plan: &Plan) -> Result<(), StoreError> {
        let begun = Instant::now();
        let result = self
            .store
            .put_pool_status(&plan.read, &plan.batch.records)
            .await;
        let conflict = matches!(result, Err(StoreError::Conflict(_)));
        if conflict {
            self.last_conflict = Some(Instant::now());
        }
        self.conflicts += WEIGHT * (f64::from(u8::from(conflict)) - self.conflicts);
        self.write_time = match self.write_time {
            Duration::ZERO => begun.elapsed(),
            known => known.mul_f64(1.0 - WEIGHT) + begun.elapsed().mul_f64(WEIGHT),
        };
        result.map(drop)
    }

    fn backoff(&self, tries: u32) -> Duration {
        let step = self.write_time.max(FIRST_BACKOFF);
        self.jitter
            .around(step.saturating_mul(tries).min(MAX_BACKOFF))
    }

    fn failed(&self, source: StoreError) -> WriteError {
        match source {
            StoreError::NotFound(_) => WriteError::NoPool(self.pool.clone()),
            source => WriteError::Store {
                pool: self.pool.clone(),
                source: Arc::new(source),
            },
        }
    }
}

/// Answers the members that do not fit and keeps the others, with their outcomes.
fn settle(members: &mut Vec<Member>, plan: &Plan) -> (Arc<Pool>, Vec<Outcome>) {
    let mut outcomes = Vec::with_capacity(members.len());
    let mut staying = Vec::with_capacity(members.len());
    for (member, outcome) in members.drain(..).zip(&plan.batch.outcomes) {
        match outcome {
            Ok(outcome) => {
                outcomes.push(outcome.clone());
                staying.push(member);
            }
            Err(error) => answer(member, Err(WriteError::Pick(error.clone()))),
        }
    }
    *members = staying;
    (Arc::clone(&plan.pool), outcomes)
}

fn answer_each(members: Vec<Member>, outcomes: Vec<Outcome>, pool: &Arc<Pool>) {
    for (member, outcome) in members.into_iter().zip(outcomes) {
        let pool = Arc::clone(pool);
        answer(member, Ok(Committed { outcome, pool }));
    }
}

fn answer_all(members: Vec<Member>, error: &WriteError) {
    for member in members {
        answer(member, Err(error.clone()));
    }
}

/// A caller that has left meanwhile finds the record by its UID next time.
fn answer(member: Member, answer: Answer) {
    drop(member.reply.send(answer));
}
