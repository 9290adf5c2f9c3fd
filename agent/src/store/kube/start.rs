//! Opens the watches and waits for their first lists.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::{Config, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use spiderpool_api::endpoint::SpiderEndpoint;
use spiderpool_api::ippool::SpiderIPPool;
use spiderpool_api::reserved_ip::SpiderReservedIP;

use super::cache::{Cache, WATCH_SECONDS};
use super::owners::Owners;
use super::pool_cache::PoolCache;
use super::{KubeStore, MetadataFacts, ObjectKey, PodObject, Store, StoreError, node_label};

/// Between two looks at whether the first lists are in.
const LOOK: Duration = Duration::from_millis(5);

/// The store cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The first list of pools failed.
    #[error("cannot read the pools")]
    Pools(#[source] StoreError),
    /// Some first list did not arrive in time.
    #[error("after {waited:?} still {missing}; see the warnings above for the cause")]
    NotFilled {
        /// How long we waited.
        waited: Duration,
        /// What is missing.
        missing: String,
    },
}

impl KubeStore {
    /// Opens the watches and waits until each has its first list, at most `patience`.
    ///
    /// # Errors
    /// [`StartError`] says which kind could not be read.
    pub async fn start(client: Client, node: &str, patience: Duration) -> Result<Self, StartError> {
        let store = Self::open(client, node).await.map_err(StartError::Pools)?;
        let filled = tokio::time::timeout(patience, async {
            while store.ready().is_err() {
                tokio::time::sleep(LOOK).await;
            }
        });
        match (filled.await, store.ready()) {
            (Err(_), Err(missing)) => Err(StartError::NotFilled {
                waited: patience,
                missing,
            }),
            _ => Ok(store),
        }
    }

    async fn open(client: Client, node: &str) -> Result<Self, StoreError> {
        let config = || Config::default().any_semantic().timeout(WATCH_SECONDS);
        let pools: Api<PartialObjectMeta<SpiderIPPool>> = Api::all(client.clone());
        let pools = PoolCache::start(client.clone(), watcher(pools, config())).await?;
        let pods: Api<Pod> = Api::all(client.clone());
        let nodes: Api<PartialObjectMeta<Node>> = Api::all(client.clone());
        let namespaces: Api<PartialObjectMeta<Namespace>> = Api::all(client.clone());
        let endpoints: Api<SpiderEndpoint> = Api::all(client.clone());
        let reserved: Api<SpiderReservedIP> = Api::all(client.clone());
        let of_node = config().fields(&format!("spec.nodeName={node}"));
        let this_node = config().fields(&format!("metadata.name={node}"));
        Ok(Self {
            node: node.to_owned(),
            pods: Cache::follow("Pod", watcher(pods, of_node), |pod: &Pod| {
                (key(pod), PodObject::from_pod(pod))
            }),
            nodes: Cache::follow(
                "Node",
                watcher(nodes, this_node),
                |node: &PartialObjectMeta<Node>| (node.name_any(), facts(node)),
            ),
            namespaces: Cache::follow(
                "Namespace",
                watcher(namespaces, config()),
                |namespace: &PartialObjectMeta<Namespace>| (namespace.name_any(), facts(namespace)),
            ),
            endpoints: Cache::follow(
                "SpiderEndpoint",
                watcher(endpoints, config().labels(&node_label(node))),
                |endpoint: &SpiderEndpoint| (key(endpoint), endpoint.clone()),
            ),
            reserved: Cache::follow(
                "SpiderReservedIP",
                watcher(reserved, config()),
                |reserved: &SpiderReservedIP| {
                    (reserved.name_any(), std::sync::Arc::new(reserved.clone()))
                },
            ),
            owners: Owners::new(client.clone()),
            pools,
            client,
        })
    }
}

fn key(object: &impl Resource<DynamicType = ()>) -> ObjectKey {
    ObjectKey::new(object.namespace().unwrap_or_default(), object.name_any())
}

fn facts(object: &impl Resource<DynamicType = ()>) -> MetadataFacts {
    MetadataFacts {
        name: object.name_any(),
        labels: object.labels().clone(),
        annotations: object.annotations().clone(),
    }
}
