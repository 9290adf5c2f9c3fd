//! Our finalizer on an object that is being deleted.

use kube::ResourceExt;
use serde_json::{Value, json};
use spiderpool_api::names;

/// The merge patch that takes it off; `None`: it is not there. Conditional, and about nothing else:
/// fields that we do not know stay.
#[must_use]
pub fn removal(object: &impl ResourceExt) -> Option<Value> {
    let all = object.finalizers();
    let others = all.iter().filter(|name| *name != names::FINALIZER);
    let others: Vec<&String> = others.collect();
    (others.len() < all.len()).then(|| {
        let version = object.resource_version();
        json!({"metadata": {"resourceVersion": version, "finalizers": others}})
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;

    #[test]
    fn only_ours_goes() {
        let patch = |finalizers: Value| {
            let metadata = json!({"name": "a", "resourceVersion": "7", "finalizers": finalizers});
            let object: ConfigMap = serde_json::from_value(json!({"metadata": metadata})).unwrap();
            removal(&object).map(|patch| patch["metadata"].clone())
        };
        let left = |names: Value| Some(json!({"resourceVersion": "7", "finalizers": names}));
        assert_eq!(patch(json!([names::FINALIZER])), left(json!([])));
        assert_eq!(
            patch(json!(["x", names::FINALIZER, "y"])),
            left(json!(["x", "y"]))
        );
        assert_eq!(patch(json!(["x"])), None);
        assert_eq!(patch(json!(null)), None);
    }
}
