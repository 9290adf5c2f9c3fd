//! `NetworkAttachmentDefinition` of the Kubernetes Network Plumbing Working Group, "NAD": a CNI
//! configuration under a name (multi-net-spec 1.3, section 3). Others write these objects as well,
//! so nothing but the metadata is taken for granted.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

use crate::lenient::null_as_default;

/// API group.
pub const GROUP: &str = "k8s.cni.cncf.io";
/// The one served and stored version.
pub const VERSION: &str = "v1";
/// Kind.
pub const KIND: &str = "NetworkAttachmentDefinition";
/// Plural.
pub const PLURAL: &str = "network-attachment-definitions";

/// The object.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NetworkAttachmentDefinition {
    /// `k8s.cni.cncf.io/v1`.
    pub api_version: String,
    /// `NetworkAttachmentDefinition`.
    pub kind: String,
    /// Its annotations carry the resource a Pod of this network asks for.
    pub metadata: ObjectMeta,
    /// See [`AttachmentSpec`].
    #[serde(default, deserialize_with = "null_as_default")]
    pub spec: AttachmentSpec,
}

/// Specification of an attachment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct AttachmentSpec {
    /// A CNI configuration as JSON. Without one the node's CNI file of the object's name is meant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<String>,
}

impl NetworkAttachmentDefinition {
    /// An object ready to be created.
    #[must_use]
    pub fn new(metadata: ObjectMeta, config: Option<String>) -> Self {
        Self {
            api_version: format!("{GROUP}/{VERSION}"),
            kind: KIND.to_owned(),
            metadata,
            spec: AttachmentSpec { config },
        }
    }
}

impl kube::Resource for NetworkAttachmentDefinition {
    type DynamicType = ();
    type Scope = kube::core::NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        KIND.into()
    }

    fn group((): &()) -> Cow<'_, str> {
        GROUP.into()
    }

    fn version((): &()) -> Cow<'_, str> {
        VERSION.into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        PLURAL.into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
