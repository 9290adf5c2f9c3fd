//! The kubeconfig file for kubectl, the provider and further nodes.

use std::io;
use std::path::{Path, PathBuf};

use k8s_openapi::ByteString;
use serde_json::json;

use crate::durable_file;

/// Why the file could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the kubeconfig {path}: check that its folder is writable")]
pub struct KubeconfigError {
    /// The file.
    path: PathBuf,
    /// What the system said.
    source: io::Error,
}

/// Writes a kubeconfig (mode 0600, in one step) for `server` with this CA and bearer token.
///
/// # Errors
/// [`KubeconfigError`] names the file. Blocks on the disk.
pub fn write_kubeconfig(
    path: &Path,
    server: &str,
    ca_pem: &str,
    token: &str,
) -> Result<(), KubeconfigError> {
    // JSON is YAML, and serde quotes what must be quoted
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "spiderpool",
        "clusters": [{"name": "spiderpool", "cluster": {"server": server,
            "certificate-authority-data": ByteString(ca_pem.as_bytes().to_vec())}}],
        "users": [{"name": "spiderpool", "user": {"token": token}}],
        "contexts": [{"name": "spiderpool",
            "context": {"cluster": "spiderpool", "user": "spiderpool", "namespace": "default"}}],
    });
    let text = format!("{config:#}\n");
    durable_file::replace(path, text.as_bytes(), durable_file::PRIVATE).map_err(|source| {
        KubeconfigError {
            path: path.to_owned(),
            source,
        }
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn kube_reads_it_and_nobody_else_may() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sub/kubeconfig");
        write_kubeconfig(&path, "https://127.0.0.1:16443", "PEM", "secret").unwrap();
        let config = kube::config::Kubeconfig::read_from(&path).unwrap();
        assert_eq!(config.current_context.as_deref(), Some("spiderpool"));
        let cluster = config.clusters[0].cluster.as_ref().unwrap();
        assert_eq!(cluster.certificate_authority_data.as_deref(), Some("UEVN"));
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        write_kubeconfig(&path, "https://other", "PEM", "secret").unwrap();
        assert_eq!(
            std::fs::read_dir(path.parent().unwrap()).unwrap().count(),
            1
        );
    }
}
