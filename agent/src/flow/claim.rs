//! Claims: from candidates to addresses whose records carry the Pod's UID. Tries pools in order,
//! families side by side; undoes by the class of the pool.

use std::net::IpAddr;
use std::sync::Arc;

use futures::future::join_all;
use spiderpool_ipam::batch::{Op, Outcome};
use spiderpool_ipam::candidates::{Candidate, FamilyCandidates, NicCandidates};
use spiderpool_ipam::facts::Snapshot;
use spiderpool_ipam::pick::{Claimant, Pick, Rules};
use spiderpool_ipam::plan::{self, Allocation, Claim, Undo};
use spiderpool_ipam::pool::Pool;

use super::allocation::{AllocationError, FamilyFailure};
use super::call::Limits;
use crate::agent::Agent;
use crate::writer::{Change, WriteError};

/// An address that is claimed.
#[derive(Debug, Clone)]
pub(super) struct Claimed {
    /// Index of the NIC in the selection.
    nic: usize,
    pool: Arc<Pool>,
    pick: Pick,
}

/// One writer call's surroundings.
pub(super) struct Claimer<'a> {
    pub(super) agent: &'a Agent,
    pub(super) snapshot: &'a Snapshot,
    pub(super) rules: Arc<Rules>,
    pub(super) limits: &'a Limits,
}

impl Claimer<'_> {
    /// Addresses for all NICs, or none: what may not stay is undone.
    pub(super) async fn claim_all(
        &self,
        nics: &[NicCandidates],
    ) -> Result<Vec<Allocation>, AllocationError> {
        let tasks = nics.iter().enumerate().flat_map(|(index, nic)| {
            let families = nic.families.iter();
            families.map(move |family| self.claim_family(index, nic, family))
        });
        let (mut claimed, mut failures) = (Vec::new(), Vec::new());
        for result in join_all(tasks).await {
            match result {
                Ok(addresses) => claimed.extend(addresses),
                Err(failure) => failures.push(failure),
            }
        }
        let result = if failures.is_empty() {
            assemble(nics, &claimed)
        } else {
            Err(AllocationError::Families(failures))
        };
        if result.is_err() {
            self.undo(nics, &claimed).await;
        }
        result
    }

    /// The first pool that gives an address, and its partner where the pool is of a pair.
    async fn claim_family(
        &self,
        index: usize,
        nic: &NicCandidates,
        family: &FamilyCandidates,
    ) -> Result<Vec<Claimed>, FamilyFailure> {
        let who = plan::claimant(self.snapshot, &nic.nic);
        let mut tried = Vec::new();
        for candidate in own_first(&family.candidates, &who) {
            match self.claim_candidate(index, candidate, &who).await {
                Ok(claimed) => return Ok(claimed),
                Err(error) => {
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
    ) -> Result<Vec<Claimed>, WriteError> {
        let sibling = candidate.sibling.as_ref().map(|pool| pool.name.clone());
        let op = Op::Claim {
            who: who.clone(),
            pin: None,
        };
        let (pool, pick) = self
            .commit(&candidate.pool.name, sibling.clone(), op)
            .await?;
        let v6 = pick.pair_v6.map(IpAddr::V6);
        let address = pick.address;
        let mut claimed = vec![Claimed { nic, pool, pick }];
        if let (Some(sibling), Some(v6)) = (sibling, v6) {
            let op = Op::ClaimHalf {
                who: who.clone(),
                address: v6,
            };
            match self.commit(&sibling, None, op).await {
                Ok((pool, pick)) => claimed.push(Claimed { nic, pool, pick }),
                Err(error) => {
                    // Pair or nothing (spec iaas 7.5).
                    self.release(&candidate.pool.name, who, address).await;
                    return Err(error);
                }
            }
        }
        Ok(claimed)
    }

    /// One claim; the pool answers with an address.
    pub(super) async fn commit(
        &self,
        pool: &str,
        sibling: Option<String>,
        op: Op,
    ) -> Result<(Arc<Pool>, Pick), WriteError> {
        // Noted before the write: a caller that is gone then still finds the record at DEL.
        self.agent.memory.wrote(&self.snapshot.pod.uid, pool);
        let change = Change {
            pool: pool.to_owned(),
            sibling,
            op,
            rules: Arc::clone(&self.rules),
            deadline: self.limits.deadline,
        };
        let committed = self.agent.writers.commit(change);
        let committed = self
            .limits
            .unless_gone("waiting for the pool's writer", committed)
            .await
            .map_err(|_| WriteError::CallerGone(pool.to_owned()))??;
        match committed.outcome {
            Outcome::Claimed(pick) => Ok((committed.pool, pick)),
            Outcome::Released(_) => Err(WriteError::Stopped(pool.to_owned())),
        }
    }

    async fn undo(&self, nics: &[NicCandidates], claimed: &[Claimed]) {
        // The IPv6 half last claimed goes first.
        for claim in claimed.iter().rev() {
            if plan::undo_of_claim(&claim.pool.mode) != Undo::Reverse {
                continue;
            }
            let Some(nic) = nics.get(claim.nic) else {
                continue;
            };
            let who = plan::claimant(self.snapshot, &nic.nic);
            self.release(&claim.pool.name, &who, claim.pick.address)
                .await;
        }
    }

    /// A failed undo is left to GC: the record still carries the UID.
    async fn release(&self, pool: &str, who: &Claimant, address: IpAddr) {
        let change = Change {
            pool: pool.to_owned(),
            sibling: None,
            op: Op::Release {
                uid: who.uid.clone(),
                nic: Some(who.nic.clone()),
                addresses: Some(vec![address]),
            },
            rules: Arc::clone(&self.rules),
            deadline: self.limits.deadline.max(self.agent.undo_deadline()),
        };
        match self.agent.writers.commit(change).await {
            Ok(_) => tracing::info!(pool, %address, pod = who.pod, "rolled a claim back"),
            Err(error) => {
                tracing::warn!(pool, %address, pod = who.pod, error = %super::error::full(&error), "cannot roll a claim back; GC frees it");
            }
        }
    }
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

fn assemble(
    nics: &[NicCandidates],
    claimed: &[Claimed],
) -> Result<Vec<Allocation>, AllocationError> {
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
    nics.iter().enumerate().map(one).collect()
}
