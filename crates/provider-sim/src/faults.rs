//! Faults on demand (spec iaas 15.4): a list of rules, each for an operation, an address, a pool
//! or a node, some number of times. Pure; [`crate::contract`] and [`crate::engine`] ask it.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Fault {
    /// `allocate`, `release`, `create`, `attach`, `detach`, `delete`, `publish`; absent: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub op: Option<String>,
    /// What it is for; absent keys fit everything.
    #[serde(default, rename = "match")]
    pub matches: Match,
    /// What happens.
    pub kind: Kind,
    /// How often; absent: until the list is replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<u32>,
    /// Of `delay` and `late-success`, milliseconds.
    #[serde(default)]
    pub delay_ms: u64,
    /// Of `status`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Of `status`, `bad-json` and `bad-metadata`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
}

/// What a rule is for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Match {
    /// Pool name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip: Option<IpAddr>,
    /// Node name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}

/// What happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The answer begins later.
    Delay,
    /// No answer, and nothing is done.
    Hang,
    /// Done, but the connection ends in the middle of the answer.
    Reset,
    /// Nobody listens where the contract is served; of the process, whatever the rule matches.
    Refuse,
    /// Another status, and nothing is done.
    Status,
    /// Done, but the answer is no JSON.
    BadJson,
    /// Done, with an item nobody asked for.
    ExtraIp,
    /// Done, without the first item.
    MissingIp,
    /// Done, with the first item again under another VLAN.
    Duplicate,
    /// Done, with another IPv6 address.
    WrongV6,
    /// Done, naming another pool.
    WrongPool,
    /// Done, without VLAN and MAC.
    VlanZero,
    /// Done, with VLAN 70000.
    VlanRange,
    /// Done, but answered after `delayMs`; 0: never.
    LateSuccess,
    /// The cloud refuses an operation.
    CloudError,
    /// The cloud refuses an operation for its rate.
    CloudThrottle,
    /// Bound, but the fabric does not forward.
    NoForward,
    /// Nothing is published.
    PublishStall,
    /// What is published of a pool is `body`, by default no JSON.
    BadMetadata,
}

/// What `bad-metadata` publishes unless its rule says otherwise.
const BAD_METADATA: &str = "{";

/// What a call or operation is about.
#[derive(Debug, Clone, Default)]
pub struct Subject {
    /// Pools it names.
    pub pools: BTreeSet<String>,
    /// Addresses it names.
    pub ips: BTreeSet<IpAddr>,
    /// Node it names.
    pub node: Option<String>,
}

/// The rules that still count.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    rules: Vec<Fault>,
}

impl Faults {
    /// Replaces all rules.
    pub fn replace(&mut self, rules: Vec<Fault>) {
        self.rules = rules;
    }

    /// The rules, with the times that are left.
    #[must_use]
    pub fn rules(&self) -> &[Fault] {
        &self.rules
    }

    /// The first rule for this, used once by that.
    pub fn take(&mut self, op: &str, subject: &Subject) -> Option<Fault> {
        let at = self
            .rules
            .iter()
            .position(|rule| rule.kind.concerns(op) && rule.fits(op, subject))?;
        let rule = self.rules.get_mut(at)?;
        let taken = rule.clone();
        match &mut rule.times {
            Some(times) if *times <= 1 => {
                self.rules.remove(at);
            }
            Some(times) => *times -= 1,
            None => {}
        }
        Some(taken)
    }

    /// Whether the publication of a pool is stopped.
    #[must_use]
    pub fn stalls(&self, pool: &str) -> bool {
        self.of_publication(Kind::PublishStall, pool).is_some()
    }

    /// What is published of a pool instead of the truth.
    #[must_use]
    pub fn bad_metadata(&self, pool: &str) -> Option<String> {
        let rule = self.of_publication(Kind::BadMetadata, pool)?;
        Some(rule.body.clone().unwrap_or_else(|| BAD_METADATA.to_owned()))
    }

    /// Whether nobody listens for calls.
    #[must_use]
    pub fn refuses(&self) -> bool {
        self.rules.iter().any(|rule| rule.kind == Kind::Refuse)
    }

    fn of_publication(&self, kind: Kind, pool: &str) -> Option<&Fault> {
        let subject = Subject {
            pools: BTreeSet::from([pool.to_owned()]),
            ..Subject::default()
        };
        let mut rules = self.rules.iter();
        rules.find(|rule| rule.kind == kind && rule.fits("publish", &subject))
    }

    /// Whether a sub-ENI's frames are held back.
    #[must_use]
    pub fn holds(&self, pool: &str, ips: &[IpAddr], node: Option<&str>) -> bool {
        let subject = Subject {
            pools: BTreeSet::from([pool.to_owned()]),
            ips: ips.iter().copied().collect(),
            node: node.map(str::to_owned),
        };
        let hold = |rule: &Fault| rule.kind == Kind::NoForward && rule.fits("forward", &subject);
        self.rules.iter().any(hold)
    }
}

impl Kind {
    /// Whether it can be taken by an operation: those of a call by a call, those of the cloud by
    /// the cloud. Others stand as long as the rule does.
    fn concerns(self, op: &str) -> bool {
        let call = matches!(op, "allocate" | "release");
        match self {
            Self::NoForward | Self::PublishStall | Self::BadMetadata | Self::Refuse => false,
            Self::CloudError | Self::CloudThrottle => !call,
            Self::Delay => true,
            _ => call,
        }
    }
}

impl Fault {
    fn fits(&self, op: &str, subject: &Subject) -> bool {
        let Match { pool, ip, node } = &self.matches;
        self.op.as_deref().is_none_or(|wanted| wanted == op)
            && pool
                .as_ref()
                .is_none_or(|pool| subject.pools.contains(pool))
            && ip.is_none_or(|ip| subject.ips.contains(&ip))
            && node
                .as_ref()
                .is_none_or(|node| subject.node.as_ref() == Some(node))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take_any(faults: &mut Faults, op: &str) -> Option<Kind> {
        let subject = Subject {
            node: Some("n2".to_owned()),
            ..Subject::default()
        };
        faults.take(op, &subject).map(|fault| fault.kind)
    }

    #[test]
    fn rules_fit_by_what_they_name_and_wear_out() {
        let mut faults = Faults::default();
        let rules = r#"[
            {"op":"allocate","match":{"ip":"10.72.0.10"},"kind":"status","status":500,"times":2},
            {"match":{"node":"n2"},"kind":"late-success"},
            {"match":{"pool":"g"},"kind":"no-forward"},
            {"match":{"pool":"g"},"kind":"publish-stall"},
            {"match":{"pool":"h"},"kind":"bad-metadata","body":"x"},
            {"match":{"pool":"i"},"kind":"bad-metadata"}]"#;
        faults.replace(serde_json::from_str(rules).unwrap());
        let subject = |ip: &str, node: &str| Subject {
            pools: BTreeSet::from(["g".to_owned()]),
            ips: BTreeSet::from([ip.parse().unwrap()]),
            node: Some(node.to_owned()),
        };
        let mut take = |op, ip, node| faults.take(op, &subject(ip, node)).map(|fault| fault.kind);
        assert_eq!(take("allocate", "10.72.0.11", "n1"), None);
        assert_eq!(take("release", "10.72.0.10", "n1"), None);
        assert_eq!(take("allocate", "10.72.0.10", "n1"), Some(Kind::Status));
        assert_eq!(take("allocate", "10.72.0.10", "n1"), Some(Kind::Status));
        assert_eq!(take("allocate", "10.72.0.10", "n1"), None);
        assert_eq!(take("release", "10.72.0.10", "n2"), Some(Kind::LateSuccess));
        assert_eq!(take("release", "10.72.0.10", "n2"), Some(Kind::LateSuccess));
        assert!(faults.stalls("g") && !faults.stalls("h"));
        let bad = ["g", "h", "i"].map(|pool| faults.bad_metadata(pool));
        assert_eq!(bad, [None, Some("x".to_owned()), Some("{".to_owned())]);
        assert!(faults.holds("g", &[], None) && !faults.holds("h", &[], None));
        assert_eq!(
            take_any(&mut faults, "attach"),
            None,
            "late-success is of calls"
        );
        assert_eq!(faults.rules().len(), 5);
        assert!(!faults.refuses());
        faults.replace(serde_json::from_str(r#"[{"kind":"refuse"}]"#).unwrap());
        assert!(faults.refuses());
        assert_eq!(take_any(&mut faults, "allocate"), None, "calls never come");
    }
}
