//! `SpiderEndpoint`: what a Pod was given, a projection of the pool records (spec api 1.4). It has
//! a status and no spec, and the status is written with the object, not through a subresource.

use serde::{Deserialize, Serialize};

use crate::ippool::Route;

/// Status of an endpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct EndpointStatus {
    /// The Pod's allocation.
    pub current: EndpointAllocation,
    /// Kind of the Pod's top controller.
    pub owner_controller_type: String,
    /// Name of the Pod's top controller.
    pub owner_controller_name: String,
}

/// Addresses of one Pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
pub struct EndpointAllocation {
    /// UID of the Pod.
    pub uid: String,
    /// Node of the Pod.
    pub node: String,
    /// One item per NIC.
    pub ips: Vec<EndpointNic>,
}

/// Addresses of one NIC.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct EndpointNic {
    /// Interface name in the Pod; empty until a call names it.
    pub interface: String,
    /// Address with prefix length.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv4: Option<String>,
    /// Address with prefix length.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv6: Option<String>,
    /// Pool of `ipv4`.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "ipv4Pool")]
    pub ipv4_pool: Option<String>,
    /// Pool of `ipv6`.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "ipv6Pool")]
    pub ipv6_pool: Option<String>,
    /// VLAN id on the parent NIC, 0 = none.
    #[cfg_attr(feature = "crd", schemars(range(min = 0, max = 4094)))]
    #[serde(default)]
    pub vlan: i64,
    /// Gateway of `ipv4`.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        rename = "ipv4Gateway"
    )]
    pub ipv4_gateway: Option<String>,
    /// Gateway of `ipv6`.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        rename = "ipv6Gateway"
    )]
    pub ipv6_gateway: Option<String>,
    /// The NIC gets no default route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clean_gateway: Option<bool>,
    /// Routes besides the default one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routes: Option<Vec<Route>>,
    /// MAC the cloud expects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
}

#[cfg(feature = "crd")]
pub use crd::SpiderEndpoint;

#[cfg(feature = "crd")]
mod crd {
    use std::borrow::Cow;

    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use serde::{Deserialize, Serialize};

    use super::EndpointStatus;
    use crate::names;

    /// The object.
    #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub struct SpiderEndpoint {
        /// `spiderpool.spidernet.io/v2beta1`.
        pub api_version: String,
        /// `SpiderEndpoint`.
        pub kind: String,
        /// Named after the Pod (after the VM for sticky KubeVirt addresses).
        pub metadata: ObjectMeta,
        /// See [`EndpointStatus`].
        #[serde(default)]
        pub status: EndpointStatus,
    }

    impl SpiderEndpoint {
        /// An object ready to be created.
        #[must_use]
        pub fn new(metadata: ObjectMeta, status: EndpointStatus) -> Self {
            Self {
                api_version: format!("{}/{}", names::GROUP, names::VERSION),
                kind: "SpiderEndpoint".to_owned(),
                metadata,
                status,
            }
        }
    }

    impl kube::Resource for SpiderEndpoint {
        type DynamicType = ();
        type Scope = kube::core::NamespaceResourceScope;

        fn kind((): &()) -> Cow<'_, str> {
            "SpiderEndpoint".into()
        }

        fn group((): &()) -> Cow<'_, str> {
            names::GROUP.into()
        }

        fn version((): &()) -> Cow<'_, str> {
            names::VERSION.into()
        }

        fn plural((): &()) -> Cow<'_, str> {
            "spiderendpoints".into()
        }

        fn meta(&self) -> &ObjectMeta {
            &self.metadata
        }

        fn meta_mut(&mut self) -> &mut ObjectMeta {
            &mut self.metadata
        }
    }
}
