//! Endpoints, and the identities that they stand for.

use kube::api::{DeleteParams, ListParams, PostParams, Preconditions};
use kube::{Api, ResourceExt};
use spiderpool_api::endpoint::SpiderEndpoint;
use spiderpool_api::names;
use spiderpool_controller::identities;
use spiderpool_ipam::gc::Static;
use spiderpool_ipam::sticky::{Sticky, is_valid_ordinal};

use super::{Collector, Failed, Pod, records};
use crate::mutation::Mutation;
use crate::sets;

impl Collector {
    pub(super) fn knows_identities(&self, key: &str) -> bool {
        sets::is_member(key) && !self.world.mutates(Mutation::GcIgnoresIdentities)
    }

    /// The ordinal of the StatefulSet behind a key.
    pub(super) async fn identity(&self, key: &str) -> Result<Option<Static>, Failed> {
        if !self.knows_identities(key) {
            return Ok(None);
        }
        let set = identities::stateful_set(&self.client, "sim", sets::NAME).await?;
        let name = key.trim_start_matches("sim/");
        Ok(Some(Static {
            kind: Sticky::StatefulSet,
            valid: is_valid_ordinal(name, set.as_ref()),
        }))
    }

    pub(super) async fn endpoint(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<SpiderEndpoint>, Failed> {
        let api: Api<SpiderEndpoint> = Api::namespaced(self.client.clone(), namespace);
        Ok(api.get_opt(name).await?)
    }

    async fn is_gone(&self, key: &str, uid: &str) -> Result<bool, Failed> {
        if self.identity(key).await?.is_some_and(|kept| kept.valid) {
            return Ok(false);
        }
        let (namespace, name) = key.split_once('/').unwrap_or_default();
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let pod = pods.get_opt(name).await?;
        Ok(pod.is_none_or(|pod| pod.uid().as_deref() != Some(uid)))
    }

    /// Endpoints of Pods that are gone and have no record any more.
    pub(super) async fn drop_endpoints(&self) -> Result<(), Failed> {
        let all: Api<SpiderEndpoint> = Api::all(self.client.clone());
        for endpoint in all.list(&ListParams::default()).await? {
            let uid = &endpoint.status.current.uid;
            let (namespace, name) = (
                endpoint.namespace().unwrap_or_default(),
                endpoint.name_any(),
            );
            if !self.is_gone(&format!("{namespace}/{name}"), uid).await? {
                continue;
            }
            let pools = self.pools.list(&ListParams::default()).await?;
            let mut held = pools.iter().flat_map(records);
            if held.any(|(_, record)| record.pod_uid == *uid) {
                continue;
            }
            let api: Api<SpiderEndpoint> = Api::namespaced(self.client.clone(), &namespace);
            let params = DeleteParams {
                preconditions: Some(Preconditions {
                    uid: endpoint.uid(),
                    resource_version: endpoint.resource_version(),
                }),
                ..DeleteParams::default()
            };
            drop(api.delete(&name, &params).await);
            if let Some(mut left) = api.get_opt(&name).await?
                && left.uid() == endpoint.uid()
            {
                left.finalizers_mut()
                    .retain(|item| item != names::FINALIZER);
                drop(api.replace(&name, &PostParams::default(), &left).await);
            }
        }
        Ok(())
    }
}
