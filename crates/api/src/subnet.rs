//! `SpiderSubnet`: addresses of one network that pools are carved from (spec api 1.2).

#![cfg_attr(
    feature = "crd",
    expect(
        clippy::duplicated_attributes,
        reason = "each printer column names its own type and priority"
    )
)]

use serde::{Deserialize, Serialize};

use crate::ippool::Route;

/// Specification of a subnet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(kube::CustomResource, schemars::JsonSchema))]
#[cfg_attr(
    feature = "crd",
    kube(
        group = "spiderpool.spidernet.io",
        version = "v2beta1",
        kind = "SpiderSubnet",
        plural = "spidersubnets",
        singular = "spidersubnet",
        shortname = "ss",
        category = "spiderpool",
        status = "SubnetStatus",
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
            name = "AGE",
            type_ = "date",
            json_path = ".metadata.creationTimestamp",
            description = "time since creation",
            priority = 1
        )
    )
)]
#[serde(rename_all = "camelCase")]
pub struct SpiderSubnetSpec {
    /// 4 or 6; filled in from `subnet`, immutable.
    #[cfg_attr(feature = "crd", schemars(extend("enum" = [4, 6])))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip_version: Option<i64>,
    /// Canonical CIDR, immutable.
    pub subnet: String,
    /// Addresses and ranges `a` or `a-b` that pools may hold.
    #[serde(default, rename = "ips", skip_serializing_if = "Option::is_none")]
    pub ips: Option<Vec<String>>,
    /// Addresses and ranges taken out of `ips`.
    #[serde(
        default,
        rename = "excludeIPs",
        skip_serializing_if = "Option::is_none"
    )]
    pub exclude_ips: Option<Vec<String>>,
    /// Gateway of the network; pools without one inherit it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
    /// Further routes; pools without any inherit them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routes: Option<Vec<Route>>,
}

/// Status of a subnet. Written by the controller.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct SubnetStatus {
    /// Which pool holds what: a JSON object in a string, `{"pool":{"ips":["a-b"],"application":"…"}}`.
    #[serde(
        default,
        rename = "controlledIPPools",
        skip_serializing_if = "Option::is_none"
    )]
    pub controlled_ip_pools: Option<String>,
    /// Number of usable addresses, capped at 2^63 - 1.
    #[cfg_attr(feature = "crd", schemars(range(min = 0)))]
    #[serde(
        default,
        rename = "totalIPCount",
        skip_serializing_if = "Option::is_none"
    )]
    pub total_ip_count: Option<i64>,
    /// Number of addresses that pools hold.
    #[cfg_attr(feature = "crd", schemars(range(min = 0)))]
    #[serde(
        default,
        rename = "allocatedIPCount",
        skip_serializing_if = "Option::is_none"
    )]
    pub allocated_ip_count: Option<i64>,
}
