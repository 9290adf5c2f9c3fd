//! The end of a SpiderEndpoint: its deletion and our finalizer.

use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::{Api, ResourceExt};
use spiderpool_api::endpoint::SpiderEndpoint;
use spiderpool_api::names;

use super::StoreError;
use super::error::store_error;

/// What a deletion comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deleted {
    /// There is no such object any more.
    Gone,
    /// It may wait for its finalizers.
    Waits,
}

/// What an endpoint must still be to be deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Still {
    /// The same object, whatever is in it by now.
    TheSame,
    /// The same object, and unchanged since it was read.
    AsRead,
}

/// Marks this very endpoint (same object UID) for deletion.
///
/// # Errors
/// [`StoreError`] names the endpoint.
pub async fn delete(
    api: &Api<SpiderEndpoint>,
    endpoint: &SpiderEndpoint,
    still: Still,
) -> Result<Deleted, StoreError> {
    let params = DeleteParams {
        preconditions: Some(Preconditions {
            uid: endpoint.uid(),
            resource_version: endpoint
                .resource_version()
                .filter(|_| still == Still::AsRead),
        }),
        ..DeleteParams::default()
    };
    match api.delete(&endpoint.name_any(), &params).await {
        Ok(_) => Ok(Deleted::Waits),
        // Gone, or another object has the name now: neither is ours to delete.
        Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => {
            Ok(Deleted::Gone)
        }
        Err(error) => Err(store_error(error, "delete", &shown(endpoint))),
    }
}

/// Takes our finalizer off this very endpoint. One that is gone, or another object by now, is success.
///
/// # Errors
/// [`StoreError`] names the endpoint.
pub async fn drop_finalizer(
    api: &Api<SpiderEndpoint>,
    endpoint: &SpiderEndpoint,
) -> Result<(), StoreError> {
    let (name, what) = (endpoint.name_any(), shown(endpoint));
    loop {
        let found = api.get_opt(&name).await;
        let Some(mut found) = found.map_err(|error| store_error(error, "read", &what))? else {
            return Ok(());
        };
        if found.uid() != endpoint.uid() || !without_finalizer(&mut found) {
            return Ok(());
        }
        match api.replace(&name, &PostParams::default(), &found).await {
            Ok(_) => return Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
            // Somebody wrote it in between; each round reads the newest.
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(store_error(error, "take the finalizer off", &what)),
        }
    }
}

fn shown(endpoint: &SpiderEndpoint) -> String {
    let namespace = endpoint.namespace().unwrap_or_default();
    format!("SpiderEndpoint {namespace}/{}", endpoint.name_any())
}

fn without_finalizer(endpoint: &mut SpiderEndpoint) -> bool {
    let finalizers = endpoint.finalizers_mut();
    let before = finalizers.len();
    finalizers.retain(|name| name != names::FINALIZER);
    finalizers.len() != before
}
