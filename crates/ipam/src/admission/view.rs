//! Pools and subnets as rules look at them: read once, kept by whoever caches them.

use std::collections::BTreeMap;
use std::sync::Arc;

use ipnet::IpNet;
use serde::Deserialize;
use serde_json::Value;
use spiderpool_api::ippool::SpiderIPPoolSpec;
use spiderpool_api::names;
use spiderpool_api::subnet::SpiderSubnetSpec;

use super::FieldError;
use super::object::{is_terminating, name, spec, texts};
use crate::range_set::RangeSet;

/// A pool.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolView {
    /// Name of the object.
    pub name: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) spec: SpiderIPPoolSpec,
    /// Its subnet, if that is one.
    pub(super) net: Option<IpNet>,
    /// `ips` less `excludeIPs`; `None` when a list cannot be read.
    pub(super) usable: Option<RangeSet>,
}

impl PoolView {
    /// From an object.
    ///
    /// # Errors
    /// [`FieldError`]: the spec is not one of a pool.
    pub fn read(object: &Value) -> Result<Self, FieldError> {
        let spec: SpiderIPPoolSpec = spec(object)?;
        Ok(Self {
            name: name(object).to_owned(),
            labels: texts(object, "labels"),
            annotations: texts(object, "annotations"),
            net: spec.subnet.parse().ok(),
            usable: RangeSet::usable(spec.ips.as_deref(), spec.exclude_ips.as_deref()),
            spec,
        })
    }

    pub(super) fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.get(key).map(String::as_str)
    }

    /// Carries the provider's mark; the value is opaque.
    pub(super) fn is_marked(&self) -> bool {
        self.annotation(names::IAAS_PROVIDER).is_some()
    }

    /// Made for an application by us.
    pub(super) fn is_automatic(&self) -> bool {
        self.labels.contains_key(names::OWNER_APPLICATION_NAME)
    }

    /// Name of the pool it is paired with.
    pub(super) fn pair(&self) -> Option<&str> {
        self.annotation(names::PAIR_POOL)
            .map(str::trim)
            .filter(|name| !name.is_empty())
    }

    pub(super) fn nodes(&self) -> &[String] {
        self.spec.node_name.as_deref().unwrap_or_default()
    }

    /// Name of the subnet that owns it.
    pub(super) fn owner(&self) -> Option<&str> {
        self.labels
            .get(names::OWNER_SPIDER_SUBNET)
            .map(String::as_str)
    }
}

/// A subnet.
#[derive(Debug, Clone, PartialEq)]
pub struct SubnetView {
    /// Name of the object.
    pub name: String,
    pub(super) uid: String,
    pub(super) terminating: bool,
    pub(super) spec: SpiderSubnetSpec,
    /// Its network, if that is one.
    pub(super) net: Option<IpNet>,
    /// `ips` less `excludeIPs`; `None` when a list cannot be read.
    pub(super) usable: Option<RangeSet>,
    /// What pools hold, by their names.
    pub(super) controlled: BTreeMap<String, RangeSet>,
}

#[derive(Deserialize)]
struct ControlledPool {
    #[serde(default)]
    ips: Vec<String>,
}

impl SubnetView {
    /// From an object.
    ///
    /// # Errors
    /// [`FieldError`]: the spec is not one of a subnet.
    pub fn read(object: &Value) -> Result<Self, FieldError> {
        let spec: SpiderSubnetSpec = spec(object)?;
        let uid = object.pointer("/metadata/uid").and_then(Value::as_str);
        Ok(Self {
            name: name(object).to_owned(),
            uid: uid.unwrap_or_default().to_owned(),
            terminating: is_terminating(object),
            net: spec.subnet.parse().ok(),
            usable: RangeSet::usable(spec.ips.as_deref(), spec.exclude_ips.as_deref()),
            controlled: controlled(object),
            spec,
        })
    }
}

/// `status.controlledIPPools`; what cannot be read holds nothing.
fn controlled(object: &Value) -> BTreeMap<String, RangeSet> {
    let text = object
        .pointer("/status/controlledIPPools")
        .and_then(Value::as_str);
    let pools: BTreeMap<String, ControlledPool> = text
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default();
    pools
        .into_iter()
        .filter_map(|(name, pool)| Some((name, RangeSet::from_texts(&pool.ips).ok()?)))
        .collect()
}

/// Who owns a NetworkAttachmentDefinition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttachmentView {
    /// Name of the definition.
    pub name: String,
    /// Its controller; none: it may be adopted.
    pub owner: Option<AttachmentOwner>,
}

/// The controller of a definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttachmentOwner {
    /// Kind.
    pub kind: String,
    /// Name.
    pub name: String,
}

impl AttachmentView {
    /// From an object.
    #[must_use]
    pub fn read(object: &Value) -> Self {
        let owners = object
            .pointer("/metadata/ownerReferences")
            .and_then(Value::as_array);
        let controller = owners
            .into_iter()
            .flatten()
            .find(|owner| owner.get("controller") == Some(&Value::Bool(true)));
        let text = |owner: &Value, key: &str| {
            let text = owner.get(key).and_then(Value::as_str);
            text.unwrap_or_default().to_owned()
        };
        Self {
            name: name(object).to_owned(),
            owner: controller.map(|owner| AttachmentOwner {
                kind: text(owner, "kind"),
                name: text(owner, "name"),
            }),
        }
    }
}

/// The other objects that rules look at. The one under review may be among them.
#[derive(Debug, Clone, Default)]
pub struct World {
    /// All pools.
    pub pools: Vec<Arc<PoolView>>,
    /// All subnets.
    pub subnets: Vec<Arc<SubnetView>>,
    /// The definition that a SpiderMultusConfig would be rendered to, if it exists
    /// ([`super::attachment_name`]).
    pub attachment: Option<AttachmentView>,
}

impl World {
    pub(super) fn other_pools(&self, name: &str) -> Vec<Arc<PoolView>> {
        let others = self.pools.iter().filter(|pool| pool.name != name);
        others.cloned().collect()
    }

    pub(super) fn other_subnets(&self, name: &str) -> Vec<Arc<SubnetView>> {
        let others = self.subnets.iter().filter(|subnet| subnet.name != name);
        others.cloned().collect()
    }
}
