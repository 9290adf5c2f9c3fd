//! `spiderpoolctl init`: what a cluster needs besides the processes, as the chart's first job makes it:
//! the SpiderCoordinator, default subnets and pools, the SpiderMultusConfig of the cluster's own CNI
//! (spec api 5.2). All of it is told by the environment.
//!
//! Each step is repeated until it is done: webhooks and kinds come up beside it. What exists is left
//! as it is.

mod objects;

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use k8s_openapi::api::core::v1::Endpoints;
use kube::Api;
use kube::api::{DynamicObject, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use spiderpool_api::names;
use spiderpool_controller::chain::full;
use spiderpool_controller::reconcile::coordinator::cni_name;
use tokio::time::sleep;

use crate::cluster::{Cluster, ListError, is_unreachable};
use crate::{complain, output};
use objects::{Network, Object, Wanted};

/// Between two tries.
const RETRY: Duration = Duration::from_secs(2);

/// Why a step is not done yet.
#[derive(Debug, thiserror::Error)]
enum Undone {
    /// Nobody answers the webhooks.
    #[error("Service {0} has no ready endpoint yet: no controller is ready")]
    NoController(String),
    /// The CNI folder.
    #[error("cannot find the cluster's own CNI: {0}")]
    Cni(String),
    /// Nobody answered.
    #[error(transparent)]
    Unreachable(ListError),
    /// The API said no.
    #[error("cannot {tried} {what}")]
    Api {
        tried: &'static str,
        what: String,
        source: Box<kube::Error>,
    },
}

pub(crate) async fn run(cluster: &Cluster) -> Result<ExitCode, Box<dyn Error>> {
    let wanted = Wanted::read(|name| std::env::var(name).ok())?;
    persist(async || controller(cluster, &wanted).await).await?;
    for object in &wanted.objects {
        persist(async || create(cluster, object).await).await?;
    }
    if let Some(network) = &wanted.network {
        persist(async || create(cluster, &named(network)?).await).await?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What the API, or nobody, answered.
fn undone(cluster: &Cluster, tried: &'static str, what: String, error: kube::Error) -> Undone {
    let source = Box::new(error);
    if is_unreachable(&source) {
        return Undone::Unreachable(cluster.unreachable(source));
    }
    Undone::Api {
        tried,
        what,
        source,
    }
}

/// Until it is done; says why it is not, once for each reason.
async fn persist(step: impl AsyncFn() -> Result<String, Undone>) -> Result<(), Box<dyn Error>> {
    let mut said = String::new();
    loop {
        match step().await {
            Ok(mut done) => {
                writeln!(done)?;
                output::print(&done)?;
                return Ok(());
            }
            Err(error) => {
                let text = full(&error);
                if text != said {
                    complain("waiting", &text);
                    said = text;
                }
                sleep(RETRY).await;
            }
        }
    }
}

async fn controller(cluster: &Cluster, wanted: &Wanted) -> Result<String, Undone> {
    let name = &wanted.controller;
    let api: Api<Endpoints> = Api::namespaced(cluster.client().clone(), &wanted.namespace);
    let found = api.get_opt(name).await.map_err(|error| {
        let what = format!("Endpoints {}/{name}", wanted.namespace);
        undone(cluster, "read", what, error)
    })?;
    let subsets = found.and_then(|found| found.subsets).unwrap_or_default();
    let ready = |addresses: &Vec<_>| !addresses.is_empty();
    if subsets
        .iter()
        .any(|subset| subset.addresses.as_ref().is_some_and(ready))
    {
        return Ok(format!("Service {name} is answered"));
    }
    Err(Undone::NoController(format!("{}/{name}", wanted.namespace)))
}

async fn create(cluster: &Cluster, object: &Object) -> Result<String, Undone> {
    let kind = GroupVersionKind::gvk(names::GROUP, names::VERSION, object.kind);
    let resource = ApiResource::from_gvk(&kind);
    let client = cluster.client();
    let api: Api<DynamicObject> = match &object.namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let what = format!("{} {}", object.kind, object.name);
    let mut made = DynamicObject::new(&object.name, &resource);
    made.metadata.annotations = Some(object.annotations.clone());
    made.data = serde_json::json!({"spec": object.spec});
    match api.create(&PostParams::default(), &made).await {
        Ok(_) => Ok(format!("{what} created")),
        Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => {
            Ok(format!("{what} exists and is left as it is"))
        }
        Err(error) => Err(undone(cluster, "create", what, error)),
    }
}

/// The SpiderMultusConfig of the cluster's own CNI. An empty one of type custom has no configuration:
/// Multus then takes the node's own file of that name.
fn named(network: &Network) -> Result<Object, Undone> {
    let found = match &network.name {
        Some(name) => Some(name.clone()),
        None => cni_name(&network.cni_dir).map_err(Undone::Cni)?,
    };
    let name = found.unwrap_or_else(|| "default".to_owned());
    let mut annotations = BTreeMap::new();
    let own = if name == objects::CALICO_FILE {
        annotations.insert(names::MULTUS_CR_NAME.to_owned(), name);
        "calico".to_owned()
    } else {
        name
    };
    Ok(Object {
        kind: "SpiderMultusConfig",
        namespace: Some(network.namespace.clone()),
        name: own,
        annotations,
        spec: serde_json::json!({"cniType": "custom", "enableCoordinator": false}),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clusters_own_network_has_the_name_of_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let network = |name: Option<&str>| Network {
            name: name.map(str::to_owned),
            namespace: "spiderpool".to_owned(),
            cni_dir: dir.path().to_owned(),
        };
        assert_eq!(named(&network(Some("mine"))).unwrap().name, "mine");
        assert_eq!(named(&network(None)).unwrap().name, "default");
        let file = dir.path().join("10-calico.conflist");
        std::fs::write(&file, r#"{"name":"k8s-pod-network"}"#).unwrap();
        let calico = named(&network(None)).unwrap();
        assert_eq!(calico.name, "calico");
        assert_eq!(calico.annotations[names::MULTUS_CR_NAME], "k8s-pod-network");
        std::fs::write(&file, "{").unwrap();
        let why = full(&named(&network(None)).unwrap_err());
        assert!(why.contains("10-calico.conflist"), "{why}");
    }
}
