//! Objects that are built or taken apart in more than one call.

use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::{Api, Resource, ResourceExt};
use spiderpool_api::endpoint::SpiderEndpoint;
use spiderpool_api::ippool::SpiderIPPool;
use spiderpool_controller::objects::endpoint::{self, Deleted, Still};

use super::{PodEvent, StoreError};
use crate::failpoint::del_step;

/// Reporter of our events.
const COMPONENT: &str = "spiderpool-agent";

/// Where events about objects without a namespace are.
const CLUSTER_EVENTS: &str = "default";

/// The Pod of an event.
pub(super) fn pod_of(event: &PodEvent) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".into()),
        kind: Some("Pod".into()),
        namespace: Some(event.pod.namespace.clone()),
        name: Some(event.pod.name.clone()),
        uid: Some(event.uid.clone()),
        ..ObjectReference::default()
    }
}

/// The pool of an event.
pub(super) fn reference(pool: &SpiderIPPool) -> ObjectReference {
    ObjectReference {
        namespace: None,
        ..pool.object_ref(&())
    }
}

/// A Warning about an object.
pub(super) fn warning(about: ObjectReference, reason: &str, message: &str, node: &str) -> Event {
    let now = Time(k8s_openapi::jiff::Timestamp::now());
    let namespace = about.namespace.as_deref().unwrap_or(CLUSTER_EVENTS);
    let name = about.name.as_deref().unwrap_or_default();
    Event {
        metadata: ObjectMeta {
            namespace: Some(namespace.to_owned()),
            generate_name: Some(format!("{name}.")),
            ..ObjectMeta::default()
        },
        involved_object: about,
        type_: Some("Warning".into()),
        reason: Some(reason.into()),
        message: Some(message.into()),
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
    found: &SpiderEndpoint,
) -> Result<(), StoreError> {
    // One without an owner is of an identity, whose next Pod may have written it since it was read:
    // then it stays.
    let still = match found.owner_references().is_empty() {
        true => Still::AsRead,
        false => Still::TheSame,
    };
    match del_step!(DeleteEndpoint, endpoint::delete(api, found, still))? {
        Deleted::Waits => del_step!(DropFinalizer, endpoint::drop_finalizer(api, found)),
        Deleted::Gone => Ok(()),
    }
}
