//! A pool as it was read: the JSON, so that fields we do not know survive a write, and the typed
//! view of it. Pure.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::{Map, Value};
use spiderpool_api::allocation::Records;
use spiderpool_api::ip_meta::Metadata;
use spiderpool_api::ippool::SpiderIPPool;
use spiderpool_iaas::provider::{Generation, Provider};
use spiderpool_ipam::pool::{Pool, PoolError, PoolMeta};

use super::StoreError;
use super::memo::Memo;

/// Whether a provider's marks on pools mean anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Marks {
    /// They do.
    Count,
    /// Every pool is a plain one: under the first generation of the provider contract the NIC's
    /// configuration decides (`spiderpool_ipam::first_generation`).
    Ignored,
}

impl Marks {
    /// To a process with this provider.
    #[must_use]
    pub fn of(provider: Option<&dyn Provider>) -> Self {
        match provider.map(Provider::generation) {
            Some(Generation::First) => Self::Ignored,
            Some(Generation::Second) | None => Self::Count,
        }
    }
}

/// One version of a pool.
#[derive(Debug, Clone)]
pub struct PoolObject {
    // Without the text of the records, unless they cannot be read.
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
        Self::typed_from(raw, None)
    }

    /// The same; metadata that `memo` knows is not decoded again.
    ///
    /// # Errors
    /// As [`PoolObject::from_raw`].
    pub fn from_raw_with(raw: Value, memo: &Memo) -> Result<Self, StoreError> {
        Self::typed_from(raw, Some(memo))
    }

    /// What a conditional write of `sent`, made of this object with `records`, has made of it; `metadata` is
    /// the API's answer. The condition held, so all but the two fields written and what the API keeps
    /// of metadata is as it was read.
    ///
    /// # Errors
    /// The error of reading `metadata`.
    pub(super) fn written(
        &self,
        mut sent: Value,
        records: &Records,
        metadata: Value,
    ) -> Result<Self, serde_json::Error> {
        let mut typed = self.typed.clone();
        typed.metadata = ObjectMeta::deserialize(&metadata)?;
        if let Some(status) = typed.status.as_mut() {
            status.allocated_ip_count = Some(records.count());
        }
        if let Some(object) = sent.as_object_mut() {
            object.insert("metadata".into(), metadata);
        }
        let decoded = self.decoded.clone().map(|pool| {
            without_text(&mut sent);
            Arc::new(pool.with_records(records.clone()))
        });
        Ok(Self {
            raw: sent,
            typed,
            decoded,
        })
    }

    fn typed_from(mut raw: Value, memo: Option<&Memo>) -> Result<Self, StoreError> {
        let mut typed = match SpiderIPPool::deserialize(&raw) {
            Ok(typed) => typed,
            Err(source) => {
                let name = raw.pointer("/metadata/name").and_then(Value::as_str);
                return Err(StoreError::Malformed {
                    what: format!("SpiderIPPool {}", name.unwrap_or("(unnamed)")),
                    source: Box::new(source),
                });
            }
        };
        let mut status = typed.status.take().unwrap_or_default();
        let meta = PoolMeta::from(&typed);
        let decoded = Pool::from_parts_with(&meta, &typed.spec, &status, |text| match memo {
            Some(memo) => memo.decode(&meta.name, text),
            None => Metadata::decode(text).map(Arc::new),
        });
        status.allocated_ips = None;
        if decoded.is_ok() {
            without_text(&mut raw);
        }
        typed.status = Some(status);
        Ok(Self {
            raw,
            typed,
            decoded: decoded.map(Arc::new).map_err(Arc::new),
        })
    }

    /// With the marks taken as `marks` says.
    #[must_use]
    pub fn with_marks(self, marks: Marks) -> Self {
        let decoded = match (marks, self.decoded) {
            (Marks::Ignored, Ok(pool)) if pool.is_iaas() || pool.parent_nic.is_some() => {
                Ok(Arc::new(Arc::unwrap_or_clone(pool).unmarked()))
            }
            (_, decoded) => decoded,
        };
        Self { decoded, ..self }
    }

    /// The object as read. Blocks for as long as it takes to write its records.
    #[must_use]
    pub fn raw(&self) -> Value {
        let mut object = self.raw.clone();
        let pool = self.decoded.as_ref().ok();
        if let Some(text) = pool.and_then(|pool| pool.records.encode())
            && let Some(status) = object.get_mut("status").and_then(Value::as_object_mut)
        {
            status.insert("allocatedIPs".into(), text.into());
        }
        object
    }

    /// The typed view, without the text of the records.
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

/// The text is the largest part by far, and the records are what it says.
fn without_text(object: &mut Value) {
    if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
        status.remove("allocatedIPs");
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
    fn what_is_written_is_what_a_read_of_it_gives() {
        let record = serde_json::from_value(json!({"pod": "a/b", "podUid": "u"})).unwrap();
        let mut records = Records::default();
        records.insert("10.0.0.9".parse().unwrap(), record);
        let raw = json!({"metadata": {"name": "p", "uid": "u-p", "resourceVersion": "7", "vendor.io/x": 1},
            "spec": {"subnet": "10.0.0.0/24", "novel": true},
            "status": {"totalIPCount": 3, "futureField": [1], "allocatedIPs": "{}"}});
        let read = PoolObject::from_raw(raw).unwrap();
        let sent = read.with_records(&records);
        let mut stored = sent.clone();
        stored["metadata"]["resourceVersion"] = "8".into();
        stored["metadata"]["managedFields"] = json!([{"manager": "agent"}]);
        let answer = stored["metadata"].clone();
        let written = read.written(sent, &records, answer).unwrap();
        let again = PoolObject::from_raw(stored.clone()).unwrap();
        assert_eq!(written.raw(), stored);
        assert_eq!(
            format!("{:?}", written.typed()),
            format!("{:?}", again.typed())
        );
        assert_eq!(written.resource_version(), "8");
        let [ours, theirs] = [&written, &again].map(|object| object.pool().unwrap());
        assert_eq!([&ours.records, &theirs.records], [&records; 2]);
        // Records that are equal need not look the same.
        let rest = |pool: &Pool| format!("{:?}", pool.with_records(Records::default()));
        assert_eq!(rest(ours), rest(theirs));
    }

    #[test]
    fn an_answer_without_metadata_is_an_error() {
        let raw = json!({"metadata": {"name": "p"}, "spec": {"subnet": "10.0.0.0/24"}});
        let read = PoolObject::from_raw(raw).unwrap();
        let sent = read.with_records(&Records::default());
        for answer in [Value::Null, json!("OK"), json!({"labels": 7})] {
            assert!(
                read.written(sent.clone(), &Records::default(), answer)
                    .is_err()
            );
        }
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
