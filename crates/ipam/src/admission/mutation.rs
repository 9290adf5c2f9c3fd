//! What is filled in before an object is judged. What cannot be read is left for the judge.

use ipnet::IpNet;
use serde_json::{Map, Value, json};
use spiderpool_api::names;

use super::object::{annotation, finalizers, is_label_value, is_terminating, label};
use super::view::World;
use super::{Kind, Settings, coordinator, miscased, multus_config};
use crate::range::{Family, IpRange, merge};

/// Fills in an object that is created or updated, and answers what its writer should know. Of a
/// terminating one only a coordinator's defaults are filled in: a finalizer that is put back would
/// keep it for ever.
pub fn mutate(
    kind: Kind,
    object: &mut Value,
    old: Option<&Value>,
    world: &World,
    settings: &Settings,
) -> Vec<String> {
    let mut warnings = miscased::move_all(kind, object, old);
    if kind == Kind::Coordinator
        && let Some(spec) = child(object, "spec")
    {
        coordinator::defaults(spec);
    }
    if is_terminating(object) {
        return warnings;
    }
    match kind {
        Kind::IpPool => pool(object, world, settings),
        Kind::Subnet => network(object, names::SUBNET_CIDR),
        Kind::ReservedIp => reserved(object),
        Kind::Coordinator => coordinator(object),
        Kind::MultusConfig => multus_config::fill_in(object, old, &mut warnings),
    }
    warnings
}

/// What pools and subnets have in common.
fn network(object: &mut Value, cidr_key: &str) {
    add_finalizer(object);
    let subnet = object.pointer("/spec/subnet").and_then(Value::as_str);
    if let Some(text) = subnet.map(str::to_owned)
        && let Ok(net) = text.parse::<IpNet>()
    {
        set_version(object, Family::of_net(net));
        let label = cidr_label(&text);
        if is_label_value(&label) {
            set_label(object, cidr_key, Some(&label));
        }
    }
    merge_list(object, "ips");
    merge_list(object, "excludeIPs");
}

fn pool(object: &mut Value, world: &World, settings: &Settings) {
    network(object, names::IPPOOL_CIDR);
    let vendor = annotation(object, names::IAAS_PROVIDER).map(str::to_owned);
    set_label(
        object,
        names::IAAS_PROVIDER,
        vendor.as_deref().filter(|text| is_label_value(text)),
    );
    if settings.spider_subnet {
        join_subnet(object, world);
    }
}

/// A pool belongs to the subnet of its network, and inherits what it does not say itself.
fn join_subnet(object: &mut Value, world: &World) {
    if label(object, names::OWNER_SPIDER_SUBNET).is_some() {
        return;
    }
    let text = object.pointer("/spec/subnet").and_then(Value::as_str);
    let Some(net) = text.and_then(|text| text.parse::<IpNet>().ok()) else {
        return;
    };
    let mut subnets = world.subnets.iter();
    let Some(subnet) = subnets.find(|known| known.net == Some(net) && !known.terminating) else {
        return;
    };
    if !is_label_value(&subnet.name) {
        return;
    }
    set_label(object, names::OWNER_SPIDER_SUBNET, Some(&subnet.name));
    let owner = json!({"apiVersion": format!("{}/{}", names::GROUP, names::VERSION),
        "kind": "SpiderSubnet", "name": subnet.name, "uid": subnet.uid, "controller": true,
        "blockOwnerDeletion": true});
    if let Some(owners) = list(object, "ownerReferences") {
        let controlled = |owner: &Value| owner.get("controller") == Some(&Value::Bool(true));
        if !owners.iter().any(controlled) {
            owners.push(owner);
        }
    }
    let Some(spec) = child(object, "spec") else {
        return;
    };
    if let Some(gateway) = &subnet.spec.gateway {
        fill(spec, "gateway", json!(gateway));
    }
    if let Some(routes) = &subnet.spec.routes {
        fill(spec, "routes", json!(routes));
    }
}

fn coordinator(object: &mut Value) {
    let Some(spec) = child(object, "spec") else {
        return;
    };
    if spec.get("podCIDRType").is_none_or(Value::is_null) {
        return;
    }
    coordinator::networks(spec);
    add_finalizer(object);
}

fn reserved(object: &mut Value) {
    let first = object.pointer("/spec/ips/0").and_then(Value::as_str);
    let Some(first) = first.and_then(|text| text.parse::<IpRange>().ok()) else {
        return;
    };
    set_version(object, first.family());
    merge_list(object, "ips");
}

fn add_finalizer(object: &mut Value) {
    if !finalizers(object).contains(&names::FINALIZER)
        && let Some(list) = list(object, "finalizers")
    {
        list.push(json!(names::FINALIZER));
    }
}

/// A list of the metadata, made if absent or null.
fn list<'a>(object: &'a mut Value, key: &str) -> Option<&'a mut Vec<Value>> {
    let slot = child(object, "metadata")?.entry(key).or_insert(Value::Null);
    if slot.is_null() {
        *slot = json!([]);
    }
    slot.as_array_mut()
}

/// The object under `key`, made if absent or null.
fn child<'a>(object: &'a mut Value, key: &str) -> Option<&'a mut Map<String, Value>> {
    let slot = object.as_object_mut()?.entry(key).or_insert(Value::Null);
    if slot.is_null() {
        *slot = Value::Object(Map::new());
    }
    slot.as_object_mut()
}

/// A field that is absent or null.
pub(super) fn fill(map: &mut Map<String, Value>, key: &str, value: Value) {
    let slot = map.entry(key).or_insert(Value::Null);
    if slot.is_null() {
        *slot = value;
    }
}

fn set_version(object: &mut Value, family: Family) {
    if let Some(spec) = child(object, "spec") {
        fill(spec, "ipVersion", json!(family.version()));
    }
}

/// Sets or removes a label.
pub(super) fn set_label(object: &mut Value, key: &str, value: Option<&str>) {
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
