//! `status.ipMetaData.metadata`: what the provider says of each sub-ENI of a pool (spec iaas
//! section 4). Decodes the text into states; a contradictory entry is skipped, never the pool.
//! Read-only for us: there is no encoder.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

use serde::Deserialize;
use serde_json::Value;

use crate::value::{Mac, VlanId};

/// The decoded text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metadata {
    /// Node name of a prewarm pool, empty for a global one.
    pub scope: String,
    /// Readable entries by address.
    pub entries: BTreeMap<IpAddr, Entry>,
    /// Entries that contradict themselves: for the log and the metric.
    pub bad: Vec<BadEntry>,
}

/// One sub-ENI.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Partner address of a pair.
    pub ipv6: Option<Ipv6Addr>,
    /// Where it is.
    pub state: EntryState,
    /// Chosen for reclaim since (RFC 3339), still allocatable.
    pub detach_time: Option<String>,
}

/// Where a sub-ENI is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryState {
    /// Bound to a parent NIC: of the pool's node (no name), or of the node named.
    Attached {
        /// Node of a global entry.
        node: Option<String>,
        /// VLAN id on that parent.
        vlan: VlanId,
        /// The sub-ENI's MAC.
        mac: Mac,
    },
    /// Being detached from that node (`vlan: -1`): never allocated.
    Reclaiming {
        /// Node it is leaving.
        node: String,
    },
    /// Created, attached nowhere.
    Unattached {
        /// The sub-ENI's MAC, if published.
        mac: Option<Mac>,
    },
}

/// An entry that was skipped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadEntry {
    /// The key as written.
    pub key: String,
    /// What is wrong with it.
    pub reason: String,
}

/// Why the whole text can't be used; the label is the metric's `reason`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MetadataError {
    /// Not the JSON of an envelope.
    #[error("metadata is not valid JSON: {0}")]
    BadJson(String),
    /// No `scope`: a flat map of an older contract, or not reconciled yet.
    #[error(
        "metadata has no scope: the provider has not published this pool yet, or speaks the older flat form"
    )]
    MissingScope,
}

impl MetadataError {
    /// `reason` label of `iaas_metadata_decode_failure_total`.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::BadJson(_) => "bad_json",
            Self::MissingScope => "missing_scope",
        }
    }
}

#[derive(Deserialize)]
struct RawEnvelope {
    #[serde(default)]
    scope: Option<String>,
    #[serde(default)]
    ips: Option<BTreeMap<String, Value>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct RawEntry {
    ipv6: Option<String>,
    mac: Option<String>,
    vlan: Option<i64>,
    node: Option<String>,
    status: Option<String>,
    detach_time: Option<String>,
}

impl Metadata {
    /// Decodes the text.
    ///
    /// # Errors
    /// [`MetadataError`] when nothing of it can be used.
    pub fn decode(text: &str) -> Result<Self, MetadataError> {
        let raw: RawEnvelope = serde_json::from_str(text)
            .map_err(|error| MetadataError::BadJson(error.to_string()))?;
        let scope = raw.scope.ok_or(MetadataError::MissingScope)?;
        let mut entries = BTreeMap::new();
        let mut bad = Vec::new();
        for (key, value) in raw.ips.unwrap_or_default() {
            match decode_entry(&key, value, &scope) {
                Ok((address, entry)) => {
                    entries.insert(address, entry);
                }
                Err(reason) => bad.push(BadEntry { key, reason }),
            }
        }
        Ok(Self {
            scope,
            entries,
            bad,
        })
    }
}

fn decode_entry(key: &str, value: Value, scope: &str) -> Result<(IpAddr, Entry), String> {
    let address: IpAddr = key
        .parse()
        .map_err(|_| "the key is not an IP address".to_owned())?;
    let raw: RawEntry = serde_json::from_value(value).map_err(|error| error.to_string())?;
    let mac = raw
        .mac
        .as_deref()
        .filter(|text| !text.is_empty())
        .map(|text| text.parse::<Mac>().and_then(Mac::require_unicast))
        .transpose()
        .map_err(|error| error.to_string())?;
    let ipv6 = raw
        .ipv6
        .as_deref()
        .filter(|text| !text.is_empty())
        .map(|text| {
            text.parse()
                .map_err(|_| format!("ipv6 {text:?} is not an IPv6 address"))
        })
        .transpose()?;
    let node = raw.node.filter(|name| !name.is_empty());
    let state = state_of(raw.status.as_deref(), node, raw.vlan, mac, scope)?;
    let detach_time = raw.detach_time.filter(|text| !text.is_empty());
    Ok((
        address,
        Entry {
            ipv6,
            state,
            detach_time,
        },
    ))
}

fn state_of(
    status: Option<&str>,
    node: Option<String>,
    vlan: Option<i64>,
    mac: Option<Mac>,
    scope: &str,
) -> Result<EntryState, String> {
    let attached = scope.is_empty() && node.is_some() || !scope.is_empty();
    match (status, attached) {
        (None | Some("detaching"), true) if vlan == Some(-1) => Ok(EntryState::Reclaiming {
            node: node.unwrap_or_else(|| scope.to_owned()),
        }),
        (None | Some("bound"), true) => {
            let raw = vlan.ok_or("an attached entry without vlan")?;
            let vlan = VlanId::try_from(raw).map_err(|error| error.to_string())?;
            let mac = mac.ok_or("an attached entry without mac")?;
            Ok(EntryState::Attached { node, vlan, mac })
        }
        (None | Some("unbound"), false) => Ok(EntryState::Unattached { mac }),
        (Some(status @ ("bound" | "detaching" | "unbound")), _) => Err(format!(
            "status {status} contradicts node {} and vlan {}",
            node.as_deref().unwrap_or("(none)"),
            vlan.map_or_else(|| "(none)".to_owned(), |id| id.to_string()),
        )),
        (Some(other), _) => Err(format!("unknown status {other:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(scope: &str, entry: &str) -> Result<EntryState, String> {
        let text = format!(r#"{{"scope":"{scope}","ips":{{"172.91.0.100":{entry}}}}}"#);
        let mut decoded = Metadata::decode(&text).unwrap();
        match decoded.entries.pop_first() {
            Some((_, entry)) => Ok(entry.state),
            None => Err(decoded.bad.remove(0).reason),
        }
    }

    #[test]
    fn states_follow_the_table() {
        let mac: Mac = "fa:16:3e:00:01:64".parse().unwrap();
        let vlan = VlanId::try_from(301).unwrap();
        let attached = |node: Option<&str>| EntryState::Attached {
            node: node.map(str::to_owned),
            vlan,
            mac,
        };
        let good = r#""mac":"fa:16:3e:00:01:64","vlan":301"#;
        assert_eq!(one("w1", &format!("{{{good}}}")), Ok(attached(None)));
        assert_eq!(
            one("", &format!(r#"{{{good},"node":"w1"}}"#)),
            Ok(attached(Some("w1")))
        );
        assert_eq!(
            one("", &format!(r#"{{{good},"node":"w1","status":"bound"}}"#)),
            Ok(attached(Some("w1")))
        );
        let reclaiming = EntryState::Reclaiming { node: "w1".into() };
        assert_eq!(
            one("", r#"{"node":"w1","vlan":-1}"#),
            Ok(reclaiming.clone())
        );
        assert_eq!(
            one("w1", r#"{"vlan":-1,"status":"detaching"}"#),
            Ok(reclaiming)
        );
        assert_eq!(
            one("", r#"{"mac":"fa:16:3e:00:01:64","vlan":-1}"#),
            Ok(EntryState::Unattached { mac: Some(mac) })
        );
        assert_eq!(
            one("", r#"{"status":"unbound","vlan":9}"#),
            Ok(EntryState::Unattached { mac: None })
        );
    }

    #[test]
    fn contradictions_are_skipped_and_named() {
        for (scope, entry, part) in [
            ("w1", r#"{"mac":"fa:16:3e:00:01:64"}"#, "without vlan"),
            ("w1", r#"{"mac":"fa:16:3e:00:01:64","vlan":0}"#, "VLAN id 0"),
            (
                "w1",
                r#"{"mac":"fa:16:3e:00:01:64","vlan":4095}"#,
                "VLAN id 4095",
            ),
            (
                "w1",
                r#"{"mac":"fa:16:3e:00:01:64","vlan":70000}"#,
                "VLAN id 70000",
            ),
            ("w1", r#"{"vlan":9}"#, "without mac"),
            (
                "w1",
                r#"{"mac":"fa:16:3e:00:71","vlan":9}"#,
                "six hexadecimal",
            ),
            ("w1", r#"{"mac":"01:00:5e:00:00:01","vlan":9}"#, "unicast"),
            (
                "",
                r#"{"node":"w1","vlan":-1,"status":"bound"}"#,
                "VLAN id -1",
            ),
            ("", r#"{"vlan":9,"status":"bound"}"#, "contradicts"),
            (
                "",
                r#"{"node":"w1","vlan":9,"status":"unbound"}"#,
                "contradicts",
            ),
            (
                "",
                r#"{"node":"w1","vlan":9,"status":"detaching"}"#,
                "contradicts",
            ),
            (
                "",
                r#"{"node":"w1","vlan":9,"status":"gone"}"#,
                "unknown status",
            ),
            ("w1", "7", "invalid type"),
        ] {
            let reason = one(scope, entry).unwrap_err();
            assert!(reason.contains(part), "{entry}: {reason}");
        }
    }

    #[test]
    fn the_envelope_needs_a_scope() {
        assert_eq!(Metadata::decode("{").unwrap_err().reason(), "bad_json");
        assert_eq!(Metadata::decode("7").unwrap_err().reason(), "bad_json");
        let flat = r#"{"172.91.0.100":{"mac":"fa:16:3e:00:01:64","vlan":301}}"#;
        assert_eq!(
            Metadata::decode(flat).unwrap_err(),
            MetadataError::MissingScope
        );
        assert!(
            Metadata::decode(r#"{"scope":""}"#)
                .unwrap()
                .entries
                .is_empty()
        );
    }
}
