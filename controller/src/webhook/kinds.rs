//! How the kinds that rules look at are asked for.

use k8s_openapi::api::core::v1::Namespace;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind, PartialObjectMeta};
use kube::{Api, Client};
use spiderpool_api::ippool::SpiderIPPool;
use spiderpool_api::names;
use spiderpool_ipam::admission::Kind;

/// Objects of a kind, in all namespaces, with everything in them.
pub(super) fn objects(client: &Client, kind: Kind) -> Api<DynamicObject> {
    let of = GroupVersionKind::gvk(names::GROUP, names::VERSION, kind.name());
    Api::all_with(client.clone(), &ApiResource::from_gvk(&of))
}

/// Objects of a namespaced kind in one namespace.
pub(super) fn objects_in(client: &Client, kind: Kind, namespace: &str) -> Api<DynamicObject> {
    let of = GroupVersionKind::gvk(names::GROUP, names::VERSION, kind.name());
    Api::namespaced_with(client.clone(), namespace, &ApiResource::from_gvk(&of))
}

/// Pools without what is in them.
pub(super) fn pools_metadata(client: &Client) -> Api<PartialObjectMeta<SpiderIPPool>> {
    Api::all(client.clone())
}

/// Namespaces without what is in them.
pub(super) fn namespaces(client: &Client) -> Api<PartialObjectMeta<Namespace>> {
    Api::all(client.clone())
}
