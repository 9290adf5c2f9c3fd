//! What the agent logs of an attach, one JSON line each: the only place where it shows how the
//! pre-flight went and how many netlink messages were needed.

use serde::Deserialize;
use serde_json::Value;

/// Message of the line.
const ATTACHED: &str = "attached";

/// One attach.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct AttachReport {
    /// `namespace/name`.
    pub pod: String,
    /// Netlink requests sent, in both namespaces.
    pub netlink_requests: u64,
    /// An equal link was there already.
    #[serde(default)]
    pub reused: bool,
    /// One entry a family.
    #[serde(default)]
    pub preflight: Vec<FlightReport>,
}

/// How the pre-flight of a family ended.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct FlightReport {
    /// `ipv4` or `ipv6`.
    pub family: String,
    /// `ok` or `skipped`.
    pub result: String,
    /// Requests sent.
    pub attempts: u32,
    /// Until the answer, milliseconds.
    pub ms: f64,
}

/// All attaches of a log, oldest first; other lines are passed over.
#[must_use]
pub fn attach_reports(log: &str) -> Vec<AttachReport> {
    log.lines().filter_map(report).collect()
}

fn report(line: &str) -> Option<AttachReport> {
    let mut fields: Value = serde_json::from_str(line).ok()?;
    if fields.get("message")?.as_str() != Some(ATTACHED) {
        return None;
    }
    // A log field is text or number; the list is JSON inside a string.
    let preflight = fields
        .get("preflight")
        .and_then(Value::as_str)
        .unwrap_or("[]");
    let preflight = serde_json::from_str(preflight).ok()?;
    fields
        .as_object_mut()?
        .insert("preflight".to_owned(), preflight);
    serde_json::from_value(fields).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attaches_are_found_among_other_lines() {
        let log = r#"plain text
{"level":"INFO","message":"listening"}
{"level":"INFO","message":"attached","pod":"default/c-a","netlink_requests":12,"preflight":"[{\"family\":\"ipv4\",\"result\":\"ok\",\"attempts\":1,\"ms\":48.5}]"}
"#;
        let reports = attach_reports(log);
        assert_eq!(reports.len(), 1);
        assert_eq!(
            (reports[0].pod.as_str(), reports[0].netlink_requests),
            ("default/c-a", 12)
        );
        assert_eq!(
            (reports[0].preflight[0].attempts, reports[0].preflight[0].ms),
            (1, 48.5)
        );
    }
}
