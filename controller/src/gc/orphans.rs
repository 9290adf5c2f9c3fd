//! Sub-ENIs whose pool object is gone, known only from an endpoint that goes now (spec iaas 8 and 9). No
//! record is left that could be marked or freed: the provider is told once, whatever it says.

use std::net::IpAddr;

use kube::{Api, ResourceExt};
use spiderpool_api::endpoint::SpiderEndpoint;
use spiderpool_api::ippool::SpiderIPPool;
use spiderpool_api::provider::ReleaseRequest;
use spiderpool_ipam::plan::sub_enis_of;
use tokio::time::Instant;

use super::Gc;
use super::free::MARKED;
use super::request::told;
use crate::objects::StoreError;
use crate::objects::error::store_error;

impl Gc {
    /// Tells the provider of the endpoint's sub-ENIs that no pool stands for any more. The Pod has ended.
    ///
    /// # Errors
    /// [`StoreError`] when that could not be found out: the endpoint has to stay, nothing else knows them.
    pub(super) async fn unbind_orphans(&self, endpoint: &SpiderEndpoint) -> Result<(), StoreError> {
        let Some(provider) = &self.provider else {
            return Ok(());
        };
        let current = &endpoint.status.current;
        // A provider cannot do anything with a call that names no node.
        if current.node.is_empty() {
            return Ok(());
        }
        for (pool, net) in sub_enis_of(current) {
            if !self.is_orphan(&pool, net.addr()).await? {
                continue;
            }
            let request = ReleaseRequest {
                pod_name: endpoint.name_any(),
                pod_namespace: endpoint.namespace().unwrap_or_default(),
                pod_uid: current.uid.clone(),
                node_name: current.node.clone(),
                parent_nic_mac: None,
                subnet: net.trunc(),
                ip_address: net.addr(),
                pool_name: pool,
            };
            let until = Instant::now() + MARKED;
            told(&request, &provider.release(&request, Some(until)).await);
        }
        Ok(())
    }

    /// Whether the pool is gone, and no other has the address by now: a release would take it from that
    /// one's Pods.
    async fn is_orphan(&self, pool: &str, address: IpAddr) -> Result<bool, StoreError> {
        if self.has_pool(pool).await? {
            return Ok(false);
        }
        let mut is_free = true;
        self.pools
            .list(|other| {
                is_free &= other.pool().is_ok_and(|other| !other.may_hold(address));
            })
            .await?;
        if !is_free {
            tracing::warn!(pool, ip = %address, "the pool is gone and another may have the address: the provider is not told");
        }
        Ok(is_free)
    }

    /// Whether there is such a pool.
    ///
    /// # Errors
    /// [`StoreError`] when that cannot be told.
    pub(super) async fn has_pool(&self, name: &str) -> Result<bool, StoreError> {
        let api: Api<SpiderIPPool> = Api::all(self.client.clone());
        let found = api.get_metadata_opt(name).await;
        let found =
            found.map_err(|error| store_error(error, "read", &format!("SpiderIPPool {name}")));
        Ok(found?.is_some())
    }
}
