//! What the chart lets our processes do, on a control plane of a test: roles, and kubeconfigs of service
//! accounts that have them and nothing else.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::api_client::ApiClient;

/// Namespace of the service accounts.
pub const NAMESPACE: &str = "spiderpool";

const ROLES: [&str; 3] = [
    include_str!("../../../charts/spiderpool/rbac/controller.yaml"),
    include_str!("../../../charts/spiderpool/rbac/agent.yaml"),
    include_str!("../../../charts/spiderpool/rbac/jobs.yaml"),
];

/// Creates the namespace and everything in the chart's files.
///
/// # Errors
/// The API server refuses.
pub fn install(api: &ApiClient) -> Result<()> {
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    api.create("/api/v1/namespaces", &namespace)?;
    for document in ROLES.iter().flat_map(|file| file.split("\n---\n")) {
        let object: Value = serde_saphyr::from_str(document).context("parse a role")?;
        api.create(&collection(&object)?, &object)?;
    }
    Ok(())
}

/// Where an object is created.
fn collection(object: &Value) -> Result<String> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    let version = text("/apiVersion").context("no apiVersion")?;
    let prefix = if version.contains('/') {
        "/apis"
    } else {
        "/api"
    };
    let kind = text("/kind").context("no kind")?.to_lowercase();
    Ok(match text("/metadata/namespace") {
        Some(namespace) => format!("{prefix}/{version}/namespaces/{namespace}/{kind}s"),
        None => format!("{prefix}/{version}/{kind}s"),
    })
}

/// Writes a kubeconfig like `admin` whose user is this service account.
///
/// # Errors
/// The API server refuses, or a file cannot be read or written.
pub fn kubeconfig(api: &ApiClient, admin: &Path, account: &str, out: &Path) -> Result<()> {
    let path = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{account}/token");
    let asked =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let answer = api.create(&path, &asked)?;
    let token = answer.pointer("/status/token").context("no token")?;
    let text = fs::read_to_string(admin).context("read the kubeconfig")?;
    let mut config: Value = serde_saphyr::from_str(&text).context("parse the kubeconfig")?;
    let user = config.pointer_mut("/users/0/user").context("no user")?;
    *user = json!({"token": token});
    fs::write(out, config.to_string()).with_context(|| format!("write {}", out.display()))
}
