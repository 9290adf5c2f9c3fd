use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use spiderpool_api::allocation::Record;
use spiderpool_api::endpoint::{EndpointAllocation, EndpointNic, EndpointStatus};

use super::*;

mod knobs;
mod properties;
mod releases;
mod rows;
mod traces;

/// Deletion time of every Pod that is being deleted; its grace is 30 s.
fn deleted_at() -> Timestamp {
    "2027-01-05T10:00:00Z".parse().unwrap()
}

fn after(seconds: i64) -> Timestamp {
    deleted_at() + SignedDuration::from_secs(seconds)
}

fn record(uid: &str) -> Record {
    serde_json::from_value(json!({"pod": "ns/a", "podUid": uid, "nic": "eth0"})).unwrap()
}

/// `phase`, then `+ips`, then `+deleted`.
fn pod(uid: &str, text: &str) -> PodState {
    let mut parts = text.split('+');
    PodState {
        uid: uid.into(),
        phase: Phase::parse(parts.next().unwrap()),
        has_ips: text.contains("+ips"),
        deletion: text.contains("+deleted").then(|| Deletion {
            at: deleted_at(),
            grace: 30,
        }),
    }
}

fn set(valid: bool) -> Option<Static> {
    Some(Static {
        kind: Sticky::StatefulSet,
        valid,
    })
}

fn vm(valid: bool) -> Option<Static> {
    Some(Static {
        kind: Sticky::VirtualMachine,
        valid,
    })
}

fn endpoint(uid: &str, pools: &[(&str, &str)]) -> EndpointStatus {
    let nic = |(pool, address): &(&str, &str)| EndpointNic {
        interface: "eth0".into(),
        ipv4: Some((*address).into()),
        ipv4_pool: Some((*pool).into()),
        ..EndpointNic::default()
    };
    EndpointStatus {
        current: EndpointAllocation {
            uid: uid.into(),
            node: "n1".into(),
            ips: pools.iter().map(nic).collect(),
        },
        ..EndpointStatus::default()
    }
}

/// A verdict in short: `keep`, `keep+endpoint`, `trace`, `confirm`, `free`, `free+endpoint`.
fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Keep {
            stale_endpoint: false,
            ..
        } => "keep",
        Verdict::Keep { .. } => "keep+endpoint",
        Verdict::Trace(_) => "trace",
        Verdict::Confirm(_) => "confirm",
        Verdict::Free {
            endpoint: false, ..
        } => "free",
        Verdict::Free { .. } => "free+endpoint",
    }
}

fn with_mark(by: &str, at: &str) -> Record {
    let text = json!({"pod": "ns/a", "podUid": "u-1", "releasing": {"by": by, "at": at}});
    serde_json::from_value::<Record>(text).unwrap()
}

fn marked_records(rows: &[(&str, &str, &str)]) -> Value {
    rows.iter()
        .map(|(address, uid, nic)| {
            let record = json!({"pod": "ns/a", "podUid": uid, "nic": nic});
            ((*address).to_owned(), record)
        })
        .collect::<serde_json::Map<_, _>>()
        .into()
}
