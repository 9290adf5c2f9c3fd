//! The store on a Kubernetes API: a cluster's, or the embedded one; the client code is the same.
//!
//! Owns the watches and their caches. Watches are narrow: Pods, node and endpoints of this node,
//! pools and namespaces as metadata only, so that traffic does not grow with the cluster.
//! Decides nothing.

mod cache;
mod objects;
mod owners;
mod pool_cache;
mod start;

use std::net::IpAddr;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{Node, ObjectReference};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use spiderpool_api::allocation::Records;
use spiderpool_api::endpoint::SpiderEndpoint;
use spiderpool_api::ippool::ParentNic;
use spiderpool_api::names;
use spiderpool_controller::identities;
use spiderpool_controller::objects::error::store_error;
use spiderpool_controller::objects::parsed::Unreadable;
use spiderpool_controller::objects::pool_api::PoolApi;
use spiderpool_ipam::sticky::{MachineFacts, StatefulSetFacts};

use super::{
    Caches, Freshness, Marks, MetadataFacts, ObjectKey, OwnerRef, PodEvent, PodObject, PoolObject,
    Reservation, StandalonePod, Store, StoreError, StoreResult, may_hold,
};
use cache::Cache;
use owners::Owners;
use pool_cache::PoolCache;

pub(crate) use spiderpool_controller::objects::error::words;
use start::facts;
pub use start::{StartError, Waits};

/// The store. Dropping it ends its watches.
pub struct KubeStore {
    client: Client,
    node: String,
    pods: Cache<ObjectKey, PodObject>,
    nodes: Cache<String, MetadataFacts>,
    namespaces: Cache<String, MetadataFacts>,
    endpoints: Cache<ObjectKey, Result<SpiderEndpoint, Unreadable>>,
    reserved: Cache<String, Arc<Reservation>>,
    pools: PoolCache,
    owners: Owners,
}

impl KubeStore {
    /// Woken whenever a pool appears, goes, or changes its specification.
    #[must_use]
    pub fn pool_changes(&self) -> Arc<tokio::sync::Notify> {
        self.pools.changes()
    }

    /// All pools, as the caches have them.
    #[must_use]
    pub fn pools(&self) -> Vec<Arc<PoolObject>> {
        self.pools.all()
    }

    /// Publishes the parent NIC of a prewarm pool: a merge patch of this field alone.
    ///
    /// # Errors
    /// [`StoreError`] names the pool.
    pub async fn publish_parent_nic(&self, pool: &str, nic: &ParentNic) -> Result<(), StoreError> {
        let written = self.pools.publish_parent_nic(pool, nic).await?;
        self.pools.put(written);
        Ok(())
    }

    /// Writes an annotation of this node's Node object: a merge patch of it alone. `false`: it is so already.
    ///
    /// # Errors
    /// [`StoreError`] names the node.
    pub async fn annotate_node(&self, key: &'static str, text: &str) -> Result<bool, StoreError> {
        let known = self.nodes.get(&self.node);
        if known.is_some_and(|node| node.annotations.get(key).is_some_and(|own| own == text)) {
            return Ok(false);
        }
        let params = PatchParams::default();
        let patch = Patch::Merge(json!({"metadata": {"annotations": {key: text}}}));
        let api: Api<Node> = Api::all(self.client.clone());
        let written = api.patch_metadata(&self.node, &params, &patch);
        let written = written
            .await
            .map_err(|error| store_error(error, "annotate", &format!("Node {}", self.node)))?;
        let version = written.resource_version();
        self.nodes
            .put(self.node.clone(), version.as_deref(), facts(&written));
        Ok(true)
    }

    /// A Warning on a pool; a failure is logged.
    pub async fn warn_pool(&self, pool: &PoolObject, reason: &str, message: &str) {
        self.warn(objects::reference(pool.typed()), reason, message)
            .await;
    }

    async fn warn(&self, about: ObjectReference, reason: &str, message: &str) {
        let object = objects::warning(about, reason, message, &self.node);
        let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
        let api = Api::namespaced(self.client.clone(), namespace);
        if let Err(error) = api.create(&PostParams::default(), &object).await {
            let about = &object.involved_object;
            let [kind, name] = [&about.kind, &about.name].map(Option::as_deref);
            tracing::warn!(kind, name, reason, error = %words(error), "cannot write the event");
        }
    }

    fn pod_api(&self, namespace: &str) -> Api<k8s_openapi::api::core::v1::Pod> {
        Api::namespaced(self.client.clone(), namespace)
    }

    fn endpoint_api(&self, namespace: &str) -> Api<SpiderEndpoint> {
        Api::namespaced(self.client.clone(), namespace)
    }

    async fn read_pod(&self, key: &ObjectKey) -> Result<Option<PodObject>, StoreError> {
        let found = self.pod_api(&key.namespace).get_opt(&key.name).await;
        let pod = found.map_err(|error| store_error(error, "read", &format!("Pod {key}")))?;
        Ok(pod.as_ref().map(PodObject::from_pod))
    }

    /// A Pod of the same name and another UID is of an older container: it makes room.
    async fn replace_pod(&self, pod: &StandalonePod) -> Result<PodObject, StoreError> {
        let what = format!("Pod {}", pod.key);
        let api = self.pod_api(&pod.key.namespace);
        if let Some(found) = self.read_pod(&pod.key).await? {
            if found.uid() == pod.uid {
                return Ok(found);
            }
            self.delete_pod_object(&pod.key, found.uid()).await?;
        }
        let created = api.create(&PostParams::default(), &pod.to_pod()).await;
        let created = created.map_err(|error| store_error(error, "create", &what))?;
        Ok(PodObject::from_pod(&created))
    }

    async fn delete_pod_object(&self, key: &ObjectKey, uid: &str) -> Result<(), StoreError> {
        let params = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(Preconditions {
                uid: Some(uid.to_owned()),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        match self
            .pod_api(&key.namespace)
            .delete(&key.name, &params)
            .await
        {
            Ok(_) => Ok(()),
            // A failed UID precondition is a 409: another Pod has the name now.
            Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => Ok(()),
            Err(error) => Err(store_error(error, "delete", &format!("Pod {key}"))),
        }
    }

    async fn write_endpoint(&self, endpoint: SpiderEndpoint) -> Result<SpiderEndpoint, StoreError> {
        let key = ObjectKey::new(
            endpoint.namespace().unwrap_or_default(),
            endpoint.name_any(),
        );
        let what = format!("SpiderEndpoint {key}");
        let api = self.endpoint_api(&key.namespace);
        let written = if endpoint.metadata.resource_version.is_none() {
            let created = api.create(&PostParams::default(), &endpoint).await;
            created.map_err(|error| store_error(error, "create", &what))?
        } else {
            let replaced = api
                .replace(&key.name, &PostParams::default(), &endpoint)
                .await;
            // An endpoint deleted meanwhile is a conflict to whoever read it.
            replaced.map_err(|error| match store_error(error, "replace", &what) {
                StoreError::NotFound(what) => StoreError::Conflict(what),
                other => other,
            })?
        };
        let version = written.resource_version();
        self.endpoints
            .put(key, version.as_deref(), Ok(written.clone()));
        Ok(written)
    }

    async fn remove_endpoint(&self, endpoint: &SpiderEndpoint) -> Result<(), StoreError> {
        let key = ObjectKey::new(
            endpoint.namespace().unwrap_or_default(),
            endpoint.name_any(),
        );
        objects::remove_endpoint(&self.endpoint_api(&key.namespace), endpoint).await?;
        if let Some(Ok(current)) = self.endpoints.get(&key)
            && current.uid() == endpoint.uid()
        {
            self.endpoints.forget(&key);
        }
        Ok(())
    }
}

impl Store for KubeStore {
    fn pod<'a>(
        &'a self,
        key: &'a ObjectKey,
        freshness: Freshness,
    ) -> StoreResult<'a, Option<PodObject>> {
        async move {
            if freshness == Freshness::Cached
                && let Some(pod) = self.pods.get(key)
            {
                return Ok(Some(pod));
            }
            self.read_pod(key).await
        }
        .boxed()
    }

    fn top_owner<'a>(&'a self, pod: &'a PodObject) -> StoreResult<'a, Option<OwnerRef>> {
        self.owners.top_owner(pod).boxed()
    }

    fn stateful_set<'a>(&'a self, key: &'a ObjectKey) -> StoreResult<'a, Option<StatefulSetFacts>> {
        async move {
            let read = identities::stateful_set(&self.client, &key.namespace, &key.name).await;
            read.map_err(|error| store_error(error, "read", &format!("StatefulSet {key}")))
        }
        .boxed()
    }

    fn machine<'a>(&'a self, key: &'a ObjectKey) -> StoreResult<'a, MachineFacts> {
        async move {
            let read = identities::machine(&self.client, &key.namespace, &key.name).await;
            read.map_err(|error| store_error(error, "read", &format!("virtual machine {key}")))
        }
        .boxed()
    }

    fn machine_pods<'a>(&'a self, key: &'a ObjectKey) -> StoreResult<'a, Vec<PodObject>> {
        async move {
            let read = identities::machine_pods(&self.client, &key.namespace, &key.name).await;
            let what = || format!("the Pods of virtual machine {key}");
            let pods = read.map_err(|error| store_error(error, "list", &what()))?;
            Ok(pods.iter().map(PodObject::from_pod).collect())
        }
        .boxed()
    }

    fn ensure_pod<'a>(&'a self, pod: &'a StandalonePod) -> StoreResult<'a, PodObject> {
        async move {
            let what = format!("Pod {}", pod.key);
            let api = self.pod_api(&pod.key.namespace);
            match api.create(&PostParams::default(), &pod.to_pod()).await {
                Ok(created) => Ok(PodObject::from_pod(&created)),
                Err(kube::Error::Api(status)) if status.code == 409 => self.replace_pod(pod).await,
                Err(error) => Err(store_error(error, "create", &what)),
            }
        }
        .boxed()
    }

    fn delete_pod<'a>(&'a self, key: &'a ObjectKey, uid: &'a str) -> StoreResult<'a, ()> {
        async move {
            self.delete_pod_object(key, uid).await?;
            if self.pods.get(key).is_some_and(|pod| pod.uid() == uid) {
                self.pods.forget(key);
            }
            Ok(())
        }
        .boxed()
    }

    fn caches<'a>(&'a self, namespace: &'a str) -> StoreResult<'a, Caches> {
        async move {
            self.ready().map_err(|missing| StoreError::Unavailable {
                what: "answer from the caches".to_owned(),
                source: missing.into(),
            })?;
            let node = self.nodes.get(&self.node);
            Ok(Caches {
                pools: self.pools.all_readable().await,
                reserved: self.reserved.all(),
                namespace: self
                    .namespaces
                    .get(&namespace.to_owned())
                    .unwrap_or_default(),
                node: node.unwrap_or_else(|| MetadataFacts {
                    name: self.node.clone(),
                    ..MetadataFacts::default()
                }),
            })
        }
        .boxed()
    }

    fn pool<'a>(
        &'a self,
        name: &'a str,
        freshness: Freshness,
    ) -> StoreResult<'a, Option<Arc<PoolObject>>> {
        self.pools.read(name, freshness).boxed()
    }

    fn holder_of(&self, address: IpAddr) -> StoreResult<'_, Option<String>> {
        async move {
            let mut holder = None;
            let look = |pool: PoolObject| {
                if may_hold(&pool, address) {
                    holder.get_or_insert_with(|| pool.name().to_owned());
                }
            };
            PoolApi::new(self.client.clone()).list(look).await?;
            Ok(holder)
        }
        .boxed()
    }

    fn put_pool_status<'a>(
        &'a self,
        read: &'a PoolObject,
        records: &'a Records,
    ) -> StoreResult<'a, Arc<PoolObject>> {
        self.pools.put_status(read, records).boxed()
    }

    fn endpoint<'a>(
        &'a self,
        key: &'a ObjectKey,
        freshness: Freshness,
    ) -> StoreResult<'a, Option<SpiderEndpoint>> {
        async move {
            if freshness == Freshness::Cached {
                let copy = self.endpoints.get(key).transpose();
                return copy.map_err(|source| StoreError::Malformed {
                    what: format!("SpiderEndpoint {key}"),
                    source: source.into(),
                });
            }
            let found = self.endpoint_api(&key.namespace).get_opt(&key.name).await;
            found.map_err(|error| store_error(error, "read", &format!("SpiderEndpoint {key}")))
        }
        .boxed()
    }

    fn put_endpoint(&self, endpoint: SpiderEndpoint) -> StoreResult<'_, SpiderEndpoint> {
        self.write_endpoint(endpoint).boxed()
    }

    fn delete_endpoint<'a>(&'a self, endpoint: &'a SpiderEndpoint) -> StoreResult<'a, ()> {
        self.remove_endpoint(endpoint).boxed()
    }

    fn event(&self, event: PodEvent) -> BoxFuture<'_, ()> {
        async move {
            let object = objects::pod_of(&event);
            self.warn(object, event.reason, &event.message).await;
        }
        .boxed()
    }

    fn ready(&self) -> Result<(), String> {
        let missing: Vec<&str> = [
            ("Pods", self.pods.is_filled()),
            ("this Node", self.nodes.is_filled()),
            ("Namespaces", self.namespaces.is_filled()),
            ("SpiderEndpoints", self.endpoints.is_filled()),
            ("SpiderReservedIPs", self.reserved.is_filled()),
            ("SpiderIPPools", self.pools.is_filled()),
        ]
        .into_iter()
        .filter_map(|(kind, filled)| (!filled).then_some(kind))
        .collect();
        if missing.is_empty() {
            Ok(())
        } else {
            Err(format!(
                "not read from the Kubernetes API yet: {}",
                missing.join(", ")
            ))
        }
    }
}

/// Label selector of the endpoints this node writes.
fn node_label(node: &str) -> String {
    format!("{}={node}", names::LABEL_NODE)
}
