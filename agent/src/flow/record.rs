//! The endpoint: what a Pod was given, for people and for the next ADD. Written after the claims,
//! conditionally; whoever else writes it meanwhile is read again and kept.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use spiderpool_api::endpoint::{EndpointStatus, SpiderEndpoint};
use spiderpool_api::names;
use spiderpool_ipam::facts::Snapshot;
use spiderpool_ipam::plan::{self, Allocation};

use super::allocation::AllocationError;
use super::call::{Ended, Limits};
use crate::agent::Agent;
use crate::failpoint::add_step;
use crate::store::{Freshness, ObjectKey, StoreError};

/// Wait after a conflict, before jitter.
const BACKOFF: Duration = Duration::from_millis(10);

impl Agent {
    /// Writes the allocations into the Pod's endpoint. An earlier Pod's endpoint is replaced.
    pub(super) async fn record(
        &self,
        mut snapshot: Snapshot,
        mut current: Option<SpiderEndpoint>,
        allocations: &[Allocation],
        limits: &Limits,
    ) -> Result<(), AllocationError> {
        let key = endpoint_key(&snapshot);
        loop {
            self.drop_foreign(&snapshot, &mut current).await?;
            snapshot.endpoint = current.as_ref().map(|object| object.status.clone());
            let status = plan::endpoint_after(&snapshot, allocations);
            if current
                .as_ref()
                .is_some_and(|object| object.status == status)
            {
                return Ok(());
            }
            let object = self.rewritten(&snapshot, current, status).await?;
            match self.write_endpoint(object).await {
                Ok(_) => return Ok(()),
                Err(StoreError::Conflict(_)) => {}
                Err(error) => {
                    return Err(AllocationError::store("write the SpiderEndpoint")(error));
                }
            }
            let pause = tokio::time::sleep(self.jitter.around(BACKOFF));
            limits
                .wait("others kept changing the SpiderEndpoint", pause)
                .await
                .map_err(AllocationError::Ended)?;
            let read = self.store.endpoint(&key, Freshness::Fresh).await;
            current = read.map_err(AllocationError::store("read the SpiderEndpoint"))?;
        }
    }

    pub(super) async fn write_endpoint(
        &self,
        object: SpiderEndpoint,
    ) -> Result<SpiderEndpoint, StoreError> {
        add_step!(Record, self.store.put_endpoint(object))
    }

    /// The endpoint with this status. One of an identity may come from another node; one that is being
    /// deleted cannot be kept and is made anew.
    pub(super) async fn rewritten(
        &self,
        snapshot: &Snapshot,
        current: Option<SpiderEndpoint>,
        status: EndpointStatus,
    ) -> Result<SpiderEndpoint, AllocationError> {
        let fresh = self.endpoint_meta(snapshot);
        let kept = snapshot.identity().is_some();
        match current {
            Some(object) if kept && object.metadata.deletion_timestamp.is_some() => {
                self.drop_endpoint(&object).await?;
                Ok(SpiderEndpoint::new(fresh, status))
            }
            Some(mut object) => {
                object.status = status;
                if kept {
                    let labels = object.metadata.labels.get_or_insert_default();
                    labels.extend(fresh.labels.into_iter().flatten());
                    object.metadata.owner_references = fresh.owner_references;
                }
                Ok(object)
            }
            None => Ok(SpiderEndpoint::new(fresh, status)),
        }
    }

    /// Deletes the endpoint of an earlier Pod of this name, finalizer included, unless both are of one
    /// identity.
    pub(super) async fn drop_foreign(
        &self,
        snapshot: &Snapshot,
        current: &mut Option<SpiderEndpoint>,
    ) -> Result<(), AllocationError> {
        let uid = &snapshot.pod.uid;
        let is_foreign = |object: &mut SpiderEndpoint| {
            snapshot.identity().is_none() && object.status.current.uid != *uid
        };
        match current.take_if(is_foreign) {
            Some(foreign) => self.drop_endpoint(&foreign).await,
            None => Ok(()),
        }
    }

    /// Deletes an endpoint whose details no Pod may retrieve any more.
    pub(super) async fn drop_endpoint(
        &self,
        endpoint: &SpiderEndpoint,
    ) -> Result<(), AllocationError> {
        let dropped = add_step!(DropEndpoint, self.store.delete_endpoint(endpoint));
        dropped.map_err(AllocationError::store(
            "delete an earlier Pod's SpiderEndpoint",
        ))
    }

    pub(super) fn endpoint_meta(&self, snapshot: &Snapshot) -> ObjectMeta {
        let pod = &snapshot.pod;
        let label = (names::LABEL_NODE.to_owned(), self.settings.node.clone());
        let owner = || OwnerReference {
            api_version: "v1".into(),
            kind: "Pod".into(),
            name: pod.name.clone(),
            uid: pod.uid.clone(),
            // neither controller nor blocking: the Pod's deletion waits for nothing of ours
            ..OwnerReference::default()
        };
        ObjectMeta {
            namespace: Some(pod.namespace.clone()),
            name: Some(snapshot.endpoint_name().to_owned()),
            labels: Some(BTreeMap::from([label])),
            finalizers: Some(vec![names::FINALIZER.to_owned()]),
            // What outlives the Pod must not be collected with it.
            owner_references: snapshot.identity().is_none().then(|| vec![owner()]),
            ..ObjectMeta::default()
        }
    }

    /// Takes one NIC out of the Pod's endpoint. A lost race is left to the next ADD, which
    /// compares with the records.
    pub(super) async fn unrecord(&self, key: &ObjectKey, uid: &str, nic: &str) {
        let read = self.store.endpoint(key, Freshness::Fresh).await;
        let Ok(Some(mut object)) = read else { return };
        if object.status.current.uid != uid {
            return;
        }
        object
            .status
            .current
            .ips
            .retain(|item| item.interface != nic);
        if let Err(error) = self.store.put_endpoint(object).await {
            tracing::warn!(pod = %key, nic, error = %super::error::full(&error), "cannot take a NIC out of the SpiderEndpoint");
        }
    }
}

/// Key of the endpoint of the snapshot's Pod.
pub(super) fn endpoint_key(snapshot: &Snapshot) -> ObjectKey {
    ObjectKey::new(&snapshot.pod.namespace, snapshot.endpoint_name())
}

impl From<Ended> for AllocationError {
    fn from(ended: Ended) -> Self {
        Self::Ended(ended)
    }
}
