//! What one line says of a pool. Pure.

use std::fmt;

use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use serde::Serialize;
use spiderpool_api::ippool::SpiderIPPool;
use spiderpool_api::names;

/// Who makes the pool's addresses usable (spec iaas, terms).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Mode {
    /// No provider.
    Plain,
    /// Sub-ENIs ready on one node.
    Prewarm(String),
    /// Sub-ENIs that move.
    Global,
    /// Marked, but for several nodes: neither of the two.
    Invalid,
}

impl Mode {
    fn of(pool: &SpiderIPPool) -> Self {
        let nodes = pool.spec.node_name.as_deref().unwrap_or_default();
        match (pool.annotations().contains_key(names::IAAS_PROVIDER), nodes) {
            (false, _) => Self::Plain,
            (true, []) => Self::Global,
            (true, [node]) => Self::Prewarm(node.clone()),
            (true, _) => Self::Invalid,
        }
    }

    const fn word(&self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Prewarm(_) => "prewarm",
            Self::Global => "global",
            Self::Invalid => "invalid",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Prewarm(node) => write!(f, "prewarm({node})"),
            mode => f.write_str(mode.word()),
        }
    }
}

/// One pool. The JSON keys are fixed: scripts rely on them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) ip_version: Option<i64>,
    pub(crate) subnet: String,
    #[serde(rename = "allocatedIPCount")]
    pub(crate) allocated: i64,
    #[serde(rename = "totalIPCount")]
    pub(crate) total: Option<i64>,
    #[serde(serialize_with = "mode_word")]
    pub(crate) mode: Mode,
    pub(crate) node: Option<String>,
    #[serde(rename = "readyIPCount")]
    pub(crate) ready: Option<i64>,
    #[serde(rename = "unreadyIPCount")]
    pub(crate) unready: Option<i64>,
    pub(crate) parent_nic: Option<String>,
    #[serde(rename = "parentNicMAC")]
    pub(crate) parent_mac: Option<String>,
    pub(crate) pair_pool: Option<String>,
    pub(crate) gateway: Option<String>,
    pub(crate) default: bool,
    pub(crate) disabled: bool,
    #[serde(rename = "createdAt")]
    pub(crate) created: Option<Timestamp>,
}

fn mode_word<S: serde::Serializer>(mode: &Mode, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(mode.word())
}

/// One row a pool, by name.
pub(crate) fn rows(pools: &[SpiderIPPool]) -> Vec<Row> {
    let mut rows: Vec<_> = pools.iter().map(row).collect();
    rows.sort_by(|a, b| a.name.cmp(&b.name));
    rows
}

fn row(pool: &SpiderIPPool) -> Row {
    let status = pool.status.as_ref();
    let metadata = status.and_then(|status| status.ip_meta_data.as_ref());
    let nic = status.and_then(|status| status.parent_nic.as_ref());
    let annotation = |name| {
        let value = pool.annotations().get(name);
        value.filter(|value| !value.is_empty()).cloned()
    };
    let mode = Mode::of(pool);
    Row {
        name: pool.name_any(),
        ip_version: pool
            .spec
            .ip_version
            .or_else(|| version_of(&pool.spec.subnet)),
        subnet: pool.spec.subnet.clone(),
        allocated: status
            .and_then(|status| status.allocated_ip_count)
            .unwrap_or(0),
        total: status.and_then(|status| status.total_ip_count),
        node: match &mode {
            Mode::Prewarm(node) => Some(node.clone()),
            _ => None,
        },
        mode,
        ready: metadata.and_then(|metadata| metadata.ready_ip_count),
        unready: metadata.and_then(|metadata| metadata.unready_ip_count),
        // the agent's word on what is there before the user's on what should be
        parent_nic: nic
            .map(|nic| nic.name.clone())
            .or_else(|| annotation(names::PARENT_NIC)),
        parent_mac: nic.map(|nic| nic.mac.clone()),
        pair_pool: annotation(names::PAIR_POOL),
        gateway: pool.spec.gateway.clone(),
        default: pool.spec.default.unwrap_or(false),
        disabled: pool.spec.disable.unwrap_or(false),
        created: pool.creation_timestamp().map(|time| time.0),
    }
}

/// Of a pool whose `ipVersion` admission has not filled in.
fn version_of(subnet: &str) -> Option<i64> {
    let (address, _) = subnet.split_once('/')?;
    match address.parse().ok()? {
        std::net::IpAddr::V4(_) => Some(4),
        std::net::IpAddr::V6(_) => Some(6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pool(text: Value) -> SpiderIPPool {
        let mut object = json!({"apiVersion": "spiderpool.spidernet.io/v2beta1",
            "kind": "SpiderIPPool", "metadata": {"name": "p"}, "spec": {"subnet": "10.0.0.0/24"}});
        for (key, value) in text.as_object().unwrap() {
            object[key] = value.clone();
        }
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn modes_follow_mark_and_nodes() {
        let marked = json!({"name": "p", "annotations": {names::IAAS_PROVIDER: "true"}});
        let plain = json!({"name": "p"});
        for (metadata, nodes, want) in [
            (&plain, json!(null), "plain"),
            (&plain, json!(["w1"]), "plain"),
            (&marked, json!(null), "global"),
            (&marked, json!([]), "global"),
            (&marked, json!(["w1"]), "prewarm(w1)"),
            (&marked, json!(["w1", "w2"]), "invalid"),
        ] {
            let spec = json!({"subnet": "10.0.0.0/24", "nodeName": nodes});
            let pool = pool(json!({"metadata": metadata, "spec": spec}));
            assert_eq!(Mode::of(&pool).to_string(), want);
        }
    }

    #[test]
    fn a_full_pool_fills_every_key() {
        let pool = pool(json!({
            "metadata": {"name": "vpc", "creationTimestamp": "2026-01-02T03:04:05Z", "annotations": {
                names::IAAS_PROVIDER: "x", names::PARENT_NIC: "eth9", names::PAIR_POOL: "vpc6"}},
            "spec": {"subnet": "172.91.0.0/16", "ipVersion": 4, "nodeName": ["w1"],
                "gateway": "172.91.0.1", "default": true},
            "status": {"allocatedIPCount": 3, "totalIPCount": 100,
                "parentNic": {"name": "eth1", "mac": "fa:16:3e:00:00:01"},
                "ipMetaData": {"readyIPCount": 90, "unreadyIPCount": 10}}}));
        assert_eq!(
            serde_json::to_value(rows(&[pool])).unwrap(),
            json!([{"name": "vpc", "ipVersion": 4, "subnet": "172.91.0.0/16",
                "allocatedIPCount": 3, "totalIPCount": 100, "mode": "prewarm", "node": "w1",
                "readyIPCount": 90, "unreadyIPCount": 10, "parentNic": "eth1",
                "parentNicMAC": "fa:16:3e:00:00:01", "pairPool": "vpc6",
                "gateway": "172.91.0.1", "default": true, "disabled": false,
                "createdAt": "2026-01-02T03:04:05Z"}])
        );
    }

    #[test]
    fn a_bare_pool_has_the_same_keys() {
        let bare = pool(json!({"spec": {"subnet": "fd00::/64"}}));
        let row = serde_json::to_value(rows(&[bare])).unwrap()[0].clone();
        assert_eq!(row.as_object().unwrap().len(), 16);
        assert_eq!(row["ipVersion"], 6);
        assert_eq!(row["allocatedIPCount"], 0);
        assert_eq!(row["totalIPCount"], Value::Null);
        assert_eq!(row["mode"], "plain");
    }
}
