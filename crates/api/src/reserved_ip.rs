//! `SpiderReservedIP`: addresses no pool may give out (spec api 1.3).

use serde::{Deserialize, Serialize};

/// Specification of a reservation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(kube::CustomResource, schemars::JsonSchema))]
#[cfg_attr(
    feature = "crd",
    kube(
        group = "spiderpool.spidernet.io",
        version = "v2beta1",
        kind = "SpiderReservedIP",
        plural = "spiderreservedips",
        singular = "spiderreservedip",
        shortname = "sr",
        category = "spiderpool",
        printcolumn(
            name = "VERSION",
            type_ = "string",
            json_path = ".spec.ipVersion",
            description = "ipVersion"
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
pub struct SpiderReservedIPSpec {
    /// 4 or 6; filled in from the first range, immutable.
    #[cfg_attr(feature = "crd", schemars(extend("enum" = [4, 6])))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip_version: Option<i64>,
    /// Addresses and ranges `a` or `a-b`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ips: Option<Vec<String>>,
}
