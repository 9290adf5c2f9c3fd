//! A NIC that leaves: whose it is, how far its release came, and the DEL that is run again when it
//! has to wait.

use serde_json::json;
use spiderpool_api::agent_v1::{BODY_VERSION, BUDGET_MS, CniRequest};
use spiderpool_api::cni::{CniCommand, CniVersion};
use spiderpool_api::names;
use spiderpool_api::value::IfName;
use tokio::time::Instant;

use crate::attachment::AttachmentKey;
use crate::store::ObjectKey;

/// Whose NIC goes.
#[derive(Debug, Clone)]
pub(crate) struct Leaving {
    /// The Pod.
    pub(crate) pod: ObjectKey,
    /// Its UID, if anybody knows it.
    pub(crate) uid: Option<String>,
    /// The NIC.
    pub(crate) ifname: IfName,
    /// Pools that the attachment file names.
    pub(crate) pools: Vec<String>,
    /// When waiting ends.
    pub(crate) deadline: Instant,
}

/// How far a release came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Released {
    /// Everything this UID held is freed.
    Done,
    /// There was nothing, or nothing that may be freed.
    Nothing,
    /// The provider has not accepted all of it: what this UID still holds is to be asked for again.
    Waiting(String),
}

impl Leaving {
    /// The DEL that frees what `uid` still holds. The link is gone by then, so it names neither
    /// namespace nor parent NIC.
    pub(crate) fn again(&self, key: &AttachmentKey, uid: &str) -> CniRequest {
        let ObjectKey { namespace, name } = &self.pod;
        CniRequest {
            v: BODY_VERSION,
            command: CniCommand::Del,
            plugin: names::PLUGIN_IPAM.to_owned(),
            container_id: key.container_id().to_owned(),
            netns: String::new(),
            ifname: key.ifname().to_string(),
            args: format!("K8S_POD_NAMESPACE={namespace};K8S_POD_NAME={name};K8S_POD_UID={uid}"),
            path: String::new(),
            conf: json!({ "cniVersion": CniVersion::V1_1_0 }),
            budget_ms: BUDGET_MS,
        }
    }
}
