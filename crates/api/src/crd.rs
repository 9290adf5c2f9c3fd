//! The `CustomResourceDefinition` of each kind that has a type here (spec api section 1): what the
//! chart installs, and where the embedded API takes its schemas from.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1 as ext;
use kube::CustomResourceExt;
use kube::core::schema::{OptionalEnum, StructuralSchemaRewriter};
use schemars::generate::SchemaSettings;
use schemars::transform::AddNullable;
use serde_json::{Value, json};

use crate::endpoint::EndpointStatus;
use crate::ippool::SpiderIPPool;
use crate::names;
use crate::reserved_ip::SpiderReservedIP;

/// All of them, by name.
#[must_use]
pub fn all() -> Vec<ext::CustomResourceDefinition> {
    let mut pool = SpiderIPPool::crd();
    describe(
        &mut pool,
        "A set of addresses of one subnet and who may use them.",
    );
    let mut reserved = SpiderReservedIP::crd();
    describe(&mut reserved, "Addresses that no pool gives out.");
    vec![endpoint(), pool, reserved]
}

/// The derive describes the object by the name of a Rust type.
fn describe(crd: &mut ext::CustomResourceDefinition, text: &str) {
    let schemas = crd.spec.versions.iter_mut();
    for schema in schemas.filter_map(|version| version.schema.as_mut()?.open_api_v3_schema.as_mut())
    {
        schema.description = Some(text.to_owned());
    }
}

/// An endpoint has a status and no spec, and no status subresource; the derive cannot say that.
fn endpoint() -> ext::CustomResourceDefinition {
    ext::CustomResourceDefinition {
        metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
            name: Some(format!("spiderendpoints.{}", names::GROUP)),
            ..Default::default()
        },
        spec: ext::CustomResourceDefinitionSpec {
            group: names::GROUP.to_owned(),
            names: ext::CustomResourceDefinitionNames {
                categories: Some(vec!["spiderpool".to_owned()]),
                kind: "SpiderEndpoint".to_owned(),
                plural: "spiderendpoints".to_owned(),
                short_names: Some(vec!["se".to_owned()]),
                singular: Some("spiderendpoint".to_owned()),
                ..Default::default()
            },
            scope: "Namespaced".to_owned(),
            versions: vec![ext::CustomResourceDefinitionVersion {
                additional_printer_columns: Some(endpoint_columns()),
                name: names::VERSION.to_owned(),
                schema: Some(ext::CustomResourceValidation {
                    open_api_v3_schema: endpoint_schema(),
                }),
                selectable_fields: Some(vec![ext::SelectableField {
                    json_path: ".status.current.node".to_owned(),
                }]),
                served: true,
                storage: true,
                ..Default::default()
            }],
            ..Default::default()
        },
        status: None,
    }
}

fn endpoint_columns() -> Vec<ext::CustomResourceColumnDefinition> {
    let first = |field: &str| format!(".status.current.ips[0].{field}");
    [
        ("INTERFACE", first("interface")),
        ("IPV4POOL", first("ipv4Pool")),
        ("IPV4", first("ipv4")),
        ("IPV6POOL", first("ipv6Pool")),
        ("IPV6", first("ipv6")),
        ("NODE", ".status.current.node".to_owned()),
    ]
    .into_iter()
    .map(|(name, json_path)| ext::CustomResourceColumnDefinition {
        name: name.to_owned(),
        type_: "string".to_owned(),
        json_path,
        ..Default::default()
    })
    .collect()
}

/// Made by the transforms of the derive, so that all kinds are checked alike. `None` only if a
/// schema of our own were none of Kubernetes', which a test excludes.
fn endpoint_schema() -> Option<ext::JSONSchemaProps> {
    let settings = SchemaSettings::openapi3()
        .with(|settings| {
            settings.inline_subschemas = true;
            settings.meta_schema = None;
        })
        .with_transform(AddNullable::default())
        .with_transform(StructuralSchemaRewriter)
        .with_transform(OptionalEnum);
    let mut status = settings
        .into_generator()
        .into_root_schema_for::<EndpointStatus>();
    // a Rust type's name
    status.remove("title");
    let schema: Value = json!({"type": "object",
        "description": "What a Pod was given: a projection of the records of its pools.",
        "properties": {"status": status.to_value()}});
    serde_json::from_value(schema).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema(kind: &str) -> Value {
        let crds = all();
        let crd = crds.iter().find(|crd| crd.spec.names.kind == kind).unwrap();
        let schema = crd.spec.versions[0].schema.as_ref().unwrap();
        serde_json::to_value(schema.open_api_v3_schema.as_ref().unwrap()).unwrap()
    }

    /// What a derive does not emit by itself and the contract names (spec api section 1).
    #[test]
    fn limits_and_formats_of_the_contract() {
        let pool = schema("SpiderIPPool");
        for (field, key, value) in [
            ("spec/properties/ipVersion", "enum", json!([4, 6])),
            ("spec/properties/ipVersion", "format", json!("int64")),
            ("status/properties/allocatedIPCount", "minimum", json!(0.0)),
            ("status/properties/totalIPCount", "format", json!("int64")),
            (
                "spec/properties/podAffinity",
                "x-kubernetes-map-type",
                json!("atomic"),
            ),
            ("spec", "required", json!(["subnet"])),
        ] {
            let found = pool.pointer(&format!("/properties/{field}/{key}"));
            assert_eq!(found, Some(&value), "{field} {key}");
        }
        let vlan = schema("SpiderEndpoint");
        let vlan = &vlan["properties"]["status"]["properties"]["current"]["properties"]["ips"]["items"]
            ["properties"]["vlan"];
        assert_eq!(
            (&vlan["maximum"], &vlan["default"]),
            (&json!(4094.0), &json!(0))
        );
        assert_eq!(
            schema("SpiderReservedIP")["properties"]["spec"]["properties"]["ipVersion"]["enum"],
            json!([4, 6])
        );
    }

    #[test]
    fn one_served_and_stored_version_each() {
        for crd in all() {
            let name = format!("{}.{}", crd.spec.names.plural, names::GROUP);
            assert_eq!(crd.metadata.name.as_deref(), Some(name.as_str()));
            let [version] = crd.spec.versions.as_slice() else {
                panic!("{name} has not one version");
            };
            assert_eq!(version.name, names::VERSION);
            assert!(version.served && version.storage);
            let schema = version.schema.as_ref().unwrap();
            assert!(schema.open_api_v3_schema.is_some(), "{name}");
        }
    }
}
