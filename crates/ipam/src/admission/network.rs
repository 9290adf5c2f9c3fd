//! Verdicts on SpiderMultusConfigs, in the order of spec api 3.6: one error, the first.

use serde_json::Value;
use spiderpool_api::multus_config::{CniType, SpiderMultusConfigSpec};
use spiderpool_api::names;

use super::object::{annotation, annotation_field, is_terminating, name, spec};
use super::view::World;
use super::{FieldError, FieldErrorKind, Refusal, Settings, coordinator, section, stop};

/// CNI versions that a configuration may name.
const CNI_VERSIONS: [&str; 4] = ["0.3.0", "0.3.1", "0.4.0", "1.0.0"];
/// Longest name of an object.
const LONGEST_NAME: usize = 253;
/// Longest name of a namespace or a Service, a part of a DNS name (RFC 1123).
const LONGEST_LABEL: usize = 63;

/// Name of the NetworkAttachmentDefinition that a SpiderMultusConfig is rendered to.
#[must_use]
pub fn attachment_name(config: &Value) -> &str {
    annotation(config, names::MULTUS_CR_NAME).unwrap_or_else(|| name(config))
}

pub(super) fn create(new: &Value, world: &World, settings: &Settings) -> Result<(), Refusal> {
    identity(new, world).map_err(stop)?;
    let read: SpiderMultusConfigSpec = spec(new).map_err(stop)?;
    section::judge(&read, settings).map_err(stop)?;
    groups(new, &read).map_err(stop)?;
    if let Some(block) = &read.coordinator {
        coordinator::judge(block, "spec.coordinator").map_err(stop)?;
    }
    chain(&read).map_err(stop)
}

pub(super) fn update(
    new: &Value,
    old: &Value,
    world: &World,
    settings: &Settings,
) -> Result<(), Refusal> {
    // Whoever holds a finalizer must be able to let go.
    if is_terminating(old) {
        return Ok(());
    }
    let key = names::MULTUS_CR_NAME;
    if annotation(new, key) != annotation(old, key) {
        let message = "cannot be added, changed or removed: the NetworkAttachmentDefinition of the other name would be left behind";
        return Err(stop(FieldError::forbidden(&annotation_field(key), message)));
    }
    create(new, world, settings)
}

/// Name and owner of the definition, and its CNI version.
fn identity(new: &Value, world: &World) -> Result<(), FieldError> {
    let target = attachment_name(new);
    let field = match annotation(new, names::MULTUS_CR_NAME) {
        Some(_) => annotation_field(names::MULTUS_CR_NAME),
        None => "metadata.name".to_owned(),
    };
    // A generated name is not known yet, and legal.
    if !target.is_empty() && !is_dns_name(target) {
        let message =
            "is no DNS-1123 subdomain: lower case letters, digits, '-' and '.', at most 253";
        return Err(FieldError::invalid(&field, target, message));
    }
    let owner = world
        .attachment
        .as_ref()
        .filter(|known| known.name == target);
    if let Some(owner) = owner.and_then(|known| known.owner.as_ref())
        && (owner.kind != "SpiderMultusConfig" || owner.name != name(new))
    {
        let message = format!(
            "NetworkAttachmentDefinition {target} belongs to {} {}",
            owner.kind, owner.name
        );
        return Err(FieldError::invalid(&field, target, message));
    }
    match annotation(new, names::MULTUS_CNI_VERSION) {
        Some(version) if !CNI_VERSIONS.contains(&version) => Err(FieldError::new(
            FieldErrorKind::NotSupported,
            &annotation_field(names::MULTUS_CNI_VERSION),
            version.into(),
            "supported values: \"0.3.0\", \"0.3.1\", \"0.4.0\", \"1.0.0\"",
        )),
        _ => Ok(()),
    }
}

/// Rule 4: a group gives Pods a resource and an address.
fn groups(new: &Value, spec: &SpiderMultusConfigSpec) -> Result<(), FieldError> {
    for key in [names::RDMA_RESOURCE_INJECT, names::NETWORK_RESOURCE_INJECT] {
        if annotation(new, key).is_none() {
            continue;
        }
        let field = annotation_field(key);
        let plugin = spec.main_plugin();
        if matches!(plugin, CniType::Ovs | CniType::Custom) {
            let message = format!("is not for cniType {}", plugin.as_str());
            return Err(FieldError::forbidden(&field, message));
        }
        let resource = spec.resource();
        if resource.is_none() && key == names::RDMA_RESOURCE_INJECT {
            let message = "needs the name of an RDMA resource in the section of the cniType";
            return Err(FieldError::forbidden(&field, message));
        }
        let pools = spec.pools().is_some_and(|pools| pools.names_a_pool());
        if resource.is_some() && !pools {
            let message = "needs at least one pool in ippools";
            return Err(FieldError::forbidden(&field, message));
        }
    }
    Ok(())
}

/// Rule 5: plugins that can be chained.
fn chain(spec: &SpiderMultusConfigSpec) -> Result<(), FieldError> {
    for (index, text) in spec.chain_cni_json_data.iter().flatten().enumerate() {
        let wrong = |message: String| {
            let field = format!("spec.chainCNIJsonData[{index}]");
            Err(FieldError::invalid(&field, text.as_str(), message))
        };
        let plugin: Value = match serde_json::from_str(text) {
            Ok(plugin) => plugin,
            Err(error) => return wrong(format!("is not JSON: {error}")),
        };
        let named = plugin.get("type").and_then(Value::as_str);
        if named.is_none_or(str::is_empty) {
            return wrong("is not a JSON object with a type".to_owned());
        }
    }
    Ok(())
}

/// Whether a namespace can have this name (`IsDNS1123Label` of apimachinery).
#[must_use]
pub fn is_dns_label(name: &str) -> bool {
    name.len() <= LONGEST_LABEL && !name.contains('.') && is_dns_name(name)
}

/// Whether an object can have this name (`IsDNS1123Subdomain` of apimachinery).
#[must_use]
pub fn is_dns_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    name.len() <= LONGEST_NAME
        && name.split('.').all(|label| {
            let bytes = label.as_bytes();
            bytes.first().copied().is_some_and(plain)
                && bytes.last().copied().is_some_and(plain)
                && bytes.iter().all(|byte| plain(*byte) || *byte == b'-')
        })
}
