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
    /// Node for which a provider of contract version 1 was asked to bind the address; it has to be
    /// told of the release. Absent in all other records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
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
#[derive(Debug, Clone, Default)]
pub struct Records {
    map: BTreeMap<Arc<str>, Arc<Record>>,
    owners: Owners,
}

impl PartialEq for Records {
    fn eq(&self, other: &Self) -> bool {
        self.map == other.map
    }
}

impl Eq for Records {}

/// The UIDs that may have a record, as hashes: most questions are about Pods that have none in the pool.
/// One that had one stays until the whole is made anew.
#[derive(Debug, Clone, Default)]
struct Owners {
    sorted: Arc<[u64]>,
    added: Vec<u64>,
}

impl Owners {
    /// UIDs added one by one before all are sorted again.
    const ADDED: usize = 64;

    fn of(map: &BTreeMap<Arc<str>, Arc<Record>>) -> Self {
        let mut sorted: Vec<u64> = map.values().map(|record| hash(&record.pod_uid)).collect();
        sorted.sort_unstable();
        sorted.dedup();
        Self {
            sorted: sorted.into(),
            added: Vec::new(),
        }
    }

    fn may_have(&self, uid: &str) -> bool {
        let hash = hash(uid);
        self.sorted.binary_search(&hash).is_ok() || self.added.contains(&hash)
    }
}

/// FNV-1a; nobody gains by a collision, which costs a scan of the pool.
fn hash(text: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

/// The status text is not a map of records; it is left as it is.
#[derive(Debug, thiserror::Error)]
#[error("status.allocatedIPs is not a JSON object of records; nothing was changed")]
pub struct RecordsError(#[from] serde_json::Error);

impl Serialize for Records {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let entries = self.map.iter();
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
                let map = shared.collect();
                let owners = Owners::of(&map);
                Ok(Self { map, owners })
            }
        }
    }

    /// The status text, or `None` for no records (the field is then absent).
    #[must_use]
    pub fn encode(&self) -> Option<String> {
        // A map of strings to serialisable records has no way to fail.
        (!self.map.is_empty()).then(|| serde_json::to_string(self).unwrap_or_default())
    }

    /// Number of records, as `status.allocatedIPCount`.
    #[must_use]
    pub fn count(&self) -> i64 {
        i64::try_from(self.map.len()).unwrap_or(i64::MAX)
    }

    /// The record of one address.
    #[must_use]
    pub fn get(&self, address: IpAddr) -> Option<&Record> {
        self.map.get(address.to_string().as_str()).map(Arc::as_ref)
    }

    /// Writes the record of one address; returns the one it replaced.
    pub fn insert(&mut self, address: IpAddr, record: Record) -> Option<Record> {
        let (is_new, uid) = (
            !self.owners.may_have(&record.pod_uid),
            hash(&record.pod_uid),
        );
        let replaced = self
            .map
            .insert(address.to_string().into(), Arc::new(record));
        if is_new {
            self.owners.added.push(uid);
        }
        if self.owners.added.len() > Owners::ADDED {
            self.owners = Owners::of(&self.map);
        }
        replaced.map(Arc::unwrap_or_clone)
    }

    /// Removes the record of one address.
    pub fn remove(&mut self, address: IpAddr) -> Option<Record> {
        let removed = self.map.remove(address.to_string().as_str());
        removed.map(Arc::unwrap_or_clone)
    }

    /// All records whose key is an address, in text order.
    pub fn iter(&self) -> impl Iterator<Item = (IpAddr, &Record)> {
        self.map
            .iter()
            .filter_map(|(text, record)| Some((text.parse().ok()?, record.as_ref())))
    }

    /// Records of one Pod UID whose key is an address, in text order; an empty UID has none.
    #[must_use]
    pub fn of_uid(&self, uid: &str) -> Vec<(IpAddr, &Record)> {
        if uid.is_empty() || !self.owners.may_have(uid) {
            return Vec::new();
        }
        // Compared before the key is parsed: a full pool has 5000 records of other Pods.
        self.map
            .iter()
            .filter(|(_, record)| record.pod_uid == uid)
            .filter_map(|(text, record)| Some((text.parse().ok()?, record.as_ref())))
            .collect()
    }

    /// Whether there is no record.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
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

    /// Whatever was added, removed and copied, the records of a UID are those that a scan finds.
    #[test]
    fn the_records_of_a_uid_are_found_after_any_change() {
        let record = |uid: usize| Record {
            pod: "a/b".into(),
            pod_uid: format!("u-{uid}"),
            nic: None,
            node: None,
            releasing: None,
            extra: Map::new(),
        };
        let address = |n: usize| IpAddr::from([10, 0, 0, u8::try_from(n).unwrap()]);
        let mut records = Records::default();
        let mut copies = Vec::new();
        for step in 0..600_usize {
            let at = address(step * 7 % 200);
            if step % 3 == 2 {
                records.remove(at);
            } else {
                records.insert(at, record(step % 150));
            }
            if step % 97 == 0 {
                copies.push(records.clone());
                records = Records::decode(records.encode().as_deref()).unwrap();
            }
        }
        copies.push(records);
        for records in copies {
            for uid in 0..151 {
                let uid = format!("u-{uid}");
                let all = records.iter();
                let scanned: Vec<_> = all.filter(|(_, record)| record.pod_uid == uid).collect();
                assert_eq!(records.of_uid(&uid), scanned, "{uid}");
            }
            assert!(records.of_uid("").is_empty());
            let read = Records::decode(records.encode().as_deref()).unwrap();
            assert_eq!(read, records);
        }
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
