//! Batch DEL: the IPAM plugin's probes failed, and it gives all addresses of its Pod back (spec ipam 1.7,
//! last paragraph). The endpoint is emptied first, so that no ADD retrieves what is being freed.

use std::collections::BTreeSet;

use spiderpool_api::agent_v1::BatchDelRequest;
use spiderpool_api::endpoint::SpiderEndpoint;
use spiderpool_ipam::plan::{BatchDelError, BatchDelFacts, BatchDelPlan, Held, plan_batch_del};
use tokio::time::Instant;

use super::category::Category;
use super::error::FlowError;
use super::release::PoolAddress;
use super::unbind::Owner;
use crate::agent::Agent;
use crate::store::{Freshness, ObjectKey, StoreError};

/// Why a batch DEL failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BatchError {
    /// By the rules.
    #[error(transparent)]
    Refused(BatchDelError),
    /// On the way.
    #[error(transparent)]
    Flow(FlowError),
    /// Somebody kept writing the endpoint.
    #[error(
        "the SpiderEndpoint {0} was changed by others until the deadline; nothing of it is released, try again later"
    )]
    Deadline(ObjectKey),
    /// The provider.
    #[error(
        "the IaaS Network Provider has not accepted all sub-ENIs of Pod {0}; their addresses stay claimed until its DEL"
    )]
    Waiting(ObjectKey),
}

impl BatchError {
    /// HTTP status of the answer.
    pub(crate) const fn status(&self) -> u16 {
        match self {
            Self::Refused(error) => error.status(),
            _ => 500,
        }
    }

    /// For the metrics.
    pub(crate) fn category(&self) -> Category {
        match self {
            Self::Flow(error) => Category::of(error),
            Self::Deadline(_) => Category::RetriesExhausted,
            Self::Refused(_) | Self::Waiting(_) => Category::Internal,
        }
    }
}

impl From<FlowError> for BatchError {
    fn from(error: FlowError) -> Self {
        Self::Flow(error)
    }
}

impl Agent {
    /// Serves batch DEL.
    pub(crate) async fn batch_del(
        &self,
        call: &BatchDelRequest,
        deadline: Instant,
    ) -> Result<(), BatchError> {
        let pod = ObjectKey::new(&call.pod_namespace, &call.pod_name);
        loop {
            let (facts, endpoint) = self.batch_facts(call, &pod).await?;
            let plan = plan_batch_del(&facts).map_err(BatchError::Refused)?;
            let (BatchDelPlan::Release { uid, held }, Some(endpoint)) = (plan, endpoint) else {
                return Ok(());
            };
            self.detach_all(&uid).await?;
            if !self.emptied(endpoint).await? {
                if Instant::now() >= deadline {
                    return Err(BatchError::Deadline(pod));
                }
                continue;
            }
            let owner = Owner {
                pod: &pod,
                uid: &uid,
                endpoint: None,
                deadline,
            };
            return self.free_batch(owner, held, call.conflict).await;
        }
    }

    /// Read past the caches, as for DEL.
    async fn batch_facts(
        &self,
        call: &BatchDelRequest,
        pod: &ObjectKey,
    ) -> Result<(BatchDelFacts, Option<SpiderEndpoint>), FlowError> {
        let switches = self.settings.switches;
        let found = self.read_pod(pod, Freshness::Fresh).await?;
        let key = found
            .as_ref()
            .map_or_else(|| pod.clone(), |found| found.endpoint_key(switches));
        let endpoint = self.store.endpoint(&key, Freshness::Fresh).await;
        let endpoint = endpoint.map_err(FlowError::store("read the SpiderEndpoint"))?;
        let asked = Some(call.pod_uid.clone()).filter(|uid| !uid.is_empty());
        let uid = match (&found, asked) {
            // A static Pod's hash becomes the UID that the records carry.
            (Some(found), Some(asked)) if found.answers_to(&asked) => Some(found.uid().to_owned()),
            (Some(found), None) => Some(found.uid().to_owned()),
            (_, asked) => asked,
        };
        let by_owner = found.and_then(|found| found.identity(switches));
        let by_endpoint = || switches.of_endpoint(&endpoint.as_ref()?.status);
        let facts = BatchDelFacts {
            pod: pod.to_string(),
            uid,
            conflict: call.conflict,
            conflict_release_enabled: self.settings.release_conflicts,
            identity: by_owner.or_else(by_endpoint),
            endpoint: endpoint.as_ref().map(|endpoint| endpoint.status.clone()),
        };
        Ok((facts, endpoint))
    }

    /// `false`: somebody else wrote it since.
    async fn emptied(&self, mut endpoint: SpiderEndpoint) -> Result<bool, FlowError> {
        if endpoint.status.current.ips.is_empty() {
            return Ok(true);
        }
        endpoint.status.current.ips.clear();
        match self.store.put_endpoint(endpoint).await {
            Ok(_) => Ok(true),
            Err(StoreError::Conflict(_)) => Ok(false),
            Err(error) => Err(FlowError::store("write the SpiderEndpoint")(error)),
        }
    }

    async fn free_batch(
        &self,
        owner: Owner<'_>,
        held: Vec<Held>,
        conflict: bool,
    ) -> Result<(), BatchError> {
        if conflict {
            // The lowest free address would be the same one again.
            for held in &held {
                self.memory.shun(held.address);
            }
        }
        let held = held.into_iter().map(|held| (held.pool, held.address));
        let addresses: BTreeSet<PoolAddress> = held.collect();
        if self.release_only(owner, addresses).await? {
            Ok(())
        } else {
            Err(BatchError::Waiting(owner.pod.clone()))
        }
    }
}
