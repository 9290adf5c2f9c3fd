//! The cloud's side: the fabric process, its administration, and what the provider publishes.

use std::ffi::OsStr;
use std::fs;
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::{Value, json};
use spiderpool_netops::netns::Netns;

use super::http::{Request, exchange};
use super::process::{Daemon, DaemonSpec, Lifetime, argv};
use super::wait;

const START_LIMIT: Duration = Duration::from_secs(20);
const ADMIN_LIMIT: Duration = Duration::from_secs(10);

/// A running fabric.
#[derive(Debug)]
pub struct Fabric {
    daemon: Daemon,
    admin_path: PathBuf,
    topology_path: PathBuf,
}

/// What the fabric counted, as far as the lab judges it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Counts {
    /// Frames that passed.
    pub forwarded: u64,
    /// Frames that were dropped.
    pub dropped: u64,
    /// The last drops in detail.
    #[serde(default)]
    pub recent: Vec<Value>,
}

impl Fabric {
    /// Starts `provider-sim fabric` in `netns` and waits until it moves frames.
    ///
    /// # Errors
    /// It ends or is silent for 20 s; with its log.
    pub fn start(
        bin_dir: &Path,
        netns: &Path,
        dir: &Path,
        topology: &Value,
        lifetime: Lifetime,
    ) -> Result<Self> {
        let topology_path = dir.join("topology.yaml");
        fs::write(&topology_path, serde_json::to_vec_pretty(topology)?)
            .with_context(|| format!("write {}", topology_path.display()))?;
        let admin_path = dir.join("admin.sock");
        let admin = format!("unix:{}", admin_path.display());
        let daemon = Daemon::start(&DaemonSpec {
            name: "the fabric",
            bin_dir,
            netns,
            argv: argv([
                OsStr::new("provider-sim"),
                OsStr::new("fabric"),
                OsStr::new("--topology"),
                topology_path.as_os_str(),
                OsStr::new("--admin"),
                OsStr::new(&admin),
            ]),
            log_path: dir.join("fabric.log"),
            lifetime,
        })?;
        let mut fabric = Self {
            daemon,
            admin_path,
            topology_path,
        };
        wait::until(START_LIMIT, "a fabric that answers", || {
            fabric.daemon.still_runs()?;
            Ok(fabric.admin("GET", "/healthz", &Value::Null).ok())
        })
        .with_context(|| fabric.daemon.log_tail())?;
        Ok(fabric)
    }

    /// The file it was started with.
    #[must_use]
    pub fn topology_path(&self) -> &Path {
        &self.topology_path
    }

    /// Stops answers for an address and traffic from and to it.
    ///
    /// # Errors
    /// The address is bound nowhere, or the fabric is gone.
    pub fn hold(&self, ip: IpAddr) -> Result<()> {
        self.admin("POST", "/admin/hold", &json!({ "ip": ip }))
            .map(drop)
    }

    /// Lets a held address through again.
    ///
    /// # Errors
    /// As [`Fabric::hold`].
    pub fn unhold(&self, ip: IpAddr) -> Result<()> {
        self.admin("POST", "/admin/unhold", &json!({ "ip": ip }))
            .map(drop)
    }

    /// Replaces the whole set of bindings.
    ///
    /// # Errors
    /// They contradict each other, or the fabric is gone.
    pub fn replace_bindings(&self, bindings: &[Value]) -> Result<()> {
        self.admin("PUT", "/admin/bindings", &json!(bindings))
            .map(drop)
    }

    /// The counters.
    ///
    /// # Errors
    /// The fabric is gone or shows something else.
    pub fn counts(&self) -> Result<Counts> {
        let body = self.admin("GET", "/admin/drops", &Value::Null)?;
        serde_json::from_slice(&body).context("counters of the fabric")
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.daemon.pid()
    }

    /// The end of its log.
    #[must_use]
    pub fn log_tail(&self) -> String {
        self.daemon.log_tail()
    }

    fn admin(&self, method: &str, path: &str, body: &Value) -> Result<Vec<u8>> {
        let shown = self.admin_path.display();
        let mut stream =
            UnixStream::connect(&self.admin_path).with_context(|| format!("connect to {shown}"))?;
        stream.set_read_timeout(Some(ADMIN_LIMIT))?;
        let bytes = match body {
            Value::Null => Vec::new(),
            body => serde_json::to_vec(body)?,
        };
        let headers = ["Content-Type: application/json".to_owned()];
        let request = Request {
            method,
            path,
            headers: &headers,
            body: &bytes,
        };
        let response = exchange(&mut stream, &request)?;
        match response.status {
            200..300 => Ok(response.body),
            status => bail!(
                "{method} {path} on the fabric: status {status}: {}",
                String::from_utf8_lossy(&response.body)
            ),
        }
    }
}

/// Publishes the metadata of a node's pools as its provider does: `provider-sim publish` in the
/// node's namespace.
///
/// # Errors
/// It fails; with what it printed.
pub fn publish(
    bin_dir: &Path,
    host: &Netns,
    kubeconfig: &Path,
    topology: &Path,
    node: &str,
) -> Result<()> {
    let mut command = Command::new(bin_dir.join("provider-sim"));
    command
        .arg("publish")
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .arg("--topology")
        .arg(topology)
        .args(["--node", node])
        .stdin(Stdio::null());
    let output = host
        .run(|| command.output())?
        .context("run provider-sim publish")?;
    if !output.status.success() {
        bail!(
            "provider-sim publish ended with {}: {}{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(())
}
