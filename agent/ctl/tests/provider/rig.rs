//! A simulated provider on a port of its own, whole or broken, and the command that tests it.

use std::collections::BTreeSet;
use std::process::Output;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use provider_sim::bucket::Rate;
use provider_sim::publisher::Publisher;
use provider_sim::service::Service;
use provider_sim::settings::{Latency, Settings};
use provider_sim::topology::Topology;
use provider_sim::{console, contract};
use serde_json::Value;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::task::JoinSet;

pub(crate) const TOPOLOGY: &str = r#"
parents:
  - {node: n1, mac: "fa:16:3e:01:00:01", ifname: p1}
  - {node: n2, mac: "fa:16:3e:01:00:02", ifname: p2}
subnets:
  - {ipv4: 10.72.0.0/24, ipv6: "fd72::/64", gatewayIpv4: 10.72.0.1, gatewayMac: "fa:16:3e:ff:ff:fe"}
gateway: {ifname: gw0}
pools:
  - {name: g, subnet: 10.72.0.0/24, ips: [10.72.0.10-10.72.0.19]}
  - {name: p4, subnet: 10.72.0.0/24, ips: [10.72.0.20-10.72.0.24], pair: p6}
  - {name: p6, subnet: "fd72::/64", ips: ["fd72::20-fd72::24"], pair: p4}
  - {name: w, subnet: 10.72.0.0/24, ips: [10.72.0.30-10.72.0.32], node: n1}
"#;

/// A provider whose cloud takes milliseconds.
pub(crate) fn settings() -> Settings {
    Settings {
        queue_timeout_ms: 1_000,
        transaction_timeout_ms: 1_000,
        rate: Rate {
            qps: 1_000.0,
            burst: 1_000.0,
        },
        latency: Latency {
            create_ms: 2,
            attach_ms: 2,
            detach_ms: 2,
            delete_ms: 2,
            update_ms: 2,
        },
        flush_ms: 5,
        ..Settings::default()
    }
}

/// Puts something between the caller and the provider.
pub(crate) type Wrap = fn(Router, Arc<Service>) -> Router;

pub(crate) struct Rig {
    pub(crate) service: Arc<Service>,
    pub(crate) url: String,
    pub(crate) dir: TempDir,
    tasks: JoinSet<()>,
}

pub(crate) async fn rig(settings: Settings, wrap: Wrap) -> Rig {
    rig_with(
        serde_saphyr::from_str(TOPOLOGY).unwrap(),
        settings,
        wrap,
        None,
    )
    .await
}

pub(crate) async fn rig_with(
    topology: Topology,
    settings: Settings,
    wrap: Wrap,
    publisher: Option<Publisher>,
) -> Rig {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("t.yaml"), TOPOLOGY).unwrap();
    let service = Service::new(topology, settings, None, None, publisher).unwrap();
    let router = contract::router(Arc::clone(&service));
    let router = router.merge(console::diagnostics(Arc::clone(&service)));
    let router = wrap(router, Arc::clone(&service));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { axum::serve(listener, router).await.unwrap() });
    Rig {
        service,
        url,
        dir,
        tasks,
    }
}

impl Rig {
    /// Runs something of the service until the end of the test.
    pub(crate) fn run(&mut self, work: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(work);
    }

    pub(crate) fn faults(&self, rules: Value) {
        let rules = serde_json::from_value(rules).unwrap();
        self.service.change(|world| world.faults.replace(rules));
    }

    /// The command with its file, as it is typed.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = ctl(&["provider", "verify", &self.url]);
        command.args(words);
        if !words.contains(&"--pool") {
            command
                .arg("--topology")
                .arg(self.dir.path().join("t.yaml"));
        }
        command
    }

    /// Runs it and reads its report.
    pub(crate) async fn verify(&self, words: &[&str]) -> Report {
        let output = self.command(words).args(["-o", "json"]).output().await;
        Report::of(&output.unwrap())
    }

    /// Nothing is left in the cloud but what prewarm pools have.
    pub(crate) async fn is_clean(&self) {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(5);
        loop {
            let left = self.service.with(|world| {
                let all = world.cloud.sub_enis();
                let left = all.filter(|sub_eni| sub_eni.pool != "w");
                left.map(|sub_eni| format!("{sub_eni:?}"))
                    .collect::<Vec<_>>()
            });
            if left.is_empty() {
                return;
            }
            assert!(tokio::time::Instant::now() < deadline, "left: {left:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

pub(crate) fn ctl(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spiderpoolctl"));
    command.env_clear().args(words).kill_on_drop(true);
    command
}

/// What a run said.
pub(crate) struct Report {
    pub(crate) exit: Option<i32>,
    pub(crate) json: Value,
}

impl Report {
    pub(crate) fn of(output: &Output) -> Self {
        let text = String::from_utf8_lossy(&output.stdout);
        let stderr = String::from_utf8_lossy(&output.stderr);
        let json = serde_json::from_str(&text);
        assert!(json.is_ok(), "{text}\n{stderr}");
        let is_words = !text.contains("Some(") && !text.contains("None");
        assert!(is_words, "not for people: {text}");
        Self {
            exit: output.status.code(),
            json: json.unwrap(),
        }
    }

    /// Checks with a verdict.
    pub(crate) fn having(&self, verdict: &str) -> BTreeSet<&str> {
        let checks = self.json["checks"].as_array().unwrap().iter();
        let checks = checks.filter(|check| check["verdict"] == verdict);
        checks
            .map(|check| check["check"].as_str().unwrap())
            .collect()
    }

    /// A check's reason.
    pub(crate) fn why(&self, id: &str) -> String {
        let mut checks = self.json["checks"].as_array().unwrap().iter();
        let check = checks.find(|check| check["check"] == id).unwrap();
        check["why"].as_str().unwrap_or_default().to_owned()
    }

    /// These failed and no other; what is left is nothing.
    pub(crate) fn fails_exactly(&self, wanted: &[&str], what: &str) {
        let wanted: BTreeSet<&str> = wanted.iter().copied().collect();
        let failed = self.having("fail");
        let whys: Vec<String> = failed
            .iter()
            .map(|id| format!("{id}: {}", self.why(id)))
            .collect();
        assert_eq!(failed, wanted, "{what}\n{}", whys.join("\n"));
        let exit = i32::from(!wanted.is_empty());
        assert_eq!(self.exit, Some(exit), "{what}");
    }
}
