//! A kubeconfig for the built binary.

use std::path::{Path, PathBuf};

use serde_json::json;

/// Writes one that names this server into a folder; its path.
pub(crate) fn write(dir: &Path, server: &str) -> PathBuf {
    let path = dir.join("kubeconfig");
    let text = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "k", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}]});
    std::fs::write(&path, text.to_string()).unwrap();
    path
}
