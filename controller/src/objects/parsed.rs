//! Objects of a kind of which some may not be of its type: written under an older or somebody else's
//! schema, they must not hide the others. One is read as a whole; what is wrong with it names the field.

use std::borrow::Cow;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// An object, or why it is none of its type.
#[derive(Debug, Clone)]
pub struct Parsed<K> {
    metadata: ObjectMeta,
    /// The object.
    pub object: Result<Arc<K>, Unreadable>,
}

/// What is wrong with an object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{field}: {reason}; it is left as it is until that is corrected (kubectl edit) or it is deleted"
)]
pub struct Unreadable {
    /// Path of the field.
    pub field: String,
    /// What is wrong with it.
    pub reason: String,
}

impl<K: Resource<DynamicType = ()>> Parsed<K> {
    /// Kind, namespace and name, for people.
    pub fn shown(&self) -> String {
        shown::<K>(self.namespace().as_deref(), &self.name_any())
    }
}

/// Kind, namespace and name of an object, for people.
#[must_use]
pub fn shown<K: Resource<DynamicType = ()>>(namespace: Option<&str>, name: &str) -> String {
    let kind = K::kind(&());
    match namespace {
        Some(namespace) => format!("{kind} {namespace}/{name}"),
        None => format!("{kind} {name}"),
    }
}

impl<'de, K: DeserializeOwned> Deserialize<'de> for Parsed<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Value::deserialize(deserializer)?;
        let metadata = raw.get("metadata").map(ObjectMeta::deserialize);
        let object = serde_path_to_error::deserialize(raw).map(Arc::new);
        Ok(Self {
            // Without it there is no object that could be left out.
            metadata: metadata
                .transpose()
                .map_err(serde::de::Error::custom)?
                .unwrap_or_default(),
            object: object.map_err(|error| Unreadable {
                field: error.path().to_string(),
                reason: error.into_inner().to_string(),
            }),
        })
    }
}

impl<K: Resource> Resource for Parsed<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(of: &Self::DynamicType) -> Cow<'_, str> {
        K::kind(of)
    }

    fn group(of: &Self::DynamicType) -> Cow<'_, str> {
        K::group(of)
    }

    fn version(of: &Self::DynamicType) -> Cow<'_, str> {
        K::version(of)
    }

    fn plural(of: &Self::DynamicType) -> Cow<'_, str> {
        K::plural(of)
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use spiderpool_api::multus_config::SpiderMultusConfig;

    #[test]
    fn what_is_wrong_is_named_and_the_metadata_known() {
        let read = |spec: Value| -> Parsed<SpiderMultusConfig> {
            let raw = json!({"apiVersion": "spiderpool.spidernet.io/v2beta1",
                "kind": "SpiderMultusConfig",
                "metadata": {"name": "lab", "namespace": "shop", "uid": "u"}, "spec": spec});
            serde_json::from_value(raw).unwrap()
        };
        let good = read(json!({"cniType": "macvlan"}));
        assert!(good.object.is_ok());
        let wrong = read(json!({"macvlan": {"master": ["eth1"], "mtu": "large"}}));
        assert_eq!(wrong.shown(), "SpiderMultusConfig shop/lab");
        assert_eq!(wrong.meta().uid.as_deref(), Some("u"));
        let why = wrong.object.unwrap_err();
        assert_eq!(why.field, "spec.macvlan.mtu");
        assert!(why.to_string().contains("\"large\""), "{why}");
    }
}
