//! What a Pod was given, for plugins of others that make a sub-ENI's link themselves. Answers from the
//! endpoint only what the records prove. Reads, writes nothing.

use std::net::IpAddr;

use ipnet::IpNet;
use spiderpool_api::endpoint::EndpointNic;
use spiderpool_api::workload_v1::{WorkloadEndpoint, WorkloadNic, WorkloadQuery};

use super::error::FlowError;
use crate::agent::Agent;
use crate::store::{Freshness, ObjectKey};

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WorkloadError {
    /// The Pod was given nothing, as far as the records tell.
    #[error("no allocation of Pod {pod} is known: {why}")]
    NotFound {
        /// The Pod.
        pod: ObjectKey,
        /// What is missing.
        why: String,
    },
    /// The API.
    #[error(transparent)]
    Flow(#[from] FlowError),
}

impl Agent {
    /// The Pod's NICs, as its endpoint has them now: an ADD may have written it a moment ago.
    pub(crate) async fn workload_endpoint(
        &self,
        query: WorkloadQuery,
    ) -> Result<WorkloadEndpoint, WorkloadError> {
        let pod = ObjectKey::new(&query.pod_namespace, &query.pod_name);
        let missing = |why: &str| WorkloadError::NotFound {
            pod: pod.clone(),
            why: why.to_owned(),
        };
        let found = self.store.pod(&pod, Freshness::Cached).await;
        let found = found.map_err(FlowError::store("read the Pod"))?;
        let found = found.ok_or_else(|| missing("there is no such Pod"))?;
        let key = found.endpoint_key(self.settings.switches);
        let endpoint = self.store.endpoint(&key, Freshness::Fresh).await;
        let endpoint = endpoint.map_err(FlowError::store("read the SpiderEndpoint"))?;
        let endpoint = endpoint.ok_or_else(|| missing("it has no SpiderEndpoint"))?;
        let current = endpoint.status.current;
        let asked = query.pod_uid.as_str();
        if current.uid != found.uid() || (!asked.is_empty() && asked != current.uid) {
            return Err(missing("the SpiderEndpoint is of an earlier Pod"));
        }
        let wanted = |nic: &EndpointNic| query.nic.is_empty() || query.nic == nic.interface;
        let mut interfaces = Vec::new();
        for nic in current.ips.into_iter().filter(wanted) {
            if self.is_proven(&current.uid, &nic).await? {
                interfaces.push(WorkloadNic::from(nic));
            }
        }
        if interfaces.is_empty() {
            return Err(missing("no record of a pool answers for it"));
        }
        Ok(WorkloadEndpoint {
            pod_namespace: query.pod_namespace,
            pod_name: query.pod_name,
            pod_uid: current.uid,
            node: current.node,
            interfaces,
        })
    }

    /// Whether every address of the NIC has a record of this UID.
    async fn is_proven(&self, uid: &str, nic: &EndpointNic) -> Result<bool, FlowError> {
        for (net, pool) in [(&nic.ipv4, &nic.ipv4_pool), (&nic.ipv6, &nic.ipv6_pool)] {
            let address: Option<IpAddr> = net
                .as_deref()
                .and_then(|net| net.parse::<IpNet>().ok())
                .map(|net| net.addr());
            let (Some(address), Some(pool)) = (address, pool) else {
                continue;
            };
            let read = self.store.pool(pool, Freshness::Cached).await;
            let read = read.map_err(FlowError::store("read a pool of the endpoint"))?;
            let pool = read.as_ref().and_then(|object| object.pool().ok());
            let record = pool.and_then(|pool| pool.records.get(address));
            if record.is_none_or(|record| record.pod_uid != uid) {
                return Ok(false);
            }
        }
        Ok(nic.ipv4.is_some() || nic.ipv6.is_some())
    }
}
