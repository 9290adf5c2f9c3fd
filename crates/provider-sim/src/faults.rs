//! Faults on demand (spec iaas 15.4): a list of rules, each for an operation, an address, a pool
//! or a node, some number of times. Pure; [`crate::contract`] and [`crate::engine`] ask it.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::settings::MAX_MS;

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Fault {
    /// What it is for; absent: whatever its kind can befall.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub op: Option<Op>,
    /// Pool, address, node; absent keys fit everything.
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

/// What a fault can befall: a call, an operation of the cloud, or what follows from its table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Op {
    /// An allocate call.
    Allocate,
    /// A release call.
    Release,
    /// The cloud makes a sub-ENI.
    Create,
    /// The cloud attaches one.
    Attach,
    /// The cloud detaches one.
    Detach,
    /// The cloud removes one.
    Delete,
    /// The cloud gives one another IPv6 address.
    Update,
    /// A pool's metadata is written.
    Publish,
    /// The fabric forwards a sub-ENI's frames.
    Forward,
}

/// Calls.
const CALLS: &[Op] = &[Op::Allocate, Op::Release];
/// What the cloud does.
const CLOUD: &[Op] = &[Op::Create, Op::Attach, Op::Detach, Op::Delete, Op::Update];
/// All that take time.
const TIMED: &[Op] = &[
    Op::Allocate,
    Op::Release,
    Op::Create,
    Op::Attach,
    Op::Detach,
    Op::Delete,
    Op::Update,
];

/// A rule that could never do anything.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FaultError {
    /// Not of this operation.
    #[error("fault {at}: {kind} cannot befall {op}, but {}", list(can))]
    Op {
        /// Its place in the list, from 0.
        at: usize,
        /// Its kind.
        kind: Kind,
        /// As given.
        op: Op,
        /// What would do.
        can: &'static [Op],
    },
    /// No status of an answer.
    #[error("fault {at}: status {status} is not in 200-599")]
    Status {
        /// Its place in the list, from 0.
        at: usize,
        /// As given.
        status: u16,
    },
    /// Never.
    #[error("fault {at}: times is 0")]
    Times {
        /// Its place in the list, from 0.
        at: usize,
    },
    /// Nothing would be later.
    #[error("fault {at}: delay without delayMs delays nothing")]
    NoDelay {
        /// Its place in the list, from 0.
        at: usize,
    },
    /// Longer than anything here lasts.
    #[error("fault {at}: delayMs is {value}; it must be at most a day, {MAX_MS} ms")]
    Long {
        /// Its place in the list, from 0.
        at: usize,
        /// As given, milliseconds.
        value: u64,
    },
}

fn list(operations: &[Op]) -> String {
    let words: Vec<String> = operations.iter().map(Op::to_string).collect();
    words.join(", ")
}

/// The word in a rule.
impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// The word in a rule.
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
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
    /// Whether each rule can do something.
    ///
    /// # Errors
    /// [`FaultError`] for the first that cannot.
    pub fn check(rules: &[Fault]) -> Result<(), FaultError> {
        for (at, rule) in rules.iter().enumerate() {
            let (kind, can) = (rule.kind, rule.kind.befalls());
            match (rule.op, rule.status) {
                (Some(op), _) if !can.contains(&op) => {
                    return Err(FaultError::Op { at, kind, op, can });
                }
                (_, Some(status)) if !(200..600).contains(&status) => {
                    return Err(FaultError::Status { at, status });
                }
                _ if rule.times == Some(0) => return Err(FaultError::Times { at }),
                _ if rule.delay_ms > MAX_MS => {
                    let value = rule.delay_ms;
                    return Err(FaultError::Long { at, value });
                }
                _ if kind == Kind::Delay && rule.delay_ms == 0 => {
                    return Err(FaultError::NoDelay { at });
                }
                _ => {}
            }
        }
        Ok(())
    }

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
    pub fn take(&mut self, op: Op, subject: &Subject) -> Option<Fault> {
        // while nobody listens no call comes, whatever brings it
        let mut rules = self.rules.iter();
        let at = rules.position(|rule| rule.kind != Kind::Refuse && rule.fits(op, subject))?;
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
        rules.find(|rule| rule.kind == kind && rule.fits(Op::Publish, &subject))
    }

    /// Whether a sub-ENI's frames are held back.
    #[must_use]
    pub fn holds(&self, pool: &str, ips: &[IpAddr], node: Option<&str>) -> bool {
        let subject = Subject {
            pools: BTreeSet::from([pool.to_owned()]),
            ips: ips.iter().copied().collect(),
            node: node.map(str::to_owned),
        };
        let hold = |rule: &Fault| rule.kind == Kind::NoForward && rule.fits(Op::Forward, &subject);
        self.rules.iter().any(hold)
    }
}

impl Kind {
    /// What it can befall. Faults of calls and of the cloud are taken one by one; others stand as
    /// long as their rule does.
    const fn befalls(self) -> &'static [Op] {
        match self {
            Self::Delay => TIMED,
            Self::Hang | Self::Reset | Self::Refuse | Self::Status | Self::LateSuccess => CALLS,
            Self::BadJson
            | Self::ExtraIp
            | Self::MissingIp
            | Self::Duplicate
            | Self::WrongV6
            | Self::WrongPool
            | Self::VlanZero
            | Self::VlanRange => &[Op::Allocate],
            Self::CloudError | Self::CloudThrottle => CLOUD,
            Self::NoForward => &[Op::Forward],
            Self::PublishStall | Self::BadMetadata => &[Op::Publish],
        }
    }
}

impl Fault {
    fn fits(&self, op: Op, subject: &Subject) -> bool {
        let Match { pool, ip, node } = &self.matches;
        self.kind.befalls().contains(&op)
            && self.op.is_none_or(|wanted| wanted == op)
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

    fn take_any(faults: &mut Faults, op: Op) -> Option<Kind> {
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
        assert_eq!(take(Op::Allocate, "10.72.0.11", "n1"), None);
        assert_eq!(take(Op::Release, "10.72.0.10", "n1"), None);
        assert_eq!(take(Op::Allocate, "10.72.0.10", "n1"), Some(Kind::Status));
        assert_eq!(take(Op::Allocate, "10.72.0.10", "n1"), Some(Kind::Status));
        assert_eq!(take(Op::Allocate, "10.72.0.10", "n1"), None);
        assert_eq!(
            take(Op::Release, "10.72.0.10", "n2"),
            Some(Kind::LateSuccess)
        );
        assert_eq!(
            take(Op::Release, "10.72.0.10", "n2"),
            Some(Kind::LateSuccess)
        );
        assert!(faults.stalls("g") && !faults.stalls("h"));
        let bad = ["g", "h", "i"].map(|pool| faults.bad_metadata(pool));
        assert_eq!(bad, [None, Some("x".to_owned()), Some("{".to_owned())]);
        assert!(faults.holds("g", &[], None) && !faults.holds("h", &[], None));
        assert_eq!(
            take_any(&mut faults, Op::Attach),
            None,
            "late-success is of calls"
        );
        assert_eq!(faults.rules().len(), 5);
        assert!(!faults.refuses());
        faults.replace(serde_json::from_str(r#"[{"kind":"refuse"}]"#).unwrap());
        assert!(faults.refuses());
        assert_eq!(
            take_any(&mut faults, Op::Allocate),
            None,
            "calls never come"
        );
    }

    #[test]
    #[rustfmt::skip] // a case a line
    fn rules_that_can_do_nothing_are_refused() {
        let check = |rules: &str| Faults::check(&serde_json::from_str::<Vec<Fault>>(rules).unwrap());
        assert_eq!(check(r#"[{"op":"create","kind":"delay","delayMs":86400000},{"op":"release","kind":"refuse"}]"#), Ok(()));
        for (rule, text) in [
            (r#"{"op":"create","kind":"vlan-zero"}"#, "fault 1: vlan-zero cannot befall create, but allocate"),
            (r#"{"op":"publish","kind":"no-forward"}"#, "fault 1: no-forward cannot befall publish, but forward"),
            (r#"{"op":"publish","kind":"hang"}"#, "fault 1: hang cannot befall publish, but allocate, release"),
            (r#"{"op":"create","kind":"delay"}"#, "fault 1: delay without delayMs delays nothing"),
            (r#"{"kind":"late-success","delayMs":86400001}"#, "fault 1: delayMs is 86400001; it must be at most a day, 86400000 ms"),
            (r#"{"kind":"delay","delayMs":18446744073709551615}"#, "fault 1: delayMs is 18446744073709551615; it must be at most a day, 86400000 ms"),
            (r#"{"kind":"status","status":101}"#, "fault 1: status 101 is not in 200-599"),
            (r#"{"kind":"hang","times":0}"#, "fault 1: times is 0"),
        ] {
            let error = check(&format!(r#"[{{"kind":"hang"}},{rule}]"#)).unwrap_err();
            assert_eq!(error.to_string(), text);
        }
        let unknown = serde_json::from_str::<Fault>(r#"{"op":"atach","kind":"delay"}"#).unwrap_err();
        assert!(unknown.to_string().contains("unknown variant `atach`"), "{unknown}");
    }
}
