//! The objects that keep addresses beyond a Pod's life: StatefulSets, and KubeVirt's machines (spec
//! ipam 4.5, 4.6). Read past every cache, as a stale answer frees an address that somebody keeps.
//!
//! Decides nothing: the facts are for `spiderpool_ipam::sticky`. KubeVirt need not be there.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams};
use kube::core::{ObjectMeta, PartialObjectMeta, Request};
use kube::{Api, Client, Error, Resource};
use serde::de::DeserializeOwned;
use serde_json::Value;
use spiderpool_ipam::sticky::{MachineFacts, StatefulSetFacts, VmiFacts};

/// Label selector of the Pods that machines run in.
const LAUNCHERS: &str = "kubevirt.io=virt-launcher";
/// What an API server answers about a kind that it does not have.
const NO_KIND: &str = "404 page not found";
/// Kind of a running machine.
const VMI: &str = "VirtualMachineInstance";
/// Kind of what a user asks for.
const VM: &str = "VirtualMachine";

/// The StatefulSet of this name; `None` when there is none.
///
/// # Errors
/// Whatever the API answers but "not found".
pub async fn stateful_set(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<Option<StatefulSetFacts>, Error> {
    let api: Api<StatefulSet> = Api::namespaced(client.clone(), namespace);
    let found = api.get_opt(name).await?;
    Ok(found.map(|set| {
        let spec = set.spec.unwrap_or_default();
        let start = spec.ordinals.and_then(|ordinals| ordinals.start);
        StatefulSetFacts {
            replicas: spec.replicas.map(i64::from),
            start: start.map(i64::from),
        }
    }))
}

/// What exists behind the name of a machine. Without KubeVirt nothing does, and the log says so.
///
/// # Errors
/// Whatever the API answers but "not found".
pub async fn machine(client: &Client, namespace: &str, name: &str) -> Result<MachineFacts, Error> {
    let instance = read(client, VMI, namespace, name).await?;
    let vm = read(client, VM, namespace, name).await?;
    let is_terminating = |meta: &ObjectMeta| meta.deletion_timestamp.is_some();
    Ok(MachineFacts {
        vmi: instance.as_ref().map(|meta| VmiFacts {
            terminating: is_terminating(meta),
            of_vm: controller(meta).is_some_and(|(kind, _)| kind == VM),
        }),
        vm_terminating: vm.as_ref().map(is_terminating),
    })
}

/// The Pods of a machine: one, or two during a migration.
///
/// # Errors
/// Whatever the API answers.
pub async fn machine_pods(client: &Client, namespace: &str, name: &str) -> Result<Vec<Pod>, Error> {
    let mut pods = launchers(client, namespace).await?;
    pods.retain(|(machine, _)| machine == name);
    Ok(pods.into_iter().map(|(_, pod)| pod).collect())
}

/// The Pods of a namespace that machines run in, each with the machine's name, as `P` reads them.
///
/// # Errors
/// Whatever the API answers.
pub async fn launchers<P>(client: &Client, namespace: &str) -> Result<Vec<(String, P)>, Error>
where
    P: DeserializeOwned,
{
    let url = Pod::url_path(&(), Some(namespace));
    let params = ListParams::default().labels(LAUNCHERS);
    let request = Request::new(url)
        .list(&params)
        .map_err(Error::BuildRequest)?;
    let listed: Value = client.request(request).await?;
    let items = listed.get("items").and_then(Value::as_array);
    let mut pods = Vec::new();
    for item in items.into_iter().flatten() {
        let meta = item.get("metadata").cloned().unwrap_or_default();
        let meta: ObjectMeta = serde_json::from_value(meta).map_err(Error::SerdeError)?;
        if let Some((VMI, name)) = controller(&meta) {
            let pod = P::deserialize(item).map_err(Error::SerdeError)?;
            pods.push((name.to_owned(), pod));
        }
    }
    Ok(pods)
}

/// Kind and name of an object's controller.
fn controller(meta: &ObjectMeta) -> Option<(&str, &str)> {
    let mut owners = meta.owner_references.iter().flatten();
    let owner = owners.find(|owner| owner.controller == Some(true))?;
    Some((&owner.kind, &owner.name))
}

/// The metadata of a KubeVirt object.
async fn read(
    client: &Client,
    kind: &str,
    namespace: &str,
    name: &str,
) -> Result<Option<ObjectMeta>, Error> {
    let plural = format!("{}s", kind.to_ascii_lowercase());
    let gvk = GroupVersionKind::gvk("kubevirt.io", "v1", kind);
    let resource = ApiResource::from_gvk_with_plural(&gvk, &plural);
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    match api.get_metadata(name).await {
        Ok(PartialObjectMeta { metadata, .. }) => Ok(Some(metadata)),
        Err(Error::Api(status)) if status.code == 404 && status.reason == "NotFound" => Ok(None),
        // An API server that has the kind answers with a Status; one that has not, with this page. That of
        // a middle box says nothing about a machine, which may run.
        Err(Error::Api(status)) if status.code == 404 && status.message.trim() == NO_KIND => {
            tracing::warn!(
                namespace,
                name,
                "KubeVirt is not installed: the API has no kind {kind} of kubevirt.io/v1, so the machine counts as gone"
            );
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{Request, Response};
    use kube::client::Body;

    async fn asked(status: u16, body: &'static str) -> Result<MachineFacts, Error> {
        let server = tower::service_fn(move |_: Request<Body>| {
            let answer = Response::builder().status(status);
            let answer = answer.body(Body::from(body.as_bytes().to_vec()));
            async move { Ok::<_, tower::BoxError>(answer.unwrap()) }
        });
        machine(&Client::new(server, "default"), "shop", "vm").await
    }

    #[tokio::test]
    async fn a_page_of_somebody_else_ends_no_machine() {
        let absent = r#"{"kind":"Status","status":"Failure","reason":"NotFound","code":404}"#;
        for gone in [absent, "404 page not found\n"] {
            assert_eq!(asked(404, gone).await.unwrap(), MachineFacts::default());
        }
        for page in ["<html>404 Not Found</html>", "default backend - 404", ""] {
            asked(404, page).await.unwrap_err();
        }
    }
}
