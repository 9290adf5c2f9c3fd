//! Reading a raw object: metadata leniently, the spec by type.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde_json::Value;
use spiderpool_api::ippool::{IpPoolStatus, SpiderIPPoolSpec};
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

/// A pool under review.
pub(super) struct PoolView<'a> {
    pub(super) object: &'a Value,
    pub(super) name: &'a str,
    pub(super) spec: SpiderIPPoolSpec,
}

impl<'a> PoolView<'a> {
    pub(super) fn read(object: &'a Value) -> Result<Self, FieldError> {
        Ok(Self {
            object,
            name: name(object),
            spec: spec(object)?,
        })
    }

    /// Stored pools that can be read, without the one of that name.
    pub(super) fn others(existing: &'a [&'a Value], name: &str) -> Vec<Self> {
        existing
            .iter()
            .filter_map(|object| Self::read(object).ok())
            .filter(|pool| pool.name != name)
            .collect()
    }

    pub(super) fn annotation(&self, key: &str) -> Option<&'a str> {
        annotation(self.object, key)
    }

    /// Carries the provider's mark; the value is opaque.
    pub(super) fn is_marked(&self) -> bool {
        self.annotation(names::IAAS_PROVIDER).is_some()
    }

    /// Name of the pool it is paired with.
    pub(super) fn pair(&self) -> Option<&'a str> {
        self.annotation(names::PAIR_POOL)
            .map(str::trim)
            .filter(|name| !name.is_empty())
    }

    pub(super) fn nodes(&self) -> &[String] {
        self.spec.node_name.as_deref().unwrap_or_default()
    }

    pub(super) fn status(&self) -> IpPoolStatus {
        let status = self.object.get("status").cloned().unwrap_or_default();
        serde_json::from_value(status).unwrap_or_default()
    }

    /// Records by count, or by content where the count lags behind.
    pub(super) fn allocated(&self) -> i64 {
        let raw = |key: &str| self.object.get("status").and_then(|status| status.get(key));
        let counted = raw("allocatedIPCount").and_then(Value::as_i64).unwrap_or(0);
        let listed = raw("allocatedIPs")
            .and_then(Value::as_str)
            .and_then(|text| serde_json::from_str::<BTreeMap<String, Value>>(text).ok())
            .map_or(0, |map| i64::try_from(map.len()).unwrap_or(i64::MAX));
        counted.max(listed)
    }
}
