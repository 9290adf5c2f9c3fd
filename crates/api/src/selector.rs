//! Kubernetes label selectors as plain serde data, so that pure code can match them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::lenient::null_as_default;

/// `LabelSelector` of apimachinery meta/v1: all parts must hold; an empty one matches everything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "crd", schemars(extend("x-kubernetes-map-type" = "atomic")))]
#[serde(rename_all = "camelCase", default)]
pub struct LabelSelector {
    /// Labels that must have exactly these values.
    #[serde(
        skip_serializing_if = "BTreeMap::is_empty",
        deserialize_with = "null_as_default"
    )]
    pub match_labels: BTreeMap<String, String>,
    /// Further requirements.
    #[serde(
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "null_as_default"
    )]
    pub match_expressions: Vec<Requirement>,
}

/// One requirement on one label.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Requirement {
    /// Label key.
    pub key: String,
    /// In, NotIn, Exists or DoesNotExist; anything else matches nothing.
    pub operator: String,
    /// Values of In and NotIn.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "null_as_default"
    )]
    pub values: Vec<String>,
}

impl LabelSelector {
    /// Whether it asks for anything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.match_labels.is_empty() && self.match_expressions.is_empty()
    }

    /// Whether `labels` fulfil all requirements.
    #[must_use]
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.match_labels
            .iter()
            .all(|(key, value)| labels.get(key) == Some(value))
            && self
                .match_expressions
                .iter()
                .all(|requirement| requirement.matches(labels))
    }
}

impl Requirement {
    fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let value = labels.get(&self.key);
        match self.operator.as_str() {
            "In" => value.is_some_and(|value| self.values.contains(value)),
            "NotIn" => value.is_none_or(|value| !self.values.contains(value)),
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_follow_apimachinery() {
        let labels = BTreeMap::from([("app".to_owned(), "web".to_owned())]);
        for (key, operator, values, want) in [
            ("app", "In", vec!["web", "db"], true),
            ("app", "In", vec!["db"], false),
            ("tier", "In", vec!["db"], false),
            ("app", "NotIn", vec!["db"], true),
            ("tier", "NotIn", vec!["db"], true),
            ("app", "NotIn", vec!["web"], false),
            ("app", "Exists", vec![], true),
            ("tier", "Exists", vec![], false),
            ("tier", "DoesNotExist", vec![], true),
            ("app", "Like", vec!["web"], false),
        ] {
            let values = values.into_iter().map(str::to_owned).collect();
            let requirement = Requirement {
                key: key.into(),
                operator: operator.into(),
                values,
            };
            let selector = LabelSelector {
                match_expressions: vec![requirement],
                ..LabelSelector::default()
            };
            assert_eq!(selector.matches(&labels), want, "{key} {operator}");
        }
        assert!(LabelSelector::default().matches(&labels));
    }
}
