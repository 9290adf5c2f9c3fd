//! What a SpiderReservedIP reserves, as far as it can be read. An object of another release's shape must
//! neither stop the agent nor open its addresses (ADR 0011). Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;
use spiderpool_ipam::range::{Family, IpRange};
use spiderpool_ipam::range_set::RangeSet;

/// A reservation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reservation {
    /// Name of the object.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// What is known to be reserved; nothing once the object is being deleted.
    pub addresses: RangeSet,
    /// What in it cannot be read, for people.
    pub complaint: Option<String>,
    /// For that, it is not known what else is reserved.
    pub unknown: Option<Of>,
}

/// What a reservation may be of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    /// Addresses of this family.
    One(Family),
    /// Any.
    Both,
}

impl Of {
    /// Whether it may be of that family.
    #[must_use]
    pub fn has(self, family: Family) -> bool {
        match self {
            Self::One(one) => one == family,
            Self::Both => true,
        }
    }
}

impl Reservation {
    /// Reads an object; every entry that can be read counts.
    #[must_use]
    pub fn read(meta: &ObjectMeta, spec: Option<&Value>) -> Self {
        let name = meta.name.clone().unwrap_or_default();
        let (addresses, fault) = match meta.deletion_timestamp {
            Some(_) => (RangeSet::empty(), None),
            None => read_spec(spec),
        };
        let unknown = fault.as_ref().map(|_| family(spec));
        let remedy = "correct it (kubectl edit spiderreservedip) or delete it";
        let complain = |fault| format!("SpiderReservedIP {name} cannot be read: {fault}; {remedy}");
        Self {
            uid: meta.uid.clone().unwrap_or_default(),
            addresses,
            complaint: fault.map(complain),
            unknown,
            name,
        }
    }

    /// With what the same object reserved while all of it could be read, if it cannot be any more. Whatever else
    /// it says by now is not known; but no address is opened.
    #[must_use]
    pub fn or_as_before(self, before: Option<&Self>) -> Self {
        let before = before.filter(|before| before.uid == self.uid && before.unknown.is_none());
        match (&self.unknown, before) {
            (Some(_), Some(before)) => Self {
                addresses: self.addresses.union(&before.addresses),
                unknown: None,
                ..self
            },
            _ => self,
        }
    }
}

fn family(spec: Option<&Value>) -> Of {
    let version = spec.and_then(|spec| spec.get("ipVersion"));
    match version.and_then(Value::as_i64) {
        Some(4) => Of::One(Family::V4),
        Some(6) => Of::One(Family::V6),
        _ => Of::Both,
    }
}

/// What can be read, and the first thing that cannot.
fn read_spec(spec: Option<&Value>) -> (RangeSet, Option<String>) {
    let Some(spec) = spec.and_then(Value::as_object) else {
        return (RangeSet::empty(), Some("spec is no object".to_owned()));
    };
    let entries = match spec.get("ips") {
        None | Some(Value::Null) => &[],
        Some(Value::Array(entries)) => entries.as_slice(),
        Some(_) => return (RangeSet::empty(), Some("spec.ips is no list".to_owned())),
    };
    let mut ranges: Vec<IpRange> = Vec::new();
    let mut fault = None;
    for (index, entry) in entries.iter().enumerate() {
        match read_entry(entry) {
            Ok(range) => ranges.push(range),
            Err(why) => {
                fault.get_or_insert_with(|| format!("spec.ips[{index}]: {why}"));
            }
        }
    }
    (ranges.into_iter().collect(), fault)
}

fn read_entry(entry: &Value) -> Result<IpRange, String> {
    let text = entry
        .as_str()
        .ok_or_else(|| format!("{entry} is no text"))?;
    text.parse().map_err(|error| format!("{error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(spec: Value) -> Reservation {
        let meta = json!({"name": "r", "uid": "u-1"});
        Reservation::read(&serde_json::from_value(meta).unwrap(), Some(&spec))
    }

    fn set(texts: &[&str]) -> RangeSet {
        RangeSet::from_texts(texts).unwrap()
    }

    #[test]
    fn each_entry_that_can_be_read_counts() {
        let (v4, v6) = (Of::One(Family::V4), Of::One(Family::V6));
        for (spec, known, family, part) in [
            (
                json!({"ips": ["10.0.0.1", "10.0.0.5-10.0.0.7"]}),
                &["10.0.0.1", "10.0.0.5-10.0.0.7"][..],
                None,
                "",
            ),
            (json!({"ips": null}), &[], None, ""),
            (
                json!({"ipVersion": "four", "ips": ["10.0.0.1"]}),
                &["10.0.0.1"],
                None,
                "",
            ),
            (
                json!({"ipVersion": 4, "ips": {"a": "10.0.0.1"}}),
                &[],
                Some(v4),
                "spec.ips is no list",
            ),
            (
                json!({"ipVersion": 6, "ips": ["fd00::1", 7]}),
                &["fd00::1"],
                Some(v6),
                "spec.ips[1]: 7 is no text",
            ),
            (
                json!({"ips": ["10.0.0.0/24", "10.0.0.9"]}),
                &["10.0.0.9"],
                Some(Of::Both),
                "spec.ips[0]: ",
            ),
            (json!("10.0.0.1"), &[], Some(Of::Both), "spec is no object"),
        ] {
            let got = read(spec.clone());
            assert_eq!(got.addresses, set(known), "{spec}");
            let why = got.complaint.unwrap_or_default();
            assert!(
                why.contains(part) && why.is_empty() == part.is_empty(),
                "{spec}: {why}"
            );
            assert_eq!(got.unknown, family, "{spec}");
        }
        let leaving = json!({"name": "r", "deletionTimestamp": "2027-01-05T10:00:00Z"});
        let leaving = serde_json::from_value(leaving).unwrap();
        let leaving = Reservation::read(&leaving, Some(&json!({"ips": 7})));
        assert_eq!((leaving.addresses, leaving.unknown), (set(&[]), None));
    }

    #[test]
    fn what_was_reserved_stays_so_while_the_rest_is_unknown() {
        let before = read(json!({"ips": ["10.0.0.1"]}));
        let broken = || read(json!({"ips": [{"ip": "10.0.0.1"}, "10.0.0.2"]}));
        let kept = broken().or_as_before(Some(&before));
        assert_eq!(
            (&kept.addresses, &kept.unknown),
            (&set(&["10.0.0.1", "10.0.0.2"]), &None)
        );
        // And so on, until it is corrected.
        let again = broken().or_as_before(Some(&kept));
        assert_eq!(again, kept);
        let corrected = read(json!({"ips": ["10.0.0.3"]})).or_as_before(Some(&kept));
        assert_eq!(corrected.addresses, set(&["10.0.0.3"]));
        let another = Reservation {
            uid: "u-0".into(),
            ..before
        };
        for before in [None, Some(&another), Some(&broken())] {
            assert!(broken().or_as_before(before).unknown.is_some());
        }
    }
}
