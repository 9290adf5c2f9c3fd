//! `status.allocatedIPs` of a pool: a JSON object inside a string, address to record. The record
//! is the only proof of ownership. Inner keys we do not know are kept.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

/// Who owns an address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// `namespace/name` of the Pod (of the VM for a sticky KubeVirt address).
    #[serde(default)]
    pub pod: String,
    /// UID of the Pod object.
    #[serde(default)]
    pub pod_uid: String,
    /// Interface name in the Pod; absent in records of other writers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nic: Option<String>,
    /// Set while somebody tells the provider to release the address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub releasing: Option<Releasing>,
    /// Inner keys of other writers.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// Release marker: only `by` may call the provider, another actor after 120 s.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Releasing {
    /// Actor, unique per process start.
    pub by: String,
    /// RFC 3339 time of the mark.
    pub at: String,
}

/// The whole map, addresses in canonical text, sorted as text. Copies share what they have in common:
/// a full pool has 5000 records, and each of its writes changes a few.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Records(BTreeMap<Arc<str>, Arc<Record>>);

/// The status text is not a map of records; it is left as it is.
#[derive(Debug, thiserror::Error)]
#[error("status.allocatedIPs is not a JSON object of records; nothing was changed")]
pub struct RecordsError(#[from] serde_json::Error);

impl Serialize for Records {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let entries = self.0.iter();
        serializer.collect_map(entries.map(|(text, record)| (text.as_ref(), record.as_ref())))
    }
}

impl Records {
    /// Reads the status text; absent and empty mean no records.
    ///
    /// # Errors
    /// [`RecordsError`] when the text is something else: it must then not be overwritten.
    pub fn decode(text: Option<&str>) -> Result<Self, RecordsError> {
        match text {
            None | Some("") => Ok(Self::default()),
            Some(text) => {
                let read: Option<BTreeMap<String, Record>> = serde_json::from_str(text)?;
                let read = read.into_iter().flatten();
                let shared = read.map(|(address, record)| (address.into(), Arc::new(record)));
                Ok(Self(shared.collect()))
            }
        }
    }

    /// The status text, or `None` for no records (the field is then absent).
    #[must_use]
    pub fn encode(&self) -> Option<String> {
        // A map of strings to serialisable records has no way to fail.
        (!self.0.is_empty()).then(|| serde_json::to_string(self).unwrap_or_default())
    }

    /// Number of records, as `status.allocatedIPCount`.
    #[must_use]
    pub fn count(&self) -> i64 {
        i64::try_from(self.0.len()).unwrap_or(i64::MAX)
    }

    /// The record of one address.
    #[must_use]
    pub fn get(&self, address: IpAddr) -> Option<&Record> {
        self.0.get(address.to_string().as_str()).map(Arc::as_ref)
    }

    /// Writes the record of one address; returns the one it replaced.
    pub fn insert(&mut self, address: IpAddr, record: Record) -> Option<Record> {
        let replaced = self.0.insert(address.to_string().into(), Arc::new(record));
        replaced.map(Arc::unwrap_or_clone)
    }

    /// Removes the record of one address.
    pub fn remove(&mut self, address: IpAddr) -> Option<Record> {
        let removed = self.0.remove(address.to_string().as_str());
        removed.map(Arc::unwrap_or_clone)
    }

    /// All records whose key is an address, in text order.
    pub fn iter(&self) -> impl Iterator<Item = (IpAddr, &Record)> {
        self.0
            .iter()
            .filter_map(|(text, record)| Some((text.parse().ok()?, record.as_ref())))
    }

    /// Records of one Pod UID whose key is an address, in text order; an empty UID has none.
    #[must_use]
    pub fn of_uid(&self, uid: &str) -> Vec<(IpAddr, &Record)> {
        // Compared before the key is parsed: a full pool has 5000 records of other Pods.
        self.0
            .iter()
            .filter(|(_, record)| !uid.is_empty() && record.pod_uid == uid)
            .filter_map(|(text, record)| Some((text.parse().ok()?, record.as_ref())))
            .collect()
    }

    /// Whether there is no record.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_inner_keys_survive_and_keys_sort_as_text() {
        let text = r#"{"10.7.0.12":{"pod":"shop/cart-0","podUid":"6f0e","zone":"b"},"10.7.0.9":{"pod":"shop/web-5","podUid":"a1c2"}}"#;
        let records = Records::decode(Some(text)).unwrap();
        assert_eq!(records.encode().as_deref(), Some(text));
        assert_eq!(records.count(), 2);
    }

    #[test]
    fn empty_is_absent_and_garbage_is_an_error() {
        for none in [None, Some(""), Some("{}"), Some("null")] {
            assert_eq!(Records::decode(none).unwrap().encode(), None);
        }
        for bad in ["[]", "{", r#"{"10.0.0.1":3}"#] {
            assert!(Records::decode(Some(bad)).is_err(), "{bad}");
        }
    }
}
