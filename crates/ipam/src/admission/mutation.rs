//! What is filled in before an object is judged. What cannot be read is left for the judge.

use ipnet::IpNet;
use serde_json::{Map, Value, json};
use spiderpool_api::names;

use super::Kind;
use super::object::{annotation, finalizers, is_label_value, is_terminating};
use crate::range::{Family, IpRange, merge};

/// Fills in an object that is created or updated: finalizer, ipVersion, labels, merged ranges. A
/// terminating object is left alone.
pub fn mutate(kind: Kind, object: &mut Value) {
    if is_terminating(object) {
        return;
    }
    match kind {
        Kind::IpPool => pool(object),
        Kind::ReservedIp => reserved(object),
    }
}

fn pool(object: &mut Value) {
    if !finalizers(object).contains(&names::FINALIZER)
        && let Some(metadata) = child(object, "metadata")
        && let Some(list) = metadata
            .entry("finalizers")
            .or_insert_with(|| json!([]))
            .as_array_mut()
    {
        list.push(json!(names::FINALIZER));
    }
    let subnet = object
        .pointer("/spec/subnet")
        .and_then(Value::as_str)
        .map(str::to_owned);
    if let Some(text) = subnet
        && let Ok(net) = text.parse::<IpNet>()
    {
        set_version(object, Family::of_net(net));
        let label = cidr_label(&text);
        if is_label_value(&label) {
            set_label(object, names::IPPOOL_CIDR, Some(&label));
        }
    }
    let vendor = annotation(object, names::IAAS_PROVIDER).map(str::to_owned);
    set_label(
        object,
        names::IAAS_PROVIDER,
        vendor.as_deref().filter(|text| is_label_value(text)),
    );
    merge_list(object, "ips");
    merge_list(object, "excludeIPs");
}

fn reserved(object: &mut Value) {
    let first = object.pointer("/spec/ips/0").and_then(Value::as_str);
    let Some(first) = first.and_then(|text| text.parse::<IpRange>().ok()) else {
        return;
    };
    set_version(object, first.family());
    merge_list(object, "ips");
}

/// The object under `key`, made if absent or null.
fn child<'a>(object: &'a mut Value, key: &str) -> Option<&'a mut Map<String, Value>> {
    let slot = object.as_object_mut()?.entry(key).or_insert(Value::Null);
    if slot.is_null() {
        *slot = Value::Object(Map::new());
    }
    slot.as_object_mut()
}

fn set_version(object: &mut Value, family: Family) {
    if let Some(spec) = child(object, "spec") {
        let slot = spec.entry("ipVersion").or_insert(Value::Null);
        if slot.is_null() {
            *slot = json!(family.version());
        }
    }
}

fn set_label(object: &mut Value, key: &str, value: Option<&str>) {
    let Some(metadata) = child(object, "metadata") else {
        return;
    };
    match value {
        Some(value) => {
            let labels = metadata.entry("labels").or_insert(Value::Null);
            if labels.is_null() {
                *labels = Value::Object(Map::new());
            }
            if let Some(labels) = labels.as_object_mut() {
                labels.insert(key.to_owned(), json!(value));
            }
        }
        None => {
            if let Some(labels) = metadata.get_mut("labels").and_then(Value::as_object_mut) {
                labels.remove(key);
            }
        }
    }
}

fn merge_list(object: &mut Value, key: &str) {
    let Some(list) = object
        .pointer_mut("/spec")
        .and_then(|spec| spec.get_mut(key))
    else {
        return;
    };
    let texts: Option<Vec<&str>> = list
        .as_array()
        .and_then(|items| items.iter().map(Value::as_str).collect());
    if let Some(merged) = texts.and_then(|texts| merge(&texts).ok()) {
        *list = json!(merged);
    }
}

/// A CIDR as a label value: the first 3 `.`, 7 `:` and 1 `/` become `-` (spec api 2.2).
fn cidr_label(cidr: &str) -> String {
    let mut left = [('.', 3_u8), (':', 7), ('/', 1)];
    cidr.chars()
        .map(|found| {
            match left
                .iter_mut()
                .find(|(mark, count)| *mark == found && *count > 0)
            {
                Some((_, count)) => {
                    *count -= 1;
                    '-'
                }
                None => found,
            }
        })
        .collect()
}
