//! Addresses of an identity that cannot come along to its next Pod: they leave the endpoint, then the
//! pools, and the ADD is planned anew (spec ipam 1.3 row 5, 1.4, 7.5).

use std::collections::{BTreeMap, BTreeSet};

use spiderpool_api::endpoint::SpiderEndpoint;
use spiderpool_ipam::facts::Snapshot;
use spiderpool_ipam::plan::{Exchange, Freed};

use super::allocation::AllocationError;
use super::call::Limits;
use super::error::full;
use super::release::PoolAddress;
use super::unbind::Owner;
use crate::agent::Agent;
use crate::store::{ObjectKey, StoreError};

impl Agent {
    /// Gives the addresses up. The endpoint goes first: its condition proves that the decision was made
    /// on what is stored. What cannot be freed is GC's and does not stop the ADD.
    pub(super) async fn exchange(
        &self,
        snapshot: &Snapshot,
        endpoint: SpiderEndpoint,
        exchange: Exchange,
        limits: &Limits,
    ) -> Result<(), AllocationError> {
        if exchange.keep.is_empty() {
            self.drop_endpoint(&endpoint).await?;
        } else {
            let mut status = endpoint.status.clone();
            status.current.ips = exchange.keep;
            let object = self.rewritten(snapshot, Some(endpoint), status).await?;
            match self.write_endpoint(object).await {
                Ok(_) => {}
                Err(StoreError::Conflict(_)) => return Ok(()),
                Err(error) => {
                    return Err(AllocationError::store("write the SpiderEndpoint")(error));
                }
            }
        }
        self.free_given_up(snapshot, &exchange.free, limits).await;
        Ok(())
    }

    async fn free_given_up(&self, snapshot: &Snapshot, free: &[Freed], limits: &Limits) {
        let mut by_uid: BTreeMap<&str, BTreeSet<PoolAddress>> = BTreeMap::new();
        for item in free {
            // A sandbox here still uses it: its DEL frees what the endpoint no longer names.
            if !self.is_attached(&item.uid, item.address) {
                let addresses = by_uid.entry(&item.uid).or_default();
                addresses.insert((item.pool.clone(), item.address));
            }
        }
        let pod = ObjectKey::new(&snapshot.pod.namespace, &snapshot.pod.name);
        for (uid, addresses) in by_uid {
            let owner = Owner {
                pod: &pod,
                uid,
                endpoint: None,
                deadline: limits.deadline,
            };
            let texts = addresses.iter().map(|(pool, ip)| format!("{ip} of {pool}"));
            let ips = texts.collect::<Vec<_>>().join(", ");
            match self.release_only(owner, addresses).await {
                Ok(true) => {
                    tracing::info!(%pod, uid, ips, "gave up addresses that its identity had kept");
                }
                Ok(false) => {
                    tracing::warn!(%pod, uid, ips, "the provider has not accepted addresses that were given up; GC's work");
                }
                Err(error) => {
                    tracing::warn!(%pod, uid, ips, error = full(&error), "addresses that were given up are not freed; GC's work");
                }
            }
        }
    }
}
