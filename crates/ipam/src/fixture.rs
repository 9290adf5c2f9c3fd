//! Objects for tests: pools from JSON as users write them, claimants, a snapshot.

use std::sync::Arc;

use serde_json::{Value, json};
use spiderpool_api::allocation::Records;

use crate::facts::{NodeFacts, PodFacts, Snapshot, Texts};
use crate::pick::Claimant;
use crate::pool::{Pool, PoolError, PoolMeta};

/// A pool object of generation 3.
pub(crate) fn object(name: &str, subnet: &str, ips: &[&str]) -> Value {
    json!({
        "metadata": {"name": name, "uid": format!("uid-{name}"), "generation": 3},
        "spec": {"subnet": subnet, "ips": ips},
    })
}

/// A provider's pool on one node, or global without; `entries` is the JSON of `ips`.
pub(crate) fn iaas(name: &str, ips: &[&str], node: Option<&str>, entries: &Value) -> Value {
    let mut pool = object(name, "10.0.0.0/24", ips);
    pool["metadata"]["annotations"] = json!({"ipam.spidernet.io/iaas-provider": "cloud"});
    if let Some(node) = node {
        pool["spec"]["nodeName"] = json!([node]);
    }
    publish(
        &mut pool,
        &json!({"scope": node.unwrap_or(""), "ips": entries}).to_string(),
    );
    pool
}

pub(crate) fn publish(pool: &mut Value, metadata: &str) {
    pool["status"]["ipMetaData"] = json!({"observedGeneration": 3, "metadata": metadata});
}

/// An attached entry.
pub(crate) fn entry(vlan: i64) -> Value {
    json!({"mac": format!("fa:16:3e:00:{:02x}:{:02x}", vlan / 256, vlan % 256), "vlan": vlan})
}

pub(crate) fn with(mut object: Value, pointer: &str, value: Value) -> Value {
    let mut at = &mut object;
    for part in pointer.split('|') {
        at = &mut at[part];
    }
    *at = value;
    object
}

pub(crate) fn try_pool(object: &Value) -> Result<Pool, PoolError> {
    let text = |key: &str| {
        object["metadata"][key]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    let texts = |key: &str| -> Texts {
        serde_json::from_value(object["metadata"][key].clone()).unwrap_or_default()
    };
    let meta = PoolMeta {
        name: text("name"),
        uid: text("uid"),
        generation: object["metadata"]["generation"].as_i64().unwrap_or(1),
        annotations: texts("annotations"),
        labels: texts("labels"),
        terminating: object["metadata"]["deletionTimestamp"].is_string(),
        created: text("creationTimestamp"),
    };
    let spec = serde_json::from_value(object["spec"].clone()).unwrap();
    let status = match &object["status"] {
        Value::Null => json!({}),
        status => status.clone(),
    };
    Pool::from_parts(&meta, &spec, &serde_json::from_value(status).unwrap())
}

pub(crate) fn pool(object: &Value) -> Pool {
    try_pool(object).unwrap()
}

pub(crate) fn with_records(pool: &Pool, records: &Value) -> Pool {
    pool.with_records(Records::decode(Some(&records.to_string())).unwrap())
}

/// A Pod on `node`; its UID is `u-<name>`.
pub(crate) fn who(name: &str, nic: &str, node: &str) -> Claimant {
    Claimant {
        pod: format!("ns/{name}"),
        uid: format!("u-{name}"),
        nic: nic.to_owned(),
        node: node.to_owned(),
        elsewhere: Vec::new(),
        sub_eni: false,
    }
}

/// Pod `shop/web-0` (UID u-1, label app=web) on node n1, both families on.
pub(crate) fn snapshot(pools: &[Value]) -> Snapshot {
    Snapshot {
        pod: PodFacts {
            namespace: "shop".into(),
            name: "web-0".into(),
            uid: "u-1".into(),
            labels: [("app".to_owned(), "web".to_owned())].into(),
            node: "n1".into(),
            phase: "Pending".into(),
            ..PodFacts::default()
        },
        node: NodeFacts {
            name: "n1".into(),
            labels: [("zone".to_owned(), "a".to_owned())].into(),
        },
        pools: pools.iter().map(|object| Arc::new(pool(object))).collect(),
        enable_ipv4: true,
        enable_ipv6: true,
        ..Snapshot::default()
    }
}
