//! How a cluster's processes are set, beyond what all tests share. Pure.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// What a test may have changed.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Settings {
    /// Of the provider.
    pub(super) provider: Value,
    /// Of the agents that do not have the usual ones.
    pub(super) agents: BTreeMap<String, AgentSettings>,
}

/// How an agent is started.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AgentSettings {
    /// Keys of `conf.yml` that replace the usual ones, merged.
    pub conf: Value,
    /// Command line words.
    pub options: Vec<String>,
    /// Environment.
    pub env: Vec<(String, String)>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            provider: quick(),
            agents: BTreeMap::new(),
        }
    }
}

/// A provider whose cloud takes 2 ms for an operation, which publishes 20 ms after a change, and
/// leaves idle cache alone; its limits of time are those of a real one.
#[must_use]
pub fn quick() -> Value {
    json!({
        "rate": { "qps": 1000, "burst": 1000 },
        "flushMs": 20,
        "latency": { "createMs": 2, "attachMs": 2, "detachMs": 2, "deleteMs": 2 },
        "reclaim": { "mode": "off" },
    })
}

/// [`quick`] with some keys replaced, merged.
#[must_use]
pub fn quick_but(keys: &Value) -> Value {
    let mut settings = quick();
    merge(&mut settings, keys);
    settings
}

/// RFC 7396, without removal by null.
pub(super) fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (_, Value::Null) => {}
        (into, from) => *into = from.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_replace_their_like_and_leave_the_rest() {
        let settings = quick_but(&json!({"rate": {"qps": 2}, "flushMs": 9}));
        assert_eq!(settings["rate"], json!({"qps": 2, "burst": 1000}));
        assert_eq!(settings["flushMs"], 9);
        assert_eq!(quick_but(&Value::Null), quick());
    }
}
