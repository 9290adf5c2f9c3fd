//! Pools of a cluster: how they are made, and what stands in them.
#![expect(
    clippy::indexing_slicing,
    reason = "what a JSON object lacks is null, and all of these are objects"
)]

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};
use spiderpool_api::names;

use crate::lab::api_client::{POOLS, records};

use super::{Cluster, PARENT};

/// IPv4 range all pools are parts of.
const V4: &str = "10.72.0.0/22";
/// IPv6 range all pools are parts of.
const V6: &str = "fd72::/64";
const GATEWAY_V4: &str = "10.72.0.1";
const GATEWAY_V6: &str = "fd72::1";

/// The one subnet of the cloud, as a topology has it, without the gateway's MAC.
pub(super) fn subnet() -> Value {
    json!({ "ipv4": V4, "ipv6": V6, "gatewayIpv4": GATEWAY_V4, "gatewayIpv6": GATEWAY_V6 })
}

/// A pool without provider; `ips` as in its spec, which tell the family.
#[must_use]
pub fn plain(name: &str, ips: &str) -> Value {
    let is_v6 = ips.contains(':');
    let (subnet, gateway) = if is_v6 {
        (V6, GATEWAY_V6)
    } else {
        (V4, GATEWAY_V4)
    };
    json!({ "apiVersion": format!("{}/{}", names::GROUP, names::VERSION), "kind": "SpiderIPPool",
        "metadata": { "name": name, "annotations": {} },
        "spec": { "subnet": subnet, "gateway": gateway, "ips": [ips],
            "ipVersion": if is_v6 { 6 } else { 4 } } })
}

/// A pool whose sub-ENIs the provider makes when they are asked for.
#[must_use]
pub fn global(name: &str, ips: &str) -> Value {
    annotated(plain(name, ips), names::IAAS_PROVIDER, "sim")
}

/// A pool whose sub-ENIs the provider makes ahead, on this node.
#[must_use]
pub fn prewarm(name: &str, ips: &str, node: &str) -> Value {
    let mut pool = annotated(global(name, ips), names::PARENT_NIC, PARENT);
    pool["spec"]["nodeName"] = json!([node]);
    pool
}

/// Two pools that name each other.
#[must_use]
pub fn pair(v4: Value, v6: Value) -> [Value; 2] {
    let name = |pool: &Value| pool["metadata"]["name"].as_str().map(str::to_owned);
    let (name_v4, name_v6) = (name(&v4), name(&v6));
    [
        annotated(v4, names::PAIR_POOL, name_v6.as_deref().unwrap_or_default()),
        annotated(v6, names::PAIR_POOL, name_v4.as_deref().unwrap_or_default()),
    ]
}

/// The object with one more annotation.
#[must_use]
pub fn annotated(mut object: Value, key: &str, value: &str) -> Value {
    object["metadata"]["annotations"][key] = json!(value);
    object
}

/// Where a pool is.
#[must_use]
pub fn path(name: &str) -> String {
    format!("{POOLS}/{name}")
}

impl Cluster {
    /// Creates a pool.
    ///
    /// # Errors
    /// The API server refuses.
    pub fn create_pool(&self, pool: &Value) -> Result<Value> {
        self.api.create(POOLS, pool)
    }

    /// Creates a prewarm pool and waits until all its `count` addresses are ready.
    ///
    /// # Errors
    /// They are not within 30 s.
    pub fn ready_prewarm(&self, name: &str, ips: &str, node: &str, count: usize) -> Result<()> {
        self.create_pool(&prewarm(name, ips, node))?;
        self.await_entries(name, count)
    }

    /// Creates a global pool and waits until the provider has published it.
    ///
    /// # Errors
    /// It does not within 30 s.
    pub fn ready_global(&self, name: &str, ips: &str) -> Result<()> {
        self.create_pool(&global(name, ips))?;
        self.await_entries(name, 0)
    }

    /// Waits until the provider has published this many entries for the pool as it is.
    ///
    /// # Errors
    /// It does not within 30 s.
    pub fn await_entries(&self, name: &str, count: usize) -> Result<()> {
        self.until(&format!("{count} entries of {name}"), || {
            let pool = self.api.pool(name)?;
            Ok(is_current(&pool) && entries_of(&pool).is_some_and(|all| all.len() == count))
        })
    }

    /// Waits until the entry of an address is as `fits` wants it; the entry.
    ///
    /// # Errors
    /// It is not within 30 s.
    pub fn await_entry(
        &self,
        pool: &str,
        ip: &str,
        mut fits: impl FnMut(&Value) -> bool,
    ) -> Result<Value> {
        self.until_some(&format!("the entry of {ip} in {pool}"), || {
            let entry = self.entries(pool)?.remove(ip);
            Ok(entry.filter(|entry| fits(entry)))
        })
    }

    /// Has the provider publish this text for a pool, whatever the truth is, until there are other
    /// faults.
    ///
    /// # Errors
    /// It does not within 30 s.
    pub fn lie(&self, name: &str, text: &str) -> Result<()> {
        self.faults(&json!([
            { "kind": "bad-metadata", "match": { "pool": name }, "body": text },
        ]))?;
        self.until(&format!("{text} in {name}"), || {
            Ok(self.api.pool(name)?["status"]["ipMetaData"]["metadata"] == text)
        })
    }

    /// The entries that are published for a pool, by address.
    ///
    /// # Errors
    /// There is no such pool.
    pub fn entries(&self, name: &str) -> Result<Map<String, Value>> {
        Ok(entries_of(&self.api.pool(name)?).unwrap_or_default())
    }

    /// The claims of a pool, by address; their number is the one the pool tells.
    ///
    /// # Errors
    /// There is no such pool, or it tells another number.
    pub fn claims(&self, name: &str) -> Result<Map<String, Value>> {
        let pool = self.api.pool(name)?;
        let claims = records(&pool)?;
        let claims = claims.as_object().context("claims are no map")?.clone();
        let told = pool.pointer("/status/allocatedIPCount");
        let told = told.and_then(Value::as_u64).unwrap_or_default();
        anyhow::ensure!(told == u64::try_from(claims.len())?, "{pool}");
        Ok(claims)
    }

    /// Waits until a pool has exactly so many claims.
    ///
    /// # Errors
    /// It has not within 30 s.
    pub fn await_claims(&self, name: &str, count: usize) -> Result<()> {
        self.until(&format!("{count} claims in {name}"), || {
            Ok(self.claims(name)?.len() == count)
        })
    }

    /// Changes a pool by a merge patch.
    ///
    /// # Errors
    /// The API server refuses.
    pub fn change_pool(&self, name: &str, patch: &Value) -> Result<Value> {
        self.api.merge(&path(name), patch)
    }
}

fn is_current(pool: &Value) -> bool {
    pool.pointer("/status/ipMetaData/observedGeneration") == pool.pointer("/metadata/generation")
}

fn entries_of(pool: &Value) -> Option<Map<String, Value>> {
    let text = pool.pointer("/status/ipMetaData/metadata")?.as_str()?;
    let metadata: Value = serde_json::from_str(text).ok()?;
    metadata.get("ips")?.as_object().cloned()
}
