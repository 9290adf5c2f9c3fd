//! Reading and editing objects held as JSON. Pure; knows `metadata` and nothing about kinds.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// Fields of `metadata` that only the server writes.
const SERVER_FIELDS: &[&str] = &[
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "selfLink",
    "managedFields",
];

/// The text at a pointer; numbers and booleans as text, anything else and absence as "".
pub(crate) fn text_at(object: &Value, pointer: &str) -> String {
    match object.pointer(pointer) {
        Some(Value::String(text)) => text.clone(),
        Some(other @ (Value::Number(_) | Value::Bool(_))) => other.to_string(),
        _ => String::new(),
    }
}

/// The list at a pointer; absence is empty.
pub(crate) fn items<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object
        .pointer(pointer)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// The map of texts at a pointer; other values are left out.
pub(crate) fn string_map(object: &Value, pointer: &str) -> BTreeMap<String, String> {
    let Some(map) = object.pointer(pointer).and_then(Value::as_object) else {
        return BTreeMap::new();
    };
    map.iter()
        .filter_map(|(k, v)| Some((k.clone(), v.as_str()?.to_owned())))
        .collect()
}

/// `metadata.name`, "" if absent.
pub(crate) fn name(object: &Value) -> String {
    text_at(object, "/metadata/name")
}

/// `metadata.uid`, "" if absent.
pub(crate) fn uid(object: &Value) -> String {
    text_at(object, "/metadata/uid")
}

/// Whether a deletion has been asked for.
pub(crate) fn terminating(object: &Value) -> bool {
    !text_at(object, "/metadata/deletionTimestamp").is_empty()
}

/// `metadata.finalizers`.
pub(crate) fn finalizers(object: &Value) -> Vec<String> {
    let list = items(object, "/metadata/finalizers");
    list.iter()
        .filter_map(|f| f.as_str().map(str::to_owned))
        .collect()
}

/// Sets a key of an object; does nothing to other values.
pub(crate) fn set(object: &mut Value, key: &str, value: Value) {
    if let Some(map) = object.as_object_mut() {
        map.insert(key.to_owned(), value);
    }
}

/// Sets a key of `metadata`, making the map if need be.
pub(crate) fn set_meta(object: &mut Value, key: &str, value: Value) {
    if let Some(metadata) = metadata_mut(object) {
        metadata.insert(key.to_owned(), value);
    }
}

/// Removes a key of `metadata`.
pub(crate) fn remove_meta(object: &mut Value, key: &str) {
    if let Some(metadata) = metadata_mut(object) {
        metadata.remove(key);
    }
}

fn metadata_mut(object: &mut Value) -> Option<&mut Map<String, Value>> {
    let root = object.as_object_mut()?;
    root.entry("metadata")
        .or_insert_with(|| json!({}))
        .as_object_mut()
}

/// Drops what a client may not set and what Kubernetes writers send as null.
pub(crate) fn strip_server_fields(object: &mut Value) {
    if let Some(metadata) = metadata_mut(object) {
        for field in SERVER_FIELDS {
            metadata.remove(*field);
        }
        metadata.retain(|_, value| !value.is_null());
    }
}

/// Puts the stored object's server-owned metadata into its replacement.
pub(crate) fn keep_server_fields(new: &mut Value, old: &Value) {
    strip_server_fields(new);
    let (Some(to), Some(from)) = (metadata_mut(new), old.get("metadata")) else {
        return;
    };
    for field in SERVER_FIELDS
        .iter()
        .chain(&["name", "namespace", "resourceVersion"])
    {
        match from.get(*field) {
            Some(value) => to.insert((*field).to_owned(), value.clone()),
            None => to.remove(*field),
        };
    }
}

/// Copies one top-level key from another object, or removes it if it is absent there.
pub(crate) fn copy_key(to: &mut Value, from: &Value, key: &str) {
    let Some(map) = to.as_object_mut() else {
        return;
    };
    match from.get(key) {
        Some(value) => map.insert(key.to_owned(), value.clone()),
        None => map.remove(key),
    };
}

/// Whether two objects differ outside the named top-level keys.
pub(crate) fn differs_outside(a: &Value, b: &Value, ignored: &[&str]) -> bool {
    let (Some(a), Some(b)) = (a.as_object(), b.as_object()) else {
        return a != b;
    };
    let left = a.iter().filter(|(key, _)| !ignored.contains(&key.as_str()));
    let same = |(key, value): (&String, &Value)| b.get(key) == Some(value);
    let extra = b
        .keys()
        .any(|key| !ignored.contains(&key.as_str()) && !a.contains_key(key));
    extra || !left.into_iter().all(same)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replacement_keeps_identity_and_cannot_forge_it() {
        let old = json!({"metadata": {"name": "a", "uid": "u", "generation": 3,
            "resourceVersion": "7", "creationTimestamp": "t"}});
        let mut new = json!({"metadata": {"name": "a", "uid": "forged", "generation": 99,
            "deletionTimestamp": "x", "labels": {"k": "v"}, "annotations": null}});
        keep_server_fields(&mut new, &old);
        let expected = json!({"metadata": {"name": "a", "uid": "u", "generation": 3,
            "resourceVersion": "7", "creationTimestamp": "t", "labels": {"k": "v"}}});
        assert_eq!(new, expected);
    }

    #[test]
    fn differences_are_seen_on_both_sides_and_ignored_keys_are_not() {
        let old = json!({"spec": {"a": 1}, "status": 1, "metadata": {}});
        let cases = [
            (
                json!({"spec": {"a": 1}, "status": 2, "metadata": {"x": 1}}),
                false,
            ),
            (json!({"spec": {"a": 2}, "status": 1, "metadata": {}}), true),
            (json!({"spec": {"a": 1}, "extra": 1}), true),
            (json!({"status": 1}), true),
        ];
        for (new, expected) in cases {
            assert_eq!(
                differs_outside(&new, &old, &["metadata", "status"]),
                expected,
                "{new}"
            );
        }
    }
}
