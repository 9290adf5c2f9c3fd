//! Key `agent.networkResourcePlugin`: which resources nodes advertise to the scheduler (spec dataplane
//! 6.1). Pure but for its warnings.

use std::collections::BTreeMap;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use spiderpool_api::names::RESOURCE_SUB_ENI;
use spiderpool_api::selector::LabelSelector;

use super::{or_default, or_false};

/// Key `agent`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AgentSection {
    /// The device plugin.
    #[serde(deserialize_with = "or_default")]
    pub network_resource_plugin: ResourcePlugin,
}

/// Key `agent.networkResourcePlugin`, as far as admission looks at it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourcePlugin {
    /// It is on.
    #[serde(deserialize_with = "or_false")]
    pub enabled: bool,
    /// What it advertises.
    #[serde(deserialize_with = "or_default")]
    pub resource_advertisement: ResourceAdvertisement,
}

/// Key `resourceAdvertisement`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ResourceAdvertisement {
    /// Sub-ENIs of a node.
    #[serde(rename = "subENI", deserialize_with = "or_default")]
    pub sub_eni: AdvertisementRules,
    /// Parent NICs of a node.
    #[serde(rename = "masterNIC", deserialize_with = "or_default")]
    pub master_nic: AdvertisementRules,
}

impl ResourceAdvertisement {
    /// Whether some node advertises `spidernet.io/sub-eni`, the name of a rule that has none.
    #[must_use]
    pub fn advertises_sub_enis(&self) -> bool {
        let mut rules = self.sub_eni.rules.iter();
        rules.any(|rule| rule.resource_name.is_empty() || rule.resource_name == RESOURCE_SUB_ENI)
    }
}

/// Rules of one kind of resource.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct AdvertisementRules {
    /// None: the resource is not advertised.
    #[serde(deserialize_with = "or_default")]
    pub rules: Vec<AdvertisementRule>,
}

/// One of them; the agent reads the rest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AdvertisementRule {
    /// Name of the resource.
    #[serde(deserialize_with = "or_default")]
    pub resource_name: String,
    /// Nodes that advertise it.
    #[serde(deserialize_with = "or_default")]
    pub node_selector: NodeSelector,
}

/// `nodeSelector` of a rule; an empty one means all nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeSelector {
    /// A label selector.
    Labels(LabelSelector),
    /// Labels without `matchLabels`, as users of contract version 1 were told to write them.
    Bare(BTreeMap<String, String>),
}

impl Default for NodeSelector {
    fn default() -> Self {
        Self::Labels(LabelSelector::default())
    }
}

impl<'de> Deserialize<'de> for NodeSelector {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let map = Map::<String, Value>::deserialize(deserializer)?;
        let is_part = |key: &String| matches!(key.as_str(), "matchLabels" | "matchExpressions");
        let parts = map.keys().filter(|key| is_part(key)).count();
        let whole = Value::Object(map.clone());
        if parts == map.len() {
            let read = serde_json::from_value(whole);
            return read.map(Self::Labels).map_err(D::Error::custom);
        }
        if parts > 0 {
            return Err(D::Error::custom(
                "nodeSelector has labels beside matchLabels and matchExpressions",
            ));
        }
        let read = serde_json::from_value(whole);
        read.map(Self::Bare).map_err(D::Error::custom)
    }
}

/// A selector has labels where its parts belong.
#[derive(Debug, thiserror::Error)]
#[error(
    "invalid agent.networkResourcePlugin.resourceAdvertisement.{kind}.rules[{index}].nodeSelector: {label} is no key of a label selector; labels belong under matchLabels"
)]
pub struct BareSelector {
    /// `subENI` or `masterNIC`.
    pub kind: &'static str,
    /// Place of the rule.
    pub index: usize,
    /// The first label.
    pub label: String,
}

impl ResourcePlugin {
    /// Takes bare selectors for labels, with a warning, where `lenient`; of a plugin that is off nothing
    /// is judged.
    ///
    /// # Errors
    /// [`BareSelector`] names the rule.
    pub(super) fn settle(&mut self, lenient: bool) -> Result<(), BareSelector> {
        let advertised = &mut self.resource_advertisement;
        for (kind, rules) in [
            ("subENI", &mut advertised.sub_eni.rules),
            ("masterNIC", &mut advertised.master_nic.rules),
        ] {
            for (index, rule) in rules.iter_mut().enumerate() {
                let NodeSelector::Bare(labels) = &rule.node_selector else {
                    continue;
                };
                let label = labels.keys().next().cloned().unwrap_or_default();
                if !lenient && self.enabled {
                    return Err(BareSelector { kind, index, label });
                }
                tracing::warn!(
                    kind,
                    rule = index,
                    label,
                    "nodeSelector has labels without matchLabels; they are read as if it were there"
                );
                rule.node_selector = NodeSelector::Labels(LabelSelector {
                    match_labels: labels.clone(),
                    ..LabelSelector::default()
                });
            }
        }
        Ok(())
    }
}
