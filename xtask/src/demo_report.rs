//! What a demo run found, as `--json` prints it. Scripts rely on the names: they only grow.

use serde::{Deserialize, Serialize};

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
    /// Observer against link counters; empty until the observer is there.
    pub(crate) counters: Vec<Counter>,
    /// Frames that did not belong to their Pod; empty until the observer is there.
    pub(crate) violations: Vec<Violation>,
    /// Releases.
    pub(crate) release: Vec<Release>,
    /// What was left behind after all releases, one line each: a link, a file, a record.
    pub(crate) leaks: Vec<String>,
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
    /// How the address was found: `prewarm`, `plain`, ...
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

/// One counter, seen twice.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Counter {
    /// Pod.
    pub(crate) pod: String,
    /// The observer's packets.
    pub(crate) observer: u64,
    /// The link's packets.
    pub(crate) link: u64,
    /// Whether they agree.
    pub(crate) equal: bool,
}

/// A frame that did not belong to its Pod.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Violation {
    /// What was wrong: source MAC, source address, VLAN.
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
    /// How the observer is attached; empty until it is there.
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
            ("four Pods or more".to_owned(), self.pods.len() >= 4),
            ("a pre-flight".to_owned(), !self.preflight.is_empty()),
            ("a ping".to_owned(), !self.pings.is_empty()),
            ("a TCP transfer".to_owned(), !self.tcp.is_empty()),
            (
                "a release for each Pod".to_owned(),
                self.env.kept || self.release.len() >= self.pods.len(),
            ),
            (
                format!("no leaks: {}", self.leaks.join(", ")),
                self.leaks.is_empty(),
            ),
        ];
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
                format!("{} of {} is dropped", v.kind, v.pod),
                v.dropped_by_fabric,
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
            ..Pod::default()
        };
        DemoReport {
            pods: (1..=4).map(pod).collect(),
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
            release: (1..=4)
                .map(|_| Release {
                    ok: true,
                    ..Release::default()
                })
                .collect(),
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
            "env",
        ] {
            assert!(json.get(key).is_some(), "{key}");
        }
        assert!(json["pods"][0].get("attachMs").is_some());
        let violation = serde_json::to_value(Violation::default()).unwrap();
        assert!(violation.get("droppedByFabric").is_some());
    }
}
