//! A pool as the provider sees it, read from a pool object or from the topology. Pure.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::Value;
use spiderpool_api::allocation::Records;
use spiderpool_api::names;
use spiderpool_api::value::Mac;

use crate::finalizers::FINALIZER;
use crate::ranges::Ranges;
use crate::topology::PoolSpec;

/// A pool that is the provider's business.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    /// Its name.
    pub name: String,
    /// Its subnet.
    pub subnet: IpNet,
    /// Its addresses.
    pub addresses: Ranges,
    /// The node of a prewarm pool; `None`: global.
    pub node: Option<String>,
    /// The pool of the other family.
    pub pair: Option<String>,
    /// `status.parentNic.mac`.
    pub parent: Option<Mac>,
    /// `metadata.generation`.
    pub generation: i64,
    /// Owners by address.
    pub claims: BTreeMap<IpAddr, String>,
    /// What is published.
    pub published: Option<Published>,
    /// It is to go: nothing is made for it any more, and what was made is removed.
    pub deleting: bool,
    /// Whether it has the provider's finalizer.
    pub held: bool,
}

/// The parts of `status.ipMetaData` that are compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Published {
    /// `observedGeneration`.
    pub generation: i64,
    /// `metadata`, as text.
    pub metadata: String,
}

impl Pool {
    /// Of a pool object; `None` when it is not marked for a provider or can't be read.
    #[must_use]
    pub fn of_object(object: &DynamicObject) -> Option<Self> {
        let annotation = |key| object.annotations().get(key).cloned();
        annotation(names::IAAS_PROVIDER)?;
        let at = |pointer| object.data.pointer(pointer);
        let text = |pointer| at(pointer).and_then(Value::as_str);
        let list = |pointer| {
            let items = at(pointer).and_then(Value::as_array).into_iter().flatten();
            items.filter_map(Value::as_str)
        };
        let claims = Records::decode(text("/status/allocatedIPs")).unwrap_or_default();
        let claims = claims
            .iter()
            .map(|(ip, record)| (ip, record.pod_uid.clone()));
        let generation = at("/status/ipMetaData/observedGeneration").and_then(Value::as_i64);
        Some(Self {
            name: object.name_any(),
            subnet: text("/spec/subnet")?.parse().ok()?,
            addresses: Ranges::new(list("/spec/ips"), list("/spec/excludeIPs")),
            node: list("/spec/nodeName").next().map(str::to_owned),
            pair: annotation(names::PAIR_POOL),
            parent: text("/status/parentNic/mac").and_then(|mac| mac.parse().ok()),
            generation: object.metadata.generation?,
            claims: claims.collect(),
            deleting: object.metadata.deletion_timestamp.is_some(),
            held: is_held(object),
            published: generation.zip(text("/status/ipMetaData/metadata")).map(
                |(generation, metadata)| Published {
                    generation,
                    metadata: metadata.to_owned(),
                },
            ),
        })
    }

    /// Of a topology.
    #[must_use]
    pub fn of_spec(spec: &PoolSpec) -> Self {
        Self {
            name: spec.name.clone(),
            subnet: spec.subnet,
            addresses: Ranges::new(spec.ips.iter().map(String::as_str), []),
            node: spec.node.clone(),
            pair: spec.pair.clone(),
            parent: None,
            generation: 1,
            claims: BTreeMap::new(),
            published: None,
            deleting: false,
            held: false,
        }
    }

    /// Whether its sub-ENIs are made on demand and may be anywhere: the only ones with idle cache.
    #[must_use]
    pub const fn is_global(&self) -> bool {
        self.node.is_none() && !self.is_sibling()
    }

    /// Whether its sub-ENIs are published elsewhere: the IPv6 pool of a pair (P15).
    #[must_use]
    pub const fn is_sibling(&self) -> bool {
        self.pair.is_some() && matches!(self.subnet, IpNet::V6(_))
    }
}

/// Whether an object has the provider's finalizer.
#[must_use]
pub fn is_held(object: &DynamicObject) -> bool {
    object.finalizers().iter().any(|name| name == FINALIZER)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_marked_pool_is_read_and_others_are_not() {
        let mut object: DynamicObject = serde_json::from_value(json!({
            "metadata": { "name": "g", "generation": 3,
                "annotations": { "ipam.spidernet.io/iaas-provider": "sim", "ipam.spidernet.io/pair-pool": "g6" } },
            "spec": { "subnet": "10.72.0.0/24", "ips": ["10.72.0.10-10.72.0.12"],
                "excludeIPs": ["10.72.0.11"], "nodeName": ["n1"] },
            "status": { "parentNic": { "name": "eth1", "mac": "fa:16:3e:01:00:01" },
                "allocatedIPs": r#"{"10.72.0.10":{"pod":"a/b","podUid":"u-1"}}"#,
                "ipMetaData": { "observedGeneration": 2, "metadata": "{}" } },
        }))
        .unwrap();
        let pool = Pool::of_object(&object).unwrap();
        assert_eq!(
            (pool.name.as_str(), pool.generation, pool.addresses.count()),
            ("g", 3, 2)
        );
        assert_eq!(
            (pool.node.as_deref(), pool.pair.as_deref()),
            (Some("n1"), Some("g6"))
        );
        assert_eq!(pool.parent, Some("fa:16:3e:01:00:01".parse().unwrap()));
        assert_eq!(
            pool.claims
                .get(&"10.72.0.10".parse().unwrap())
                .map(String::as_str),
            Some("u-1")
        );
        assert_eq!(
            pool.published
                .as_ref()
                .map(|published| published.generation),
            Some(2)
        );
        assert!(!pool.is_sibling());
        object.metadata.annotations = None;
        assert_eq!(Pool::of_object(&object), None);
    }
}
