//! Publishes `status.parentNic` of the prewarm pools of this node: the provider waits for it
//! before it creates sub-ENIs (spec iaas 3.4). Follows the pools and, as the kernel tells of them, the
//! NICs. Owns that one status field of those pools and, in [`of_node`], one annotation of the Node.

mod of_node;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{BoxStream, unfold};
use futures::{FutureExt, StreamExt};
use spiderpool_api::ippool::ParentNic;
use spiderpool_api::names;
use spiderpool_api::value::{IfName, Mac};
use spiderpool_netops::rtnl::LinkEvents;
use tokio_util::sync::CancellationToken;

use crate::flow::error::full;
use crate::nic::{KernelNic, NicError};
use crate::store::PoolObject;
use crate::store::kube::KubeStore;
use of_node::{NodeReport, RETRY};

/// `reason` of the event about a NIC that is not there.
const NOT_FOUND: &str = "ParentNicNotFound";
/// Between two looks when nobody tells of a change: it may have been missed.
const LOOK: Duration = Duration::from_secs(60);
/// The same while the kernel tells of none.
const DEAF_LOOK: Duration = Duration::from_secs(5);
/// Links change in bursts; so long they are one.
const BURST: Duration = Duration::from_millis(50);

/// One item for each time that links have changed.
pub type LinkChanges = BoxStream<'static, ()>;

/// The NICs of the host, as far as the publication asks.
pub trait HostNics: Send + Sync {
    /// MAC of a NIC; `None` when there is none of that name.
    fn mac<'a>(&'a self, name: &'a IfName) -> BoxFuture<'a, Result<Option<Mac>, NicError>>;

    /// MACs of all NICs that a device stands behind.
    fn hardware(&self) -> BoxFuture<'_, Result<BTreeMap<String, Mac>, NicError>>;

    /// Changes of any NIC from now on; when they end, they have to be asked for again.
    fn changes(&self) -> BoxFuture<'_, Result<LinkChanges, NicError>>;
}

impl HostNics for KernelNic {
    fn mac<'a>(&'a self, name: &'a IfName) -> BoxFuture<'a, Result<Option<Mac>, NicError>> {
        self.link_mac(name).boxed()
    }

    fn hardware(&self) -> BoxFuture<'_, Result<BTreeMap<String, Mac>, NicError>> {
        self.hardware_nics().boxed()
    }

    fn changes(&self) -> BoxFuture<'_, Result<LinkChanges, NicError>> {
        async move {
            let events = self.link_events().await?;
            let each = |mut events: LinkEvents| async move {
                events.changed().await.then_some(((), events))
            };
            Ok(unfold(events, each).boxed())
        }
        .boxed()
    }
}

/// The publication task.
pub struct ParentNicPublisher {
    store: Arc<KubeStore>,
    nics: Arc<dyn HostNics>,
    node: String,
    of_node: Option<NodeReport>,
    /// Last complaint per pool, so that each is told once.
    complaints: HashMap<String, Complaint>,
}

/// Why a pool's parent NIC is not published.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum Complaint {
    #[error(
        "node {node} has no NIC {name}, which annotation {} names; the provider waits for it",
        names::PARENT_NIC
    )]
    NotFound { node: String, name: IfName },
    #[error("{0}")]
    Other(String),
}

impl From<String> for Complaint {
    fn from(text: String) -> Self {
        Self::Other(text)
    }
}

impl ParentNicPublisher {
    /// For the pools of `node`.
    #[must_use]
    pub fn new(store: Arc<KubeStore>, nics: Arc<dyn HostNics>, node: &str) -> Self {
        Self {
            store,
            nics,
            node: node.to_owned(),
            of_node: None,
            complaints: HashMap::new(),
        }
    }

    /// Publishes the node's NICs too, but for those of these names (`excludeReportNics`).
    #[must_use]
    pub fn reporting_all_but(self, excluded: Vec<String>) -> Self {
        Self {
            of_node: Some(NodeReport::new(excluded)),
            ..self
        }
    }

    /// Publishes until told to stop.
    pub async fn run(mut self, stop: CancellationToken) {
        let changes = self.store.pool_changes();
        let mut links: Option<LinkChanges> = None;
        loop {
            // Both registered before the look, so that a change during it is not missed.
            let changed = changes.notified();
            if links.is_none() {
                links = self.listen().await;
            }
            self.publish_all().await;
            let failing = self.of_node.as_ref().is_some_and(NodeReport::is_failing);
            let look = match links {
                Some(_) if failing => RETRY,
                Some(_) => LOOK,
                None => DEAF_LOOK,
            };
            tokio::select! {
                () = changed => {}
                told = next(&mut links) => match told {
                    Some(()) => tokio::time::sleep(BURST).await,
                    None => links = None,
                },
                () = tokio::time::sleep(look) => {}
                () = stop.cancelled() => return,
            }
        }
    }

    async fn listen(&self) -> Option<LinkChanges> {
        match self.nics.changes().await {
            Ok(links) => Some(links),
            Err(error) => {
                let error = full(&error);
                tracing::warn!(
                    error,
                    "changes of NICs are not told; they are looked for every 5 s"
                );
                None
            }
        }
    }

    /// One look at all pools, and at the node.
    pub async fn publish_all(&mut self) {
        if let Some(report) = &mut self.of_node {
            report.publish(&self.store, self.nics.as_ref()).await;
        }
        for pool in self.store.pools() {
            match self.publish(&pool).await {
                Ok(()) => {
                    self.complaints.remove(pool.name());
                }
                Err(complaint) => self.complain(&pool, complaint).await,
            }
        }
    }

    async fn complain(&mut self, pool: &PoolObject, complaint: Complaint) {
        if self.complaints.get(pool.name()) == Some(&complaint) {
            return;
        }
        let text = complaint.to_string();
        tracing::warn!(pool = pool.name(), "{text}");
        if let Complaint::NotFound { .. } = complaint {
            self.store.warn_pool(pool, NOT_FOUND, &text).await;
        }
        self.complaints.insert(pool.name().to_owned(), complaint);
    }

    async fn publish(&self, pool: &PoolObject) -> Result<(), Complaint> {
        let Some(name) = parent_of(pool, &self.node)? else {
            return Ok(());
        };
        let mac = self.nics.mac(&name).await;
        let mac =
            mac.map_err(|error| format!("cannot look at parent NIC {name}: {}", full(&error)))?;
        let Some(mac) = mac else {
            let node = self.node.clone();
            return Err(Complaint::NotFound { node, name });
        };
        let wanted = ParentNic {
            name: name.to_string(),
            mac: mac.to_string(),
        };
        let status = pool.typed().status.as_ref();
        if status.and_then(|status| status.parent_nic.as_ref()) == Some(&wanted) {
            return Ok(());
        }
        let written = self.store.publish_parent_nic(pool.name(), &wanted).await;
        written.map_err(|error| format!("cannot publish parent NIC {name}: {}", full(&error)))?;
        tracing::info!(pool = pool.name(), nic = %name, %mac, "parent NIC published");
        Ok(())
    }
}

async fn next(links: &mut Option<LinkChanges>) -> Option<()> {
    match links {
        Some(links) => links.next().await,
        None => std::future::pending().await,
    }
}

/// The NIC whose MAC this node publishes for a pool: prewarm pools of this node, and of a pair
/// the IPv4 pool alone.
fn parent_of(pool: &PoolObject, node: &str) -> Result<Option<IfName>, String> {
    let spec = &pool.typed().spec;
    let prewarm_here = annotation(pool, names::IAAS_PROVIDER).is_some()
        && spec
            .node_name
            .as_deref()
            .is_some_and(|nodes| nodes == [node]);
    let sibling = spec.subnet.contains(':') && annotation(pool, names::PAIR_POOL).is_some();
    if !prewarm_here || sibling {
        return Ok(None);
    }
    match annotation(pool, names::PARENT_NIC) {
        None => Err(format!(
            "the prewarm pool has no annotation {}",
            names::PARENT_NIC
        )),
        Some(name) => name
            .parse()
            .map(Some)
            .map_err(|error| format!("annotation {}: {error}", names::PARENT_NIC)),
    }
}

/// Text of an annotation; an empty one counts as absent.
fn annotation<'a>(pool: &'a PoolObject, key: &str) -> Option<&'a str> {
    let text = pool.typed().metadata.annotations.as_ref()?.get(key)?;
    Some(text.trim()).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn parent(subnet: &str, nodes: Value, annotations: Value) -> Result<Option<IfName>, String> {
        let raw = json!({"metadata": {"name": "p", "annotations": annotations},
            "spec": {"subnet": subnet, "nodeName": nodes}});
        parent_of(&PoolObject::from_raw(raw).unwrap(), "n1")
    }

    #[test]
    fn only_prewarm_pools_of_this_node_get_a_parent() {
        let (v4, v6) = ("10.0.0.0/24", "fd00::/64");
        let marked = json!({names::IAAS_PROVIDER: "x", names::PARENT_NIC: " eth1 "});
        let paired =
            json!({names::IAAS_PROVIDER: "x", names::PARENT_NIC: "eth1", names::PAIR_POOL: "q"});
        let eth1 = || Ok(Some("eth1".parse().unwrap()));
        assert_eq!(parent(v4, json!(["n1"]), marked.clone()), eth1());
        assert_eq!(parent(v6, json!(["n1"]), marked.clone()), eth1());
        assert_eq!(parent(v4, json!(["n1"]), paired.clone()), eth1());
        assert_eq!(parent(v6, json!(["n1"]), paired), Ok(None));
        assert_eq!(parent(v4, json!(["n2"]), marked.clone()), Ok(None));
        assert_eq!(parent(v4, json!(null), marked), Ok(None));
        assert_eq!(
            parent(v4, json!(["n1"]), json!({names::PARENT_NIC: "eth1"})),
            Ok(None)
        );
        let missing = parent(v4, json!(["n1"]), json!({names::IAAS_PROVIDER: "x"}));
        assert!(missing.unwrap_err().contains(names::PARENT_NIC));
        let two = parent(
            v4,
            json!(["n1"]),
            json!({names::IAAS_PROVIDER: "x", names::PARENT_NIC: "eth1,eth2 x"}),
        );
        assert!(two.unwrap_err().contains("eth1,eth2 x"));
    }
}
