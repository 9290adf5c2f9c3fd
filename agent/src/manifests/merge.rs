//! Three-way merge as a JSON merge patch (RFC 7386): what the last manifest had and the new one
//! lacks is removed, what the new one has is set, everything else is left alone. Pure.

use serde_json::{Map, Value};

/// The patch that takes an object from `last` to `wanted`.
pub(super) fn three_way(last: &Value, wanted: &Value) -> Value {
    let (Value::Object(last), Value::Object(wanted)) = (last, wanted) else {
        return wanted.clone();
    };
    let mut patch = Map::new();
    for key in last.keys().filter(|key| !wanted.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    for (key, value) in wanted {
        let before = last.get(key).unwrap_or(&Value::Null);
        patch.insert(key.clone(), three_way(before, value));
    }
    Value::Object(patch)
}

/// The manifest with one more annotation.
pub(super) fn with_annotation(manifest: &Value, key: &str, text: &str) -> Value {
    let mut object = manifest.clone();
    let mut at = &mut object;
    for step in ["metadata", "annotations"] {
        let Some(map) = at.as_object_mut() else {
            return object;
        };
        let next = map.entry(step).or_insert(Value::Null);
        if next.is_null() {
            *next = Value::Object(Map::new());
        }
        at = next;
    }
    if let Some(annotations) = at.as_object_mut() {
        annotations.insert(key.to_owned(), text.into());
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn removed_keys_go_foreign_keys_stay() {
        let last = json!({"spec": {"gateway": "10.0.0.1", "ips": ["a"], "nodeName": ["n1"]}});
        let wanted = json!({"spec": {"ips": ["a", "b"], "disable": true}});
        assert_eq!(
            three_way(&last, &wanted),
            json!({"spec": {"gateway": null, "nodeName": null, "ips": ["a", "b"], "disable": true}})
        );
        assert_eq!(three_way(&Value::Null, &wanted), wanted);
    }

    #[test]
    fn the_annotation_finds_its_place() {
        let want = json!({"metadata": {"name": "p", "annotations": {"k": "t"}}});
        assert_eq!(
            with_annotation(&json!({"metadata": {"name": "p"}}), "k", "t"),
            want
        );
        assert_eq!(
            with_annotation(
                &json!({"metadata": {"name": "p", "annotations": null}}),
                "k",
                "t"
            ),
            want
        );
        assert_eq!(with_annotation(&json!(7), "k", "t"), json!(7));
    }
}
