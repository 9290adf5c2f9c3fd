//! Which NetworkAttachmentDefinitions there are and which SpiderMultusConfig each was made of, as the
//! watch tells it: those that were made under a former name are found here.

use std::collections::BTreeMap;

use kube::core::PartialObjectMeta;
use kube::{Resource, ResourceExt};
use spiderpool_api::attachment_definition::NetworkAttachmentDefinition;
use spiderpool_api::multus_config::SpiderMultusConfig;
use spiderpool_api::names;

use crate::objects::ObjectKey;

/// One that was made of a SpiderMultusConfig.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Made {
    /// UID of that SpiderMultusConfig.
    of: String,
    /// Its own.
    pub(super) uid: Option<String>,
    /// As it was seen.
    pub(super) version: Option<String>,
}

/// Those that were made of a SpiderMultusConfig.
#[derive(Debug, Default)]
pub(super) struct Attachments {
    all: BTreeMap<ObjectKey, Made>,
    /// While a list is under way.
    listed: Option<BTreeMap<ObjectKey, Made>>,
}

/// UID of the SpiderMultusConfig that controls it.
pub(super) fn owner(found: &PartialObjectMeta<NetworkAttachmentDefinition>) -> Option<&str> {
    let mut owners = found.metadata.owner_references.iter().flatten();
    let controller = owners.find(|owner| owner.controller == Some(true))?;
    let group = controller
        .api_version
        .split_once('/')
        .map(|(group, _)| group);
    let is_ours = controller.kind == SpiderMultusConfig::kind(&()) && group == Some(names::GROUP);
    is_ours.then_some(controller.uid.as_str())
}

impl Attachments {
    pub(super) fn begin(&mut self) {
        self.listed = Some(BTreeMap::new());
    }

    pub(super) fn end(&mut self) {
        if let Some(listed) = self.listed.take() {
            self.all = listed;
        }
    }

    pub(super) fn put(&mut self, found: &PartialObjectMeta<NetworkAttachmentDefinition>) {
        let key = key(found);
        let Some(of) = owner(found).filter(|_| found.metadata.deletion_timestamp.is_none()) else {
            return self.take(&key);
        };
        let made = Made {
            of: of.to_owned(),
            uid: found.uid(),
            version: found.resource_version(),
        };
        if let Some(listed) = &mut self.listed {
            listed.insert(key.clone(), made.clone());
        }
        self.all.insert(key, made);
    }

    pub(super) fn remove(&mut self, found: &PartialObjectMeta<NetworkAttachmentDefinition>) {
        self.take(&key(found));
    }

    fn take(&mut self, key: &ObjectKey) {
        self.all.remove(key);
        if let Some(listed) = &mut self.listed {
            listed.remove(key);
        }
    }

    /// Those of a SpiderMultusConfig that have another name than `name`.
    pub(super) fn former(
        &self,
        namespace: &str,
        uid: &str,
        name: &str,
    ) -> Vec<(&ObjectKey, &Made)> {
        let of = |(key, made): &(&ObjectKey, &Made)| {
            made.of == uid && key.namespace == namespace && key.name != name
        };
        self.all.iter().filter(of).collect()
    }
}

fn key(found: &PartialObjectMeta<NetworkAttachmentDefinition>) -> ObjectKey {
    ObjectKey::new(found.namespace().unwrap_or_default(), found.name_any())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn found(name: &str, owners: Value) -> PartialObjectMeta<NetworkAttachmentDefinition> {
        serde_json::from_value(json!({"metadata": {"name": name, "namespace": "shop",
            "uid": format!("u-{name}"), "resourceVersion": "7", "ownerReferences": owners}}))
        .unwrap()
    }

    fn of(kind: &str, uid: &str, controller: bool) -> Value {
        json!([{"apiVersion": "spiderpool.spidernet.io/v2beta1", "kind": kind, "name": "lab",
            "uid": uid, "controller": controller}])
    }

    fn former(known: &Attachments, uid: &str) -> Vec<String> {
        let former = known.former("shop", uid, "now").into_iter();
        former.map(|(key, _)| key.name.clone()).collect()
    }

    #[test]
    fn only_what_was_made_of_it_under_another_name_is_former() {
        let smc = "SpiderMultusConfig";
        let mut known = Attachments::default();
        known.begin();
        for object in [
            found("now", of(smc, "u-1", true)),
            found("once", of(smc, "u-1", true)),
            found("twin", of(smc, "u-2", true)),
            found("loose", of(smc, "u-1", false)),
            found("foreign", of("Other", "u-1", true)),
            found("bare", Value::Null),
        ] {
            known.put(&object);
        }
        known.end();
        assert_eq!(former(&known, "u-1"), ["once"]);
        assert_eq!(former(&known, "u-2"), ["twin"]);
        // Somebody takes it over, it goes, or the next list does not have it.
        known.put(&found("twin", of("Other", "u-9", true)));
        known.remove(&found("once", Value::Null));
        assert!(former(&known, "u-1").is_empty() && former(&known, "u-2").is_empty());
        known.put(&found("once", of(smc, "u-1", true)));
        known.begin();
        assert_eq!(
            former(&known, "u-1"),
            ["once"],
            "until the list is complete"
        );
        known.end();
        assert!(former(&known, "u-1").is_empty());
    }
}
