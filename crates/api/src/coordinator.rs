//! `SpiderCoordinator`: how the coordinator plugin tunes Pods (spec api 1.5). The same fields are a
//! part of `SpiderMultusConfig`, where one that is set wins over the singleton's.

use serde::{Deserialize, Serialize};

use crate::ippool::Route;
use crate::lenient::null_as_default;

/// Name of the object unless configured otherwise.
pub const DEFAULT_NAME: &str = "default";

/// How the coordinator plugin tunes Pods.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(kube::CustomResource, schemars::JsonSchema))]
#[cfg_attr(
    feature = "crd",
    kube(
        group = "spiderpool.spidernet.io",
        version = "v2beta1",
        kind = "SpiderCoordinator",
        plural = "spidercoordinators",
        singular = "spidercoordinator",
        shortname = "scc",
        category = "spiderpool",
        status = "CoordinatorStatus"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct SpiderCoordinatorSpec {
    /// See [`CoordinatorMode`].
    #[cfg_attr(feature = "crd", schemars(extend("default" = "auto")))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<CoordinatorMode>,
    /// See [`PodCidrType`].
    #[serde(
        default,
        rename = "podCIDRType",
        skip_serializing_if = "Option::is_none"
    )]
    pub pod_cidr_type: Option<PodCidrType>,
    /// Addresses and CIDRs that go through the node's network stack as well.
    #[serde(
        default,
        rename = "hijackCIDR",
        skip_serializing_if = "Option::is_none"
    )]
    pub hijack_cidr: Option<Vec<String>>,
    /// Routes added to the policy table of this NIC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_routes: Option<Vec<Route>>,
    /// First two bytes of the Pod's MAC, such as 0a:1b; the address gives the other four. Empty: the
    /// MAC is left alone.
    #[cfg_attr(feature = "crd", schemars(length(max = 5)))]
    #[serde(
        default,
        rename = "podMACPrefix",
        skip_serializing_if = "Option::is_none"
    )]
    pub pod_mac_prefix: Option<String>,
    /// Whether routes of Pods with several NICs are tuned.
    #[cfg_attr(feature = "crd", schemars(extend("default" = true)))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tune_pod_routes: Option<bool>,
    /// NIC that keeps the Pod's default route.
    #[serde(
        default,
        rename = "podDefaultRouteNIC",
        skip_serializing_if = "Option::is_none"
    )]
    pub pod_default_route_nic: Option<String>,
    /// Name of the Pod's first NIC.
    #[serde(
        default,
        rename = "podDefaultCniNIC",
        skip_serializing_if = "Option::is_none"
    )]
    pub pod_default_cni_nic: Option<String>,
    /// Routing table of the node for its routes to Pods.
    #[cfg_attr(feature = "crd", schemars(transform = plain_integer, extend("default" = 500)))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_rule_table: Option<i64>,
    /// rp_filter in the Pod: 0, 1 or 2; negative leaves it alone.
    #[cfg_attr(feature = "crd", schemars(transform = plain_integer, range(max = 2), extend("default" = 0)))]
    #[serde(
        default,
        rename = "podRPFilter",
        skip_serializing_if = "Option::is_none"
    )]
    pub pod_rp_filter: Option<i64>,
    /// Transmit queue length of the NIC; 0 leaves it alone.
    #[cfg_attr(feature = "crd", schemars(transform = plain_integer, range(min = 0), extend("default" = 0)))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tx_queue_len: Option<i64>,
    /// Link-local address of veth0 in the Pod; empty: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub veth_link_address: Option<String>,
    /// MTU of veth0.
    #[cfg_attr(feature = "crd", schemars(transform = plain_integer, range(min = 1)))]
    #[serde(default, rename = "vethMTU", skip_serializing_if = "Option::is_none")]
    pub veth_mtu: Option<i64>,
    /// Whether IPAM checks that the gateway answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detect_gateway: Option<bool>,
    /// Whether IPAM checks that nobody else has the address.
    #[serde(
        default,
        rename = "detectIPConflict",
        skip_serializing_if = "Option::is_none"
    )]
    pub detect_ip_conflict: Option<bool>,
    /// Log file of the plugin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_options: Option<LogOptions>,
}

/// How a NIC is tuned. auto: decided for each NIC; underlay: the NIC carries all traffic and a veth
/// the node's; overlay: the default CNI's eth0 carries the cluster's traffic; disabled or disable:
/// nothing is tuned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum CoordinatorMode {
    /// Decided for each NIC.
    Auto,
    /// The NIC carries all traffic.
    Underlay,
    /// The default CNI's NIC carries the cluster's traffic.
    Overlay,
    /// Nothing is tuned; `disable` is the plugin's older word for it.
    #[serde(alias = "disable")]
    Disabled,
}

/// Where the Pod CIDRs of the default CNI are read from. auto: by the name in the first CNI file;
/// cluster: kubeadm's or the controller manager's; calico, cilium: theirs; none: not at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum PodCidrType {
    /// By the name in the first CNI file.
    Auto,
    /// kubeadm's or the controller manager's.
    Cluster,
    /// Calico's IPPools.
    Calico,
    /// Cilium's.
    Cilium,
    /// Not at all.
    None,
}

/// Log file of a plugin.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct LogOptions {
    /// See [`LogLevel`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_level: Option<LogLevel>,
    /// Path on the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_file_path: Option<String>,
    /// Size in MB at which the file is rotated; unset: 100.
    #[cfg_attr(feature = "crd", schemars(transform = plain_integer, range(min = 0)))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_file_max_size: Option<i64>,
    /// Days a rotated file is kept; unset: 30.
    #[cfg_attr(feature = "crd", schemars(transform = plain_integer, range(min = 0)))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_file_max_age: Option<i64>,
    /// Number of rotated files kept; unset: 10.
    #[cfg_attr(feature = "crd", schemars(transform = plain_integer, range(min = 0)))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_file_max_count: Option<i64>,
}

/// Least important level that is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Everything.
    Debug,
    /// What was done.
    Info,
    /// What is odd.
    Warn,
    /// What failed.
    Error,
}

/// What was detected. Written by the controller.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct CoordinatorStatus {
    /// Synced or NotReady.
    pub phase: String,
    /// Why it is not synced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// CIDRs of the default CNI's Pods; a list even when empty.
    #[serde(
        default,
        rename = "overlayPodCIDR",
        deserialize_with = "null_as_default"
    )]
    pub overlay_pod_cidr: Vec<String>,
    /// CIDRs of Services; a list even when empty.
    #[serde(default, rename = "serviceCIDR", deserialize_with = "null_as_default")]
    pub service_cidr: Vec<String>,
}

/// The contract gives these integers no format.
#[cfg(feature = "crd")]
pub(crate) fn plain_integer(schema: &mut schemars::Schema) {
    schema.remove("format");
}
