//! Objects that are built or taken apart in more than one call.

use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::{Api, ResourceExt};
use spiderpool_api::endpoint::SpiderEndpoint;
use spiderpool_api::names;

use super::error::store_error;
use super::{PodEvent, StoreError};
use crate::failpoint::del_step;

/// Reporter of our events.
const COMPONENT: &str = "spiderpool-agent";

/// A Warning about a Pod.
pub(super) fn pod_event(event: &PodEvent, node: &str) -> Event {
    let now = Time(k8s_openapi::jiff::Timestamp::now());
    Event {
        metadata: ObjectMeta {
            namespace: Some(event.pod.namespace.clone()),
            generate_name: Some(format!("{}.", event.pod.name)),
            ..ObjectMeta::default()
        },
        involved_object: ObjectReference {
            api_version: Some("v1".into()),
            kind: Some("Pod".into()),
            namespace: Some(event.pod.namespace.clone()),
            name: Some(event.pod.name.clone()),
            uid: Some(event.uid.clone()),
            ..ObjectReference::default()
        },
        type_: Some("Warning".into()),
        reason: Some(event.reason.into()),
        message: Some(event.message.clone()),
        source: Some(EventSource {
            component: Some(COMPONENT.into()),
            host: Some(node.into()),
        }),
        first_timestamp: Some(now.clone()),
        last_timestamp: Some(now),
        count: Some(1),
        reporting_component: Some(COMPONENT.into()),
        reporting_instance: Some(node.into()),
        ..Event::default()
    }
}

/// Deletes this very endpoint: marks it for deletion by UID, then takes our finalizer off.
pub(super) async fn remove_endpoint(
    api: &Api<SpiderEndpoint>,
    endpoint: &SpiderEndpoint,
) -> Result<(), StoreError> {
    let name = endpoint.name_any();
    let what = format!(
        "SpiderEndpoint {}/{name}",
        endpoint.namespace().unwrap_or_default()
    );
    let params = DeleteParams {
        preconditions: Some(Preconditions {
            uid: endpoint.uid(),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    match del_step!(DeleteEndpoint, api.delete(&name, &params)) {
        Ok(_) => {}
        // Gone, or another object has the name now: neither is ours to delete.
        Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => return Ok(()),
        Err(error) => return Err(store_error(error, "delete", &what)),
    }
    loop {
        let found = api.get_opt(&name).await;
        let Some(mut found) = found.map_err(|error| store_error(error, "read", &what))? else {
            return Ok(());
        };
        if found.uid() != endpoint.uid() || !drop_finalizer(&mut found) {
            return Ok(());
        }
        let replaced = del_step!(
            DropFinalizer,
            api.replace(&name, &PostParams::default(), &found)
        );
        match replaced {
            Ok(_) => return Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
            // Somebody wrote it in between; each round reads the newest.
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(store_error(error, "take the finalizer off", &what)),
        }
    }
}

fn drop_finalizer(endpoint: &mut SpiderEndpoint) -> bool {
    let finalizers = endpoint.finalizers_mut();
    let before = finalizers.len();
    finalizers.retain(|name| name != names::FINALIZER);
    finalizers.len() != before
}
