//! Top controllers of Pods (spec ipam 1.2), remembered by UID: a parent never changes.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::batch::v1::Job;
use kube::{Api, Client};
use spiderpool_controller::objects::error::store_error;

use super::{OwnerRef, PodObject, StoreError};

/// Remembered answers; past this the memory starts anew.
const MEMORY: usize = 4096;

pub(super) struct Owners {
    client: Client,
    known: Mutex<HashMap<String, OwnerRef>>,
}

impl Owners {
    pub(super) fn new(client: Client) -> Self {
        Self {
            client,
            known: Mutex::new(HashMap::new()),
        }
    }

    pub(super) async fn top_owner(&self, pod: &PodObject) -> Result<Option<OwnerRef>, StoreError> {
        let Some(owner) = &pod.controller else {
            return Ok(None);
        };
        let has_parent = matches!(
            (owner.api_version.as_str(), owner.kind.as_str()),
            ("apps/v1", "ReplicaSet") | ("batch/v1", "Job")
        );
        if !has_parent {
            return Ok(Some(owner.clone()));
        }
        if let Some(top) = self.known().get(&owner.uid) {
            return Ok(Some(top.clone()));
        }
        let top = self
            .parent(&pod.facts.namespace, owner)
            .await?
            .unwrap_or_else(|| owner.clone());
        let mut known = self.known();
        if known.len() >= MEMORY {
            known.clear();
        }
        known.insert(owner.uid.clone(), top.clone());
        Ok(Some(top))
    }

    fn known(&self) -> std::sync::MutexGuard<'_, HashMap<String, OwnerRef>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn parent(
        &self,
        namespace: &str,
        owner: &OwnerRef,
    ) -> Result<Option<OwnerRef>, StoreError> {
        let what = format!("{} {namespace}/{}", owner.kind, owner.name);
        let read = |error| store_error(error, "read", &what);
        let references = if owner.kind == "Job" {
            let api: Api<Job> = Api::namespaced(self.client.clone(), namespace);
            api.get_metadata(&owner.name)
                .await
                .map_err(read)?
                .metadata
                .owner_references
        } else {
            let api: Api<ReplicaSet> = Api::namespaced(self.client.clone(), namespace);
            api.get_metadata(&owner.name)
                .await
                .map_err(read)?
                .metadata
                .owner_references
        };
        let wanted = if owner.kind == "Job" {
            "CronJob"
        } else {
            "Deployment"
        };
        let parent = references
            .into_iter()
            .flatten()
            .find(|parent| parent.controller == Some(true) && parent.kind == wanted);
        Ok(parent.map(|parent| OwnerRef {
            api_version: parent.api_version,
            kind: parent.kind,
            name: parent.name,
            uid: parent.uid,
        }))
    }
}
