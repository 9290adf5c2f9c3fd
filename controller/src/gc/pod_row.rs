//! A Pod or node as collection keeps it: what verdicts need. A cluster has tens of thousands of Pods,
//! and the metadata of one alone is six kilobytes; what is not named here is skipped while it is read.

use std::net::IpAddr;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::Resource;
use serde::Deserialize;
use serde::de::IgnoredAny;
use spiderpool_ipam::facts::Owner;
use spiderpool_ipam::gc::{Deletion, NodeState, Phase, PodState};

use super::follow::Raw;
use crate::objects::ObjectKey;

/// Grace of a Pod that names none.
const DEFAULT_GRACE: i64 = 30;

/// A Pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodRow {
    /// Namespace and name.
    pub key: ObjectKey,
    /// What verdicts ask.
    pub state: PodState,
    /// `spec.nodeName`.
    pub node: String,
    /// Its controller, if that can keep addresses beyond the Pod's life; else empty.
    pub owner: Owner,
    /// It has the node's addresses.
    pub host_network: bool,
    /// Of a static Pod, the addresses it shows. Its object is a mirror of what its kubelet runs: it may
    /// be deleted and made anew, with another UID, while the containers run on.
    pub mirrored: Option<Box<[IpAddr]>>,
    /// When the last of its containers ended.
    pub finished: Option<Timestamp>,
    /// `spec.terminationGracePeriodSeconds`.
    pub grace: i64,
}

impl PodRow {
    /// Whether it is a static Pod with this address.
    #[must_use]
    pub fn shows(&self, address: IpAddr) -> bool {
        let shown = self.mirrored.as_ref();
        shown.is_some_and(|shown| shown.contains(&address))
    }
}

/// A Pod's JSON, as far as it is read.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct RawPod {
    metadata: RawMeta,
    spec: RawSpec,
    status: RawStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawMeta {
    namespace: String,
    name: String,
    uid: String,
    resource_version: String,
    deletion_timestamp: Option<Timestamp>,
    deletion_grace_period_seconds: Option<i64>,
    owner_references: Option<Vec<RawOwner>>,
    annotations: Option<RawAnnotations>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct RawAnnotations {
    #[serde(rename = "kubernetes.io/config.mirror")]
    mirror: Option<IgnoredAny>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawOwner {
    api_version: String,
    kind: String,
    name: String,
    controller: Option<bool>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawSpec {
    node_name: Option<String>,
    host_network: Option<bool>,
    termination_grace_period_seconds: Option<i64>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawStatus {
    phase: Option<String>,
    #[serde(rename = "podIPs")]
    pod_ips: Option<Vec<RawIp>>,
    container_statuses: Option<Vec<RawContainer>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct RawIp {
    ip: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct RawContainer {
    state: RawState,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct RawState {
    terminated: Option<RawTerminated>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawTerminated {
    finished_at: Option<Timestamp>,
}

impl From<RawPod> for PodRow {
    fn from(raw: RawPod) -> Self {
        let RawPod {
            metadata,
            spec,
            status,
        } = raw;
        let owners = metadata.owner_references.into_iter().flatten();
        let owner = owners
            .filter(|owner| owner.controller == Some(true))
            .find(|owner| {
                matches!(
                    owner.kind.as_str(),
                    "StatefulSet" | "VirtualMachineInstance"
                )
            });
        let containers = status.container_statuses.into_iter().flatten();
        let ends = containers.filter_map(|one| one.state.terminated?.finished_at);
        let ips = status.pod_ips.unwrap_or_default();
        let is_mirror = metadata.annotations.is_some_and(|all| all.mirror.is_some());
        let shown = || ips.iter().filter_map(|shown| shown.ip.parse().ok());
        Self {
            mirrored: is_mirror.then(|| shown().collect()),
            key: ObjectKey::new(metadata.namespace, metadata.name),
            state: PodState {
                uid: metadata.uid,
                phase: Phase::parse(status.phase.as_deref().unwrap_or_default()),
                has_ips: !ips.is_empty(),
                deletion: metadata.deletion_timestamp.map(|at| Deletion {
                    at,
                    grace: metadata.deletion_grace_period_seconds.unwrap_or_default(),
                }),
            },
            node: spec.node_name.unwrap_or_default(),
            owner: owner.map_or_else(Owner::default, |owner| Owner {
                api_version: owner.api_version,
                kind: owner.kind,
                name: owner.name,
            }),
            host_network: spec.host_network.unwrap_or_default(),
            finished: ends.max(),
            grace: spec
                .termination_grace_period_seconds
                .unwrap_or(DEFAULT_GRACE),
        }
    }
}

/// A node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeRow {
    /// Its name.
    pub name: String,
    /// Never [`NodeState::Missing`].
    pub state: NodeState,
}

/// A node's JSON, as far as it is read.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct RawNode {
    metadata: RawMeta,
    status: RawNodeStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct RawNodeStatus {
    conditions: Option<Vec<RawCondition>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct RawCondition {
    r#type: String,
    status: String,
}

impl From<RawNode> for NodeRow {
    fn from(raw: RawNode) -> Self {
        let mut conditions = raw.status.conditions.into_iter().flatten();
        let ready = conditions.any(|one| one.r#type == "Ready" && one.status == "True");
        Self {
            name: raw.metadata.name,
            state: if ready {
                NodeState::Ready
            } else {
                NodeState::NotReady
            },
        }
    }
}

impl Raw for RawPod {
    type Row = PodRow;
    const KIND: &str = "Pods";

    fn url() -> String {
        Pod::url_path(&(), None)
    }

    fn version(&self) -> &str {
        &self.metadata.resource_version
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_pod_is_what_verdicts_ask() {
        let pod = json!({
            "metadata": {"namespace": "db", "name": "sts-0", "uid": "u-1", "labels": {"a": "b"},
                "deletionTimestamp": "2027-01-05T10:00:00Z", "deletionGracePeriodSeconds": 30,
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "sts", "uid": "s", "controller": true}]},
            "spec": {"nodeName": "n1", "terminationGracePeriodSeconds": 60, "containers": [{"name": "c"}]},
            "status": {"phase": "Failed", "podIPs": [{"ip": "10.0.0.1"}], "containerStatuses": [
                {"state": {"terminated": {"finishedAt": "2027-01-05T09:00:00Z"}}},
                {"state": {"terminated": {"finishedAt": "2027-01-05T09:00:09Z"}}},
                {"state": {"running": {}}}]}});
        let row = PodRow::from(serde_json::from_value::<RawPod>(pod).unwrap());
        assert_eq!(row.key.to_string(), "db/sts-0");
        assert_eq!((row.state.phase, row.state.has_ips), (Phase::Failed, true));
        assert_eq!(row.state.deletion.unwrap().grace, 30);
        assert_eq!((row.node.as_str(), row.owner.name.as_str()), ("n1", "sts"));
        assert_eq!(row.finished, Some("2027-01-05T09:00:09Z".parse().unwrap()));
        assert_eq!((row.grace, row.host_network), (60, false));
        // One of an older release, or of another's making.
        let bare = json!({"metadata": {"name": "p", "ownerReferences": null}, "status": {"podIPs": null}, "spec": {}});
        let row = PodRow::from(serde_json::from_value::<RawPod>(bare).unwrap());
        assert_eq!(
            (row.state.phase, row.grace),
            (Phase::Pending, DEFAULT_GRACE)
        );
    }

    #[test]
    fn a_node_is_ready_when_it_says_so() {
        let state = |conditions: serde_json::Value| {
            let node = json!({"metadata": {"name": "n1"}, "status": {"conditions": conditions}});
            NodeRow::from(serde_json::from_value::<RawNode>(node).unwrap()).state
        };
        assert_eq!(
            state(json!([{"type": "Ready", "status": "True"}])),
            NodeState::Ready
        );
        for conditions in [
            json!(null),
            json!([{"type": "Ready", "status": "Unknown"}]),
            json!([{"type": "DiskPressure", "status": "True"}]),
        ] {
            assert_eq!(state(conditions), NodeState::NotReady);
        }
    }
}
