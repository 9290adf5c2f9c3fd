//! A real control plane on loopback: etcd and kube-apiserver, with our kinds installed.
//!
//! Owns the folder it is given, with data, keys, logs and the kubeconfig, and the two processes. A
//! test starts its own, in two to three seconds, and may kill and restart the API server; `cargo
//! xtask lab` keeps one. It is a test bed: etcd does not sync its writes to the disk, and the
//! kubeconfig's user may do everything. Without a controller manager nobody makes service accounts,
//! so the admission plugin that asks for them is off.

mod certificates;
mod kinds;
pub(crate) mod ports;
mod processes;
pub mod relay;

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::lab::api_client::ApiClient;
use crate::lab::process::{Daemon, DaemonSpec, HERE};
use crate::lab::{ENV_BIN_DIR, wait};

pub use crate::lab::Lifetime;
pub use certificates::KUBECONFIG;
pub use processes::{Kept, ProcessId};

/// Folder of `etcd` and `kube-apiserver`, for tests.
pub const ENV_PROGRAMS: &str = "SPIDERPOOL_CONTROL_PLANE_DIR";

/// Folder of etcd's data, and of a copy.
const DATA: &str = "etcd";
const COPY: &str = "etcd-copy";

/// Far above what a loaded machine needs; a process that ended is noticed at once.
const START_LIMIT: Duration = Duration::from_secs(90);

/// What to start.
pub struct ControlPlaneSpec<'a> {
    /// Folder of `etcd` and `kube-apiserver`.
    pub programs_dir: &'a Path,
    /// Folder of `lab-run`.
    pub bin_dir: &'a Path,
    /// Folder for everything it writes; made, and to be removed by the caller.
    pub dir: PathBuf,
    /// Whether it ends with the thread that starts it.
    pub lifetime: Lifetime,
    /// Asked while waiting; an error ends the start, and nothing is left running.
    pub wanted: &'a dyn Fn() -> Result<()>,
}

/// A running control plane. With [`Lifetime::Lab`] it ends when this value is dropped.
#[derive(Debug)]
pub struct ControlPlane {
    dir: PathBuf,
    bin_dir: PathBuf,
    programs_dir: PathBuf,
    lifetime: Lifetime,
    etcd_port: u16,
    port: u16,
    etcd: Option<Daemon>,
    apiserver: Option<Daemon>,
}

impl ControlPlane {
    /// For a test of the api level, in a folder below `dir`; it ends with the test. Also the folder of
    /// the binaries.
    ///
    /// # Errors
    /// As [`Self::start`], and when the level does not run this.
    pub fn for_test(dir: &Path) -> Result<(Self, PathBuf)> {
        let folder = |name| {
            let folder = env::var_os(name).map(PathBuf::from);
            folder.with_context(|| format!("{name} is not set: run `cargo xtask test api`"))
        };
        let (programs_dir, bin_dir) = (folder(ENV_PROGRAMS)?, folder(ENV_BIN_DIR)?);
        let plane = Self::start(&ControlPlaneSpec {
            programs_dir: &programs_dir,
            bin_dir: &bin_dir,
            dir: dir.join("control-plane"),
            lifetime: Lifetime::Lab,
            wanted: &|| Ok(()),
        })?;
        Ok((plane, bin_dir))
    }

    /// Starts both and waits until the API is ready and serves our kinds.
    ///
    /// # Errors
    /// A program is missing, ends, or is not ready within 90 s; with its log's end. Nothing is left
    /// running.
    pub fn start(spec: &ControlPlaneSpec<'_>) -> Result<Self> {
        fs::create_dir_all(&spec.dir).with_context(|| format!("create {}", spec.dir.display()))?;
        let [etcd_port, port] = ports::free()?;
        certificates::write(&spec.dir, port)?;
        let etcd = daemon(spec, "etcd", etcd_args(&spec.dir, etcd_port))?;
        let mut plane = Self {
            dir: spec.dir.clone(),
            bin_dir: spec.bin_dir.to_owned(),
            programs_dir: spec.programs_dir.to_owned(),
            lifetime: spec.lifetime,
            etcd_port,
            port,
            etcd: Some(etcd),
            apiserver: None,
        };
        let ready = plane
            .run_apiserver(spec.wanted)
            .and_then(|()| kinds::install(&plane.api()?, spec.wanted));
        match ready {
            Ok(()) => Ok(plane),
            // The caller gets nothing by which it could end them.
            Err(error) => match plane.stop() {
                Ok(()) => Err(error),
                Err(second) => Err(error.context(format!("and then: {second:#}"))),
            },
        }
    }

    /// The kubeconfig, mode 0600; its user may do everything.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        self.dir.join(KUBECONFIG)
    }

    /// Port of the API server, on loopback.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// A client of the API.
    ///
    /// # Errors
    /// The kubeconfig is gone.
    pub fn api(&self) -> Result<ApiClient> {
        ApiClient::here(&self.kubeconfig())
    }

    /// Address of the API server.
    #[must_use]
    pub fn server(&self) -> String {
        certificates::server(self.port)
    }

    /// The processes, by name.
    ///
    /// # Errors
    /// One has ended.
    pub fn processes(&self) -> Result<Vec<ProcessId>> {
        let mut ids = Vec::new();
        if let Some(etcd) = &self.etcd {
            ids.push(ProcessId::of("etcd", etcd.pid())?);
        }
        if let Some(apiserver) = &self.apiserver {
            ids.push(ProcessId::of("kube-apiserver", apiserver.pid())?);
        }
        Ok(ids)
    }

    /// Kills the API server; etcd keeps what it was told.
    ///
    /// # Errors
    /// None runs.
    pub fn kill_apiserver(&mut self) -> Result<()> {
        self.apiserver
            .take()
            .context("no kube-apiserver runs")?
            .kill()
    }

    /// Starts the API server again, at the same address, and waits until it is ready.
    ///
    /// # Errors
    /// As [`ControlPlane::start`].
    pub fn start_apiserver(&mut self) -> Result<()> {
        self.run_apiserver(&|| Ok(()))?;
        kinds::served(&self.api()?, &|| Ok(()))
    }

    /// Copies what etcd has; both processes are started again.
    ///
    /// # Errors
    /// As [`ControlPlane::start`].
    pub fn back_up(&mut self) -> Result<()> {
        self.restart_with(|dir| copy_dir(&dir.join(DATA), &dir.join(COPY)))
    }

    /// Puts the copy back, as an operator does who has lost etcd, and does not raise its revision: the
    /// versions of all objects go back.
    ///
    /// # Errors
    /// There is no copy; or as [`ControlPlane::start`].
    pub fn restore(&mut self) -> Result<()> {
        self.restart_with(|dir| {
            fs::remove_dir_all(dir.join(DATA)).context("remove etcd's data")?;
            copy_dir(&dir.join(COPY), &dir.join(DATA))
        })
    }

    fn restart_with(&mut self, change: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
        self.kill_apiserver()?;
        self.etcd.take().context("no etcd runs")?.kill()?;
        change(&self.dir)?;
        let args = etcd_args(&self.dir, self.etcd_port);
        self.etcd = Some(daemon(&self.spec(&|| Ok(())), "etcd", args)?);
        self.start_apiserver()
    }

    fn spec<'a>(&'a self, wanted: &'a dyn Fn() -> Result<()>) -> ControlPlaneSpec<'a> {
        ControlPlaneSpec {
            programs_dir: &self.programs_dir,
            bin_dir: &self.bin_dir,
            dir: self.dir.clone(),
            lifetime: self.lifetime,
            wanted,
        }
    }

    /// Ends both processes. The folder stays.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn stop(mut self) -> Result<()> {
        let first = self.apiserver.take().map_or(Ok(()), Daemon::kill);
        self.etcd.take().map_or(Ok(()), Daemon::kill).and(first)
    }

    fn run_apiserver(&mut self, wanted: &dyn Fn() -> Result<()>) -> Result<()> {
        let args = apiserver_args(&self.dir, self.etcd_port, self.port);
        self.apiserver = Some(daemon(&self.spec(wanted), "kube-apiserver", args)?);
        let api = self.api()?;
        wait::until(START_LIMIT, "a ready kube-apiserver", || {
            wanted()?;
            self.etcd.as_mut().context("no etcd runs")?.still_runs()?;
            let apiserver = self.apiserver.as_mut().context("it was not started")?;
            apiserver.still_runs()?;
            let answer = api.request("GET", "/readyz", "application/json", &Value::Null);
            // Refused connections and 500s are what a server that is starting gives.
            Ok(answer
                .is_ok_and(|answer| answer.status == 200)
                .then_some(()))
        })
    }
}

fn daemon(spec: &ControlPlaneSpec<'_>, name: &str, args: Vec<OsString>) -> Result<Daemon> {
    let program = spec.programs_dir.join(name);
    let mut argv = vec![program.into_os_string()];
    argv.extend(args);
    Daemon::start(&DaemonSpec {
        name,
        bin_dir: spec.bin_dir,
        netns: Path::new(HERE),
        argv,
        env: &[],
        log_path: spec.dir.join(format!("{name}.log")),
        lifetime: spec.lifetime,
    })
}

/// Copies a folder of files and folders.
fn copy_dir(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("create {}", to.display()))?;
    for entry in fs::read_dir(from).with_context(|| format!("read {}", from.display()))? {
        let entry = entry?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            copy_dir(&from, &to)?;
        } else {
            fs::copy(&from, &to).with_context(|| format!("copy {}", from.display()))?;
        }
    }
    Ok(())
}

fn flag(name: &str, value: impl AsRef<std::ffi::OsStr>) -> OsString {
    let mut flag = OsString::from(format!("--{name}="));
    flag.push(value);
    flag
}

fn etcd_args(dir: &Path, port: u16) -> Vec<OsString> {
    let url = format!("http://127.0.0.1:{port}");
    vec![
        flag("data-dir", dir.join(DATA)),
        flag("listen-client-urls", &url),
        flag("advertise-client-urls", &url),
        flag("listen-peer-urls", "http://127.0.0.1:0"),
        flag("log-level", "warn"),
        "--unsafe-no-fsync".into(),
    ]
}

fn apiserver_args(dir: &Path, etcd_port: u16, port: u16) -> Vec<OsString> {
    let key = dir.join(certificates::SERVICE_ACCOUNT_KEY);
    let public_key = dir.join(certificates::SERVICE_ACCOUNT_PUBLIC_KEY);
    vec![
        flag("etcd-servers", format!("http://127.0.0.1:{etcd_port}")),
        flag("bind-address", "127.0.0.1"),
        flag("advertise-address", "127.0.0.1"),
        flag("secure-port", port.to_string()),
        // It would refuse a loopback address as its own endpoint.
        flag("endpoint-reconciler-type", "none"),
        flag("cert-dir", dir),
        flag("tls-cert-file", dir.join(certificates::SERVER_CERTIFICATE)),
        flag("tls-private-key-file", dir.join(certificates::SERVER_KEY)),
        flag("token-auth-file", dir.join(certificates::TOKENS)),
        flag("authorization-mode", "RBAC"),
        flag("disable-admission-plugins", "ServiceAccount"),
        // As some distributions have it: whoever makes an object block another's end needs a right.
        flag(
            "enable-admission-plugins",
            "OwnerReferencesPermissionEnforcement",
        ),
        flag("service-account-issuer", "https://kubernetes.default.svc"),
        flag("service-account-key-file", &public_key),
        flag("service-account-signing-key-file", &key),
        flag("service-cluster-ip-range", "10.96.0.0/16"),
    ]
}
