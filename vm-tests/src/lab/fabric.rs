//! The cloud's side: the process with the fabric, its administration, and what is published of a
//! fabric without provider.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
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

/// The cloud's process and the way to it.
#[derive(Debug)]
pub struct Fabric {
    spec: FabricSpec,
    admin_path: PathBuf,
    topology_path: PathBuf,
    daemon: Option<Daemon>,
}

/// What is started.
#[derive(Debug)]
pub struct FabricSpec {
    /// Folder of the binaries.
    pub bin_dir: PathBuf,
    /// Namespace it runs in.
    pub netns: PathBuf,
    /// Folder of its files.
    pub dir: PathBuf,
    /// Its verb, and what it is told besides topology and administration.
    pub words: Vec<OsString>,
    /// Of the process.
    pub lifetime: Lifetime,
}

/// What the fabric counted, as far as the lab judges it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Counts {
    /// Frames that passed.
    pub forwarded: u64,
    /// Frames that were dropped.
    pub dropped: u64,
    /// Of these, how many for each reason.
    #[serde(default)]
    pub drops: BTreeMap<String, u64>,
    /// The last drops in detail.
    #[serde(default)]
    pub recent: Vec<Value>,
}

impl Fabric {
    /// One that is not started; writes its topology.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn new(spec: FabricSpec, topology: &Value) -> Result<Self> {
        let topology_path = spec.dir.join("topology.yaml");
        fs::write(&topology_path, serde_json::to_vec_pretty(topology)?)
            .with_context(|| format!("write {}", topology_path.display()))?;
        Ok(Self {
            admin_path: spec.dir.join("admin.sock"),
            topology_path,
            daemon: None,
            spec,
        })
    }

    /// Starts it and waits until it moves frames.
    ///
    /// # Errors
    /// It ends or is silent for 20 s; with its log.
    pub fn start(&mut self) -> Result<()> {
        let FabricSpec { dir, words, .. } = &self.spec;
        let admin = format!("unix:{}", self.admin_path.display());
        let mut argv = argv([OsStr::new("provider-sim")]);
        argv.extend_from_slice(words);
        argv.extend(["--topology".into(), self.topology_path.clone().into()]);
        argv.extend(["--admin".into(), admin.into()]);
        self.daemon = Some(Daemon::start(&DaemonSpec {
            name: "the cloud",
            bin_dir: &self.spec.bin_dir,
            netns: &self.spec.netns,
            argv,
            env: &[],
            log_path: dir.join("cloud.log"),
            lifetime: self.spec.lifetime,
        })?);
        wait::until(START_LIMIT, "a cloud that answers", || {
            let daemon = self.daemon.as_mut().context("it was not started")?;
            daemon.still_runs()?;
            Ok(self.admin("GET", "/healthz", &Value::Null).ok())
        })
        .with_context(|| self.log_tail())
        .map(drop)
    }

    /// Kills it with SIGKILL. No frame passes any more.
    ///
    /// # Errors
    /// It does not run.
    pub fn kill(&mut self) -> Result<()> {
        self.daemon.take().context("the cloud does not run")?.kill()
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

    /// Its process id, if it runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.daemon.as_ref().map(Daemon::pid)
    }

    /// The end of its log.
    #[must_use]
    pub fn log_tail(&self) -> String {
        let daemon = self.daemon.as_ref();
        daemon.map_or_else(|| "no cloud runs".to_owned(), Daemon::log_tail)
    }

    /// A call of the administration; the body of the answer.
    ///
    /// # Errors
    /// It does not run, or refuses.
    pub fn admin(&self, method: &str, path: &str, body: &Value) -> Result<Vec<u8>> {
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
