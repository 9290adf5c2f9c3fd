//! A pool as it was read: the JSON, so that fields we do not know survive a write, and the typed
//! view of it. Pure.

use std::sync::Arc;

use serde_json::{Map, Value};
use spiderpool_api::allocation::Records;
use spiderpool_api::ippool::SpiderIPPool;
use spiderpool_ipam::pool::{Pool, PoolError, PoolMeta};

use super::StoreError;

/// One version of a pool.
#[derive(Debug, Clone)]
pub struct PoolObject {
    raw: Value,
    typed: SpiderIPPool,
    // Decisions work on this; the reason why there is none is for whoever names the pool.
    decoded: Result<Arc<Pool>, Arc<PoolError>>,
}

impl PoolObject {
    /// Types an object as the API answers it.
    ///
    /// # Errors
    /// [`StoreError::Malformed`] names the pool when it is no pool object at all. A pool object
    /// with impossible values is kept, see [`PoolObject::pool`].
    pub fn from_raw(raw: Value) -> Result<Self, StoreError> {
        let typed: SpiderIPPool = match serde_json::from_value(raw.clone()) {
            Ok(typed) => typed,
            Err(source) => {
                let name = raw.pointer("/metadata/name").and_then(Value::as_str);
                return Err(StoreError::Malformed {
                    what: format!("SpiderIPPool {}", name.unwrap_or("(unnamed)")),
                    source: Box::new(source),
                });
            }
        };
        let status = typed.status.clone().unwrap_or_default();
        let decoded = Pool::from_parts(&meta_of(&typed), &typed.spec, &status)
            .map(Arc::new)
            .map_err(Arc::new);
        Ok(Self {
            raw,
            typed,
            decoded,
        })
    }

    /// The object as read.
    #[must_use]
    pub fn raw(&self) -> &Value {
        &self.raw
    }

    /// The typed view.
    #[must_use]
    pub fn typed(&self) -> &SpiderIPPool {
        &self.typed
    }

    /// Name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.typed.metadata.name.as_deref().unwrap_or_default()
    }

    /// Version that a conditional write names.
    #[must_use]
    pub fn resource_version(&self) -> &str {
        self.typed
            .metadata
            .resource_version
            .as_deref()
            .unwrap_or_default()
    }

    /// The pool as decisions see it.
    ///
    /// # Errors
    /// Why it cannot be used; its records must then not be written.
    pub fn pool(&self) -> Result<&Arc<Pool>, &Arc<PoolError>> {
        self.decoded.as_ref()
    }

    /// The object to PUT: as read, with these records.
    #[must_use]
    pub fn with_records(&self, records: &Records) -> Value {
        let mut object = self.raw.clone();
        let Some(top) = object.as_object_mut() else {
            return object;
        };
        let status = top
            .entry("status")
            .or_insert_with(|| Value::Object(Map::new()));
        if !status.is_object() {
            *status = Value::Object(Map::new());
        }
        if let Some(status) = status.as_object_mut() {
            match records.encode() {
                Some(text) => status.insert("allocatedIPs".into(), text.into()),
                None => status.remove("allocatedIPs"),
            };
            status.insert("allocatedIPCount".into(), records.count().into());
        }
        object
    }
}

fn meta_of(typed: &SpiderIPPool) -> PoolMeta {
    let meta = &typed.metadata;
    PoolMeta {
        name: meta.name.clone().unwrap_or_default(),
        uid: meta.uid.clone().unwrap_or_default(),
        generation: meta.generation.unwrap_or_default(),
        annotations: meta.annotations.clone().unwrap_or_default(),
        labels: meta.labels.clone().unwrap_or_default(),
        terminating: meta.deletion_timestamp.is_some(),
        created: meta
            .creation_timestamp
            .as_ref()
            .map(|time| time.0.to_string())
            .unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_write_changes_two_fields_only() {
        let raw = json!({"apiVersion": "spiderpool.spidernet.io/v2beta1", "kind": "SpiderIPPool",
            "metadata": {"name": "p", "resourceVersion": "7", "vendor.io/x": 1},
            "spec": {"subnet": "10.0.0.0/24", "novel": true},
            "status": {"allocatedIPs": "{}", "futureField": [1], "ipMetaData": {"metadata": "{", "novel": 2}}});
        let pool = PoolObject::from_raw(raw.clone()).unwrap();
        let mut records = Records::default();
        assert_eq!(
            pool.with_records(&records)["status"],
            json!({"allocatedIPCount": 0, "futureField": [1], "ipMetaData": {"metadata": "{", "novel": 2}})
        );
        let record = serde_json::from_value(json!({"pod": "a/b", "podUid": "u"})).unwrap();
        records.insert("10.0.0.9".parse().unwrap(), record);
        let mut written = pool.with_records(&records);
        assert_eq!(written["status"]["allocatedIPCount"], 1);
        assert_eq!(
            written["status"]["allocatedIPs"],
            r#"{"10.0.0.9":{"pod":"a/b","podUid":"u"}}"#
        );
        written["status"] = raw["status"].clone();
        assert_eq!(written, raw);
    }

    #[test]
    fn what_cannot_be_understood_is_named() {
        let error =
            PoolObject::from_raw(json!({"metadata": {"name": "p"}, "spec": 7})).unwrap_err();
        assert!(error.to_string().contains("SpiderIPPool p"), "{error}");
        let raw = json!({"metadata": {"name": "p"}, "spec": {"subnet": "10.0.0.0/24"},
            "status": {"allocatedIPs": "[]"}});
        let pool = PoolObject::from_raw(raw).unwrap();
        assert!(pool.pool().unwrap_err().to_string().contains("IPPool p"));
    }
}
