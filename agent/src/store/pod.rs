//! What the flows need to know of a Pod. Pure; [`PodObject::from_pod`] is the one place that reads
//! a Pod object.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use spiderpool_api::names;
use spiderpool_ipam::facts::{self, Owner, PodFacts};
use spiderpool_ipam::sticky::{Sticky, Switches};
use uuid::Uuid;

use super::ObjectKey;

/// Annotation of static Pods: what the kubelet passes as their UID.
const CONFIG_HASH: &str = "kubernetes.io/config.hash";
/// Pod object name prefix of bare containers.
const STANDALONE_PREFIX: &str = "c-";
/// Characters of the container id in that name.
const STANDALONE_ID: usize = 12;

/// A controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerRef {
    /// `apps/v1`.
    pub api_version: String,
    /// `Deployment`.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

/// A Pod: what decisions are made from, and what only the store and the flows ask.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodObject {
    /// For `ipam`. The owner is empty until [`super::Store::top_owner`] has answered.
    pub facts: PodFacts,
    /// The reference marked as controller.
    pub controller: Option<OwnerRef>,
}

impl PodObject {
    /// Reads a Pod object.
    #[must_use]
    pub fn from_pod(pod: &Pod) -> Self {
        let meta = &pod.metadata;
        let spec = pod.spec.as_ref();
        let status = pod.status.as_ref();
        let controller = meta
            .owner_references
            .iter()
            .flatten()
            .find(|owner| owner.controller == Some(true));
        let text = |text: Option<&Option<String>>| text.cloned().flatten().unwrap_or_default();
        let facts = PodFacts {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            labels: meta.labels.clone().unwrap_or_default(),
            annotations: meta.annotations.clone().unwrap_or_default(),
            node: text(spec.map(|spec| &spec.node_name)),
            terminating: meta.deletion_timestamp.is_some(),
            phase: text(status.map(|status| &status.phase)),
            reason: text(status.map(|status| &status.reason)),
            restart_policy: text(spec.map(|spec| &spec.restart_policy)),
            owner: Owner::default(),
        };
        let controller = controller.map(|owner| OwnerRef {
            api_version: owner.api_version.clone(),
            kind: owner.kind.clone(),
            name: owner.name.clone(),
            uid: owner.uid.clone(),
        });
        Self { facts, controller }
    }

    /// Namespace and name.
    #[must_use]
    pub fn key(&self) -> ObjectKey {
        ObjectKey::new(&self.facts.namespace, &self.facts.name)
    }

    /// The identity that keeps its addresses beyond its life. What such a Pod is of controls it
    /// directly, so nothing has to be read.
    #[must_use]
    pub fn identity(&self, switches: Switches) -> Option<Sticky> {
        switches.of_owner(&self.owner())
    }

    /// Namespace and name of its endpoint, and key of its records: its own, or its machine's.
    #[must_use]
    pub fn endpoint_key(&self, switches: Switches) -> ObjectKey {
        match self.identity(switches) {
            Some(Sticky::VirtualMachine) => {
                ObjectKey::new(&self.facts.namespace, self.owner().name)
            }
            Some(Sticky::StatefulSet) | None => self.key(),
        }
    }

    /// What controls it directly; itself when nothing does.
    fn owner(&self) -> Owner {
        match &self.controller {
            Some(owner) => Owner {
                api_version: owner.api_version.clone(),
                kind: owner.kind.clone(),
                name: owner.name.clone(),
            },
            None => Owner {
                api_version: "v1".into(),
                kind: "Pod".into(),
                name: self.facts.name.clone(),
            },
        }
    }

    /// UID of the object.
    #[must_use]
    pub fn uid(&self) -> &str {
        &self.facts.uid
    }

    /// Whether it may still use its addresses (spec ipam 1.2).
    #[must_use]
    pub fn is_alive(&self) -> bool {
        facts::pod_alive(&self.facts)
    }

    /// Whether a runtime that says `uid` means this Pod: its UID, or a static Pod's hash.
    #[must_use]
    pub fn answers_to(&self, uid: &str) -> bool {
        let hash = self.facts.annotations.get(CONFIG_HASH);
        self.facts.uid == uid || hash.is_some_and(|hash| hash == uid)
    }

    /// Whether we made the object for a bare container.
    #[must_use]
    pub fn is_standalone(&self) -> bool {
        self.facts
            .labels
            .get(names::LABEL_OWNED_BY)
            .map(String::as_str)
            == Some(names::OWNED_BY_STANDALONE)
    }
}

/// The Pod object of a bare container (design section 4).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StandalonePod {
    /// `default/c-<12 of containerID>`.
    pub key: ObjectKey,
    /// UUID version 5 of the container id in the OID namespace.
    pub uid: String,
    /// The container.
    pub container_id: String,
    /// This node.
    pub node: String,
}

impl StandalonePod {
    /// Of a container on a node. Two containers whose ids share 12 characters get the same name
    /// and different UIDs; the later one then replaces the object.
    #[must_use]
    pub fn of(container_id: &str, node: &str) -> Self {
        let short: String = container_id
            .chars()
            .take(STANDALONE_ID)
            .map(|c| match c {
                '_' => '-',
                other => other.to_ascii_lowercase(),
            })
            .collect();
        // An object name ends with a letter or digit (RFC 1123).
        let short = short.trim_end_matches(['-', '.']);
        Self {
            key: ObjectKey::new("default", format!("{STANDALONE_PREFIX}{short}")),
            uid: Uuid::new_v5(&Uuid::NAMESPACE_OID, container_id.as_bytes()).to_string(),
            container_id: container_id.to_owned(),
            node: node.to_owned(),
        }
    }

    /// The object to create. The embedded API keeps the UID it carries.
    #[must_use]
    pub fn to_pod(&self) -> Pod {
        let label = (
            names::LABEL_OWNED_BY.to_owned(),
            names::OWNED_BY_STANDALONE.to_owned(),
        );
        Pod {
            metadata: ObjectMeta {
                namespace: Some(self.key.namespace.clone()),
                name: Some(self.key.name.clone()),
                uid: Some(self.uid.clone()),
                labels: Some(BTreeMap::from([label])),
                ..ObjectMeta::default()
            },
            spec: Some(PodSpec {
                node_name: Some(self.node.clone()),
                restart_policy: Some("Never".into()),
                containers: vec![Container {
                    name: "container".into(),
                    ..Container::default()
                }],
                ..PodSpec::default()
            }),
            status: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_containers_get_a_stable_pod() {
        let pod = StandalonePod::of("4F5a6b7c8d9e0f1a2b3c", "n1");
        assert_eq!(pod.key.to_string(), "default/c-4f5a6b7c8d9e");
        assert_eq!(pod, StandalonePod::of("4F5a6b7c8d9e0f1a2b3c", "n1"));
        assert_ne!(pod.uid, StandalonePod::of("4F5a6b7c8d9e0f1a2b3d", "n1").uid);
        assert_eq!(
            StandalonePod::of("my_job-0000-1", "n1").key.name,
            "c-my-job-0000"
        );
        assert_eq!(StandalonePod::of("abc", "n1").key.name, "c-abc");
        assert_eq!(
            StandalonePod::of("x1234567890-z", "n1").key.name,
            "c-x1234567890"
        );
        let facts = PodObject::from_pod(&pod.to_pod());
        assert!(facts.is_standalone() && facts.is_alive() && facts.answers_to(&pod.uid));
        assert_eq!(facts.facts.node, "n1");
    }

    #[test]
    fn static_pods_answer_to_their_hash() {
        let mut pod = PodObject::default();
        pod.facts.uid = "u-1".into();
        assert!(pod.answers_to("u-1") && !pod.answers_to("hash"));
        pod.facts
            .annotations
            .insert(CONFIG_HASH.into(), "hash".into());
        assert!(pod.answers_to("hash"));
    }
}
