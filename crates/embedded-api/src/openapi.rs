//! `/openapi/v3`: an index and one document per group and version. kubectl looks for the
//! `fieldValidation` parameter of a kind's PATCH operation before it leaves validation to the
//! server, and for schemas to `explain`. Pure.

use serde_json::{Map, Value, json};

use crate::kinds::{self, Kind};
use crate::object;
use crate::schemas::Schemas;

/// The index.
pub(crate) fn index() -> Value {
    let paths: Map<_, _> = kinds::group_versions()
        .into_iter()
        .map(|(group, version)| {
            let path = group_path(group, version);
            let url = format!("/openapi/v3/{path}");
            (path, json!({"serverRelativeURL": url}))
        })
        .collect();
    json!({"paths": paths})
}

/// The document behind `/openapi/v3/...`; none if not served.
pub(crate) fn document(path: &str, schemas: &Schemas) -> Option<Value> {
    let (group, version) = kinds::group_versions()
        .into_iter()
        .find(|(g, v)| group_path(g, v) == path)?;
    let mut paths = Map::new();
    let mut components = Map::new();
    for kind in kinds::in_group(group, version) {
        paths.insert(item_path(kind), item(kind));
        components.insert(component(kind), schema(kind, schemas));
    }
    Some(
        json!({"openapi": "3.0.0", "info": {"title": "Spiderpool embedded API",
        "version": env!("CARGO_PKG_VERSION")}, "paths": paths,
        "components": {"schemas": components}}),
    )
}

fn group_path(group: &str, version: &str) -> String {
    if group.is_empty() {
        format!("api/{version}")
    } else {
        format!("apis/{group}/{version}")
    }
}

fn item_path(kind: &Kind) -> String {
    let namespace = if kind.namespaced {
        "namespaces/{namespace}/"
    } else {
        ""
    };
    format!(
        "/{}/{namespace}{}/{{name}}",
        group_path(kind.group, kind.version),
        kind.plural
    )
}

/// `io.spidernet.spiderpool.v2beta1.SpiderIPPool`, `io.k8s.api.core.v1.Pod`.
fn component(kind: &Kind) -> String {
    let mut parts: Vec<_> = match kind.group {
        "" => vec!["io", "k8s", "api", "core"],
        group => group.split('.').rev().collect(),
    };
    parts.extend([kind.version, kind.kind]);
    parts.join(".")
}

fn identity(kind: &Kind) -> Value {
    json!({"group": kind.group, "version": kind.version, "kind": kind.kind})
}

fn item(kind: &Kind) -> Value {
    let reference = json!({"$ref": format!("#/components/schemas/{}", component(kind))});
    let answer = json!({"200": {"description": "OK",
        "content": {"application/json": {"schema": reference}}}});
    let query: Vec<_> = ["dryRun", "fieldManager", "fieldValidation"]
        .iter()
        .map(|name| {
            json!({"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": true}})
        })
        .collect();
    let patch = json!({"application/merge-patch+json": {"schema": {"type": "object"}}});
    json!({
        "get": {"x-kubernetes-action": "get", "x-kubernetes-group-version-kind": identity(kind),
            "responses": answer},
        "patch": {"x-kubernetes-action": "patch", "x-kubernetes-group-version-kind": identity(kind),
            "parameters": query, "requestBody": {"content": patch}, "responses": answer},
    })
}

/// Kinds without a schema of their own are objects of anything, and say that they are kept so.
fn schema(kind: &Kind, schemas: &Schemas) -> Value {
    let mut schema = schemas.get(kind.kind).cloned().unwrap_or_else(|| {
        json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {}})
    });
    object::set(
        &mut schema,
        "x-kubernetes-group-version-kind",
        json!([identity(kind)]),
    );
    if let Some(properties) = schema.get_mut("properties") {
        object::set(properties, "apiVersion", json!({"type": "string"}));
        object::set(properties, "kind", json!({"type": "string"}));
        object::set(properties, "metadata", json!({"type": "object"}));
    }
    schema
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_takes_field_validation_on_patch() {
        let index = index();
        let mut found = 0;
        for path in index["paths"].as_object().unwrap().keys() {
            let document = document(path, &Schemas::new()).unwrap();
            for item in document["paths"].as_object().unwrap().values() {
                let parameters = item["patch"]["parameters"].as_array().unwrap();
                assert!(parameters.iter().any(|p| p["name"] == "fieldValidation"));
                found += 1;
            }
        }
        assert_eq!(found, kinds::all().len());
        assert!(document("apis/x/v1", &Schemas::new()).is_none());
    }
}
