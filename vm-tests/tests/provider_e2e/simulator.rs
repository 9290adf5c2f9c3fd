//! The simulated cloud as a process, and its administration.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use vm_tests::lab::http::{Request, exchange};
use vm_tests::lab::process::{Daemon, DaemonSpec, Lifetime, argv};
use vm_tests::lab::{Netns, wait};

use crate::rig::PARENT_MAC;

/// The contract without TLS; each rig has a namespace, so the port is free.
pub(crate) const PLAIN: &str = "127.0.0.1:8080";
/// The contract with TLS.
pub(crate) const TLS: &str = "127.0.0.1:8443";
const START_LIMIT: Duration = Duration::from_secs(20);
const ADMIN_LIMIT: Duration = Duration::from_secs(20);

/// Where it runs and what it is told.
#[derive(Debug, Clone)]
pub(crate) struct SimSpec {
    pub(crate) bin_dir: PathBuf,
    pub(crate) dir: PathBuf,
    pub(crate) netns: Netns,
    /// Without it the cloud has no pools.
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Settings of the provider.
    pub(crate) settings: Value,
}

/// A running `provider-sim serve`.
#[derive(Debug)]
pub(crate) struct Simulator {
    daemon: Daemon,
    admin: PathBuf,
}

/// A cloud whose operations take a millisecond, and whose provider refuses nobody for its budget
/// of two seconds.
pub(crate) fn quick() -> Value {
    json!({
        "queueTimeoutMs": 200, "transactionTimeoutMs": 1000, "flushMs": 5,
        "reclaim": { "mode": "off" },
        "rate": { "qps": 1000, "burst": 1000 },
        "latency": { "createMs": 1, "attachMs": 1, "detachMs": 1, "deleteMs": 1 },
    })
}

impl Simulator {
    pub(crate) fn start(spec: &SimSpec) -> Self {
        let path = |name: &str| spec.dir.join(name);
        let topology = json!({
            "parents": [{ "node": "n1", "mac": PARENT_MAC, "ifname": "port-1" }],
            "subnets": [{ "ipv4": "10.72.0.0/24", "gatewayIpv4": "10.72.0.1", "gatewayMac": "fa:16:3e:ff:ff:fe" }],
            "gateway": { "ifname": "gw0" },
        });
        fs::write(path("topology.yaml"), topology.to_string()).unwrap();
        fs::write(path("settings.yaml"), spec.settings.to_string()).unwrap();
        let (admin, ready) = (path("admin.sock"), path("sim-ready"));
        // What an earlier one left must not speak for this one.
        fs::remove_file(&ready).ok();
        let mut words = argv([
            OsStr::new("provider-sim"),
            OsStr::new("serve"),
            OsStr::new("--topology"),
            path("topology.yaml").as_os_str(),
            OsStr::new("--settings"),
            path("settings.yaml").as_os_str(),
            OsStr::new("--state"),
            path("cloud.json").as_os_str(),
            OsStr::new("--listen"),
            OsStr::new(PLAIN),
            OsStr::new("--tls-listen"),
            OsStr::new(TLS),
            OsStr::new("--tls-ca-file"),
            path("ca.crt").as_os_str(),
            OsStr::new("--admin"),
            OsStr::new(&format!("unix:{}", admin.display())),
            OsStr::new("--ready-file"),
            ready.as_os_str(),
        ]);
        if let Some(kubeconfig) = &spec.kubeconfig {
            words.extend(["--kubeconfig".into(), kubeconfig.into()]);
        }
        let mut daemon = Daemon::start(&DaemonSpec {
            name: "the cloud",
            bin_dir: &spec.bin_dir,
            netns: spec.netns.path(),
            argv: words,
            env: &[],
            log_path: path("cloud.log"),
            lifetime: Lifetime::Lab,
        })
        .unwrap();
        wait::until(START_LIMIT, "a cloud that listens", || {
            daemon.still_runs()?;
            Ok(ready.exists().then_some(()))
        })
        .unwrap();
        Self { daemon, admin }
    }

    /// SIGKILL; the state file stays.
    pub(crate) fn kill(self) {
        self.daemon.kill().unwrap();
    }

    pub(crate) fn log_tail(&self) -> String {
        self.daemon.log_tail()
    }

    pub(crate) fn set_faults(&self, rules: &Value) {
        self.admin("POST", "/admin/faults", rules);
    }

    /// Tokens of the contract's calls.
    pub(crate) fn set_rate(&self, qps: f64, burst: f64) {
        self.admin(
            "POST",
            "/admin/rate-limit",
            &json!({ "qps": qps, "burst": burst }),
        );
    }

    /// Forgets sub-ENIs, calls and faults.
    pub(crate) fn reset(&self) {
        self.admin("POST", "/reset", &Value::Null);
    }

    /// The contract calls whose path ends so, oldest first.
    pub(crate) fn calls(&self, end: &str) -> Vec<Value> {
        let Value::Array(mut calls) = self.admin("GET", "/records", &Value::Null) else {
            panic!("records are a list");
        };
        calls.retain(|call| call["path"].as_str().unwrap().ends_with(end));
        calls
    }

    /// The sub-ENI with this address, if the cloud has one.
    pub(crate) fn sub_eni(&self, ip: &str) -> Option<Value> {
        let all = self.admin("GET", "/admin/sub-enis", &Value::Null);
        let mut all = all.as_array().unwrap().iter();
        all.find(|sub_eni| sub_eni["ipv4"] == ip).cloned()
    }

    /// Cloud, provider, publications and claims agree.
    pub(crate) fn audit(&self) {
        let found = self.admin("GET", "/admin/audit", &Value::Null);
        assert_eq!(found, json!([]));
    }

    fn admin(&self, method: &str, path: &str, body: &Value) -> Value {
        let mut stream = UnixStream::connect(&self.admin).unwrap();
        stream.set_read_timeout(Some(ADMIN_LIMIT)).unwrap();
        let bytes = match body {
            Value::Null => Vec::new(),
            body => body.to_string().into_bytes(),
        };
        let headers = ["Content-Type: application/json".to_owned()];
        let request = Request {
            method,
            path,
            headers: &headers,
            body: &bytes,
        };
        let answer = exchange(&mut stream, &request).unwrap();
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        assert!(
            (200..300).contains(&answer.status),
            "{method} {path}: {} {text}",
            answer.status
        );
        serde_json::from_slice(&answer.body).unwrap_or(Value::Null)
    }
}

/// The certificate of the CA of the cloud that runs in this folder.
pub(crate) fn ca_of(dir: &Path) -> PathBuf {
    dir.join("ca.crt")
}
