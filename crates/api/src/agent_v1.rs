//! Bodies of the agent socket: `POST /v1/cni` (design section 3), and `DELETE /v1/ipam/ips` of foreign
//! plugins. Unknown fields are ignored and
//! new ones optional, so that agent and plugin of neighbouring releases work together.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::cni::CniCommand;

/// Version of the body's shape.
pub const BODY_VERSION: u32 = 1;
/// What a plugin waits for the agent, milliseconds. The agent's own deadline is 3 s shorter.
pub const BUDGET_MS: u64 = 100_000;

/// One CNI call, as the runtime made it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CniRequest {
    /// [`BODY_VERSION`].
    pub v: u32,
    /// The verb.
    pub command: CniCommand,
    /// File name under which the plugin was started.
    pub plugin: String,
    /// `CNI_CONTAINERID`.
    #[serde(rename = "containerID", default)]
    pub container_id: String,
    /// `CNI_NETNS`; empty when the runtime has none any more.
    #[serde(default)]
    pub netns: String,
    /// `CNI_IFNAME`.
    #[serde(default)]
    pub ifname: String,
    /// `CNI_ARGS`.
    #[serde(default)]
    pub args: String,
    /// `CNI_PATH`.
    #[serde(default)]
    pub path: String,
    /// Standard input.
    pub conf: Value,
    /// Milliseconds until the plugin stops waiting.
    #[serde(rename = "budgetMs", default = "default_budget")]
    pub budget_ms: u64,
}

fn default_budget() -> u64 {
    BUDGET_MS
}

/// Success answer; a failure's body is a [`crate::cni::CniError`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CniAnswer {
    /// The CNI result to print, or null where the verb prints nothing.
    pub result: Option<Value>,
}

/// Body of [`crate::names::ROUTE_IPS`]: all addresses of a Pod go back (spec ipam 1.1).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchDelRequest {
    /// Sandbox.
    #[serde(rename = "containerID")]
    pub container_id: String,
    /// Namespace of the Pod.
    #[serde(rename = "podNamespace")]
    pub pod_namespace: String,
    /// Name of the Pod.
    #[serde(rename = "podName")]
    pub pod_name: String,
    /// UID of the Pod; empty means the Pod of that name.
    #[serde(rename = "podUID")]
    pub pod_uid: String,
    /// The addresses are used by somebody else, not merely unable to reach their gateway.
    #[serde(rename = "isReleaseConflictIPs", default)]
    pub conflict: bool,
}
