//! The body of an answer to allocate, right or wrong on purpose. Pure.

use serde_json::{Map, Value, json};
use spiderpool_api::provider::AllocateRequest;
use spiderpool_iaas::wire_v1::{AllocateResponseV1, AllocationResultV1};

use crate::asked::{Asked, Version};
use crate::cloud::SubEni;
use crate::faults::Kind;

/// The right answer in the words of the call.
#[must_use]
pub fn to(asked: &Asked, bound: &[SubEni]) -> Value {
    match asked.version {
        Version::V1 => json!(of_version_1(&asked.request, bound)),
        Version::V2 => of(&asked.request, bound),
    }
}

fn of_version_1(request: &AllocateRequest, bound: &[SubEni]) -> AllocateResponseV1 {
    let items = request.sub_eni_requests.iter().zip(bound);
    let items = items.map(|(item, sub_eni)| {
        let vlan = sub_eni.state.attachment().map(|at| at.vlan.get());
        AllocationResultV1 {
            parent_nic_mac: item.parent_nic_mac.to_string(),
            subnet: item.subnet.to_string(),
            ip_address: item
                .ipv4_address
                .map_or_else(String::new, |ip| ip.to_string()),
            mac_address: sub_eni.mac.to_string(),
            vlan_id: vlan.map_or(0, i64::from),
        }
    });
    AllocateResponseV1 {
        items: items.collect(),
        pod_name: request.pod_name.clone(),
        pod_namespace: request.pod_namespace.clone(),
        node_name: request.node_name.clone(),
    }
}

/// The right answer of version 2: an item for each that was requested, in order.
#[must_use]
pub fn of(request: &AllocateRequest, bound: &[SubEni]) -> Value {
    let items = request.sub_eni_requests.iter().zip(bound);
    let items: Vec<Value> = items
        .map(|(item, sub_eni)| {
            let vlan = sub_eni.state.attachment().map(|at| at.vlan);
            let mut answer = Map::new();
            answer.insert("parentNicMac".into(), json!(item.parent_nic_mac));
            answer.insert("subnet".into(), json!(item.subnet));
            answer.insert("macAddress".into(), json!(sub_eni.mac));
            answer.insert("vlanId".into(), json!(vlan));
            let addresses = [
                ("ipv4Address", json!(item.ipv4_address)),
                ("ipv6Address", json!(item.ipv6_address)),
                ("ipv4PoolName", json!(item.ipv4_pool_name)),
                ("ipv6PoolName", json!(item.ipv6_pool_name)),
            ];
            let given = addresses.into_iter().filter(|(_, value)| !value.is_null());
            answer.extend(given.map(|(key, value)| (key.to_owned(), value)));
            answer.into()
        })
        .collect();
    json!({
        "podName": request.pod_name,
        "podNamespace": request.pod_namespace,
        "nodeName": request.node_name,
        "subEniResponses": items,
    })
}

/// An answer of either version with one fault in its first item; other kinds change nothing.
#[must_use]
pub fn spoil(mut answer: Value, kind: Kind) -> Value {
    let versions = [
        ("subEniResponses", "ipv4Address"),
        ("iaasIPsAllocationResponse", "ipAddress"),
    ];
    let spoken = versions
        .into_iter()
        .find(|(list, _)| answer.get(list).is_some());
    let Some((list, address)) = spoken else {
        return answer;
    };
    let Some(items) = answer.get_mut(list).and_then(Value::as_array_mut) else {
        return answer;
    };
    match (kind, items.first().cloned()) {
        (Kind::MissingIp, Some(_)) => {
            items.remove(0);
        }
        (Kind::ExtraIp, Some(item)) => {
            items.push(with(item, &[(address, json!("203.0.113.99"))]));
        }
        (Kind::Duplicate, Some(item)) => {
            let vlan = item.get("vlanId").and_then(Value::as_i64).unwrap_or(1);
            let other = if vlan == 4094 { 4093 } else { vlan + 1 };
            items.push(with(item, &[("vlanId", json!(other))]));
        }
        (Kind::WrongV6, Some(_)) => change(items, &[("ipv6Address", json!("2001:db8::99"))]),
        (Kind::WrongPool, Some(_)) => change(items, &[("ipv4PoolName", json!("another-pool"))]),
        (Kind::VlanZero, Some(_)) => {
            change(items, &[("vlanId", json!(0)), ("macAddress", json!(""))]);
        }
        (Kind::VlanRange, Some(_)) => change(items, &[("vlanId", json!(70_000))]),
        _ => {}
    }
    answer
}

fn change(items: &mut [Value], changes: &[(&str, Value)]) {
    if let Some(first) = items.first_mut() {
        *first = with(first.take(), changes);
    }
}

fn with(mut item: Value, changes: &[(&str, Value)]) -> Value {
    if let Some(fields) = item.as_object_mut() {
        for (key, value) in changes {
            fields.insert((*key).to_owned(), value.clone());
        }
    }
    item
}
