//! `SpiderIPPool`: a set of addresses of one subnet and who may use them (spec api 1.1).

#![cfg_attr(
    feature = "crd",
    expect(
        clippy::duplicated_attributes,
        reason = "each printer column names its own type and priority"
    )
)]

use serde::{Deserialize, Serialize};

use crate::selector::LabelSelector;

/// A route as pools and endpoints store it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
pub struct Route {
    /// Destination CIDR.
    pub dst: String,
    /// Next hop.
    pub gw: String,
}

/// Specification of a pool.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(kube::CustomResource, schemars::JsonSchema))]
#[cfg_attr(
    feature = "crd",
    kube(
        group = "spiderpool.spidernet.io",
        version = "v2beta1",
        kind = "SpiderIPPool",
        plural = "spiderippools",
        singular = "spiderippool",
        shortname = "sp",
        category = "spiderpool",
        status = "IpPoolStatus",
        printcolumn(
            name = "VERSION",
            type_ = "string",
            json_path = ".spec.ipVersion",
            description = "ipVersion"
        ),
        printcolumn(
            name = "SUBNET",
            type_ = "string",
            json_path = ".spec.subnet",
            description = "subnet"
        ),
        printcolumn(
            name = "ALLOCATED-IP-COUNT",
            type_ = "integer",
            json_path = ".status.allocatedIPCount",
            description = "allocatedIPCount"
        ),
        printcolumn(
            name = "TOTAL-IP-COUNT",
            type_ = "integer",
            json_path = ".status.totalIPCount",
            description = "totalIPCount"
        ),
        printcolumn(
            name = "DEFAULT",
            type_ = "boolean",
            json_path = ".spec.default",
            description = "default"
        ),
        printcolumn(
            name = "DISABLE",
            type_ = "boolean",
            json_path = ".spec.disable",
            description = "disable",
            priority = 10
        ),
        printcolumn(
            name = "NodeName",
            type_ = "string",
            json_path = ".spec.nodeName",
            description = "nodeName",
            priority = 10
        ),
        printcolumn(
            name = "MultusName",
            type_ = "string",
            json_path = ".spec.multusName",
            description = "multusName",
            priority = 10
        ),
        printcolumn(
            name = "APP-NAMESPACE",
            type_ = "string",
            json_path = r".spec.podAffinity.matchLabels['ipam\.spidernet\.io/app\-namespace']",
            description = "podAffinity app namespace",
            priority = 10
        ),
        printcolumn(
            name = "READY-IP-COUNT",
            type_ = "integer",
            json_path = ".status.ipMetaData.readyIPCount",
            description = "addresses the provider has ready",
            priority = 1
        ),
        printcolumn(
            name = "PARENT-NIC",
            type_ = "string",
            json_path = ".status.parentNic.name",
            description = "parent NIC of a prewarm pool",
            priority = 1
        ),
        printcolumn(
            name = "AGE",
            type_ = "date",
            json_path = ".metadata.creationTimestamp",
            description = "time since creation",
            priority = 1
        )
    )
)]
#[serde(rename_all = "camelCase")]
pub struct SpiderIPPoolSpec {
    /// 4 or 6; filled in from `subnet`, immutable.
    #[cfg_attr(feature = "crd", schemars(extend("enum" = [4, 6])))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip_version: Option<i64>,
    /// Canonical CIDR, immutable.
    pub subnet: String,
    /// Addresses and ranges `a` or `a-b`.
    #[serde(default, rename = "ips", skip_serializing_if = "Option::is_none")]
    pub ips: Option<Vec<String>>,
    /// Addresses and ranges taken out of `ips`.
    #[serde(
        default,
        rename = "excludeIPs",
        skip_serializing_if = "Option::is_none"
    )]
    pub exclude_ips: Option<Vec<String>>,
    /// Gateway of the subnet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
    /// Further routes of each Pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routes: Option<Vec<Route>>,
    /// Pods that may use the pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_affinity: Option<LabelSelector>,
    /// Namespaces that may use the pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_affinity: Option<LabelSelector>,
    /// Nodes that may use the pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_affinity: Option<LabelSelector>,
    /// Namespaces by name; overrides `namespaceAffinity`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_name: Option<Vec<String>>,
    /// Nodes by name; overrides `nodeAffinity`. One name makes a marked pool a prewarm pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_name: Option<Vec<String>>,
    /// Network attachment definitions that may use the pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub multus_name: Option<Vec<String>>,
    /// Used when nothing else names a pool.
    #[cfg_attr(feature = "crd", schemars(extend("default" = false)))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<bool>,
    /// Gives out nothing new.
    #[cfg_attr(feature = "crd", schemars(extend("default" = false)))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disable: Option<bool>,
}

/// Status of a pool; each field has one writer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct IpPoolStatus {
    /// Who has which address, a JSON object in a string. Written by agents and garbage collection.
    #[serde(
        default,
        rename = "allocatedIPs",
        skip_serializing_if = "Option::is_none"
    )]
    pub allocated_ips: Option<String>,
    /// Number of records.
    #[cfg_attr(feature = "crd", schemars(range(min = 0)))]
    #[serde(
        default,
        rename = "allocatedIPCount",
        skip_serializing_if = "Option::is_none"
    )]
    pub allocated_ip_count: Option<i64>,
    /// Number of usable addresses, capped at 2^63 - 1. Written by the controller.
    #[cfg_attr(feature = "crd", schemars(range(min = 0)))]
    #[serde(
        default,
        rename = "totalIPCount",
        skip_serializing_if = "Option::is_none"
    )]
    pub total_ip_count: Option<i64>,
    /// The parent NIC of a prewarm pool. Written by the agent of its node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_nic: Option<ParentNic>,
    /// What the provider has ready. Written by the provider alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip_meta_data: Option<IpMetaData>,
}

/// A NIC of the node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
pub struct ParentNic {
    /// Guest name.
    pub name: String,
    /// Ethernet address.
    pub mac: String,
}

/// Publication of the provider, one atomic write.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct IpMetaData {
    /// MAC, VLAN id and node of each address that is ready, a JSON object in a string.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<String>,
    /// Pool generation the publication is based on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Addresses with an entry; informational.
    #[cfg_attr(feature = "crd", schemars(range(min = 0)))]
    #[serde(
        default,
        rename = "readyIPCount",
        skip_serializing_if = "Option::is_none"
    )]
    pub ready_ip_count: Option<i64>,
    /// Addresses without one; informational.
    #[cfg_attr(feature = "crd", schemars(range(min = 0)))]
    #[serde(
        default,
        rename = "unreadyIPCount",
        skip_serializing_if = "Option::is_none"
    )]
    pub unready_ip_count: Option<i64>,
}
