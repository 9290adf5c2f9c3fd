//! Patch documents: RFC 7386 merge, RFC 6902 JSON patch, and the strategic merge of Kubernetes for
//! the lists of Pods, Nodes and Namespaces that clients really patch. Pure.

use serde_json::{Map, Value};

use crate::kinds::{Family, Kind};

/// A parsed patch.
#[derive(Debug, Clone)]
pub(crate) enum Patch {
    /// RFC 7386.
    Merge(Value),
    /// RFC 6902.
    Json(json_patch::Patch),
    /// Merge with keyed lists and `$patch` directives.
    Strategic(Value),
}

/// Why a patch cannot be read or applied.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PatchError {
    /// The content type is none we apply to this kind.
    #[error(
        "{content_type:?} is not accepted for {kind}: the body must be {accepted}; server-side apply is not supported by this API, use client-side apply"
    )]
    Media {
        content_type: String,
        kind: &'static str,
        accepted: &'static str,
    },
    /// The body is no patch of its type.
    #[error("the patch cannot be read: {0}")]
    Syntax(String),
    /// A JSON patch operation failed, for example a `test`.
    #[error("the server rejected our request due to an error in our request: {0}")]
    Apply(String),
}

const MERGE: &str = "application/merge-patch+json";
const JSON: &str = "application/json-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

impl Patch {
    /// Reads a body by its content type.
    pub(crate) fn parse(kind: &Kind, content_type: &str, body: &[u8]) -> Result<Self, PatchError> {
        let media = content_type.split(';').next().unwrap_or_default().trim();
        let syntax = |e: serde_json::Error| PatchError::Syntax(e.to_string());
        let core = kind.family == Family::Core;
        match media {
            MERGE => Ok(Self::Merge(map(body)?)),
            JSON => Ok(Self::Json(serde_json::from_slice(body).map_err(syntax)?)),
            STRATEGIC if core => Ok(Self::Strategic(map(body)?)),
            _ => Err(PatchError::Media {
                content_type: media.to_owned(),
                kind: kind.kind,
                accepted: if core {
                    "application/merge-patch+json, application/json-patch+json or \
                     application/strategic-merge-patch+json"
                } else {
                    "application/merge-patch+json or application/json-patch+json"
                },
            }),
        }
    }

    /// The patched document.
    pub(crate) fn apply(&self, current: &Value) -> Result<Value, PatchError> {
        let mut patched = current.clone();
        match self {
            Self::Merge(patch) => json_patch::merge(&mut patched, patch),
            Self::Json(patch) => json_patch::patch(&mut patched, patch)
                .map_err(|e| PatchError::Apply(e.to_string()))?,
            Self::Strategic(patch) => strategic(&mut patched, patch, ""),
        }
        Ok(patched)
    }
}

fn map(body: &[u8]) -> Result<Value, PatchError> {
    match serde_json::from_slice(body) {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(_) => Err(PatchError::Syntax("it is not a JSON object".to_owned())),
        Err(error) => Err(PatchError::Syntax(error.to_string())),
    }
}

/// How a list under this field name merges. From the `patchMergeKey` tags of the core types;
/// fields not named here are replaced whole, as Kubernetes does for atomic lists.
fn list_key(field: &str) -> Option<&'static str> {
    match field {
        "containers"
        | "initContainers"
        | "ephemeralContainers"
        | "volumes"
        | "env"
        | "imagePullSecrets" => Some("name"),
        "conditions" | "addresses" => Some("type"),
        "ownerReferences" => Some("uid"),
        "volumeMounts" => Some("mountPath"),
        "taints" => Some("key"),
        "hostAliases" | "podIPs" | "hostIPs" => Some("ip"),
        "ports" => Some("containerPort"),
        // lists of plain values that merge as sets
        "finalizers" | "podCIDRs" => Some(""),
        _ => None,
    }
}

const DIRECTIVE: &str = "$patch";
const DELETE_PREFIX: &str = "$deleteFromPrimitiveList/";

fn strategic(target: &mut Value, patch: &Value, field: &str) {
    match (patch, list_key(field)) {
        (Value::Object(patch), _) => strategic_map(target, patch),
        (Value::Array(patch), Some(key)) if target.is_array() => {
            if let Some(list) = target.as_array_mut() {
                strategic_list(list, patch, key);
            }
        }
        _ => *target = patch.clone(),
    }
}

fn strategic_map(target: &mut Value, patch: &Map<String, Value>) {
    if patch.get(DIRECTIVE).and_then(Value::as_str) == Some("replace") || !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(map) = target.as_object_mut() else {
        return;
    };
    for (name, value) in patch {
        if let Some(list) = name.strip_prefix(DELETE_PREFIX) {
            let gone = value.as_array().map_or(&[][..], Vec::as_slice);
            if let Some(list) = map.get_mut(list).and_then(Value::as_array_mut) {
                list.retain(|item| !gone.contains(item));
            }
        } else if name.starts_with('$') {
            // $setElementOrder and $retainKeys only order what is merged anyway
        } else if value.is_null() || value.get(DIRECTIVE).and_then(Value::as_str) == Some("delete")
        {
            map.remove(name);
        } else {
            strategic(map.entry(name.clone()).or_insert(Value::Null), value, name);
        }
    }
}

fn strategic_list(list: &mut Vec<Value>, patch: &[Value], key: &str) {
    let replace = |item: &Value| item.get(DIRECTIVE).and_then(Value::as_str) == Some("replace");
    if patch.iter().any(replace) {
        *list = patch
            .iter()
            .filter(|item| !replace(item))
            .cloned()
            .collect();
        return;
    }
    for item in patch {
        let same = |other: &Value| {
            if key.is_empty() {
                other == item
            } else {
                other.get(key) == item.get(key)
            }
        };
        let position = list.iter().position(same);
        let delete = item.get(DIRECTIVE).and_then(Value::as_str) == Some("delete");
        match (position.and_then(|p| list.get_mut(p)), delete) {
            (Some(_), true) => list.retain(|other| !same(other)),
            (Some(existing), false) => strategic(existing, item, ""),
            (None, true) => {}
            (None, false) => list.push(item.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds;
    use serde_json::json;

    fn apply(kind: &str, media: &str, patch: &Value, current: &Value) -> Value {
        let kind = kinds::by_kind(kind).unwrap();
        let patch = Patch::parse(kind, media, patch.to_string().as_bytes()).unwrap();
        patch.apply(current).unwrap()
    }

    #[test]
    fn strategic_merge_of_keyed_lists() {
        let node = json!({"metadata": {"finalizers": ["a"]}, "status": {"conditions": [
            {"type": "Ready", "status": "True", "reason": "r"}, {"type": "Disk", "status": "True"}]},
            "spec": {"taints": [{"key": "x", "effect": "NoSchedule"}], "podCIDR": "10.0.0.0/24"}});
        let patch = json!({
            "metadata": {"finalizers": ["b", "a"], "$setElementOrder/finalizers": ["a", "b"]},
            "status": {"conditions": [{"type": "Ready", "status": "False"},
                {"type": "Disk", "$patch": "delete"}, {"type": "New", "status": "True"}]},
            "spec": {"taints": [{"$patch": "replace"}, {"key": "y"}], "podCIDR": null}});
        let expected = json!({"metadata": {"finalizers": ["a", "b"]}, "status": {"conditions": [
            {"type": "Ready", "status": "False", "reason": "r"}, {"type": "New", "status": "True"}]},
            "spec": {"taints": [{"key": "y"}]}});
        assert_eq!(apply("Node", STRATEGIC, &patch, &node), expected);
        let patch = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}});
        assert_eq!(
            apply("Node", STRATEGIC, &patch, &node)["metadata"]["finalizers"],
            json!([])
        );
    }

    #[test]
    fn merge_and_json_patches() {
        let pool = json!({"spec": {"ips": ["a"], "gateway": "g"}});
        let merged = apply(
            "SpiderIPPool",
            MERGE,
            &json!({"spec": {"gateway": null}}),
            &pool,
        );
        assert_eq!(merged, json!({"spec": {"ips": ["a"]}}));
        let patch = json!([{"op": "add", "path": "/spec/ips/-", "value": "b"}]);
        let patched = apply("SpiderIPPool", JSON, &patch, &pool);
        assert_eq!(patched["spec"]["ips"], json!(["a", "b"]));
    }

    #[test]
    fn what_cannot_be_applied_is_said() {
        let pool = kinds::by_kind("SpiderIPPool").unwrap();
        for media in [
            STRATEGIC,
            "application/apply-patch+yaml",
            "application/json",
            "",
        ] {
            let error = Patch::parse(pool, media, b"{}").unwrap_err();
            assert!(matches!(error, PatchError::Media { .. }), "{media}");
        }
        assert!(Patch::parse(pool, MERGE, b"[]").is_err());
        assert!(Patch::parse(pool, JSON, b"{}").is_err());
        let test = json!([{"op": "test", "path": "/spec", "value": 1}]).to_string();
        let patch = Patch::parse(pool, JSON, test.as_bytes()).unwrap();
        assert!(matches!(
            patch.apply(&json!({"spec": 2})),
            Err(PatchError::Apply(_))
        ));
    }
}
