//! The schemas of our kinds, taken from the types all processes share.

use std::collections::BTreeMap;

use serde_json::Value;
use spiderpool_api::crd;

use crate::kinds;

/// OpenAPI v3 schemas by kind; a kind without one keeps every field.
pub(crate) type Schemas = BTreeMap<&'static str, Value>;

/// Schemas of the kinds that have a type.
pub(crate) fn built_in() -> Schemas {
    let schemas = crd::all().into_iter().filter_map(|crd| {
        let kind = kinds::by_kind(&crd.spec.names.kind)?;
        let version = crd.spec.versions.into_iter().next()?;
        let schema = version.schema?.open_api_v3_schema?;
        Some((kind.kind, serde_json::to_value(schema).ok()?))
    });
    schemas.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The static table and the types must say the same of every kind.
    #[test]
    fn kinds_agree_with_their_types() {
        for crd in crd::all() {
            let (names, version) = (&crd.spec.names, &crd.spec.versions[0]);
            let kind = kinds::by_kind(&names.kind).unwrap();
            assert_eq!(
                (kind.group, kind.version),
                (crd.spec.group.as_str(), version.name.as_str())
            );
            assert_eq!(kind.plural, names.plural);
            assert_eq!(Some(kind.singular), names.singular.as_deref());
            assert_eq!(
                kind.short_names,
                names.short_names.clone().unwrap_or_default()
            );
            assert_eq!(
                kind.categories,
                names.categories.clone().unwrap_or_default()
            );
            assert_eq!(kind.namespaced, crd.spec.scope == "Namespaced");
            let status = version
                .subresources
                .as_ref()
                .and_then(|s| s.status.as_ref());
            assert_eq!(kind.status, status.is_some(), "{}", kind.kind);
            let typed = version
                .additional_printer_columns
                .clone()
                .unwrap_or_default();
            let typed: Vec<_> = typed
                .into_iter()
                .map(|c| (c.name, c.type_, c.priority.unwrap_or_default()))
                .filter(|(name, ..)| !name.eq_ignore_ascii_case("age"))
                .collect();
            let ours: Vec<_> = kind
                .columns
                .iter()
                .filter(|c| !matches!(c.name, "Name" | "Age"))
                .map(|c| (c.name.to_owned(), c.kind.to_owned(), i32::from(c.priority)))
                .collect();
            assert_eq!(ours, typed, "{}", kind.kind);
            assert!(built_in().contains_key(kind.kind));
            let selectable = version.selectable_fields.iter().flatten();
            let selectable: Vec<_> = selectable.map(|field| field.json_path.as_str()).collect();
            let labels: Vec<_> = kind
                .fields
                .iter()
                .map(|f| format!(".{}", f.label))
                .collect();
            assert_eq!(labels, selectable, "{}", kind.kind);
        }
    }

    #[test]
    fn an_endpoint_is_checked_against_its_status() {
        let schema = &built_in()["SpiderEndpoint"];
        let mut endpoint = json!({"apiVersion": "a", "kind": "k", "metadata": {}, "status": {
            "ownerControllerType": "Pod", "ownerControllerName": "p",
            "current": {"uid": "u", "node": "n", "ips": [{"interface": "eth0", "vlna": 7}]}}});
        let unknown = crate::schema::prune(schema, &mut endpoint);
        assert_eq!(unknown, ["status.current.ips[0].vlna"]);
        assert!(crate::schema::validate(schema, &endpoint).is_empty());
        let broken = json!({"status": {"current": {"uid": "u", "ips": []}}});
        let causes = crate::schema::validate(schema, &broken);
        assert!(
            causes.iter().any(|c| c.field == "status.current.node"),
            "{causes:?}"
        );
    }
}
