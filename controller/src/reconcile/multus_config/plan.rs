//! What has to be done about a NetworkAttachmentDefinition. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use spiderpool_api::attachment_definition::NetworkAttachmentDefinition;
use spiderpool_ipam::multus::Attachment;

/// The next step.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Step {
    /// It is as it shall be.
    Nothing,
    /// There is none.
    Create(NetworkAttachmentDefinition),
    /// It differs, or is nobody's yet. Conditional: it carries the version that was read.
    Replace(NetworkAttachmentDefinition),
    /// The old one has to go first.
    Wait,
    /// Somebody else's; the text says whose.
    Leave(String),
}

/// What to do so that `found` becomes what is `wanted`, owned by `owner`.
pub(super) fn step(
    found: Option<NetworkAttachmentDefinition>,
    wanted: &Attachment,
    namespace: &str,
    owner: &OwnerReference,
) -> Step {
    let Some(found) = found else {
        return Step::Create(NetworkAttachmentDefinition::new(
            ObjectMeta {
                name: Some(wanted.name.clone()),
                namespace: Some(namespace.to_owned()),
                annotations: Some(wanted.annotations.clone()),
                owner_references: Some(vec![owner.clone()]),
                ..ObjectMeta::default()
            },
            wanted.config.clone(),
        ));
    };
    if found.metadata.deletion_timestamp.is_some() {
        return Step::Wait;
    }
    let owners = found.metadata.owner_references.clone().unwrap_or_default();
    let controller = owners.iter().find(|owner| owner.controller == Some(true));
    if let Some(other) = controller.filter(|other| !is_of_same_object(other, owner)) {
        return Step::Leave(format!("{} {}", other.kind, other.name));
    }
    let mut changed = found.clone();
    changed.metadata.annotations = Some(wanted.annotations.clone());
    changed.spec.config.clone_from(&wanted.config);
    if controller.map(|other| &other.uid) != Some(&owner.uid) {
        let mut owners = owners;
        owners.retain(|other| !is_of_same_object(other, owner));
        owners.push(owner.clone());
        changed.metadata.owner_references = Some(owners);
    }
    if changed.spec == found.spec
        && changed.metadata.owner_references == found.metadata.owner_references
        && found.metadata.annotations.unwrap_or_default() == wanted.annotations
    {
        return Step::Nothing;
    }
    Step::Replace(changed)
}

/// Kind and name: an object that was deleted and made again is the same to its users, although its
/// UID is another.
fn is_of_same_object(one: &OwnerReference, other: &OwnerReference) -> bool {
    let group = |owner: &OwnerReference| {
        let (group, _) = owner.api_version.split_once('/').unwrap_or_default();
        group.to_owned()
    };
    (&one.kind, &one.name, group(one)) == (&other.kind, &other.name, group(other))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn owner(name: &str, uid: &str) -> Value {
        json!({"apiVersion": "spiderpool.spidernet.io/v2beta1", "kind": "SpiderMultusConfig",
            "name": name, "uid": uid, "controller": true})
    }

    fn wanted() -> Attachment {
        Attachment {
            name: "lab".into(),
            annotations: [("team".to_owned(), "a".to_owned())].into(),
            config: Some("{}".into()),
        }
    }

    fn decided(found: Option<Value>) -> Step {
        let found = found.map(|found| serde_json::from_value(found).unwrap());
        let owner = serde_json::from_value(owner("lab", "u-1")).unwrap();
        step(found, &wanted(), "shop", &owner)
    }

    /// As the step makes it.
    fn good() -> Value {
        let Step::Create(made) = decided(None) else {
            panic!("there is none");
        };
        serde_json::to_value(made).unwrap()
    }

    fn with(pointer: &str, value: Value) -> Value {
        let mut object = good();
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        object.pointer_mut(parent).unwrap()[key] = value;
        object
    }

    #[test]
    fn what_is_right_is_left_alone() {
        let made = good();
        assert_eq!(made["metadata"]["namespace"], "shop");
        assert_eq!(
            made["metadata"]["ownerReferences"],
            json!([owner("lab", "u-1")])
        );
        assert_eq!(decided(Some(made)), Step::Nothing);
        // What others wrote beside ours stays and is no difference.
        let other = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "u-8"});
        let both = json!([other, owner("lab", "u-1")]);
        assert_eq!(
            decided(Some(with("/metadata/ownerReferences", both))),
            Step::Nothing
        );
        assert_eq!(
            decided(Some(with("/metadata/labels", json!({"a": "b"})))),
            Step::Nothing
        );
    }

    #[test]
    fn drift_and_missing_ownership_are_repaired() {
        let reference = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "u-8"});
        for (pointer, value, owners) in [
            (
                "/spec/config",
                json!("{\"x\":1}"),
                json!([owner("lab", "u-1")]),
            ),
            ("/spec/config", json!(null), json!([owner("lab", "u-1")])),
            (
                "/metadata/annotations",
                json!({"team": "b"}),
                json!([owner("lab", "u-1")]),
            ),
            (
                "/metadata/annotations",
                json!({"team": "a", "more": "c"}),
                json!([owner("lab", "u-1")]),
            ),
            // nobody's: adopted
            (
                "/metadata/ownerReferences",
                json!(null),
                json!([owner("lab", "u-1")]),
            ),
            (
                "/metadata/ownerReferences",
                json!([reference]),
                json!([reference, owner("lab", "u-1")]),
            ),
            // of the same object before it was made again
            (
                "/metadata/ownerReferences",
                json!([owner("lab", "u-0")]),
                json!([owner("lab", "u-1")]),
            ),
        ] {
            let Step::Replace(changed) = decided(Some(with(pointer, value.clone()))) else {
                panic!("{pointer} {value}");
            };
            let changed = serde_json::to_value(changed).unwrap();
            assert_eq!(
                changed["metadata"]["ownerReferences"], owners,
                "{pointer} {value}"
            );
            assert_eq!(changed["metadata"]["annotations"], json!({"team": "a"}));
            assert_eq!(changed["spec"], json!({"config": "{}"}));
        }
    }

    #[test]
    fn somebody_elses_and_what_is_going_are_not_touched() {
        let other = json!([owner("other", "u-2")]);
        let left = decided(Some(with("/metadata/ownerReferences", other)));
        assert_eq!(left, Step::Leave("SpiderMultusConfig other".into()));
        let foreign = json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": "lab",
            "uid": "u-3", "controller": true}]);
        let left = decided(Some(with("/metadata/ownerReferences", foreign)));
        assert_eq!(left, Step::Leave("Deployment lab".into()));
        let going = with("/metadata/deletionTimestamp", json!("2027-01-05T10:00:00Z"));
        assert_eq!(decided(Some(going)), Step::Wait);
    }
}
