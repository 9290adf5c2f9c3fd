//! What a provider says of its sub-ENIs: `status.ipMetaData` of prewarm pools, once, from the
//! bindings of a topology (spec: iaas 4).
//!
//! Touches that one status field, conditionally on the version that was read; the address records
//! beside it belong to others.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config, ResourceExt};
use serde_json::{Map, Value, json};
use spiderpool_api::names;
use spiderpool_api::public_url::without_secrets;
use spiderpool_api::value::Mac;
use tokio::time::{Instant, sleep};
use tracing::info;

use crate::topology::{Binding, BindingState, Topology};

/// Between two looks at a pool that is not ready for publication.
const RETRY: Duration = Duration::from_millis(50);

/// Why metadata could not be published. Names the pool.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// The kubeconfig cannot be used.
    #[error("cannot read the kubeconfig {path}")]
    Kubeconfig {
        /// The file.
        path: String,
        /// What is wrong with it.
        source: Box<KubeconfigError>,
    },
    /// It, or `HTTPS_PROXY`, names a proxy, which this client cannot use.
    #[error(
        "the API is reached without a proxy only: unset HTTPS_PROXY, or take proxy-url out of the kubeconfig {path}, whichever names {proxy}"
    )]
    Proxy {
        /// The file.
        path: String,
        /// The proxy, without its password.
        proxy: String,
    },
    /// No client can be made of it.
    #[error("cannot make a client of the kubeconfig {path}")]
    Client {
        /// The file.
        path: String,
        /// What is wrong with it.
        source: Box<kube::Error>,
    },
    /// The API server refused.
    #[error("cannot {tried} pool {pool}")]
    Api {
        /// The pool.
        pool: String,
        /// The verb.
        tried: &'static str,
        /// The server's answer.
        source: Box<kube::Error>,
    },
    /// It did not become ready.
    #[error("pool {pool} cannot be published: {lacks}")]
    NotReady {
        /// The pool.
        pool: String,
        /// What was missing at the end of the wait.
        lacks: String,
    },
}

/// The sub-ENIs of one pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Publication {
    /// The pool (the IPv4 one of a pair).
    pub pool: String,
    /// Its node.
    pub node: String,
    /// The parent NIC all of them are attached to.
    pub parent: Mac,
    /// The sub-ENIs.
    pub bindings: Vec<Binding>,
}

/// What a topology's provider has to publish, a pool an item; of one node only when it is named.
#[must_use]
pub fn publications(topology: &Topology, node: Option<&str>) -> Vec<Publication> {
    let mut pools: BTreeMap<&str, Publication> = BTreeMap::new();
    for binding in &topology.bindings {
        let parent = topology.parents.iter().find(|p| p.mac == binding.parent);
        let (Some(pool), Some(parent)) = (&binding.pool, parent) else {
            continue;
        };
        if node.is_some_and(|node| node != parent.node) {
            continue;
        }
        let publication = pools.entry(pool).or_insert_with(|| Publication {
            pool: pool.clone(),
            node: parent.node.clone(),
            parent: parent.mac,
            bindings: Vec::new(),
        });
        publication.bindings.push(binding.clone());
    }
    pools.into_values().collect()
}

/// Connects to the API server a kubeconfig names.
///
/// # Errors
/// [`PublishError::Kubeconfig`], [`PublishError::Client`].
pub async fn connect(kubeconfig: &Path) -> Result<Client, PublishError> {
    let path = || kubeconfig.display().to_string();
    let unreadable = |source| PublishError::Kubeconfig {
        path: path(),
        source: Box::new(source),
    };
    let parsed = Kubeconfig::read_from(kubeconfig).map_err(unreadable)?;
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(parsed, &options)
        .await
        .map_err(unreadable)?;
    if let Some(proxy) = &config.proxy_url {
        return Err(PublishError::Proxy {
            path: path(),
            proxy: without_secrets(&proxy.to_string()),
        });
    }
    Client::try_from(config).map_err(|source| PublishError::Client {
        path: path(),
        source: Box::new(source),
    })
}

/// Publishes one pool: waits until it exists and its agent named the parent NIC, then writes.
/// A conflict is followed by a new look, until `limit`.
///
/// # Errors
/// [`PublishError`].
pub async fn publish(
    client: &Client,
    publication: &Publication,
    limit: Duration,
) -> Result<(), PublishError> {
    let kind = GroupVersionKind::gvk(names::GROUP, names::VERSION, "SpiderIPPool");
    let resource = ApiResource::from_gvk_with_plural(&kind, "spiderippools");
    let pools: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let deadline = Instant::now() + limit;
    let Publication { pool, .. } = publication;
    let failed = |tried| {
        move |source| PublishError::Api {
            pool: pool.clone(),
            tried,
            source: Box::new(source),
        }
    };
    loop {
        let found = pools.get_opt(pool).await.map_err(failed("read"))?;
        let lacks = match prepare(found.as_ref(), publication) {
            Ok(patch) => {
                let patch = Patch::Merge(&patch);
                match pools
                    .patch_status(pool, &PatchParams::default(), &patch)
                    .await
                {
                    Ok(_) => {
                        info!(pool, "metadata is published");
                        return Ok(());
                    }
                    Err(kube::Error::Api(status)) if status.code == 409 => {
                        "it keeps changing".to_owned()
                    }
                    Err(error) => return Err(failed("patch the status of")(error)),
                }
            }
            Err(lacks) => lacks,
        };
        if Instant::now() > deadline {
            return Err(PublishError::NotReady {
                pool: pool.clone(),
                lacks,
            });
        }
        sleep(RETRY).await;
    }
}

/// The patch for a pool as it was read; the text says what the pool lacks.
fn prepare(found: Option<&DynamicObject>, publication: &Publication) -> Result<Value, String> {
    let object = found.ok_or("it does not exist")?;
    let parent = object
        .data
        .pointer("/status/parentNic/mac")
        .and_then(Value::as_str);
    let parent = parent.ok_or("no agent has named its parent NIC (status.parentNic)")?;
    if parent.parse() != Ok(publication.parent) {
        let wanted = publication.parent;
        return Err(format!(
            "its parent NIC is {parent}, the topology's is {wanted}"
        ));
    }
    let generation = object.metadata.generation.ok_or("it has no generation")?;
    let version = object
        .resource_version()
        .ok_or("it has no resourceVersion")?;
    let entries = entries(&publication.bindings);
    let ready = entries.len();
    let envelope = json!({ "scope": publication.node, "ips": entries });
    let unready = total(&object.data).saturating_sub(u128::try_from(ready).unwrap_or(u128::MAX));
    Ok(json!({
        "metadata": { "resourceVersion": version },
        "status": { "ipMetaData": {
            "observedGeneration": generation,
            "readyIPCount": ready,
            "unreadyIPCount": i64::try_from(unready).unwrap_or(i64::MAX),
            "metadata": envelope.to_string(),
        }},
    }))
}

/// The entries of the envelope. A sub-ENI that is not attached has none: in a prewarm pool
/// existence is readiness.
fn entries(bindings: &[Binding]) -> Map<String, Value> {
    let mut entries = Map::new();
    for binding in bindings {
        let Some(key) = binding.addresses().next() else {
            continue;
        };
        let mut entry = match binding.state {
            BindingState::Bound => json!({ "mac": binding.mac, "vlan": binding.vlan }),
            BindingState::Detaching => {
                json!({ "mac": binding.mac, "vlan": -1, "status": "detaching" })
            }
            BindingState::Unbound => continue,
        };
        if let (IpAddr::V4(_), Some(ipv6), Some(entry)) = (key, binding.ipv6, entry.as_object_mut())
        {
            entry.insert("ipv6".to_owned(), json!(ipv6));
        }
        entries.insert(key.to_string(), entry);
    }
    entries
}

/// Number of addresses in `ips` that `excludeIPs` leaves. Both lists are sorted and without
/// overlaps after admission.
fn total(object: &Value) -> u128 {
    let all = ranges(object.pointer("/spec/ips"));
    let excluded = ranges(object.pointer("/spec/excludeIPs"));
    let size = |from: u128, to: u128| to.saturating_sub(from).saturating_add(1);
    let mut total: u128 = 0;
    for (from, to) in &all {
        total = total.saturating_add(size(*from, *to));
        for (low, high) in &excluded {
            let (low, high) = (*low.max(from), *high.min(to));
            if low <= high {
                total = total.saturating_sub(size(low, high));
            }
        }
    }
    total
}

fn ranges(list: Option<&Value>) -> BTreeSet<(u128, u128)> {
    let texts = list.and_then(Value::as_array).into_iter().flatten();
    texts
        .filter_map(|text| {
            let text = text.as_str()?;
            let (from, to) = text.split_once('-').unwrap_or((text, text));
            Some((number(from)?, number(to)?))
        })
        .collect()
}

fn number(text: &str) -> Option<u128> {
    match text.trim().parse().ok()? {
        IpAddr::V4(ip) => Some(u128::from(u32::from(ip))),
        IpAddr::V6(ip) => Some(u128::from(ip)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spiderpool_api::ip_meta::{EntryState, Metadata};

    const TOPOLOGY: &str = r#"
parents:
  - {node: n1, mac: "fa:16:3e:01:00:01", ifname: p1}
  - {node: n2, mac: "fa:16:3e:01:00:02", ifname: p2}
subnets: [{ipv4: 172.16.0.0/24, gatewayMac: "fa:16:3e:ff:ff:fe"}]
gateway: {ifname: gw0}
bindings:
  - {parent: "fa:16:3e:01:00:01", vlan: 100, mac: "fa:16:3e:00:00:0a", ipv4: 172.16.0.10, ipv6: "fd00::a", pool: p}
  - {parent: "fa:16:3e:01:00:01", vlan: 101, mac: "fa:16:3e:00:00:0b", ipv4: 172.16.0.11, pool: p, state: detaching}
  - {parent: "fa:16:3e:01:00:01", vlan: 102, mac: "fa:16:3e:00:00:0c", ipv4: 172.16.0.12, pool: p, state: unbound}
  - {parent: "fa:16:3e:01:00:02", vlan: 100, mac: "fa:16:3e:00:00:0d", ipv4: 172.16.0.13, pool: q}
  - {parent: "fa:16:3e:01:00:02", vlan: 101, mac: "fa:16:3e:00:00:0e", ipv4: 172.16.0.14}
"#;

    fn topology() -> Topology {
        serde_saphyr::from_str(TOPOLOGY).unwrap()
    }

    fn pool(status: &Value) -> DynamicObject {
        serde_json::from_value(json!({
            "apiVersion": "spiderpool.spidernet.io/v2beta1",
            "kind": "SpiderIPPool",
            "metadata": { "name": "p", "generation": 3, "resourceVersion": "17" },
            "spec": { "subnet": "172.16.0.0/24", "ips": ["172.16.0.10-172.16.0.19", "172.16.0.30"],
                      "excludeIPs": ["172.16.0.19-172.16.0.25"] },
            "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn each_pool_is_published_for_its_node() {
        let all = publications(&topology(), None);
        let names: Vec<_> = all
            .iter()
            .map(|p| (p.pool.as_str(), p.bindings.len()))
            .collect();
        assert_eq!(names, [("p", 3), ("q", 1)]);
        let second = publications(&topology(), Some("n2"));
        assert_eq!((second.len(), second[0].node.as_str()), (1, "n2"));
    }

    #[test]
    fn the_patch_is_what_the_codec_reads_and_names_the_version() {
        let publication = publications(&topology(), Some("n1")).remove(0);
        let object = pool(&json!({ "parentNic": { "name": "eth1", "mac": "fa:16:3e:01:00:01" } }));
        let patch = prepare(Some(&object), &publication).unwrap();
        assert_eq!(patch["metadata"]["resourceVersion"], "17");
        let status = &patch["status"];
        assert_eq!(status.as_object().unwrap().len(), 1, "{status}");
        let published = &status["ipMetaData"];
        assert_eq!(published["observedGeneration"], 3);
        assert_eq!(
            (&published["readyIPCount"], &published["unreadyIPCount"]),
            (&json!(2), &json!(8))
        );
        let read = Metadata::decode(published["metadata"].as_str().unwrap()).unwrap();
        assert_eq!(
            (read.scope.as_str(), read.entries.len(), read.bad.len()),
            ("n1", 2, 0)
        );
        let pair = &read.entries[&"172.16.0.10".parse().unwrap()];
        assert_eq!(pair.ipv6, Some("fd00::a".parse().unwrap()));
        assert!(matches!(pair.state, EntryState::Attached { .. }));
        let leaving = &read.entries[&"172.16.0.11".parse().unwrap()];
        assert!(matches!(leaving.state, EntryState::Reclaiming { .. }));
    }

    #[test]
    fn a_pool_without_its_parent_nic_waits() {
        let publication = publications(&topology(), Some("n1")).remove(0);
        assert!(
            prepare(None, &publication)
                .unwrap_err()
                .contains("not exist")
        );
        let bare = pool(&json!({}));
        assert!(
            prepare(Some(&bare), &publication)
                .unwrap_err()
                .contains("parentNic")
        );
        let other = pool(&json!({ "parentNic": { "name": "eth1", "mac": "fa:16:3e:01:00:09" } }));
        let error = prepare(Some(&other), &publication).unwrap_err();
        assert!(error.contains("fa:16:3e:01:00:09"), "{error}");
    }
}
