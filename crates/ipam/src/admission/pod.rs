//! Pods at their creation (spec api 3.7): networks of a group, resources of parent NICs, and the
//! sub-ENIs of a provider of generation 1. What does not concern us is left as it is.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use spiderpool_api::multus_config::{CniType, SpiderMultusConfigSpec};
use spiderpool_api::names;

use super::FieldError;
use super::object::{annotation, annotation_field, is_label_value, name, spec, texts};
use crate::first_generation;
use crate::networks::{self, Network};

/// What the Pod webhook may put into Pods.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PodSettings {
    /// Resources of parent NICs: nodes advertise them.
    pub master_nics: bool,
    /// Sub-ENIs: nodes advertise them, and the provider is one of generation 1.
    pub sub_enis: bool,
}

/// A SpiderMultusConfig as Pods refer to it.
#[derive(Debug, Clone, PartialEq)]
pub struct NetworkView {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    attachment: String,
    groups: BTreeMap<&'static str, String>,
    spec: SpiderMultusConfigSpec,
}

/// Keys of a group, the first with a value counts.
const GROUPS: [&str; 2] = [names::RDMA_RESOURCE_INJECT, names::NETWORK_RESOURCE_INJECT];

impl NetworkView {
    /// From an object.
    ///
    /// # Errors
    /// [`FieldError`]: the spec is not one of a SpiderMultusConfig.
    pub fn read(object: &Value) -> Result<Self, FieldError> {
        let namespace = object
            .pointer("/metadata/namespace")
            .and_then(Value::as_str);
        let labels = texts(object, "labels");
        let annotations = texts(object, "annotations");
        // One that was made while no webhook ran lacks the label.
        let group = |key| {
            let value = labels.get(key).or_else(|| annotations.get(key))?;
            Some((key, value.clone()))
        };
        Ok(Self {
            namespace: namespace.unwrap_or_default().to_owned(),
            name: name(object).to_owned(),
            attachment: super::attachment_name(object).to_owned(),
            groups: GROUPS.into_iter().filter_map(group).collect(),
            spec: spec(object)?,
        })
    }

    /// By what a group is sorted: the bond, the NIC, the resource.
    fn nic(&self) -> String {
        let masters = self.spec.masters();
        let bond = match self.spec.main_plugin() {
            CniType::Macvlan => self
                .spec
                .macvlan
                .as_ref()
                .and_then(|section| section.bond.as_ref()),
            CniType::Ipvlan => self
                .spec
                .ipvlan
                .as_ref()
                .and_then(|section| section.bond.as_ref()),
            CniType::Vlan => self
                .spec
                .vlan
                .as_ref()
                .and_then(|section| section.bond.as_ref()),
            CniType::EniVlan => self
                .spec
                .enivlan
                .as_ref()
                .and_then(|section| section.bond.as_ref()),
            _ => None,
        };
        match (masters.as_slice(), bond) {
            ([_, _, ..], Some(bond)) => bond.name.clone(),
            ([first, ..], _) => (*first).to_owned(),
            ([], _) => self.spec.resource().unwrap_or_default().to_owned(),
        }
    }

    /// Whether a Pod's reference means the definition of this one.
    fn is_meant(&self, network: &Network) -> bool {
        self.namespace == network.namespace && self.attachment == network.name
    }

    fn is_sub_eni(&self) -> bool {
        let id = self.spec.vlan.as_ref().and_then(|section| section.vlan_id);
        first_generation::is_sub_eni(self.spec.main_plugin().as_str(), id.map(i64::from))
    }
}

/// A Pod and what decides about it.
#[derive(Debug, Clone, Copy)]
pub struct PodRequest<'a> {
    /// Namespace of the request; the Pod may not name it yet.
    pub namespace: &'a str,
    /// Annotations of that namespace.
    pub namespace_annotations: &'a BTreeMap<String, String>,
    /// All SpiderMultusConfigs.
    pub networks: &'a [&'a NetworkView],
    /// See [`PodSettings`].
    pub settings: PodSettings,
}

/// Networks that the Pod refers to and nobody has shown yet; none where no rule looks at them, or the
/// annotation cannot be read, which [`mutate`] says.
#[must_use]
pub fn unknown<T: AsRef<NetworkView>>(
    pod: &Value,
    namespace: &str,
    known: &[T],
    settings: PodSettings,
) -> Vec<Network> {
    if !settings.master_nics && !settings.sub_enis {
        return Vec::new();
    }
    let mut found: Vec<Network> = Vec::new();
    for key in [
        names::POD_DEFAULT_NETWORK,
        names::POD_DEFAULT_NETWORK_MISTAKEN,
        names::POD_NETWORKS,
    ] {
        let text = annotation(pod, key).unwrap_or_default();
        found.extend(networks::of_annotation(key, text, namespace).unwrap_or_default());
    }
    found.retain(|network| !known.iter().any(|view| view.as_ref().is_meant(network)));
    found
}

/// Puts into the Pod what it needs; answers what its writer should know.
///
/// # Errors
/// [`FieldError`]: a group nobody belongs to, or an annotation that cannot be read.
pub fn mutate(pod: &mut Value, request: &PodRequest<'_>) -> Result<Vec<String>, FieldError> {
    // It has the node's network.
    if pod.pointer("/spec/hostNetwork") == Some(&Value::Bool(true)) {
        return Ok(Vec::new());
    }
    let warnings = default_network(pod);
    group(pod, request)?;
    if !request.settings.master_nics && !request.settings.sub_enis {
        return Ok(warnings);
    }
    let referred = referred(pod, request)?;
    if request.settings.master_nics {
        let nics: BTreeSet<&str> = referred
            .iter()
            .flat_map(|network| network.spec.masters())
            .collect();
        for nic in nics.into_iter().filter(|nic| is_label_value(nic)) {
            let resource = format!("spidernet.io/{nic}-nic");
            ask_for(pod, &resource, 1, &["requests", "limits"]);
        }
    }
    let sub_enis = referred
        .iter()
        .filter(|network| network.is_sub_eni())
        .count();
    if request.settings.sub_enis && sub_enis > 0 {
        ask_for(
            pod,
            names::RESOURCE_SUB_ENI,
            sub_enis,
            &["requests", "limits"],
        );
    }
    Ok(warnings)
}

/// The annotation that people take for Multus' does nothing; it is copied.
fn default_network(pod: &mut Value) -> Vec<String> {
    let (mistaken, right) = (
        names::POD_DEFAULT_NETWORK_MISTAKEN,
        names::POD_DEFAULT_NETWORK,
    );
    let Some(network) = annotation(pod, mistaken).map(str::to_owned) else {
        return Vec::new();
    };
    if annotation(pod, right).is_some() {
        return Vec::new();
    }
    annotate(pod, right, &network);
    vec![format!(
        "annotation {mistaken} does nothing and was taken as {right}"
    )]
}

fn annotate(pod: &mut Value, key: &str, value: &str) {
    let Some(metadata) = object(pod, "metadata") else {
        return;
    };
    let slot = metadata.entry("annotations").or_insert(Value::Null);
    if slot.is_null() {
        *slot = json!({});
    }
    if let Some(annotations) = slot.as_object_mut() {
        annotations.insert(key.to_owned(), json!(value));
    }
}

fn object<'a>(parent: &'a mut Value, key: &str) -> Option<&'a mut Map<String, Value>> {
    let slot = parent.as_object_mut()?.entry(key).or_insert(Value::Null);
    if slot.is_null() {
        *slot = json!({});
    }
    slot.as_object_mut()
}

/// A: all networks of the group that the Pod or its namespace names, with their resources.
fn group(pod: &mut Value, request: &PodRequest<'_>) -> Result<(), FieldError> {
    let named = |key: &'static str| {
        let own = annotation(pod, key);
        let value = own.or_else(|| request.namespace_annotations.get(key).map(String::as_str))?;
        (!value.is_empty()).then(|| (key, value.to_owned()))
    };
    let Some((key, value)) = GROUPS.into_iter().find_map(named) else {
        return Ok(());
    };
    let mut members: Vec<&NetworkView> = request
        .networks
        .iter()
        .copied()
        .filter(|network| network.groups.get(key) == Some(&value))
        .collect();
    if members.is_empty() {
        let message = "no SpiderMultusConfig belongs to this group";
        return Err(FieldError::invalid(&annotation_field(key), value, message));
    }
    members.sort_by_cached_key(|network| {
        (
            network.nic(),
            network.namespace.clone(),
            network.name.clone(),
        )
    });
    let references: Vec<String> = members
        .iter()
        .map(|network| format!("{}/{}", network.namespace, network.attachment))
        .collect();
    annotate(pod, names::POD_NETWORKS, &references.join(","));
    // The master of ipoib is no resource.
    let resources: BTreeSet<&str> = members
        .iter()
        .filter_map(|network| network.spec.resource())
        .filter(|resource| resource.contains('/'))
        .collect();
    for resource in resources {
        ask_for(pod, resource, 1, &["limits"]);
    }
    Ok(())
}

/// The SpiderMultusConfigs behind the Pod's networks, once for each reference; plain definitions are
/// left out.
fn referred<'a>(pod: &Value, request: &PodRequest<'a>) -> Result<Vec<&'a NetworkView>, FieldError> {
    let mut found = Vec::new();
    for key in [names::POD_DEFAULT_NETWORK, names::POD_NETWORKS] {
        let Some(text) = annotation(pod, key) else {
            continue;
        };
        let listed = networks::of_annotation(key, text, request.namespace).map_err(|error| {
            FieldError::invalid(&annotation_field(key), text, error.to_string())
        })?;
        for network in listed {
            let same = |known: &&&NetworkView| known.is_meant(&network);
            found.extend(request.networks.iter().find(same).copied());
        }
    }
    Ok(found)
}

/// Puts a resource into the first container, unless any container names it.
fn ask_for(pod: &mut Value, resource: &str, count: usize, kinds: &[&str]) {
    let containers = |key: &str| {
        let list = pod
            .pointer(&format!("/spec/{key}"))
            .and_then(Value::as_array);
        list.into_iter().flatten()
    };
    let names_it = |container: &Value| {
        ["requests", "limits"].iter().any(|kind| {
            let resources = container.pointer(&format!("/resources/{kind}"));
            resources.is_some_and(|resources| resources.get(resource).is_some())
        })
    };
    if containers("initContainers").any(names_it) || containers("containers").any(names_it) {
        return;
    }
    let Some(first) = pod.pointer_mut("/spec/containers/0") else {
        return;
    };
    for kind in kinds {
        let Some(resources) = object(first, "resources") else {
            return;
        };
        let slot = resources.entry(*kind).or_insert(Value::Null);
        if slot.is_null() {
            *slot = json!({});
        }
        if let Some(amounts) = slot.as_object_mut() {
            amounts.insert(resource.to_owned(), json!(count.to_string()));
        }
    }
}
