//! What others than the agent write into a node's API: Pods (kubelet), metadata by hand (a
//! provider that errs or re-uses a VLAN).

use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};

use super::api_client::{POOLS, records};
use super::cni_call::CniOutcome;
use super::{Cloud, Node, Pod, wait};

/// Collection of the namespace the lab's Kubernetes Pods are in.
const PODS: &str = "/api/v1/namespaces/shop/pods";
/// Collection of all namespaces.
const NAMESPACES: &str = "/api/v1/namespaces";
/// Others write a pool now and then, not for so long.
const PATIENCE: Duration = Duration::from_secs(10);
const MERGE_PATCH: &str = "application/merge-patch+json";
/// That namespace.
const NAMESPACE: &str = "shop";

/// Creates the Pod object `shop/<name>` on this node; its UID.
///
/// # Errors
/// The API refuses.
pub fn create_pod(node: &Node, name: &str) -> Result<String> {
    create_namespace(node)?;
    let object = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name, "namespace": NAMESPACE },
        "spec": { "nodeName": node.plan.name, "containers": [{ "name": "c", "image": "i" }] },
    });
    let created = node.api()?.create(PODS, &object)?;
    let uid = created
        .pointer("/metadata/uid")
        .and_then(Value::as_str)
        .context("a Pod without UID")?;
    Ok(uid.to_owned())
}

/// Creates the namespace, unless it is there.
fn create_namespace(node: &Node) -> Result<()> {
    let api = node.api()?;
    let object =
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } });
    match api.get(&format!("{NAMESPACES}/{NAMESPACE}"))? {
        Some(_) => Ok(()),
        None => api.create(NAMESPACES, &object).map(drop),
    }
}

/// Creates the Pod object `shop/<name>` on this node and a sandbox of the same name for it.
///
/// # Errors
/// The API or the kernel refuses.
pub fn new_pod(cloud: &Cloud, node: &Node, name: &str) -> Result<Pod> {
    let uid = create_pod(node, name)?;
    sandbox(cloud, name, name, &uid)
}

/// Deletes a Pod's object and releases its NIC, as the node does when the Pod ends.
///
/// # Errors
/// The API refuses, or DEL fails.
pub fn end_pod(node: &Node, pod: &Pod, conf: &Value) -> Result<CniOutcome> {
    let name = pod.object_name();
    let (_, name) = name.split_once('/').context("a Pod without namespace")?;
    delete_pod(node, name)?;
    pod.release(node, conf)
}

/// The Pod object `shop/<name>`; `None` when it is gone.
///
/// # Errors
/// The API refuses.
pub fn pod_object(node: &Node, name: &str) -> Result<Option<Value>> {
    node.api()?.get(&format!("{PODS}/{name}"))
}

/// Deletes the Pod object `shop/<name>`.
///
/// # Errors
/// The API refuses.
pub fn delete_pod(node: &Node, name: &str) -> Result<()> {
    node.api()?.delete(&format!("{PODS}/{name}"))
}

/// A sandbox of the Pod `shop/<name>` with this UID, named by its container.
///
/// # Errors
/// The kernel refuses.
pub fn sandbox(cloud: &Cloud, container_id: &str, name: &str, uid: &str) -> Result<Pod> {
    Ok(cloud.pod(container_id)?.of_object(NAMESPACE, name, uid))
}

/// Makes every release mark in a pool older than the two minutes after which another agent may take
/// it over. How many there were. A write of others meanwhile is not lost.
///
/// # Errors
/// The API refuses.
pub fn age_marks(node: &Node, pool: &str) -> Result<usize> {
    let api = node.api()?;
    wait::until(PATIENCE, "a write that nobody crosses", || {
        let object = api.pool(pool)?;
        let mut records = records(&object)?;
        let mut marks = 0;
        for record in records
            .as_object_mut()
            .into_iter()
            .flat_map(Map::values_mut)
        {
            if let Some(mark) = record.get_mut("releasing").and_then(Value::as_object_mut) {
                mark.insert("at".to_owned(), json!("2000-01-01T00:00:00Z"));
                marks += 1;
            }
        }
        if marks == 0 {
            return Ok(Some(0));
        }
        let patch = json!({
            "metadata": { "resourceVersion": object.pointer("/metadata/resourceVersion") },
            "status": { "allocatedIPs": records.to_string() },
        });
        let path = format!("{POOLS}/{pool}/status");
        let response = api.request("PATCH", &path, MERGE_PATCH, &patch)?;
        match response.status {
            200 => Ok(Some(marks)),
            409 => Ok(None),
            status => bail!("PATCH {path}: status {status}"),
        }
    })
}

/// Publishes these entries, and no others, for the node's IPv4 pool.
///
/// # Errors
/// The API refuses.
pub fn publish_entries(node: &Node, entries: &Value) -> Result<()> {
    let api = node.api()?;
    let name = node.plan.pool();
    let pool = api.pool(&name)?;
    let envelope = json!({ "scope": node.plan.name, "ips": entries });
    let status = json!({ "status": { "ipMetaData": {
        "observedGeneration": pool.pointer("/metadata/generation"),
        "metadata": envelope.to_string(),
    } } });
    api.merge(&format!("{POOLS}/{name}/status"), &status)
        .map(drop)
}
