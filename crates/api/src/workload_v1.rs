//! `GET /v1/workloadendpoint`: what a Pod was given, for plugins of others that make the link of a
//! sub-ENI themselves and look MAC and VLAN up (spec dataplane 0.1, iaas 7.1 step 7).

use serde::{Deserialize, Serialize};

use crate::endpoint::EndpointNic;
use crate::ippool::Route;

/// Path of the route.
pub const ROUTE_WORKLOAD_ENDPOINT: &str = "/v1/workloadendpoint";

/// Which Pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadQuery {
    /// Its namespace.
    pub pod_namespace: String,
    /// Its name.
    pub pod_name: String,
    /// Its UID; empty: whatever has the name.
    #[serde(default, rename = "podUID")]
    pub pod_uid: String,
    /// Interface name; empty: all.
    #[serde(default)]
    pub nic: String,
}

/// What the Pod was given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadEndpoint {
    /// Namespace of the Pod.
    pub pod_namespace: String,
    /// Name of the Pod.
    pub pod_name: String,
    /// UID of the Pod.
    #[serde(rename = "podUID")]
    pub pod_uid: String,
    /// Node of the Pod.
    pub node: String,
    /// Its NICs.
    pub interfaces: Vec<WorkloadNic>,
}

/// What one NIC was given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadNic {
    /// Interface name in the Pod.
    pub interface: String,
    /// Address with prefix length.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv4: Option<String>,
    /// Address with prefix length.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv6: Option<String>,
    /// MAC that the cloud expects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// VLAN id on the parent NIC; absent = none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<i64>,
    /// Pool of `ipv4`.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "ipv4Pool")]
    pub ipv4_pool: Option<String>,
    /// Pool of `ipv6`.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "ipv6Pool")]
    pub ipv6_pool: Option<String>,
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
    /// Routes besides the default one.
    #[serde(default)]
    pub routes: Vec<Route>,
}

impl From<EndpointNic> for WorkloadNic {
    fn from(nic: EndpointNic) -> Self {
        Self {
            interface: nic.interface,
            ipv4: nic.ipv4,
            ipv6: nic.ipv6,
            mac: nic.mac,
            vlan: Some(nic.vlan).filter(|vlan| *vlan != 0),
            ipv4_pool: nic.ipv4_pool,
            ipv6_pool: nic.ipv6_pool,
            ipv4_gateway: nic.ipv4_gateway,
            ipv6_gateway: nic.ipv6_gateway,
            routes: nic.routes.unwrap_or_default(),
        }
    }
}
