//! What others than the agent write into a node's API: Pods (kubelet), metadata by hand (a
//! provider that errs or re-uses a VLAN).

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::api_client::POOLS;
use super::cni_call::kubernetes_args;
use super::{Cloud, Node, Pod};

/// Collection of the namespace the lab's Kubernetes Pods are in.
const PODS: &str = "/api/v1/namespaces/shop/pods";
/// Collection of all namespaces.
const NAMESPACES: &str = "/api/v1/namespaces";
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
    let pod = cloud.pod(container_id)?;
    let args = kubernetes_args(NAMESPACE, name, uid, &pod.container_id);
    Ok(pod.with_args(args))
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
