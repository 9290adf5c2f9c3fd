//! `subnet`, `subnets` and what goes with them: automatic pools. This release has none; it says so,
//! and of a malformed annotation it says that first.

use spiderpool_api::names;

use super::choice::{RawChoice, check_interfaces};
use super::{AnnotationError, PoolChoice, json_object, json_objects, shown};
use crate::facts::PodFacts;
use crate::range::Family;

/// Refuses an annotation of automatic pools, [`names::POD_SUBNET`] or [`names::POD_SUBNETS`]:
/// ignoring it would give the Pod other addresses than it asks for.
///
/// # Errors
/// What is malformed, else [`AnnotationError::AutoPool`], when it is present.
pub fn refuse_auto_pool(pod: &PodFacts, key: &'static str) -> Result<(), AnnotationError> {
    let Some(text) = pod.annotations.get(key) else {
        return Ok(());
    };
    if key == names::POD_SUBNETS {
        check_subnets(text)?;
    } else {
        check_subnet(text)?;
    }
    check_number(pod)?;
    check_reclaim(pod)?;
    Err(AnnotationError::AutoPool { key })
}

fn check_subnet(text: &str) -> Result<(), AnnotationError> {
    let key = names::POD_SUBNET;
    let item = format!("value {}", shown(text));
    let choice: PoolChoice = json_object::<RawChoice>(key, text)?.into();
    let one = [(item.clone(), choice)];
    check_interfaces(key, &one)?;
    let [(_, choice)] = &one;
    check_first(key, &item, choice)
}

fn check_subnets(text: &str) -> Result<(), AnnotationError> {
    let key = names::POD_SUBNETS;
    let choices: Vec<(String, PoolChoice)> = json_objects::<RawChoice>(key, text)?
        .into_iter()
        .map(|(item, raw)| (item, raw.into()))
        .collect();
    if choices.is_empty() {
        let why = "lists no NIC; list at least one";
        return Err(AnnotationError::item(
            key,
            &format!("value {}", shown(text)),
            why,
        ));
    }
    check_interfaces(key, &choices)?;
    for (index, (item, choice)) in choices.iter().enumerate() {
        check_first(key, item, choice)?;
        for family in Family::BOTH {
            let Some(subnet) = choice.of(family).first() else {
                continue;
            };
            let before = choices.iter().take(index);
            let same = |(_, other): &(String, PoolChoice)| other.of(family).first() == Some(subnet);
            if before.clone().any(same) {
                let why = format!("names {family} subnet {subnet} a second time");
                return Err(AnnotationError::item(key, item, &why));
            }
        }
    }
    Ok(())
}

/// Only the first name of a family counts.
fn check_first(key: &'static str, item: &str, choice: &PoolChoice) -> Result<(), AnnotationError> {
    if choice.ipv4.is_empty() && choice.ipv6.is_empty() {
        let why = "names neither an ipv4 nor an ipv6 subnet";
        return Err(AnnotationError::item(key, item, why));
    }
    for family in Family::BOTH {
        if choice.of(family).first().is_some_and(String::is_empty) {
            let why = format!("has an empty {family} subnet name");
            return Err(AnnotationError::item(key, item, &why));
        }
    }
    Ok(())
}

/// `3` or `+2`; what stands before the plus does not count.
fn check_number(pod: &PodFacts) -> Result<(), AnnotationError> {
    let key = names::POD_IPPOOL_IP_NUMBER;
    let Some(text) = pod.annotations.get(key) else {
        return Ok(());
    };
    let number = match text.split_once('+') {
        Some((_, rest)) => rest,
        None => text,
    };
    if number.parse::<u32>().is_ok() && !number.starts_with('+') {
        return Ok(());
    }
    let item = format!("value {}", shown(text));
    let why = "is neither a number such as 3 nor a surplus such as +2";
    Err(AnnotationError::item(key, &item, why))
}

/// Go's spellings of a truth value.
const TRUTHS: [&str; 12] = [
    "1", "t", "T", "true", "True", "TRUE", "0", "f", "F", "false", "False", "FALSE",
];

fn check_reclaim(pod: &PodFacts) -> Result<(), AnnotationError> {
    let key = names::POD_IPPOOL_RECLAIM;
    match pod.annotations.get(key) {
        Some(text) if !TRUTHS.contains(&text.as_str()) => {
            let item = format!("value {}", shown(text));
            Err(AnnotationError::item(
                key,
                &item,
                "is neither true nor false",
            ))
        }
        _ => Ok(()),
    }
}
