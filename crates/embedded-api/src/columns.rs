//! Printer columns per kind and how each cell is read. The columns of our kinds are those of
//! spec/api section 1; added ones have priority 1, which `kubectl get` shows with `-o wide`.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::object;

/// Where a cell comes from.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Cell {
    /// `metadata.name`.
    Name,
    /// The value at a JSON pointer, typed as the column says.
    Pointer(&'static str),
    /// Time since the timestamp at a JSON pointer.
    Since(&'static str),
    /// Several fields together.
    Compose(fn(&Value) -> Value),
}

/// One printer column.
#[derive(Debug)]
pub(crate) struct Column {
    pub(crate) name: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) priority: u8,
    pub(crate) cell: Cell,
}

impl Column {
    /// The cell of this column for one object.
    pub(crate) fn value(&self, stored: &Value, now: Timestamp) -> Value {
        match self.cell {
            Cell::Name => json!(object::name(stored)),
            Cell::Pointer(pointer) => typed(stored.pointer(pointer), self.kind),
            Cell::Since(pointer) => json!(age(&object::text_at(stored, pointer), now)),
            Cell::Compose(compose) => compose(stored),
        }
    }
}

/// A custom resource's string column prints whatever it finds, lists as JSON text; an absent
/// value is null, which kubectl leaves blank.
fn typed(found: Option<&Value>, kind: &str) -> Value {
    match (found, kind) {
        (None | Some(Value::Null), _) => Value::Null,
        (Some(Value::String(text)), "string") => json!(text),
        (Some(other), "string") => json!(other.to_string()),
        (Some(other), _) => other.clone(),
    }
}

/// Age as kubectl writes it: two units while the first is small, one after.
fn age(timestamp: &str, now: Timestamp) -> String {
    let Ok(then) = timestamp.parse::<Timestamp>() else {
        return "<unknown>".to_owned();
    };
    let seconds = now.duration_since(then).as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        ..-1 => "<invalid>".to_owned(),
        -1..0 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        120..600 => pair(minutes, 'm', seconds % 60, 's'),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => pair(hours, 'h', minutes % 60, 'm'),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => pair(days, 'd', hours % 24, 'h'),
        691_200..63_072_000 => format!("{days}d"),
        63_072_000..252_288_000 => pair(days / 365, 'y', days % 365, 'd'),
        _ => format!("{}y", days / 365),
    }
}

fn pair(first: i64, unit: char, second: i64, sub_unit: char) -> String {
    if second == 0 {
        format!("{first}{unit}")
    } else {
        format!("{first}{unit}{second}{sub_unit}")
    }
}

const fn column(name: &'static str, kind: &'static str, priority: u8, cell: Cell) -> Column {
    Column {
        name,
        kind,
        priority,
        cell,
    }
}

const fn text(name: &'static str, pointer: &'static str) -> Column {
    column(name, "string", 0, Cell::Pointer(pointer))
}

const fn wide(name: &'static str, kind: &'static str, pointer: &'static str) -> Column {
    column(name, kind, 10, Cell::Pointer(pointer))
}

const NAME: Column = column("Name", "string", 0, Cell::Name);
const AGE: Column = column(
    "Age",
    "string",
    0,
    Cell::Since("/metadata/creationTimestamp"),
);
const WIDE_AGE: Column = column(
    "Age",
    "string",
    1,
    Cell::Since("/metadata/creationTimestamp"),
);

pub(crate) const NAME_AND_AGE: &[Column] = &[NAME, AGE];

pub(crate) const IPPOOL: &[Column] = &[
    NAME,
    text("VERSION", "/spec/ipVersion"),
    text("SUBNET", "/spec/subnet"),
    column(
        "ALLOCATED-IP-COUNT",
        "integer",
        0,
        Cell::Pointer("/status/allocatedIPCount"),
    ),
    column(
        "TOTAL-IP-COUNT",
        "integer",
        0,
        Cell::Pointer("/status/totalIPCount"),
    ),
    column("DEFAULT", "boolean", 0, Cell::Pointer("/spec/default")),
    wide("DISABLE", "boolean", "/spec/disable"),
    wide("NodeName", "string", "/spec/nodeName"),
    wide("MultusName", "string", "/spec/multusName"),
    wide(
        "APP-NAMESPACE",
        "string",
        "/spec/podAffinity/matchLabels/ipam.spidernet.io~1app-namespace",
    ),
    column(
        "READY-IP-COUNT",
        "integer",
        1,
        Cell::Pointer("/status/ipMetaData/readyIPCount"),
    ),
    column(
        "PARENT-NIC",
        "string",
        1,
        Cell::Pointer("/status/parentNic/name"),
    ),
    WIDE_AGE,
];

pub(crate) const SUBNET: &[Column] = &[
    NAME,
    text("VERSION", "/spec/ipVersion"),
    text("SUBNET", "/spec/subnet"),
    column(
        "ALLOCATED-IP-COUNT",
        "integer",
        0,
        Cell::Pointer("/status/allocatedIPCount"),
    ),
    column(
        "TOTAL-IP-COUNT",
        "integer",
        0,
        Cell::Pointer("/status/totalIPCount"),
    ),
    WIDE_AGE,
];

pub(crate) const RESERVED_IP: &[Column] = &[NAME, text("VERSION", "/spec/ipVersion"), WIDE_AGE];

pub(crate) const ENDPOINT: &[Column] = &[
    NAME,
    text("INTERFACE", "/status/current/ips/0/interface"),
    text("IPV4POOL", "/status/current/ips/0/ipv4Pool"),
    text("IPV4", "/status/current/ips/0/ipv4"),
    text("IPV6POOL", "/status/current/ips/0/ipv6Pool"),
    text("IPV6", "/status/current/ips/0/ipv6"),
    text("NODE", "/status/current/node"),
    WIDE_AGE,
];

pub(crate) const NAMESPACE: &[Column] = &[NAME, text("Status", "/status/phase"), AGE];

pub(crate) const NODE: &[Column] = &[
    NAME,
    column("Status", "string", 0, Cell::Compose(node_status)),
    column("Roles", "string", 0, Cell::Compose(node_roles)),
    AGE,
    text("Version", "/status/nodeInfo/kubeletVersion"),
];

pub(crate) const POD: &[Column] = &[
    NAME,
    column("Ready", "string", 0, Cell::Compose(pod_ready)),
    column("Status", "string", 0, Cell::Compose(pod_status)),
    column("Restarts", "integer", 0, Cell::Compose(pod_restarts)),
    AGE,
    column("IP", "string", 1, Cell::Pointer("/status/podIP")),
    column("Node", "string", 1, Cell::Pointer("/spec/nodeName")),
];

pub(crate) const EVENT: &[Column] = &[
    column("Last Seen", "string", 0, Cell::Compose(last_seen)),
    text("Type", "/type"),
    text("Reason", "/reason"),
    column("Object", "string", 0, Cell::Compose(event_object)),
    text("Message", "/message"),
    column("Name", "string", 1, Cell::Name),
];

pub(crate) const LEASE: &[Column] = &[NAME, text("Holder", "/spec/holderIdentity"), AGE];

fn node_status(node: &Value) -> Value {
    let ready = object::items(node, "/status/conditions")
        .iter()
        .find(|c| object::text_at(c, "/type") == "Ready")
        .map(|c| object::text_at(c, "/status"));
    let cordoned = node.pointer("/spec/unschedulable") == Some(&Value::Bool(true));
    let state = match ready.as_deref() {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    };
    json!(if cordoned {
        format!("{state},SchedulingDisabled")
    } else {
        state.to_owned()
    })
}

fn node_roles(node: &Value) -> Value {
    let labels = object::string_map(node, "/metadata/labels");
    let role = |label: &String| Some(label.strip_prefix("node-role.kubernetes.io/")?.to_owned());
    let roles: Vec<_> = labels.keys().filter_map(role).collect();
    json!(if roles.is_empty() {
        "<none>".to_owned()
    } else {
        roles.join(",")
    })
}

fn pod_restarts(pod: &Value) -> Value {
    let count = |c: &Value| c.get("restartCount").and_then(Value::as_u64);
    let statuses = object::items(pod, "/status/containerStatuses");
    json!(statuses.iter().filter_map(count).sum::<u64>())
}

fn pod_ready(pod: &Value) -> Value {
    let all = object::items(pod, "/spec/containers").len();
    let ready = object::items(pod, "/status/containerStatuses")
        .iter()
        .filter(|c| c.get("ready") == Some(&Value::Bool(true)))
        .count();
    json!(format!("{ready}/{all}"))
}

fn pod_status(pod: &Value) -> Value {
    if pod.pointer("/metadata/deletionTimestamp").is_some() {
        return json!("Terminating");
    }
    let reason = object::text_at(pod, "/status/reason");
    json!(if reason.is_empty() {
        object::text_at(pod, "/status/phase")
    } else {
        reason
    })
}

fn last_seen(event: &Value) -> Value {
    let pointers = [
        "/series/lastObservedTime",
        "/lastTimestamp",
        "/eventTime",
        "/firstTimestamp",
    ];
    let seen = pointers
        .iter()
        .map(|p| object::text_at(event, p))
        .find(|t| !t.is_empty());
    json!(age(&seen.unwrap_or_default(), crate::clock::now()))
}

fn event_object(event: &Value) -> Value {
    let kind = object::text_at(event, "/involvedObject/kind").to_lowercase();
    json!(format!(
        "{kind}/{}",
        object::text_at(event, "/involvedObject/name")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_read_as_kubectl_writes_them() {
        let now: Timestamp = "2026-03-01T00:00:00Z".parse().unwrap();
        let cases = [
            ("2026-03-01T00:00:00Z", "0s"),
            ("2026-02-28T23:58:01Z", "119s"),
            ("2026-02-28T23:57:30Z", "2m30s"),
            ("2026-02-28T23:57:00Z", "3m"),
            ("2026-02-28T23:00:00Z", "60m"),
            ("2026-02-28T20:30:00Z", "3h30m"),
            ("2026-02-28T10:00:00Z", "14h"),
            ("2026-02-26T12:00:00Z", "2d12h"),
            ("2026-01-01T00:00:00Z", "59d"),
            ("2024-02-29T00:00:00Z", "2y1d"),
            ("2026-03-01T00:00:09Z", "<invalid>"),
            ("soon", "<unknown>"),
        ];
        for (then, expected) in cases {
            assert_eq!(age(then, now), expected, "{then}");
        }
    }

    #[test]
    fn string_columns_print_lists_as_json_and_nothing_for_absent_values() {
        let pool = json!({"metadata": {"name": "p"}, "spec": {"nodeName": ["a"], "ipVersion": 4,
            "podAffinity": {"matchLabels": {"ipam.spidernet.io/app-namespace": "shop"}}}});
        let now = Timestamp::UNIX_EPOCH;
        let cells: Vec<_> = IPPOOL
            .iter()
            .map(|c| (c.name, c.value(&pool, now)))
            .collect();
        assert!(cells.contains(&("VERSION", json!("4"))));
        assert!(cells.contains(&("NodeName", json!("[\"a\"]"))));
        assert!(cells.contains(&("APP-NAMESPACE", json!("shop"))));
        assert!(cells.contains(&("ALLOCATED-IP-COUNT", Value::Null)));
    }
}
