//! `ippool` and `ippools`: which pools a NIC may draw from.

use serde::Deserialize;
use spiderpool_api::names;
use spiderpool_api::value::IfName;

use super::{AnnotationError, json_object, json_objects, shown};
use crate::range::Family;

/// Names and patterns of pools for one NIC.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PoolChoice {
    /// The NIC; `None` in nameless items.
    pub interface: Option<String>,
    /// IPv4 pools.
    pub ipv4: Vec<String>,
    /// IPv6 pools.
    pub ipv6: Vec<String>,
    /// The NIC gets no default route.
    pub clean_gateway: bool,
}

impl PoolChoice {
    /// The list of one family.
    #[must_use]
    pub fn of(&self, family: Family) -> &[String] {
        match family {
            Family::V4 => &self.ipv4,
            Family::V6 => &self.ipv6,
        }
    }
}

#[derive(Deserialize)]
pub(super) struct RawChoice {
    #[serde(default)]
    interface: Option<String>,
    #[serde(default)]
    ipv4: Option<Vec<String>>,
    #[serde(default)]
    ipv6: Option<Vec<String>>,
    #[serde(default)]
    cleangateway: Option<bool>,
}

impl From<RawChoice> for PoolChoice {
    fn from(raw: RawChoice) -> Self {
        Self {
            interface: raw.interface.filter(|name| !name.is_empty()),
            ipv4: raw.ipv4.unwrap_or_default(),
            ipv6: raw.ipv6.unwrap_or_default(),
            clean_gateway: raw.cleangateway.unwrap_or(false),
        }
    }
}

/// `ipam.spidernet.io/ippool`: pools of the NIC being added, whichever it is.
///
/// # Errors
/// [`AnnotationError`] when it is malformed.
pub fn parse_ippool(text: &str) -> Result<PoolChoice, AnnotationError> {
    let key = names::POD_IPPOOL;
    let mut choice: PoolChoice = json_object::<RawChoice>(key, text)?.into();
    choice.interface = None;
    // The CNI configuration alone decides about the default route at this level.
    choice.clean_gateway = false;
    check_choice(key, &format!("value {}", shown(text)), &choice)?;
    Ok(choice)
}

/// `ipam.spidernet.io/ippools`: pools of all NICs. At least one item; all named or none; no NIC
/// twice. Whether the NIC being added is listed is for the caller to ask.
///
/// # Errors
/// [`AnnotationError`] when it is malformed.
pub fn parse_ippools(text: &str) -> Result<Vec<PoolChoice>, AnnotationError> {
    let key = names::POD_IPPOOLS;
    let whole = format!("value {}", shown(text));
    let choices: Vec<(String, PoolChoice)> = json_objects::<RawChoice>(key, text)?
        .into_iter()
        .map(|(item, raw)| (item, raw.into()))
        .collect();
    if choices.is_empty() {
        let why = "lists no NIC; list at least one";
        return Err(AnnotationError::item(key, &whole, why));
    }
    let is_named = |(_, choice): &&(String, PoolChoice)| choice.interface.is_some();
    let named = choices.iter().filter(is_named).count();
    if named != 0 && named != choices.len() {
        let why = "gives interface names to some items only: name all or none";
        return Err(AnnotationError::item(key, &whole, why));
    }
    check_interfaces(key, &choices)?;
    for (item, choice) in &choices {
        check_choice(key, item, choice)?;
    }
    Ok(choices.into_iter().map(|(_, choice)| choice).collect())
}

/// Every name is one the kernel takes, none comes twice.
pub(super) fn check_interfaces(
    key: &'static str,
    choices: &[(String, PoolChoice)],
) -> Result<(), AnnotationError> {
    for (index, (item, choice)) in choices.iter().enumerate() {
        let Some(name) = &choice.interface else {
            continue;
        };
        if let Err(error) = name.parse::<IfName>() {
            let why = format!("has an unusable interface: {error}");
            return Err(AnnotationError::item(key, item, &why));
        }
        let same = |(_, other): &(String, PoolChoice)| other.interface == choice.interface;
        if choices.iter().take(index).any(same) {
            let why = format!("lists interface {name} a second time");
            return Err(AnnotationError::item(key, item, &why));
        }
    }
    Ok(())
}

fn check_choice(key: &'static str, item: &str, choice: &PoolChoice) -> Result<(), AnnotationError> {
    if choice.ipv4.is_empty() && choice.ipv6.is_empty() {
        let why = "names neither ipv4 nor ipv6 pools";
        return Err(AnnotationError::item(key, item, why));
    }
    for family in Family::BOTH {
        check_names(key, item, choice.of(family))?;
    }
    Ok(())
}

/// No empty name, none twice.
pub(super) fn check_names(
    key: &'static str,
    item: &str,
    list: &[String],
) -> Result<(), AnnotationError> {
    for (index, name) in list.iter().enumerate() {
        if name.is_empty() {
            return Err(AnnotationError::item(key, item, "has an empty pool name"));
        }
        if list.iter().take(index).any(|other| other == name) {
            let why = format!("names IPPool {name} twice");
            return Err(AnnotationError::item(key, item, &why));
        }
    }
    Ok(())
}
