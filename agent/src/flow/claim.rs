//! Claims: from candidates to addresses whose records carry the Pod's UID and whose sub-ENIs are
//! bound. Tries pools in order, families side by side; undoes by the class of the pool.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use spiderpool_api::value::Mac;
use spiderpool_ipam::batch::{Op, Outcome};
use spiderpool_ipam::candidates::{Candidate, FamilyCandidates, NicCandidates};
use spiderpool_ipam::facts::Snapshot;
use spiderpool_ipam::first_generation;
use spiderpool_ipam::pick::{Claimant, Path, Pick, PickError, PickKind, Rules};
use spiderpool_ipam::plan::{self, Allocation, Claim, Undo};
use spiderpool_ipam::pool::Pool;
use tokio::time::Instant;

use super::allocation::{AllocationError, FamilyFailure};
use super::call::NicCall;
use crate::agent::Agent;
use crate::failpoint::add_step;
use crate::writer::{Change, Promise, WriteError};

/// Wait before another partner is chosen for a sub-ENI that does not exist yet, before jitter.
const PARTNER_BACKOFF: Duration = Duration::from_millis(5);

/// An address that is claimed.
#[derive(Debug, Clone)]
pub(super) struct Claimed {
    /// Index of the NIC in the selection.
    pub(super) nic: usize,
    pub(super) pool: Arc<Pool>,
    pub(super) pick: Pick,
    /// The IPv6 side of a pair: it shares the sub-ENI of the other.
    pub(super) half: bool,
    /// MAC of the parent NIC, where the provider was told one.
    pub(super) parent: Option<Mac>,
}

/// What all NICs of a selection were given, in its order.
#[derive(Debug)]
pub(super) struct Given {
    pub(super) allocations: Vec<Allocation>,
    /// MAC of each NIC's parent, where the provider was told one.
    pub(super) parents: Vec<Option<Mac>>,
}

/// One writer call's surroundings.
pub(super) struct Claimer<'a> {
    pub(super) agent: &'a Agent,
    pub(super) snapshot: &'a Snapshot,
    pub(super) rules: Arc<Rules>,
    pub(super) call: &'a NicCall,
}

impl Claimer<'_> {
    /// Addresses for all NICs, or none: what may not stay is undone. `promises` are told ahead what
    /// the families are given, one each, in the order of the NICs; there may be none.
    pub(super) async fn claim_all(
        &self,
        nics: &[NicCandidates],
        promises: Vec<Promise>,
    ) -> Result<Given, AllocationError> {
        check_sub_eni(self.snapshot, nics)?;
        self.count_bad_entries(nics);
        let begun = Instant::now();
        let mut promises = promises.into_iter();
        let mut tasks = Vec::new();
        for (index, nic) in nics.iter().enumerate() {
            for family in &nic.families {
                tasks.push(self.claim_family(index, nic, family, promises.next()));
            }
        }
        let (mut claimed, mut failures) = (Vec::new(), Vec::new());
        for result in join_all(tasks).await {
            match result {
                Ok(addresses) => claimed.extend(addresses),
                Err(failure) => failures.push(failure),
            }
        }
        let bound = if failures.is_empty() {
            self.bind(nics, &mut claimed).await
        } else {
            self.count_failures(&failures);
            Err(AllocationError::Families(failures))
        };
        let result = bound.and_then(|()| assemble(nics, &claimed));
        match &result {
            Ok(_) => self.count_given(&claimed, begun.elapsed()),
            Err(error) => self.undo(nics, &claimed, error).await,
        }
        result
    }

    /// The first pool that gives an address, and its partner where the pool is of a pair.
    async fn claim_family(
        &self,
        index: usize,
        nic: &NicCandidates,
        family: &FamilyCandidates,
        mut promise: Option<Promise>,
    ) -> Result<Vec<Claimed>, FamilyFailure> {
        let who = plan::claimant(self.snapshot, &nic.nic);
        let mut tried = Vec::new();
        for candidate in own_first(&family.candidates, &who) {
            let claim = self.claim_candidate(index, candidate, &who, promise.take());
            match claim.await {
                Ok(claimed) => return Ok(claimed),
                Err(error) => {
                    self.count_unreadable(&candidate.pool, &error);
                    let goes_on = error.is_this_pool_only();
                    tried.push((candidate.pool.name.clone(), error));
                    if !goes_on {
                        break;
                    }
                }
            }
        }
        Err(FamilyFailure {
            nic: nic.nic.clone(),
            family: family.family,
            tried,
            refusals: family.refusals.clone(),
        })
    }

    async fn claim_candidate(
        &self,
        nic: usize,
        candidate: &Candidate,
        who: &Claimant,
        promise: Option<Promise>,
    ) -> Result<Vec<Claimed>, WriteError> {
        let claimed = |(pool, pick), half| Claimed {
            nic,
            pool,
            pick,
            half,
            parent: None,
        };
        let first = self.claim_first(candidate, who, promise).await?;
        let (Some(sibling), Some(_)) = (&candidate.sibling, first.1.pair_v6) else {
            return Ok(vec![claimed(first, false)]);
        };
        let mut first = first;
        loop {
            let (address, path) = (first.1.address, first.1.path);
            let half = match first.1.pair_v6 {
                Some(v6) => self.claim_half(&sibling.name, who, v6.into()).await,
                None => return Ok(vec![claimed(first, false)]),
            };
            let error = match half {
                Ok(half) => return Ok(vec![claimed(first, false), claimed(half, true)]),
                Err(error) => error,
            };
            // Until its sub-ENI exists the address has no partner of its own: somebody else was
            // quicker with this one, another will do.
            let again = path == Path::ColdCreate && is_taken(&error);
            let next = match again && self.pause().await {
                true => self.claim_first(candidate, who, None).await,
                false => Err(error),
            };
            match next {
                Ok(next) => first = next,
                Err(error) => {
                    // Pair or nothing (spec iaas 7.5).
                    self.give_back(&candidate.pool.name, who, address, None)
                        .await;
                    return Err(error);
                }
            }
        }
    }

    async fn claim_first(
        &self,
        candidate: &Candidate,
        who: &Claimant,
        promise: Option<Promise>,
    ) -> Result<(Arc<Pool>, Pick), WriteError> {
        let sibling = candidate.sibling.as_ref().map(|pool| pool.name.clone());
        let op = Op::Claim {
            who: who.clone(),
            pin: None,
        };
        let pool = &candidate.pool.name;
        add_step!(Claim, self.commit_promised(pool, sibling, op, promise))
    }

    async fn claim_half(
        &self,
        sibling: &str,
        who: &Claimant,
        address: IpAddr,
    ) -> Result<(Arc<Pool>, Pick), WriteError> {
        let op = Op::ClaimHalf {
            who: who.clone(),
            address,
        };
        add_step!(ClaimHalf, self.commit(sibling, None, op))
    }

    /// Waits a little; `false` when there is no time left.
    async fn pause(&self) -> bool {
        let wait = tokio::time::sleep(self.agent.jitter.around(PARTNER_BACKOFF));
        let limits = &self.call.call.limits;
        let waited = limits.wait("others kept taking the partner address", wait);
        waited.await.is_ok()
    }

    /// One claim; the pool answers with an address.
    pub(super) async fn commit(
        &self,
        pool: &str,
        sibling: Option<String>,
        op: Op,
    ) -> Result<(Arc<Pool>, Pick), WriteError> {
        self.commit_promised(pool, sibling, op, None).await
    }

    async fn commit_promised(
        &self,
        pool: &str,
        sibling: Option<String>,
        op: Op,
        promise: Option<Promise>,
    ) -> Result<(Arc<Pool>, Pick), WriteError> {
        // Noted before the write: a caller that is gone then still finds the record at DEL.
        self.agent.memory.wrote(&self.snapshot.pod.uid, pool);
        let change = Change {
            pool: pool.to_owned(),
            sibling,
            op,
            rules: Arc::clone(&self.rules),
            deadline: self.call.call.limits.deadline,
        };
        let committed = self.agent.writers.commit_promised(change, promise);
        let committed = self
            .call
            .call
            .limits
            .unless_gone("waiting for the pool's writer", committed)
            .await
            .map_err(|_| WriteError::CallerGone(pool.to_owned()))??;
        match committed.outcome {
            Outcome::Claimed(pick) => Ok((committed.pool, pick)),
            Outcome::Marked(_) | Outcome::Released(_) => Err(WriteError::Stopped(pool.to_owned())),
        }
    }

    pub(super) async fn undo(
        &self,
        nics: &[NicCandidates],
        claimed: &[Claimed],
        why: &AllocationError,
    ) {
        // The IPv6 half last claimed goes first.
        for claim in claimed.iter().rev() {
            let Some(nic) = nics.get(claim.nic) else {
                continue;
            };
            let goes = plan::undo_of_claim(&claim.pool.mode, claim.pick.path) == Undo::Reverse;
            if !goes || self.is_in_use(claim) {
                continue;
            }
            let who = plan::claimant(self.snapshot, &nic.nic);
            let address = claim.pick.address;
            self.give_back(&claim.pool.name, &who, address, Some(why))
                .await;
        }
    }

    /// Whether an earlier call was answered with it: then it is not of this one, and a link may
    /// use it.
    fn is_in_use(&self, claim: &Claimed) -> bool {
        let endpoint = self.snapshot.endpoint.as_ref();
        let current = endpoint.map(|endpoint| &endpoint.current);
        let kept = self.snapshot.identity().is_some();
        let current = current.filter(|current| kept || current.uid == self.snapshot.pod.uid);
        claim.pick.kind == PickKind::Existing
            && current.is_some_and(|current| {
                let details = current.ips.iter();
                let texts = details.flat_map(|nic| [&nic.ipv4, &nic.ipv6]).flatten();
                texts
                    .filter_map(|text| text.split('/').next()?.parse::<IpAddr>().ok())
                    .any(|address| address == claim.pick.address)
            })
    }

    /// A failed undo is left to GC: the record still carries the UID.
    async fn give_back(
        &self,
        pool: &str,
        who: &Claimant,
        address: IpAddr,
        why: Option<&AllocationError>,
    ) {
        let change = Change {
            pool: pool.to_owned(),
            sibling: None,
            op: Op::Release {
                uid: who.uid.clone(),
                nic: Some(who.nic.clone()),
                addresses: Some(vec![address]),
                by: None,
            },
            rules: Arc::clone(&self.rules),
            deadline: self
                .call
                .call
                .limits
                .deadline
                .max(self.agent.undo_deadline()),
        };
        let pod = &who.pod;
        let given = self.agent.writers.commit(change).await;
        if given.is_ok() {
            self.agent.metrics.iaas.rolled_back();
        }
        match given {
            Ok(_) if matches!(why, Some(AllocationError::Provider { .. })) => {
                tracing::info!(
                    pod,
                    "Rolled back global-pool claim {address} in IPPool {pool} after IaaS allocate failure"
                );
            }
            Ok(_) => tracing::info!(pool, %address, pod, "rolled a claim back"),
            Err(error) => {
                tracing::warn!(pool, %address, pod, error = %super::error::full(&error), "cannot roll a claim back; GC frees it");
            }
        }
    }
}

/// Under the first generation of the provider's contract, before any claim.
fn check_sub_eni(snapshot: &Snapshot, nics: &[NicCandidates]) -> Result<(), AllocationError> {
    let is_it = |nic: &&NicCandidates| snapshot.sub_eni.as_ref() == Some(&nic.nic);
    match nics.iter().find(is_it) {
        Some(nic) => first_generation::check_families(nic).map_err(AllocationError::NotIpv4),
        None => Ok(()),
    }
}

/// Whether somebody else has the very address that was wanted.
fn is_taken(error: &WriteError) -> bool {
    matches!(error, WriteError::Pick(PickError::Pinned { .. }))
}

/// Pools that hold a record of this NIC already come first: a retry shall meet the same address.
fn own_first<'a>(candidates: &'a [Candidate], who: &Claimant) -> Vec<&'a Candidate> {
    let mut ordered: Vec<&Candidate> = candidates.iter().collect();
    ordered.sort_by_key(|candidate| {
        let own = candidate.pool.records_of(&who.uid);
        !own.iter()
            .any(|(address, record)| spiderpool_ipam::pick::owns(who, *address, record))
    });
    ordered
}

/// What these claims give the NICs.
pub(super) fn assemble(
    nics: &[NicCandidates],
    claimed: &[Claimed],
) -> Result<Given, AllocationError> {
    let one = |(index, nic): (usize, &NicCandidates)| {
        let claims: Vec<Claim<'_>> = claimed
            .iter()
            .filter(|claim| claim.nic == index)
            .map(|claim| Claim {
                pool: &claim.pool,
                address: claim.pick.address,
                binding: claim.pick.binding,
            })
            .collect();
        plan::assemble(&nic.nic, nic.clean_gateway, &claims).map_err(AllocationError::Result)
    };
    let parent = |index| {
        let own = claimed.iter().filter(|claim| claim.nic == index);
        own.filter_map(|claim| claim.parent).next()
    };
    Ok(Given {
        allocations: nics.iter().enumerate().map(one).collect::<Result<_, _>>()?,
        parents: (0..nics.len()).map(parent).collect(),
    })
}
