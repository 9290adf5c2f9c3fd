//! The provider of a cluster: `provider-sim serve` with the fabric, restarted where a test needs
//! another. Owns its topology, settings and state files.
#![expect(
    clippy::indexing_slicing,
    reason = "what a JSON object lacks is null, and all of these are objects"
)]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::lab::Lifetime;
use crate::lab::fabric::{Fabric, FabricSpec};
use crate::lab::http::{Request, Response, exchange};
use crate::lab::process::{HERE, argv};
use crate::lab::provider::{CallRecord, Provider};

use super::worker::{GATEWAY_MAC, Namespace, Worker, gateway_port};
use super::{Cluster, keeper, pools};

/// File with the certificate of the provider's CA.
pub(super) fn ca_path(dir: &Path) -> PathBuf {
    dir.join("provider-ca.crt")
}

fn state_path(dir: &Path) -> PathBuf {
    dir.join("cloud-state.json")
}

fn settings_path(dir: &Path) -> PathBuf {
    dir.join("provider.yaml")
}

/// One that is not started.
pub(super) fn new(
    bin_dir: &Path,
    dir: &Path,
    workers: &[Worker],
    ports: [u16; 2],
    wires: &Namespace,
    kubeconfig: &Path,
) -> Result<Fabric> {
    let parents: Vec<_> = workers
        .iter()
        .map(|worker| {
            json!({ "node": worker.name, "mac": worker.parent_mac.to_string(), "ifname": worker.port })
        })
        .collect();
    let mut subnet = pools::subnet();
    subnet["gatewayMac"] = json!(GATEWAY_MAC.to_string());
    let topology = json!({ "parents": parents, "subnets": [subnet],
        "gateway": { "ifname": gateway_port() }, "answerDelayMs": 1 });
    let listen = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)).to_string();
    let words = argv([
        OsStr::new("serve"),
        OsStr::new("--kubeconfig"),
        kubeconfig.as_os_str(),
        OsStr::new("--settings"),
        settings_path(dir).as_os_str(),
        OsStr::new("--state"),
        state_path(dir).as_os_str(),
        OsStr::new("--listen"),
        OsStr::new(&listen(ports[0])),
        OsStr::new("--tls-listen"),
        OsStr::new(&listen(ports[1])),
        OsStr::new("--tls-ca-file"),
        ca_path(dir).as_os_str(),
        OsStr::new("--fabric"),
        OsStr::new("--fabric-netns"),
        wires.netns().path().as_os_str(),
    ]);
    let spec = FabricSpec {
        bin_dir: bin_dir.to_owned(),
        netns: HERE.into(),
        dir: dir.to_owned(),
        words,
        lifetime: Lifetime::Lab,
    };
    Fabric::new(spec, &topology)
}

impl Cluster {
    /// Starts the provider on the state there is, and waits until it serves.
    pub(super) fn start_cloud(&mut self) -> Result<()> {
        let settings = settings_path(&self.dir);
        fs::write(&settings, self.settings.provider.to_string()).context("write settings")?;
        let mut cloud = self.cloud.take().context("no cloud was made")?;
        let (cloud, started) = keeper::run(move || {
            let started = cloud.start();
            (cloud, started)
        })?;
        self.cloud = Some(cloud);
        started?;
        self.provider()?.await_ready()
    }

    /// Kills the provider; the cloud's state stays, and no frame passes.
    ///
    /// # Errors
    /// It does not run.
    pub fn kill_provider(&mut self) -> Result<()> {
        self.cloud.as_mut().context("no cloud was made")?.kill()
    }

    /// A new process of the provider with these settings and the cloud's state, until the test is
    /// over. The drops it counts begin at 0.
    ///
    /// # Errors
    /// It does not start.
    pub fn restart_provider(&mut self, settings: Value) -> Result<()> {
        self.settings.provider = settings;
        self.kill_provider().ok();
        self.drops.clear();
        self.start_cloud()
    }

    /// File with the certificate of the provider's CA, as it is now.
    #[must_use]
    pub fn ca_path(&self) -> PathBuf {
        ca_path(&self.dir)
    }

    /// The administration of the provider.
    ///
    /// # Errors
    /// There is none.
    pub fn provider(&self) -> Result<Provider<'_>> {
        self.fabric().map(Provider::of)
    }

    /// The provider's process and its fabric.
    ///
    /// # Errors
    /// There is none.
    pub fn fabric(&self) -> Result<&Fabric> {
        self.cloud.as_ref().context("no cloud was made")
    }

    /// A call of the provider's administration; its answer as JSON, null if it is none.
    ///
    /// # Errors
    /// It refuses, or is gone.
    pub fn admin(&self, method: &str, path: &str, body: &Value) -> Result<Value> {
        let answer = self.fabric()?.admin(method, path, body)?;
        Ok(serde_json::from_slice(&answer).unwrap_or(Value::Null))
    }

    /// Replaces the provider's faults.
    ///
    /// # Errors
    /// A rule is none.
    pub fn faults(&self, rules: &Value) -> Result<()> {
        self.provider()?.set_faults(rules)
    }

    /// The allocate calls since the test began, oldest first.
    ///
    /// # Errors
    /// The provider is gone.
    pub fn allocate_calls(&self) -> Result<Vec<CallRecord>> {
        self.calls("/allocate-ips")
    }

    /// The release calls since the test began, oldest first.
    ///
    /// # Errors
    /// The provider is gone.
    pub fn release_calls(&self) -> Result<Vec<CallRecord>> {
        self.calls("/release-ip")
    }

    /// Port of the contract without TLS, on loopback.
    #[must_use]
    pub const fn http_port(&self) -> u16 {
        self.ports[0]
    }

    /// An allocate call as an agent of `node` makes it, for one item; the status of the answer.
    ///
    /// # Errors
    /// There is no answer.
    pub fn allocate(&self, node: &str, item: &Value) -> Result<u16> {
        let body = json!({ "nodeName": node, "podName": "rig", "podNamespace": "default",
            "podUID": "rig", "subEniRequests": [item] });
        self.contract("/v1/apis/network.iaas.io/ipam/allocate-ips", 50_000, &body)
            .map(|answer| answer.status)
    }

    /// A call of the contract whose caller waits for so many milliseconds.
    ///
    /// # Errors
    /// There is no answer.
    pub fn contract(&self, path: &str, budget_ms: u64, body: &Value) -> Result<Response> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.http_port()))
            .context("connect to the provider")?;
        let headers = [
            "Content-Type: application/json".to_owned(),
            format!("X-Request-Timeout-Ms: {budget_ms}"),
        ];
        exchange(
            &mut stream,
            &Request {
                method: "POST",
                path,
                headers: &headers,
                body: body.to_string().as_bytes(),
            },
        )
    }

    fn calls(&self, end: &str) -> Result<Vec<CallRecord>> {
        let mut records = self.provider()?.records()?;
        records.retain(|record| record.path.ends_with(end));
        Ok(records)
    }

    /// The fabric's drops since the test began, by reason.
    ///
    /// # Errors
    /// The provider is gone.
    pub fn drops(&self) -> Result<BTreeMap<String, u64>> {
        let mut drops = self.fabric()?.counts()?.drops;
        for (reason, count) in &mut drops {
            let before = self.drops.get(reason).copied().unwrap_or_default();
            *count = count.saturating_sub(before);
        }
        drops.retain(|_, count| *count > 0);
        Ok(drops)
    }
}
