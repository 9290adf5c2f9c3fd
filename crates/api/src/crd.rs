//! The `CustomResourceDefinition` of each kind that has a type here (spec api section 1): what the
//! chart installs, and where the embedded API takes its schemas from.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1 as ext;
use kube::CustomResourceExt;
use kube::core::schema::{OptionalEnum, StructuralSchemaRewriter};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use schemars::transform::AddNullable;
use serde_json::{Value, json};

use crate::attachment_definition::{self as attachment, AttachmentSpec};
use crate::coordinator::SpiderCoordinator;
use crate::endpoint::EndpointStatus;
use crate::ippool::SpiderIPPool;
use crate::multus_config::SpiderMultusConfig;
use crate::names;
use crate::reserved_ip::SpiderReservedIP;
use crate::subnet::SpiderSubnet;

mod rules;
mod tidy;

/// All of them, by name.
#[must_use]
pub fn all() -> Vec<ext::CustomResourceDefinition> {
    [
        (
            attachment_definition(),
            "A CNI configuration under a name that Pods refer to.",
        ),
        (
            SpiderCoordinator::crd(),
            "How Pods are tuned unless their network says otherwise.",
        ),
        (
            endpoint(),
            "What a Pod was given: a projection of the records of its pools.",
        ),
        (
            SpiderIPPool::crd(),
            "A set of addresses of one subnet and who may use them.",
        ),
        (
            SpiderMultusConfig::crd(),
            "A network that Pods refer to; a NetworkAttachmentDefinition is made from it.",
        ),
        (SpiderReservedIP::crd(), "Addresses that no pool gives out."),
        (
            SpiderSubnet::crd(),
            "Addresses of one network that pools are carved from.",
        ),
    ]
    .into_iter()
    .map(|(crd, text)| finish(crd, text))
    .collect()
}

/// Brings what a derive emits into the contract's form. A schema of ours that Kubernetes' type
/// cannot hold would stay as it is, which a test excludes.
fn finish(mut crd: ext::CustomResourceDefinition, text: &str) -> ext::CustomResourceDefinition {
    let kind = crd.spec.names.kind.clone();
    let versions = crd.spec.versions.iter_mut();
    for schema in
        versions.filter_map(|version| version.schema.as_mut()?.open_api_v3_schema.as_mut())
    {
        let Ok(mut raw) = serde_json::to_value(&*schema) else {
            continue;
        };
        tidy::clean(&mut raw);
        if let Some(root) = raw.as_object_mut() {
            root.remove("title");
            root.insert("description".to_owned(), text.into());
        }
        for pointer in [
            "/properties/spec",
            "/properties/spec/properties/coordinator",
        ] {
            if let Some(spec) = raw.pointer_mut(pointer) {
                tidy::add_older_mode(spec);
            }
        }
        tidy::add_miscased(&kind, &mut raw);
        rules::add(&kind, &mut raw);
        if let Ok(finished) = serde_json::from_value(raw) {
            *schema = finished;
        }
    }
    crd
}

/// Others write these objects, with and without a `spec`; the derive would insist on it.
fn attachment_definition() -> ext::CustomResourceDefinition {
    ext::CustomResourceDefinition {
        metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
            name: Some(format!("{}.{}", attachment::PLURAL, attachment::GROUP)),
            ..Default::default()
        },
        spec: ext::CustomResourceDefinitionSpec {
            group: attachment::GROUP.to_owned(),
            names: ext::CustomResourceDefinitionNames {
                kind: attachment::KIND.to_owned(),
                plural: attachment::PLURAL.to_owned(),
                short_names: Some(vec!["net-attach-def".to_owned()]),
                singular: Some("network-attachment-definition".to_owned()),
                ..Default::default()
            },
            scope: "Namespaced".to_owned(),
            versions: vec![ext::CustomResourceDefinitionVersion {
                name: attachment::VERSION.to_owned(),
                schema: Some(ext::CustomResourceValidation {
                    open_api_v3_schema: object_schema("spec", schema_of::<AttachmentSpec>()),
                }),
                served: true,
                storage: true,
                ..Default::default()
            }],
            ..Default::default()
        },
        status: None,
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
                    open_api_v3_schema: object_schema("status", schema_of::<EndpointStatus>()),
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
    .chain([ext::CustomResourceColumnDefinition {
        name: "AGE".to_owned(),
        type_: "date".to_owned(),
        json_path: ".metadata.creationTimestamp".to_owned(),
        priority: Some(1),
        ..Default::default()
    }])
    .collect()
}

/// Made by the transforms of the derive, so that all kinds are checked alike.
fn schema_of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::openapi3()
        .with(|settings| {
            settings.inline_subschemas = true;
            settings.meta_schema = None;
        })
        .with_transform(AddNullable::default())
        .with_transform(StructuralSchemaRewriter)
        .with_transform(OptionalEnum);
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    // a Rust type's name
    schema.remove("title");
    schema.to_value()
}

/// An object with one field besides its metadata. `None` only if a schema of our own were none of
/// Kubernetes', which a test excludes.
fn object_schema(field: &str, schema: Value) -> Option<ext::JSONSchemaProps> {
    serde_json::from_value(json!({"type": "object", "properties": {field: schema}})).ok()
}

#[cfg(test)]
mod tests;
