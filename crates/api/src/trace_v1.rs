//! Bodies of the agent socket for people who ask why: `GET /v1/trace?podNamespace=&podName=` and
//! `GET /v1/attachments`. New fields are optional.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Path of the question what became of a Pod's addresses.
pub const ROUTE_TRACE: &str = "/v1/trace";
/// Path of the list of what this node gave to which sandbox.
pub const ROUTE_ATTACHMENTS: &str = "/v1/attachments";

/// Which Pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TraceQuery {
    /// Its namespace.
    pub pod_namespace: String,
    /// Its name.
    pub pod_name: String,
}

/// A Pod, what it has, and what an ADD would find now.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TraceReport {
    /// Why nothing is told; absent when all is well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// UID of the Pod object.
    pub pod_uid: String,
    /// Node of the Pod.
    pub pod_node: String,
    /// Node that answers.
    pub node: String,
    /// Records that carry the Pod's name, whatever their UID.
    pub records: Vec<HeldRecord>,
    /// The Pod's SpiderEndpoint: its `status`.
    pub endpoint: Option<Value>,
    /// What the answering node gave to the Pod's sandboxes.
    pub attachments: Vec<HeldAttachment>,
    /// One per NIC that was asked for here, or one guess; empty on another node than the Pod's.
    pub nics: Vec<TraceNic>,
}

/// A record in a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HeldRecord {
    /// The address.
    pub address: IpAddr,
    /// The pool.
    pub pool: String,
    /// UID of the Pod that the record is of.
    pub pod_uid: String,
    /// NIC, where the record says it.
    pub nic: Option<String>,
    /// Who is giving it back since when, if somebody is.
    pub releasing: Option<String>,
}

/// What a node gave to a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HeldAttachment {
    /// The sandbox.
    #[serde(rename = "containerID")]
    pub container_id: String,
    /// Interface in the Pod.
    pub interface: String,
    /// UID of the Pod.
    #[serde(rename = "podUID")]
    pub pod_uid: String,
    /// Namespace of the Pod.
    pub pod_namespace: String,
    /// Name of the Pod.
    pub pod_name: String,
    /// Addresses with the pools they come from.
    pub ips: Vec<HeldIp>,
    /// Parent NIC.
    pub master: Option<String>,
    /// VLAN id.
    pub vlan: Option<u16>,
    /// MAC.
    pub mac: Option<String>,
    /// Since when, RFC 3339.
    pub attached_at: String,
}

/// An address of an attachment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldIp {
    /// The address.
    pub address: IpAddr,
    /// Its pool.
    pub pool: String,
}

/// One NIC: the last ADD, and what the next one would find.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TraceNic {
    /// `CNI_IFNAME`.
    pub interface: String,
    /// The last ADD; absent when this agent has served none, whose configuration is then unknown.
    pub last: Option<LastAdd>,
    /// What names the pools.
    pub level: Option<String>,
    /// Families of all NICs that the level is about.
    pub families: Vec<TraceFamily>,
    /// Pools that were dropped for a higher class, in words.
    pub dropped: Vec<String>,
    /// Why an ADD would fail before any address is looked at.
    pub error: Option<String>,
}

/// An ADD that was served.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LastAdd {
    /// When it was answered, RFC 3339.
    pub at: String,
    /// How long it took.
    pub ms: u64,
    /// CNI code; 0 when it succeeded.
    pub code: u32,
    /// The text that the runtime got.
    pub error: Option<String>,
}

/// One family of one NIC.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceFamily {
    /// The NIC.
    pub nic: String,
    /// `IPv4` or `IPv6`.
    pub family: String,
    /// In the order they are tried; those after one that gives an address are not needed.
    pub candidates: Vec<TraceCandidate>,
    /// Pools that are not tried.
    pub refused: Vec<TraceRefusal>,
}

/// A pool that is tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceCandidate {
    /// The pool.
    pub pool: String,
    /// What it gives; IPv4 first of a pair.
    pub gives: Vec<IpAddr>,
    /// How, such as `cache_hit`.
    pub path: Option<String>,
    /// Why it gives nothing.
    pub error: Option<String>,
}

/// A pool that is not tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceRefusal {
    /// The pool.
    pub pool: String,
    /// Reads on after the pool's name.
    pub reason: String,
}
