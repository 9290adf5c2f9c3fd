//! From a `SpiderMultusConfig` to the NetworkAttachmentDefinition that Multus reads (spec api 6): its
//! name, its annotations, and the CNI configuration as text. The order of plugins is
//! `[ifacer] main [rdma] chain… [tuning] [coordinator]`.
//!
//! Only what is impossible is refused: admission has more to say, and may have been away when an
//! object was written.

mod around;
mod chain;
mod main_plugin;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::Serialize;
use spiderpool_api::multus_config::{CniType, SpiderMultusConfigSpec};
use spiderpool_api::names;

/// Version of the CNI configuration unless the annotation says otherwise.
pub const DEFAULT_CNI_VERSION: &str = "0.3.1";

/// What a NetworkAttachmentDefinition shall be; it is in the namespace of what it is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    /// Its name.
    pub name: String,
    /// All its annotations.
    pub annotations: BTreeMap<String, String>,
    /// `spec.config`; `None`: the node's CNI file of that name is meant.
    pub config: Option<String>,
}

/// No configuration can be made.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    /// A field without which there is none.
    #[error("{field} is missing: {why}")]
    Missing {
        /// Below the object.
        field: String,
        /// What it is for, or what to do instead.
        why: &'static str,
    },
    /// An item of `spec.chainCNIJsonData`.
    #[error("spec.chainCNIJsonData[{index}] is not a JSON object with a type: {why}")]
    Chain {
        /// Place in the list.
        index: usize,
        /// What is wrong with it.
        why: String,
    },
    /// A sub-ENI without its address.
    #[error("IPAM is switched off, and a sub-ENI has no address, MAC and VLAN id without it")]
    NoIpam,
    /// Text that is no JSON string.
    #[error("the configuration cannot be written as JSON")]
    Encode(#[from] serde_json::Error),
}

/// What differs between clusters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// The provider speaks the first generation of its contract: `vlan` without `vlanID` is a sub-ENI.
    pub first_generation: bool,
}

/// Name of the NetworkAttachmentDefinition of an object.
#[must_use]
pub fn attachment_name<'a>(name: &'a str, annotations: &'a BTreeMap<String, String>) -> &'a str {
    annotation(annotations, names::MULTUS_CR_NAME).unwrap_or(name)
}

/// Renders an object of that name.
///
/// # Errors
/// [`RenderError`] names the field.
pub fn render(
    name: &str,
    annotations: &BTreeMap<String, String>,
    spec: &SpiderMultusConfigSpec,
    options: Options,
) -> Result<Attachment, RenderError> {
    let name = attachment_name(name, annotations).to_owned();
    let config = match spec.main_plugin() {
        CniType::Custom => spec.custom_cni.clone().filter(|text| !text.is_empty()),
        _ => Some(conflist(&name, annotations, spec, options)?),
    };
    let mut annotations = annotations.clone();
    if let Some(resource) = resource(spec) {
        annotations.insert(names::NETWORK_RESOURCE_NAME.to_owned(), resource);
    }
    Ok(Attachment {
        name,
        annotations,
        config,
    })
}

/// The device that Multus asks the device plugin's assignment for.
fn resource(spec: &SpiderMultusConfigSpec) -> Option<String> {
    match spec.main_plugin() {
        CniType::Sriov | CniType::IbSriov => spec.resource().map(str::to_owned),
        CniType::Ovs => {
            let ovs = spec.ovs.as_ref()?;
            ovs.device_id.as_ref().filter(|id| !id.is_empty())?;
            Some(format!("{}{}", names::OVS_RESOURCE_PREFIX, ovs.bridge))
        }
        _ => None,
    }
}

fn conflist(
    name: &str,
    annotations: &BTreeMap<String, String>,
    spec: &SpiderMultusConfigSpec,
    options: Options,
) -> Result<String, RenderError> {
    let mut plugins = Vec::new();
    plugins.extend(around::ifacer(spec)?);
    plugins.push(main_plugin::render(spec, options)?);
    plugins.extend(around::rdma(spec)?);
    plugins.extend(chain::items(spec)?);
    plugins.extend(around::tuning(spec)?);
    plugins.extend(around::coordinator(spec)?);
    let version = annotation(annotations, names::MULTUS_CNI_VERSION);
    let version = serde_json::to_string(version.unwrap_or(DEFAULT_CNI_VERSION))?;
    let name = annotation(annotations, names::CNI_CONFIG_NAME).unwrap_or(name);
    let name = serde_json::to_string(name)?;
    let plugins = plugins.join(",");
    Ok(format!(
        r#"{{"cniVersion":{version},"name":{name},"plugins":[{plugins}]}}"#
    ))
}

/// A plugin as text: its keys keep the order of the fields.
fn text(plugin: &impl Serialize) -> Result<String, RenderError> {
    Ok(serde_json::to_string(plugin)?)
}

/// An annotation that says something.
fn annotation<'a>(annotations: &'a BTreeMap<String, String>, key: &str) -> Option<&'a str> {
    let value = annotations.get(key)?;
    Some(value.as_str()).filter(|value| !value.is_empty())
}
