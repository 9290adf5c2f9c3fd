//! What a claim and an attach tell the metrics (spec iaas 14, dataplane 5.6). Decides nothing.

use std::time::Duration;

use spiderpool_api::ip_meta::BadEntry;
use spiderpool_api::value::IfName;
use spiderpool_ipam::candidates::{NicCandidates, Reason, SelectError};
use spiderpool_ipam::facts::Snapshot;
use spiderpool_ipam::pick::PickError;
use spiderpool_ipam::pool::Pool;

use super::allocation::FamilyFailure;
use super::claim::{Claimed, Claimer};
use super::error::FlowError;
use crate::agent::Agent;
use crate::nic::Attached;
use crate::writer::WriteError;

impl Agent {
    /// Nothing was claimed: pools of a provider were named for a NIC that is no sub-ENI.
    pub(super) fn count_refused(&self, snapshot: &Snapshot, error: &SelectError) {
        let SelectError::Refused(unserved) = error else {
            return;
        };
        let refusals = unserved.iter().flat_map(|family| &family.refusals);
        for refusal in refusals.filter(|refusal| refusal.reason == Reason::NeedsEniVlan) {
            if let Some(pool) = snapshot.pool(&refusal.pool) {
                self.metrics.iaas.wrong_nic(pool);
            }
        }
    }

    /// How the pre-flight of an attach went, if there was one.
    pub(super) fn count_preflight(&self, master: &IfName, attached: &Result<Attached, FlowError>) {
        let preflight = &self.metrics.preflight;
        match attached {
            Ok(attached) => preflight.passed(master, &attached.preflight),
            Err(FlowError::Nic(error)) => preflight.failed(error),
            Err(_) => {}
        }
    }
}

impl Claimer<'_> {
    /// Entries of the candidates' metadata that contradict themselves are skipped by every pick. Each is
    /// told once, until the provider publishes others.
    pub(super) fn count_bad_entries(&self, nics: &[NicCandidates]) {
        let families = nics.iter().flat_map(|nic| &nic.families);
        for candidate in families.flat_map(|family| &family.candidates) {
            let pool = &candidate.pool;
            let Some(Ok(metadata)) = &pool.metadata else {
                continue;
            };
            if !self.agent.memory.is_news(&pool.name, &metadata.bad) {
                continue;
            }
            for bad in &metadata.bad {
                tracing::error!(
                    pool = pool.name,
                    ip = bad.key,
                    reason = bad.reason,
                    "an entry of IaaS IP metadata contradicts itself and is skipped"
                );
                self.agent.metrics.iaas.undecodable("bad_entry");
            }
        }
    }

    /// What a pool said when it was tried: metadata that cannot be read is counted once, until the
    /// provider publishes other.
    pub(super) fn count_unreadable(&self, pool: &Pool, error: &WriteError) {
        let WriteError::Pick(PickError::NotReady(why)) = error else {
            return;
        };
        let Some(reason) = why.reason else {
            return;
        };
        let all_of_it = BadEntry {
            key: reason.to_owned(),
            reason: why.text.clone(),
        };
        if self.agent.memory.is_news(&pool.name, &[all_of_it]) {
            self.agent.metrics.iaas.undecodable(reason);
        }
    }

    /// Everything is claimed and bound.
    pub(super) fn count_given(&self, claimed: &[Claimed], took: Duration) {
        for claim in claimed.iter().filter(|claim| !claim.half) {
            let iaas = &self.agent.metrics.iaas;
            iaas.allocated(&claim.pool, claim.pick.path, took);
        }
    }

    /// Pools that gave nothing to an allocation that failed.
    pub(super) fn count_failures(&self, failures: &[FamilyFailure]) {
        for failure in failures {
            let sub_eni = self.snapshot.sub_eni.as_ref() == Some(&failure.nic);
            for (name, error) in &failure.tried {
                if let Some(pool) = self.snapshot.pool(name) {
                    self.agent.metrics.iaas.refused(pool, sub_eni, error);
                }
            }
        }
    }
}
