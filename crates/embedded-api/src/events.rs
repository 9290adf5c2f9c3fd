//! One store, two Events APIs: objects are kept in the form of core/v1 and converted at the edge
//! for events.k8s.io/v1. Pure. Field names from the Kubernetes API reference.

use serde_json::{Map, Value};

use crate::kinds::Kind;

/// (core/v1, events.k8s.io/v1) names of the fields that differ.
const RENAMED: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("source", "deprecatedSource"),
];

/// From the form of the served API to the stored one.
pub(crate) fn to_stored(kind: &Kind, object: &mut Value) {
    if kind.converts() {
        rename(object, "v1", |(core, events)| (events, core));
    }
}

/// From the stored form to that of the served API.
pub(crate) fn to_served(kind: &Kind, object: &mut Value) {
    if kind.converts() {
        rename(object, &kind.api_version(), |(core, events)| (core, events));
    }
}

fn rename(
    object: &mut Value,
    api_version: &str,
    direction: impl Fn(&(&'static str, &'static str)) -> (&'static str, &'static str),
) {
    let Some(map) = object.as_object_mut() else {
        return;
    };
    for pair in RENAMED {
        let (from, to) = direction(pair);
        move_key(map, from, to);
    }
    map.insert(
        "apiVersion".to_owned(),
        Value::String(api_version.to_owned()),
    );
}

fn move_key(map: &mut Map<String, Value>, from: &str, to: &str) {
    if let Some(value) = map.remove(from) {
        map.insert(to.to_owned(), value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds;
    use serde_json::json;

    #[test]
    fn an_event_reads_the_same_after_a_round_trip() {
        let kind = kinds::by_plural("events.k8s.io", "v1", "events").unwrap();
        let served = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "note": "n",
            "regarding": {"name": "p"}, "reportingController": "c", "action": "a",
            "deprecatedCount": 2});
        let mut object = served.clone();
        to_stored(kind, &mut object);
        let stored = json!({"apiVersion": "v1", "kind": "Event", "message": "n",
            "involvedObject": {"name": "p"}, "reportingComponent": "c", "action": "a", "count": 2});
        assert_eq!(object, stored);
        to_served(kind, &mut object);
        assert_eq!(object, served);
    }
}
