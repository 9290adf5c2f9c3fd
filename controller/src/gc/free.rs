//! How garbage goes: the records of one pool together in one conditional write; the provider of a
//! prewarm pool first, under the marker, once for a sub-ENI (spec ipam 6.5, iaas 9).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use kube::Api;
use kube::api::ListParams;
use kube::core::PartialObjectMeta;
use spiderpool_api::allocation::Record;
use spiderpool_api::ippool::SpiderIPPool;
use spiderpool_api::names;
use spiderpool_iaas::error::CallError;
use spiderpool_iaas::provider::Provider;
use spiderpool_ipam::batch::{self, Op, Outcome, TAKEOVER_SECONDS};
use spiderpool_ipam::first_generation::Unnamed;
use spiderpool_ipam::gc::{How, how_to_release};
use spiderpool_ipam::pick::Rules;
use spiderpool_ipam::pool::{Mode, Pool, PoolError};
use spiderpool_ipam::range::Family;
use tokio::time::{Instant, sleep};

use super::calls::Call;
use super::request::{request, told, unnamed_of};
use super::{Garbage, Gc};
use crate::chain::full;
use crate::objects::StoreError;
use crate::objects::error::store_error;
use crate::objects::pool::PoolObject;

/// How long a write is tried again after conflicts.
const PATIENCE: Duration = Duration::from_secs(60);
/// Sleep after a conflict.
const BACKOFF: Duration = Duration::from_millis(40);
/// How long after its mark a call may still be made. A process that was stopped in between must not
/// call any more: the mark may have been taken over, and the address be another Pod's.
pub(super) const MARKED: Duration = Duration::from_secs(TAKEOVER_SECONDS.unsigned_abs() * 3 / 4);

/// Records of a pool could not be freed.
#[derive(Debug, thiserror::Error)]
pub(super) enum FreeError {
    /// The API.
    #[error("IPPool {pool} could not be read or written")]
    Api { pool: String, source: StoreError },
    /// The object.
    #[error("IPPool {pool} cannot be understood")]
    Unusable {
        pool: String,
        source: Arc<PoolError>,
    },
    /// Others kept changing it.
    #[error("IPPool {0} was changed by others all the time")]
    Conflicts(String),
}

/// What came of it.
#[derive(Debug, Default)]
pub(super) struct Freed {
    /// Addresses whose record is gone, by whomever.
    pub(super) gone: BTreeSet<IpAddr>,
    /// Addresses that somebody else is giving back, or whose last call has no answer yet.
    pub(super) deferred: BTreeSet<IpAddr>,
}

/// A prewarmed sub-ENI that goes.
struct SubEni<'a> {
    garbage: &'a Garbage,
    half: Option<(String, IpAddr)>,
}

impl Gc {
    /// Frees records of one pool. What is in neither set of the answer has failed, with a log line, and
    /// stays for the next round.
    pub(super) async fn free(&self, pool: &str, garbage: &[&Garbage]) -> Freed {
        let mut freed = Freed::default();
        if let Err(error) = self.free_in(pool, garbage, &mut freed).await {
            tracing::warn!(pool, "records are not freed for now: {}", full(&error));
        }
        freed
    }

    async fn free_in(
        &self,
        name: &str,
        garbage: &[&Garbage],
        freed: &mut Freed,
    ) -> Result<(), FreeError> {
        let Some(read) = self.read(name).await? else {
            // The records went with it.
            freed.gone.extend(garbage.iter().map(|one| one.address));
            return Ok(());
        };
        let pool = usable(name, read.pool())?;
        let relatives = self.relatives(&pool).await?;
        let now = self.now();
        let (mut records, mut enis) = (Vec::new(), Vec::new());
        for one in garbage {
            let record = pool.records.get(one.address);
            let Some(record) = record.filter(|record| record.pod_uid == one.uid) else {
                freed.gone.insert(one.address);
                continue;
            };
            let left = self.marked(name, one.address, record, now);
            if left.is_some_and(|left| !left.is_zero()) {
                freed.deferred.insert(one.address);
                continue;
            }
            match self.how(&pool, one, record, &relatives) {
                How::Record => records.push(*one),
                _ if self.provider.is_none() => {
                    self.tell_silent(&read).await;
                    records.push(*one);
                }
                How::ProviderFirst { half } => enis.push(SubEni { garbage: one, half }),
                How::WithPrimary { .. } => drop(freed.deferred.insert(one.address)),
            }
        }
        if let Some(provider) = &self.provider {
            // A few at a time: a marker must not get old while its call waits for its turn.
            let chunk = self.chunk();
            for enis in enis.chunks(chunk) {
                self.unbind(provider.as_ref(), &pool, enis, freed).await?;
            }
        }
        self.free_records(name, &records, freed).await
    }

    /// How a record goes. Under contract version 1 agents of other releases did not write into it that the
    /// provider has bound the address.
    fn how(&self, pool: &Pool, one: &Garbage, record: &Record, relatives: &[Pool]) -> How {
        let how = how_to_release(pool, one.address, record, relatives.iter());
        if how != How::Record || !self.is_first_generation() {
            return how;
        }
        match unnamed_of(pool, one, record) {
            Unnamed::NotBound => How::Record,
            Unnamed::For(_) => How::ProviderFirst { half: None },
            Unnamed::Nowhere => {
                let (pod, ip, pool) = (&one.key, one.address, &pool.name);
                tracing::warn!(
                    %pod, %ip, pool,
                    "freed without a release call: an older agent wrote the record, and nothing tells on which node \
                     the address may be bound; if it is, it stays bound until its next Pod, or release it at the provider"
                );
                How::Record
            }
        }
    }

    fn chunk(&self) -> usize {
        usize::try_from(self.knobs.workers).unwrap_or(1).max(1)
    }

    async fn free_records(
        &self,
        pool: &str,
        records: &[&Garbage],
        freed: &mut Freed,
    ) -> Result<(), FreeError> {
        let mut by_uid: BTreeMap<&str, Vec<IpAddr>> = BTreeMap::new();
        for one in records {
            by_uid.entry(&one.uid).or_default().push(one.address);
        }
        let ops: Vec<Op> = by_uid
            .into_iter()
            .map(|(uid, addresses)| self.release(uid, addresses))
            .collect();
        let Some(left) = self.change(pool, &ops).await?.map(|(pool, _)| pool) else {
            freed.gone.extend(records.iter().map(|one| one.address));
            return Ok(());
        };
        for one in records {
            let record = left.records.get(one.address);
            if record.is_some_and(|record| record.pod_uid == one.uid) {
                // Marked in between.
                freed.deferred.insert(one.address);
                continue;
            }
            freed.gone.insert(one.address);
            let (pod, ip, uid) = (&one.key, one.address, &one.uid);
            tracing::info!(%pod, uid, %ip, pool, why = one.why, "collected");
        }
        Ok(())
    }

    fn release(&self, uid: &str, addresses: Vec<IpAddr>) -> Op {
        Op::Release {
            uid: uid.to_owned(),
            nic: None,
            addresses: Some(addresses),
            by: Some(self.actor.clone()),
        }
    }

    /// Marks, tells the provider, frees both halves of each.
    async fn unbind(
        &self,
        provider: &dyn Provider,
        pool: &Pool,
        enis: &[SubEni<'_>],
        freed: &mut Freed,
    ) -> Result<(), FreeError> {
        let mut calls = Vec::new();
        for eni in enis {
            match self.calls.begin(&pool.name, eni.garbage.address) {
                Some(call) => calls.push((eni, call)),
                None => drop(freed.deferred.insert(eni.garbage.address)),
            }
        }
        if calls.is_empty() {
            return Ok(());
        }
        let until = Instant::now() + MARKED;
        let marks: Vec<Op> = calls.iter().map(|(eni, _)| self.mark(eni)).collect();
        let marked = self.change(&pool.name, &marks).await;
        let outcomes = match marked {
            Ok(outcomes) => outcomes.map(|(_, outcomes)| outcomes).unwrap_or_default(),
            Err(error) => {
                // Nobody was called.
                calls.into_iter().for_each(|(_, call)| call.settle());
                return Err(error);
            }
        };
        let mut ours = Vec::new();
        for ((eni, call), outcome) in calls.into_iter().zip(outcomes) {
            if matches!(outcome, Outcome::Marked(marked) if !marked.is_empty()) {
                ours.push((eni, call));
            } else {
                call.settle();
                freed.deferred.insert(eni.garbage.address);
            }
        }
        let calls: Vec<BoxFuture<'_, Option<&SubEni<'_>>>> = ours
            .into_iter()
            .map(|(eni, call)| unbind_one(provider, pool, eni, call, until).boxed())
            .collect();
        let accepted = futures::future::join_all(calls).await;
        let accepted: Vec<&SubEni<'_>> = accepted.into_iter().flatten().collect();
        self.free_halves(&pool.name, &accepted, freed).await
    }

    fn mark(&self, eni: &SubEni<'_>) -> Op {
        Op::Mark {
            uid: eni.garbage.uid.clone(),
            addresses: vec![eni.garbage.address],
            by: self.actor.clone(),
            at: self.clock.rfc3339(),
        }
    }

    /// The IPv6 halves go first: while the marked IPv4 record is there, nobody gets the pair.
    async fn free_halves(
        &self,
        pool: &str,
        enis: &[&SubEni<'_>],
        freed: &mut Freed,
    ) -> Result<(), FreeError> {
        let mut halves: BTreeMap<&str, Vec<Op>> = BTreeMap::new();
        for eni in enis {
            if let Some((pool, address)) = &eni.half {
                let op = self.release(&eni.garbage.uid, vec![*address]);
                halves.entry(pool).or_default().push(op);
            }
        }
        for (pool, ops) in halves {
            self.change(pool, &ops).await?;
        }
        let firsts: Vec<&Garbage> = enis.iter().map(|eni| eni.garbage).collect();
        self.free_records(pool, &firsts, freed).await
    }

    /// One conditional write of a pool, made anew after each conflict; the answer is the pool after it.
    /// `None`: there is no such pool.
    async fn change(
        &self,
        name: &str,
        ops: &[Op],
    ) -> Result<Option<(Arc<Pool>, Vec<Outcome>)>, FreeError> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let Some(read) = self.read(name).await? else {
                return Ok(None);
            };
            let pool = usable(name, read.pool())?;
            let batch = batch::apply(&pool, None, &Rules::default(), ops);
            // Neither marking nor releasing picks an address: there is nothing to fail.
            let outcomes = batch.outcomes.into_iter().flatten().collect();
            if !batch.changed {
                return Ok(Some((pool, outcomes)));
            }
            match self.pools.put_status(&read, &batch.records).await {
                Ok(written) => return Ok(Some((usable(name, written.pool())?, outcomes))),
                Err(StoreError::NotFound(_)) => return Ok(None),
                Err(StoreError::Conflict(_)) if Instant::now() < deadline => {
                    sleep(self.jitter.around(BACKOFF)).await;
                }
                Err(StoreError::Conflict(_)) => return Err(FreeError::Conflicts(name.to_owned())),
                Err(source) => return Err(api_failed(name, source)),
            }
        }
    }

    async fn read(&self, name: &str) -> Result<Option<Arc<PoolObject>>, FreeError> {
        match self.pools.get(name).await {
            Ok(read) => Ok(Some(read)),
            Err(StoreError::NotFound(_)) => Ok(None),
            Err(source) => Err(api_failed(name, source)),
        }
    }

    /// The pools that a prewarm pool's sub-ENIs have their other addresses in.
    async fn relatives(&self, pool: &Pool) -> Result<Vec<Pool>, FreeError> {
        if self.provider.is_none() || !matches!(pool.mode, Mode::Prewarm { .. }) {
            return Ok(Vec::new());
        }
        let mut names: BTreeSet<String> = pool.pair.iter().cloned().collect();
        if pool.family == Family::V6 {
            let all: Api<PartialObjectMeta<SpiderIPPool>> = Api::all(self.client.clone());
            let listed = all.list_metadata(&ListParams::default()).await;
            let listed = listed.map_err(|error| {
                api_failed(&pool.name, store_error(error, "list", "all SpiderIPPools"))
            })?;
            let primaries = listed.items.into_iter().filter_map(|other| {
                let pair = other.metadata.annotations.as_ref()?.get(names::PAIR_POOL)?;
                (pair.trim() == pool.name).then_some(other.metadata.name?)
            });
            names.extend(primaries);
        }
        let mut relatives = Vec::new();
        for name in names {
            if let Some(read) = self.read(&name).await? {
                relatives.push(Arc::unwrap_or_clone(usable(&name, read.pool())?));
            }
        }
        Ok(relatives)
    }
}

/// One call; the sub-ENI, if the provider has accepted.
async fn unbind_one<'a>(
    provider: &dyn Provider,
    pool: &Pool,
    eni: &'a SubEni<'a>,
    call: Call<'_>,
    until: Instant,
) -> Option<&'a SubEni<'a>> {
    let request = request(pool, eni.garbage);
    let result = provider.release(&request, Some(until)).await;
    if !result.as_ref().is_err_and(CallError::is_unsettled) {
        call.settle();
    }
    told(&request, &result).then_some(eni)
}

fn usable(name: &str, pool: Result<&Arc<Pool>, &Arc<PoolError>>) -> Result<Arc<Pool>, FreeError> {
    pool.map(Arc::clone).map_err(|source| FreeError::Unusable {
        pool: name.to_owned(),
        source: Arc::clone(source),
    })
}

fn api_failed(pool: &str, source: StoreError) -> FreeError {
    FreeError::Api {
        pool: pool.to_owned(),
        source,
    }
}
