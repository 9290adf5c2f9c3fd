//! What [`spiderpool_ipam::pod_cidr`] decides from, read of the cluster and of the node's CNI folder.
//! Reads only; decides nothing.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt};
use serde_json::Value;
use spiderpool_ipam::pod_cidr::{Facts, Read};

use crate::chain::full;
use crate::config::Env;
use crate::regular_file;

/// Where kubeadm and the controller manager are.
const SYSTEM: &str = "kube-system";
/// Multus's own configuration, which names no CNI.
const MULTUS_FILE: &str = "00-multus";
/// Longest CNI file, bytes.
const MAX_FILE: u64 = 1 << 20;
/// Versions of ServiceCIDR, the newest first.
const SERVICE_VERSIONS: [&str; 3] = ["v1", "v1beta1", "v1alpha1"];

/// Reads.
pub(super) struct Reader {
    client: Client,
    cni_dir: PathBuf,
    /// Namespace and name.
    cilium_config: (String, String),
}

impl Reader {
    pub(super) fn new(client: Client, env: &Env) -> Self {
        let cilium = env.cilium_config.split_once('/');
        let (namespace, name) = cilium.unwrap_or((SYSTEM, &env.cilium_config));
        Self {
            client,
            cni_dir: env.cni_config_dir.clone(),
            cilium_config: (namespace.to_owned(), name.to_owned()),
        }
    }

    /// Everything, whether it will matter or not: each part is small.
    pub(super) async fn read(&self) -> Facts {
        let dir = self.cni_dir.clone();
        let cni_name = tokio::task::spawn_blocking(move || cni_name(&dir)).await;
        let (namespace, name) = &self.cilium_config;
        let kubeadm = self.config_map(SYSTEM, "kubeadm-config").await;
        Facts {
            cni_name: cni_name.unwrap_or_else(|error| Err(full(&error))),
            // One that cannot be read says nothing: the controller manager is asked then.
            kubeadm: kubeadm
                .ok()
                .flatten()
                .and_then(|mut data| data.remove("ClusterConfiguration")),
            controller_manager: self.controller_manager().await,
            calico: self.calico().await,
            cilium: self.config_map(namespace, name).await,
            cilium_pools: self.cilium_pools().await,
            services: self.services().await,
        }
    }

    async fn config_map(
        &self,
        namespace: &str,
        name: &str,
    ) -> Read<Option<BTreeMap<String, String>>> {
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace);
        let found = api.get_opt(name).await.map_err(|error| full(&error))?;
        Ok(found.map(|map| map.data.unwrap_or_default()))
    }

    async fn controller_manager(&self) -> Read<Option<Vec<String>>> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), SYSTEM);
        let params = ListParams::default().labels("component=kube-controller-manager");
        let pods = api.list(&params).await.map_err(|error| full(&error))?;
        let Some(pod) = pods.items.into_iter().next() else {
            return Ok(None);
        };
        let containers = pod.spec.map(|spec| spec.containers).unwrap_or_default();
        let first = containers.into_iter().next().unwrap_or_default();
        let (command, args) = (first.command, first.args);
        Ok(Some(command.into_iter().chain(args).flatten().collect()))
    }

    async fn calico(&self) -> Read<Vec<String>> {
        let pools = self.listed("crd.projectcalico.org", "v1", "IPPool", "ippools");
        let pools = pools.await.map_err(|error| full(&error))?;
        let is_used = |pool: &DynamicObject| {
            let disabled = pool.data.pointer("/spec/disabled");
            disabled.and_then(Value::as_bool) != Some(true)
                && pool.metadata.deletion_timestamp.is_none()
        };
        let used = pools.iter().filter(|pool| is_used(pool));
        Ok(used.flat_map(|pool| texts(pool, "/spec/cidr")).collect())
    }

    async fn cilium_pools(&self) -> Read<Vec<String>> {
        let pools = self.listed(
            "cilium.io",
            "v2alpha1",
            "CiliumPodIPPool",
            "ciliumpodippools",
        );
        let pools = pools.await.map_err(|error| full(&error))?;
        let of = |pointer: &'static str| pools.iter().flat_map(move |pool| texts(pool, pointer));
        Ok(of("/spec/ipv4/cidrs")
            .chain(of("/spec/ipv6/cidrs"))
            .collect())
    }

    async fn services(&self) -> Read<Option<Vec<String>>> {
        for version in SERVICE_VERSIONS {
            let listed = self.listed("networking.k8s.io", version, "ServiceCIDR", "servicecidrs");
            match listed.await {
                Ok(found) => {
                    let cidrs = found.iter().flat_map(|object| texts(object, "/spec/cidrs"));
                    return Ok(Some(cidrs.collect()));
                }
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                Err(error) => return Err(full(&error)),
            }
        }
        Ok(None)
    }

    /// All objects of somebody else's kind, oldest first.
    async fn listed(
        &self,
        group: &str,
        version: &str,
        kind: &str,
        plural: &str,
    ) -> Result<Vec<DynamicObject>, kube::Error> {
        let kind = GroupVersionKind::gvk(group, version, kind);
        let resource = ApiResource::from_gvk_with_plural(&kind, plural);
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        let mut items = api.list(&ListParams::default()).await?.items;
        items.sort_by_key(|item| {
            let created = item.metadata.creation_timestamp.as_ref();
            (created.map(|time| time.0), item.name_any())
        });
        Ok(items)
    }
}

/// A string, or a list of them.
fn texts(object: &DynamicObject, pointer: &str) -> Vec<String> {
    match object.data.pointer(pointer) {
        Some(Value::String(text)) => vec![text.clone()],
        Some(Value::Array(list)) => {
            let texts = list.iter().filter_map(Value::as_str);
            texts.map(str::to_owned).collect()
        }
        _ => Vec::new(),
    }
}

/// `name` of the first CNI file by file name, Multus's own left out. Blocks on the disk.
///
/// # Errors
/// What cannot be read, with the file.
pub fn cni_name(dir: &Path) -> Read<Option<String>> {
    let failed = |path: &Path, error: &(dyn std::error::Error + 'static)| {
        format!("{}: {}", path.display(), full(error))
    };
    let listed = match std::fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        listed => listed.map_err(|error| failed(dir, &error))?,
    };
    let mut files: Vec<PathBuf> = listed
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| is_cni_file(path))
        .collect();
    files.sort();
    let Some(first) = files.first() else {
        return Ok(None);
    };
    let text = regular_file::read(first, MAX_FILE).map_err(|error| failed(first, &error))?;
    let file: Value = serde_json::from_slice(&text).map_err(|error| failed(first, &error))?;
    let name = file.get("name").and_then(Value::as_str);
    Ok(name.map(str::to_owned))
}

fn is_cni_file(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    let kind = path.extension().and_then(|kind| kind.to_str());
    name.is_some_and(|name| !name.starts_with(MULTUS_FILE))
        && matches!(kind, Some("conf" | "conflist" | "json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_cni_file_but_multus_has_the_name() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        assert_eq!(cni_name(&at("none")), Ok(None));
        assert_eq!(cni_name(dir.path()), Ok(None));
        for (name, text) in [
            ("00-multus.conf", r#"{"name":"multus-cni-network"}"#),
            ("05-notes.txt", "x"),
            ("20-other.conf", r#"{"name":"other"}"#),
            (
                "10-calico.conflist",
                r#"{"name":"k8s-pod-network","plugins":[]}"#,
            ),
        ] {
            std::fs::write(at(name), text).unwrap();
        }
        assert_eq!(cni_name(dir.path()), Ok(Some("k8s-pod-network".to_owned())));
        for (text, part) in [("{", "EOF"), ("7", "")] {
            std::fs::write(at("01-a.conf"), text).unwrap();
            match cni_name(dir.path()) {
                Ok(name) => assert_eq!((name, part), (None, "")),
                Err(why) => assert!(why.contains("01-a.conf") && why.contains(part), "{why}"),
            }
        }
        std::fs::remove_file(at("01-a.conf")).unwrap();
        nix::unistd::mkfifo(&at("01-a.conf"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let why = cni_name(dir.path()).unwrap_err();
        assert!(why.ends_with("it is not a regular file"), "{why}");
    }
}
