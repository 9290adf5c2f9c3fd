//! Reading a raw object: metadata leniently, the spec by type.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde_json::Value;
use spiderpool_api::names;

use super::FieldError;

/// `metadata.name`, empty when there is none.
pub(super) fn name(object: &Value) -> &str {
    text(object, "/metadata/name").unwrap_or_default()
}

fn text<'a>(object: &'a Value, pointer: &str) -> Option<&'a str> {
    object.pointer(pointer).and_then(Value::as_str)
}

/// Whether a deletion is under way.
pub(super) fn is_terminating(object: &Value) -> bool {
    object
        .pointer("/metadata/deletionTimestamp")
        .is_some_and(|stamp| !stamp.is_null())
}

/// `metadata.finalizers`.
pub(super) fn finalizers(object: &Value) -> Vec<&str> {
    let list = object
        .pointer("/metadata/finalizers")
        .and_then(Value::as_array);
    list.into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

/// One annotation.
pub(super) fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.pointer("/metadata/annotations")?.get(key)?.as_str()
}

/// One label.
pub(super) fn label<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.pointer("/metadata/labels")?.get(key)?.as_str()
}

/// Field path of an annotation.
pub(super) fn annotation_field(key: &str) -> String {
    format!("metadata.annotations[{key}]")
}

/// The spec by type.
pub(super) fn spec<T: DeserializeOwned>(object: &Value) -> Result<T, FieldError> {
    let spec = object
        .get("spec")
        .cloned()
        .unwrap_or(Value::Object(serde_json::Map::new()));
    serde_json::from_value(spec.clone())
        .map_err(|error| FieldError::invalid("spec", spec, error.to_string()))
}

/// Whether the value can be a label's (apimachinery `IsValidLabelValue`).
pub(super) fn is_label_value(value: &str) -> bool {
    let plain = |byte: Option<&u8>| byte.is_none_or(u8::is_ascii_alphanumeric);
    let bytes = value.as_bytes();
    bytes.len() <= 63
        && plain(bytes.first())
        && plain(bytes.last())
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

/// `metadata.labels` or `metadata.annotations`, what is no text left out.
pub(super) fn texts(object: &Value, key: &str) -> BTreeMap<String, String> {
    let map = object
        .get("metadata")
        .and_then(|metadata| metadata.get(key));
    let entries = map.and_then(Value::as_object).into_iter().flatten();
    entries
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect()
}

/// A number of the status.
fn status_field<'a>(object: &'a Value, key: &str) -> Option<&'a Value> {
    object.get("status").and_then(|status| status.get(key))
}

/// `status.allocatedIPs` of a pool.
pub(super) fn records_text(pool: &Value) -> Option<&str> {
    status_field(pool, "allocatedIPs").and_then(Value::as_str)
}

/// `status.allocatedIPCount` of a pool or subnet.
pub(super) fn allocated_count(object: &Value) -> i64 {
    let count = status_field(object, "allocatedIPCount");
    count.and_then(Value::as_i64).unwrap_or(0)
}

/// Records of a pool by count, or by content where the count lags behind.
pub(super) fn allocated(pool: &Value) -> i64 {
    let listed = records_text(pool)
        .and_then(|text| serde_json::from_str::<BTreeMap<String, Value>>(text).ok())
        .map_or(0, |map| i64::try_from(map.len()).unwrap_or(i64::MAX));
    allocated_count(pool).max(listed)
}

/// What a terminating object still allows: taking off our finalizer, or another one and nothing
/// else. Whoever holds a finalizer must be able to let go, or the object never goes.
pub(super) fn may_still_change(new: &Value, old: &Value) -> bool {
    let (before, after) = (finalizers(old), finalizers(new));
    if !after.contains(&names::FINALIZER) {
        return true;
    }
    let same = |key: &str| texts(new, key) == texts(old, key);
    let fewer = after.len() < before.len() && after.iter().all(|name| before.contains(name));
    fewer && new.get("spec") == old.get("spec") && same("labels") && same("annotations")
}
