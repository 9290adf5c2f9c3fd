//! What a demo run found, as `--json` prints it. Scripts rely on the names: they only grow.

use serde::{Deserialize, Serialize};

/// Pods of a run.
const PODS: usize = 8;
/// Ways to an address that a run shows.
const PATHS: [&str; 4] = ["prewarm", "global-cold", "global-hit", "global-steal"];
/// Kinds of forged frames that a run shows.
const FORGERIES: [&str; 3] = ["src_ip4", "src_mac", "arp_spa"];
/// Ways in which an observer hangs on a NIC.
const ATTACHED: [&str; 2] = ["tcx", "clsact"];

/// One run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DemoReport {
    /// Attached Pods.
    pub(crate) pods: Vec<Pod>,
    /// Pre-flight of each address.
    pub(crate) preflight: Vec<Preflight>,
    /// Pings.
    pub(crate) pings: Vec<Ping>,
    /// TCP transfers.
    pub(crate) tcp: Vec<Tcp>,
    /// Observer against link counters.
    pub(crate) counters: Vec<Counter>,
    /// Frames that did not belong to their Pod.
    pub(crate) violations: Vec<Violation>,
    /// Releases.
    pub(crate) release: Vec<Release>,
    /// What was left behind after all releases, one line each: a link, a file, a record.
    pub(crate) leaks: Vec<String>,
    /// Contradictions between cloud, provider, publications and claims while all Pods ran.
    pub(crate) audit: Vec<String>,
    /// Where it ran.
    pub(crate) env: Env,
}

/// An attached Pod.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Pod {
    /// `namespace/name`.
    pub(crate) name: String,
    /// Node it is on.
    pub(crate) node: String,
    /// Main plugin, such as `eni-vlan`.
    pub(crate) mode: String,
    /// How the address was found: `prewarm`; of a global pool `global-cold` (made on demand),
    /// `global-hit` (the node had it), `global-rebind` (no node had it), `global-steal` (another
    /// node had it).
    pub(crate) path: String,
    /// IPv4 address without prefix.
    pub(crate) ipv4: Option<String>,
    /// IPv6 address without prefix.
    pub(crate) ipv6: Option<String>,
    /// MAC of the sub-ENI.
    pub(crate) mac: String,
    /// Its VLAN id.
    pub(crate) vlan: u16,
    /// CNI ADD, process start to exit, milliseconds.
    pub(crate) attach_ms: f64,
}

impl Pod {
    /// Whether it has an address, a MAC, a VLAN id and a time.
    fn whole(&self) -> bool {
        let vlan = (1..=4094).contains(&self.vlan);
        self.ipv4.is_some() && !self.mac.is_empty() && vlan && self.attach_ms > 0.0
    }
}

/// A pre-flight.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Preflight {
    /// `namespace/name`.
    pub(crate) pod: String,
    /// 4 or 6.
    pub(crate) family: u8,
    /// `ok`, or what went wrong.
    pub(crate) result: String,
    /// Probes sent.
    pub(crate) attempts: u32,
    /// Until the answer, milliseconds.
    pub(crate) ms: f64,
}

/// A ping.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Ping {
    /// Pod.
    pub(crate) from: String,
    /// Pod or `gateway`.
    pub(crate) to: String,
    /// 4 or 6.
    pub(crate) family: u8,
    /// Whether it was answered.
    pub(crate) ok: bool,
    /// Round trip, milliseconds; 0 without an answer.
    pub(crate) ms: f64,
}

/// A TCP transfer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Tcp {
    /// Pod.
    pub(crate) from: String,
    /// Pod.
    pub(crate) to: String,
    /// 4 or 6.
    pub(crate) family: u8,
    /// Whether every byte arrived.
    pub(crate) ok: bool,
    /// Bytes that arrived.
    pub(crate) bytes: u64,
    /// Connect to the last byte, milliseconds.
    pub(crate) ms: f64,
}

/// What passed a Pod's NIC in both directions, counted twice.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Counter {
    /// `namespace/name`.
    pub(crate) pod: String,
    /// Frames the observer saw on the parent NIC.
    pub(crate) observer: u64,
    /// Frames the Pod's link counted.
    pub(crate) link: u64,
    /// Bytes the observer saw.
    pub(crate) observer_bytes: u64,
    /// Bytes the link counted, with the Ethernet headers it leaves out of received frames.
    pub(crate) link_bytes: u64,
    /// Whether they agree, each direction by itself.
    pub(crate) equal: bool,
}

/// A frame that did not belong to its Pod.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Violation {
    /// What was wrong, as the observer names it: `src_mac`, `src_ip4`, `arp_spa`.
    pub(crate) kind: String,
    /// Pod.
    pub(crate) pod: String,
    /// Times the observer saw it.
    pub(crate) observed: u64,
    /// Whether the fabric dropped it.
    pub(crate) dropped_by_fabric: bool,
}

/// A release.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Release {
    /// `namespace/name`.
    pub(crate) pod: String,
    /// Whether CNI DEL succeeded.
    pub(crate) ok: bool,
    /// CNI DEL, process start to exit, milliseconds.
    pub(crate) ms: f64,
}

/// Where the demo ran.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Env {
    /// Kernel release the Pods ran on.
    pub(crate) kernel: String,
    /// `native` or `uml`; set by the outer command.
    pub(crate) backend: String,
    /// How the observer is attached: `tcx`, `clsact`, `none`.
    pub(crate) attach: String,
    /// Pods were left running: nothing was released and nothing can have leaked.
    pub(crate) kept: bool,
    /// The whole command without builds; set by the outer command.
    pub(crate) seconds: f64,
}

impl DemoReport {
    /// Each thing a successful run must show, with whether it does.
    pub(crate) fn verdicts(&self) -> Vec<(String, bool)> {
        let mut all = vec![
            ("eight Pods".to_owned(), self.pods.len() >= PODS),
            ("a pre-flight".to_owned(), !self.preflight.is_empty()),
            ("a ping".to_owned(), !self.pings.is_empty()),
            ("a TCP transfer".to_owned(), !self.tcp.is_empty()),
            (
                "counters of each Pod".to_owned(),
                self.counters.len() >= self.pods.len(),
            ),
            (
                format!("an observer: {}", self.env.attach),
                ATTACHED.contains(&self.env.attach.as_str()),
            ),
            (
                "a release for each Pod".to_owned(),
                self.env.kept || self.release.len() >= self.pods.len(),
            ),
            (
                format!("no contradictions: {}", self.audit.join(", ")),
                self.audit.is_empty(),
            ),
            (
                format!("no leaks: {}", self.leaks.join(", ")),
                self.leaks.is_empty(),
            ),
        ];
        all.extend(PATHS.iter().map(|path| {
            let taken = self.pods.iter().any(|pod| pod.path == *path);
            (format!("a Pod by the path {path}"), taken)
        }));
        all.extend(FORGERIES.iter().map(|kind| {
            let tried = self.violations.iter().any(|seen| seen.kind == *kind);
            (format!("a forged frame of kind {kind}"), tried)
        }));
        all.extend(
            self.pods
                .iter()
                .map(|p| (format!("{} is whole", p.name), p.whole())),
        );
        all.extend(self.parts());
        all
    }

    fn parts(&self) -> impl Iterator<Item = (String, bool)> {
        let Self {
            preflight,
            pings,
            tcp,
            counters,
            violations,
            release,
            ..
        } = self;
        let preflight = preflight.iter().map(|p| {
            (
                format!("pre-flight of {} v{}: {}", p.pod, p.family, p.result),
                p.result == "ok",
            )
        });
        let pings = pings
            .iter()
            .map(|p| (format!("ping {} to {} v{}", p.from, p.to, p.family), p.ok));
        let tcp = tcp.iter().map(|t| {
            (
                format!("TCP {} to {} v{}", t.from, t.to, t.family),
                t.ok && t.bytes > 0,
            )
        });
        let counters = counters
            .iter()
            .map(|c| (format!("counters of {} agree", c.pod), c.equal));
        let violations = violations.iter().map(|v| {
            (
                format!("{} of {} is observed and dropped", v.kind, v.pod),
                v.observed > 0 && v.dropped_by_fabric,
            )
        });
        let release = release
            .iter()
            .map(|r| (format!("release of {}", r.pod), r.ok));
        preflight
            .chain(pings)
            .chain(tcp)
            .chain(counters)
            .chain(violations)
            .chain(release)
    }

    /// Whether everything holds.
    pub(crate) fn ok(&self) -> bool {
        self.verdicts().iter().all(|(_, ok)| *ok)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> DemoReport {
        let pod = |n: u16| Pod {
            name: format!("default/p{n}"),
            ipv4: Some(format!("172.16.0.{n}")),
            mac: "02:00:00:00:00:01".into(),
            vlan: 100 + n,
            attach_ms: 5.0,
            path: PATHS[usize::from(n) % PATHS.len()].into(),
            ..Pod::default()
        };
        let violation = |kind: &&str| Violation {
            kind: (*kind).into(),
            observed: 1,
            dropped_by_fabric: true,
            ..Violation::default()
        };
        DemoReport {
            pods: (1..=8).map(pod).collect(),
            preflight: vec![Preflight {
                result: "ok".into(),
                family: 4,
                ..Preflight::default()
            }],
            pings: vec![Ping {
                ok: true,
                ..Ping::default()
            }],
            tcp: vec![Tcp {
                ok: true,
                bytes: 10,
                ..Tcp::default()
            }],
            counters: (1..=8)
                .map(|_| Counter {
                    equal: true,
                    ..Counter::default()
                })
                .collect(),
            violations: FORGERIES.iter().map(violation).collect(),
            release: (1..=8)
                .map(|_| Release {
                    ok: true,
                    ..Release::default()
                })
                .collect(),
            env: Env {
                attach: "clsact".into(),
                ..Env::default()
            },
            ..DemoReport::default()
        }
    }

    #[test]
    fn every_fault_shows() {
        assert!(good().ok(), "{:?}", good().verdicts());
        let faults: &[fn(&mut DemoReport)] = &[
            |r| drop(r.pods.pop()),
            |r| r.pods[0].ipv4 = None,
            |r| r.pods[0].vlan = 0,
            |r| r.preflight[0].result = "no answer".into(),
            |r| r.pings[0].ok = false,
            |r| r.tcp[0].bytes = 0,
            |r| drop(r.release.pop()),
            |r| r.leaks.push("link sub0".into()),
            |r| r.audit.push("sub-ENI".into()),
            |r| r.pods.retain(|pod| pod.path != "global-steal"),
            |r| {
                r.pods
                    .iter_mut()
                    .for_each(|pod| pod.path = "prewarm".into())
            },
            |r| drop(r.counters.pop()),
            |r| r.counters[0].equal = false,
            |r| drop(r.violations.pop()),
            |r| r.violations[0].observed = 0,
            |r| r.violations[0].dropped_by_fabric = false,
            |r| r.env.attach = "none".into(),
        ];
        for (index, fault) in faults.iter().enumerate() {
            let mut report = good();
            fault(&mut report);
            assert!(!report.ok(), "fault {index} goes unseen");
        }
    }

    #[test]
    fn a_kept_demo_releases_nothing() {
        let mut report = good();
        report.release.clear();
        assert!(!report.ok());
        report.env.kept = true;
        assert!(report.ok());
    }

    #[test]
    fn names_on_the_wire() {
        let json = serde_json::to_value(good()).unwrap();
        for key in [
            "pods",
            "preflight",
            "pings",
            "tcp",
            "counters",
            "violations",
            "release",
            "leaks",
            "audit",
            "env",
        ] {
            assert!(json.get(key).is_some(), "{key}");
        }
        assert!(json["pods"][0].get("attachMs").is_some());
        let violation = serde_json::to_value(Violation::default()).unwrap();
        assert!(violation.get("droppedByFabric").is_some());
    }
}
