//! Bodies of the agent socket, `POST /v1/cni` (design section 3). Unknown fields are ignored and
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
