//! Opens the watches and waits for their first lists.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::api::ApiResource;
use kube::core::{DynamicObject, PartialObjectMeta};
use kube::runtime::watcher::Config;
use kube::{Api, Client, Resource, ResourceExt};
use spiderpool_api::endpoint::SpiderEndpoint;
use spiderpool_api::ippool::SpiderIPPool;
use spiderpool_api::reserved_ip::SpiderReservedIP;
use spiderpool_controller::client::bounded;
use spiderpool_controller::objects::parsed::{Parsed, Unreadable};
use spiderpool_controller::watched::watched;

use super::cache::Cache;
use super::owners::Owners;
use super::pool_cache::PoolCache;
use super::{
    KubeStore, Marks, MetadataFacts, ObjectKey, PodObject, Reservation, Store, StoreError,
    node_label,
};

/// Between two looks at whether the first lists are in.
const LOOK: Duration = Duration::from_millis(5);

/// How long a store waits for what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waits {
    /// For the first lists.
    pub patience: Duration,
    /// After so many seconds the server ends a watch, and it is opened anew; one that says nothing
    /// for 5 s longer is dead.
    pub watch_seconds: u32,
}

impl Waits {
    /// Idle watches end by themselves after this many seconds, below the idle limit of middle boxes
    /// that drop connections without a word (case B34).
    pub const WATCH_SECONDS: u32 = 200;

    /// Patience, and watches as long as they are unless somebody asks for less.
    #[must_use]
    pub const fn new(patience: Duration) -> Self {
        Self {
            patience,
            watch_seconds: Self::WATCH_SECONDS,
        }
    }
}

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
    /// Opens the watches and waits until each has its first list, at most
    /// `waits.patience`.
    ///
    /// # Errors
    /// [`StartError`] says which kind could not be read.
    pub async fn start(client: Client, node: &str, waits: Waits) -> Result<Self, StartError> {
        Self::start_with(client, node, waits, Marks::Count).await
    }

    /// The same, with the marks of pools taken as `marks` says.
    ///
    /// # Errors
    /// As [`KubeStore::start`].
    pub async fn start_with(
        client: Client,
        node: &str,
        waits: Waits,
        marks: Marks,
    ) -> Result<Self, StartError> {
        let opened = Self::open(client, node, waits.watch_seconds, marks).await;
        let store = opened.map_err(StartError::Pools)?;
        let filled = tokio::time::timeout(waits.patience, async {
            while store.ready().is_err() {
                tokio::time::sleep(LOOK).await;
            }
        });
        match (filled.await, store.ready()) {
            (Err(_), Err(missing)) => Err(StartError::NotFilled {
                waited: waits.patience,
                missing,
            }),
            _ => Ok(store),
        }
    }

    async fn open(
        client: Client,
        node: &str,
        watch_seconds: u32,
        marks: Marks,
    ) -> Result<Self, StoreError> {
        let client = bounded(client);
        let config = || Config::default().any_semantic().timeout(watch_seconds);
        let pools: Api<PartialObjectMeta<SpiderIPPool>> = Api::all(client.clone());
        let pools = PoolCache::start(client.clone(), marks, watched(pools, config())).await?;
        let pods: Api<Pod> = Api::all(client.clone());
        let nodes: Api<PartialObjectMeta<Node>> = Api::all(client.clone());
        let namespaces: Api<PartialObjectMeta<Namespace>> = Api::all(client.clone());
        let endpoints: Api<Parsed<SpiderEndpoint>> = Api::all(client.clone());
        // As it comes: what of it cannot be read is our own matter.
        let resource = ApiResource::erase::<SpiderReservedIP>(&());
        let reserved: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        let of_node = config().fields(&format!("spec.nodeName={node}"));
        let this_node = config().fields(&format!("metadata.name={node}"));
        Ok(Self {
            node: node.to_owned(),
            pods: Cache::follow("Pod", watched(pods, of_node), |pod: &Pod| {
                (key(pod), PodObject::from_pod(pod))
            }),
            nodes: Cache::follow(
                "Node",
                watched(nodes, this_node),
                |node: &PartialObjectMeta<Node>| (node.name_any(), facts(node)),
            ),
            namespaces: Cache::follow(
                "Namespace",
                watched(namespaces, config()),
                |namespace: &PartialObjectMeta<Namespace>| (namespace.name_any(), facts(namespace)),
            ),
            endpoints: Cache::follow_from(
                "SpiderEndpoint",
                watched(endpoints, config().labels(&node_label(node))),
                readable,
            ),
            reserved: Cache::follow_from(
                "SpiderReservedIP",
                watched(reserved, config()),
                reservation,
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

pub(super) fn facts(object: &impl Resource<DynamicType = ()>) -> MetadataFacts {
    MetadataFacts {
        name: object.name_any(),
        labels: object.labels().clone(),
        annotations: object.annotations().clone(),
    }
}

type Readable = Result<SpiderEndpoint, Unreadable>;

/// The others go on; one that is asked for is an error that says the same.
fn readable(
    endpoint: &Parsed<SpiderEndpoint>,
    copy: &dyn Fn(&ObjectKey) -> Option<Readable>,
) -> (ObjectKey, Readable) {
    let key = key(endpoint);
    let read = match &endpoint.object {
        Ok(object) => Ok(SpiderEndpoint::clone(object)),
        Err(unreadable) => {
            if copy(&key).and_then(Result::err).as_ref() != Some(unreadable) {
                tracing::warn!("{}: {unreadable}", endpoint.shown());
            }
            Err(unreadable.clone())
        }
    };
    (key, read)
}

/// What an object reserves, and what it did before where it cannot be read any more.
fn reservation(
    object: &DynamicObject,
    copy: &dyn Fn(&String) -> Option<Arc<Reservation>>,
) -> (String, Arc<Reservation>) {
    let name = object.name_any();
    let read = Reservation::read(&object.metadata, object.data.get("spec"));
    let before = copy(&name);
    let before = before.as_deref();
    let told = before.is_some_and(|before| before.complaint == read.complaint);
    let read = read.or_as_before(before);
    if let Some(complaint) = read.complaint.as_ref().filter(|_| !told) {
        match read.unknown {
            None => tracing::warn!("{complaint}: what it reserved before stays reserved"),
            Some(_) => tracing::warn!(
                "{complaint}: any address may be reserved, and pools give out nothing new"
            ),
        }
    }
    (name, Arc::new(read))
}
