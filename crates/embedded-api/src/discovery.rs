//! Discovery documents: what `kubectl api-resources` and every client that maps kinds to paths
//! reads. Legacy documents per group and version, and the aggregated form
//! (apidiscovery.k8s.io/v2) for clients that ask for it. Pure.

use serde_json::{Value, json};

use crate::kinds::{self, Kind};

/// Content type of the aggregated documents.
pub(crate) const AGGREGATED: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const VERBS: &[&str] = &[
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
];
const STATUS_VERBS: &[&str] = &["get", "patch", "update"];
/// The Kubernetes release whose behaviour is followed.
const RELEASE: (&str, &str) = ("1", "36");

/// Whether an `Accept` header prefers the aggregated form.
pub(crate) fn wants_aggregated(accept: &str) -> bool {
    accept.split(',').any(|range| {
        range.contains("as=APIGroupDiscoveryList")
            && range.split(';').any(|part| part.trim() == "v=v2")
    })
}

/// `/version`.
pub(crate) fn version() -> Value {
    let (major, minor) = RELEASE;
    let git = format!(
        "v{major}.{minor}.0+spiderpool.{}",
        env!("CARGO_PKG_VERSION")
    );
    json!({"major": major, "minor": minor, "gitVersion": git, "gitCommit": "",
        "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z", "goVersion": "none",
        "compiler": "rustc", "platform": format!("linux/{}", std::env::consts::ARCH)})
}

/// `/api`.
pub(crate) fn core_versions() -> Value {
    json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
}

/// `/apis`.
pub(crate) fn groups() -> Value {
    let groups: Vec<_> = kinds::group_versions()
        .into_iter()
        .filter(|(group, _)| !group.is_empty())
        .filter_map(|(group, _)| self::group(group))
        .collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/apis/GROUP`; none if not served.
pub(crate) fn group(name: &str) -> Option<Value> {
    let (group, version) = kinds::group_versions()
        .into_iter()
        .find(|(g, _)| *g == name && !g.is_empty())?;
    let version = json!({"groupVersion": format!("{group}/{version}"), "version": version});
    Some(
        json!({"kind": "APIGroup", "apiVersion": "v1", "name": group, "versions": [version],
        "preferredVersion": version}),
    )
}

/// `/api/v1` and `/apis/GROUP/VERSION`; none if not served.
pub(crate) fn resources(group: &str, version: &str) -> Option<Value> {
    let list: Vec<_> = kinds::in_group(group, version).flat_map(legacy).collect();
    let group_version = kinds::in_group(group, version).next()?.api_version();
    Some(
        json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version,
        "resources": list}),
    )
}

fn legacy(kind: &'static Kind) -> Vec<Value> {
    let mut found = vec![json!({"name": kind.plural, "singularName": kind.singular,
        "namespaced": kind.namespaced, "kind": kind.kind, "verbs": VERBS,
        "shortNames": kind.short_names, "categories": kind.categories})];
    if kind.status {
        found.push(
            json!({"name": format!("{}/status", kind.plural), "singularName": "",
            "namespaced": kind.namespaced, "kind": kind.kind, "verbs": STATUS_VERBS}),
        );
    }
    found
}

/// The aggregated form of `/api` (`core`) or `/apis`.
pub(crate) fn aggregated(core: bool) -> Value {
    let items: Vec<_> = kinds::group_versions()
        .into_iter()
        .filter(|(group, _)| group.is_empty() == core)
        .map(|(group, version)| {
            let resources: Vec<_> = kinds::in_group(group, version).map(discovered).collect();
            json!({"metadata": {"name": group, "creationTimestamp": null}, "versions": [
                {"version": version, "freshness": "Current", "resources": resources}]})
        })
        .collect();
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {}, "items": items})
}

fn discovered(kind: &Kind) -> Value {
    let response = json!({"group": kind.group, "version": kind.version, "kind": kind.kind});
    let mut subresources = Vec::new();
    if kind.status {
        subresources.push(json!({"subresource": "status", "responseKind": response,
            "verbs": STATUS_VERBS}));
    }
    json!({"resource": kind.plural, "responseKind": response,
        "scope": if kind.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": kind.singular, "verbs": VERBS, "shortNames": kind.short_names,
        "categories": kind.categories, "subresources": subresources})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_list_the_same_resources() {
        let aggregated = aggregated(false);
        let from_aggregated: Vec<_> = aggregated["items"]
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|g| g["versions"][0]["resources"].as_array().unwrap())
            .map(|r| r["resource"].as_str().unwrap().to_owned())
            .collect();
        let groups = groups();
        let mut from_legacy = Vec::new();
        for group in groups["groups"].as_array().unwrap() {
            let version = group["preferredVersion"]["version"].as_str().unwrap();
            let list = resources(group["name"].as_str().unwrap(), version).unwrap();
            for resource in list["resources"].as_array().unwrap() {
                from_legacy.push(resource["name"].as_str().unwrap().to_owned());
            }
        }
        from_legacy.retain(|name| !name.ends_with("/status"));
        assert_eq!(from_legacy, from_aggregated);
        assert!(from_legacy.contains(&"network-attachment-definitions".to_owned()));
        assert!(group("nobody.example").is_none() && resources("", "v2").is_none());
    }

    #[test]
    fn endpoints_have_no_status_subresource() {
        let list = resources("spiderpool.spidernet.io", "v2beta1").unwrap();
        let names: Vec<_> = list["resources"]
            .as_array()
            .unwrap()
            .iter()
            .map(|r| r["name"].as_str().unwrap())
            .collect();
        assert!(names.contains(&"spiderippools/status"));
        assert!(!names.contains(&"spiderendpoints/status"));
    }

    #[test]
    fn kubectl_asks_for_the_aggregated_form() {
        let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
                      application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,\
                      application/json";
        assert!(wants_aggregated(accept));
        assert!(!wants_aggregated("application/json"));
    }
}
