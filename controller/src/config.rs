//! The controller's command line and environment (spec api 4.2, 4.3). A value that cannot be is
//! refused at start.

use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use jiff::SignedDuration;
use spiderpool_ipam::environment::{Environment, EnvironmentError};
use spiderpool_ipam::gc::Knobs;

use crate::conf_file::{Conf, DEFAULT_CONFIG};
use crate::effectless::{self, Of};

static VERSION: LazyLock<String> = LazyLock::new(|| {
    let commit = option_env!("GIT_COMMIT_VERSION").filter(|text| !text.is_empty());
    let (version, commit) = (env!("CARGO_PKG_VERSION"), commit.unwrap_or("unknown"));
    format!("{version} (commit {commit})")
});

/// Version with the commit it was built from, which the build is told by its environment.
#[must_use]
pub fn version() -> &'static str {
    VERSION.as_str()
}

/// The controller of Spiderpool networks: admission, reconcilers, garbage collection.
///
/// Several replicas may run: all of them answer admission calls, one at a time does the rest. Its
/// settings are environment variables SPIDERPOOL_*, as the chart sets them.
#[derive(Debug, Parser)]
#[command(name = "spiderpool-controller", version = version(), verbatim_doc_comment)]
pub struct Cli {
    /// What to run.
    #[command(subcommand)]
    pub command: Command,
}

/// What the binary does.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run until told to stop.
    Daemon(DaemonArgs),
}

/// Options of `daemon`.
#[derive(Debug, Args)]
pub struct DaemonArgs {
    /// conf.yml of the ConfigMap; a file that is not there sets nothing
    #[arg(long, value_name = "FILE", default_value = DEFAULT_CONFIG)]
    pub config_path: PathBuf,
    /// Kubeconfig of the API [default: the Pod's own service account]
    #[arg(long, value_name = "FILE", env = "KUBECONFIG")]
    pub kubeconfig: Option<PathBuf>,
    /// Certificate of the webhooks, PEM; without it the controller makes and rotates its own
    #[arg(long, value_name = "FILE", requires = "tls_server_key")]
    pub tls_server_cert: Option<PathBuf>,
    /// Its key, PEM
    #[arg(long, value_name = "FILE", requires = "tls_server_cert")]
    pub tls_server_key: Option<PathBuf>,
}

/// A certificate that somebody provides; both files exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificate chain, PEM.
    pub cert: PathBuf,
    /// Private key, PEM.
    pub key: PathBuf,
}

/// A file of the command line cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot use {} of {option}", path.display())]
pub struct FileError {
    path: PathBuf,
    option: &'static str,
    source: std::io::Error,
}

impl DaemonArgs {
    /// The provided certificate, if there is one. Blocks on the disk.
    ///
    /// # Errors
    /// [`FileError`]: a file that is named does not exist.
    pub fn tls_files(&self) -> Result<Option<TlsFiles>, FileError> {
        let (Some(cert), Some(key)) = (&self.tls_server_cert, &self.tls_server_key) else {
            return Ok(None);
        };
        for (path, option) in [(cert, "--tls-server-cert"), (key, "--tls-server-key")] {
            std::fs::metadata(path).map_err(|source| FileError {
                path: path.clone(),
                option,
                source,
            })?;
        }
        Ok(Some(TlsFiles {
            cert: cert.clone(),
            key: key.clone(),
        }))
    }
}

/// Times of the election.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaderTimes {
    /// `LEADER_DURATION`: a lease that was not renewed for so long may be taken.
    pub duration: Duration,
    /// `LEADER_RENEW_DEADLINE`: a leader that could not renew for so long stops.
    pub renew_deadline: Duration,
    /// `LEADER_RETRY_PERIOD`: between two tries to renew or to take it.
    pub retry_period: Duration,
    /// `LEADER_RETRY_GAP`: before a former leader stands again.
    pub retry_gap: Duration,
}

impl Default for LeaderTimes {
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
            retry_gap: Duration::from_secs(1),
        }
    }
}

/// A reconciler that has a switch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Switched {
    /// It runs.
    pub enabled: bool,
    /// Everything is looked at again after.
    pub resync: Duration,
}

/// Everything of the environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Env {
    /// `LOG_LEVEL`.
    pub log_level: String,
    /// `POD_NAME`: who this replica is.
    pub pod_name: String,
    /// `POD_NAMESPACE`: where the lease, the Service and the Secrets are.
    pub namespace: String,
    /// `HEALTH_PORT`; 0: off.
    pub health_port: u16,
    /// `METRIC_HTTP_PORT`; 0: off.
    pub metrics_port: u16,
    /// `WEBHOOK_PORT`; 0: off.
    pub webhook_port: u16,
    /// `CONTROLLER_DEPLOYMENT_NAME`: the Service of the webhooks has it as well.
    pub controller_name: String,
    /// `TLS_EXTRA_NAMES`: more names and addresses of the webhooks' own certificate.
    pub tls_extra_names: Vec<String>,
    /// `ENABLED_METRIC`.
    pub metrics: bool,
    /// `ENABLED_DEBUG_METRIC`.
    pub debug_metrics: bool,
    /// `METRIC_RENEW_PERIOD`.
    pub metrics_period: Duration,
    /// `GC_*`.
    pub gc: Knobs,
    /// `LEADER_*`.
    pub leader: LeaderTimes,
    /// `IPPOOL_INFORMER_RESYNC_PERIOD`.
    pub pool_resync: Duration,
    /// `SUBNET_INFORMER_RESYNC_PERIOD`.
    pub subnet_resync: Duration,
    /// `COORDINATOR_*`.
    pub coordinator: Switched,
    /// `COORDINATOR_DEAFULT_NAME`, spelt so.
    pub coordinator_name: String,
    /// `MULTUS_CONFIG_*`.
    pub multus_config: Switched,
    /// `CNI_CONFIG_DIR`, without prefix.
    pub cni_config_dir: PathBuf,
    /// `CILIUM_CONFIGMAP_NAMESPACE_NAME`, without prefix: `namespace/name`.
    pub cilium_config: String,
    /// Those that are set and have no effect.
    pub effectless: Vec<String>,
}

/// The environment is not usable.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnvError {
    /// A value is not what it should be.
    #[error(transparent)]
    Value(#[from] EnvironmentError),
    /// A variable without a default is not set.
    #[error("environment variable SPIDERPOOL_{name} is not set: it must be {wanted}")]
    Missing {
        /// Without prefix.
        name: &'static str,
        /// What it must be.
        wanted: &'static str,
    },
    /// Two replicas could lead at once.
    #[error(
        "SPIDERPOOL_LEADER_DURATION must be greater than SPIDERPOOL_LEADER_RENEW_DEADLINE, and that greater than SPIDERPOOL_LEADER_RETRY_PERIOD, none of them 0"
    )]
    LeaderTimes,
}

impl Env {
    /// Everything by default.
    #[must_use]
    pub fn new(pod_name: &str, namespace: &str) -> Self {
        let seconds = Duration::from_secs;
        let off = || Switched {
            enabled: false,
            resync: seconds(60),
        };
        Self {
            log_level: "info".to_owned(),
            pod_name: pod_name.to_owned(),
            namespace: namespace.to_owned(),
            health_port: 5720,
            metrics_port: 5721,
            webhook_port: 5722,
            controller_name: "spiderpool-controller".to_owned(),
            tls_extra_names: Vec::new(),
            metrics: false,
            debug_metrics: false,
            metrics_period: seconds(120),
            gc: Knobs::default(),
            leader: LeaderTimes::default(),
            pool_resync: seconds(300),
            subnet_resync: seconds(300),
            coordinator: off(),
            coordinator_name: "default".to_owned(),
            multus_config: off(),
            cni_config_dir: PathBuf::from("/etc/cni/net.d"),
            cilium_config: "kube-system/cilium-config".to_owned(),
            effectless: Vec::new(),
        }
    }

    /// What `lookup` answers for the whole names; unset and empty ones have their defaults.
    ///
    /// # Errors
    /// [`EnvError`] of the first that cannot be.
    pub fn read(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, EnvError> {
        let bare = |name: &str| lookup(name).filter(|value| !value.is_empty());
        let read = Environment::new(&lookup);
        let required = |name, wanted| read.text(name).ok_or(EnvError::Missing { name, wanted });
        let pod_name = required("POD_NAME", "the name of this Pod")?;
        let namespace = required("POD_NAMESPACE", "the namespace of this Pod")?;
        let base = Self::new(&pod_name, &namespace);
        let seconds = |name, default| seconds(&read, name, default);
        let switched = |switch, resync, base: &Switched| -> Result<Switched, EnvError> {
            Ok(Switched {
                enabled: read.flag(switch, base.enabled)?,
                resync: seconds(resync, base.resync)?,
            })
        };
        Ok(Self {
            log_level: read.text("LOG_LEVEL").unwrap_or(base.log_level),
            health_port: read.number("HEALTH_PORT", base.health_port)?,
            metrics_port: read.number("METRIC_HTTP_PORT", base.metrics_port)?,
            webhook_port: read.number("WEBHOOK_PORT", base.webhook_port)?,
            controller_name: read
                .text("CONTROLLER_DEPLOYMENT_NAME")
                .unwrap_or(base.controller_name),
            tls_extra_names: listed(&read.text("TLS_EXTRA_NAMES").unwrap_or_default()),
            metrics: read.flag("ENABLED_METRIC", base.metrics)?,
            debug_metrics: read.flag("ENABLED_DEBUG_METRIC", base.debug_metrics)?,
            metrics_period: seconds("METRIC_RENEW_PERIOD", base.metrics_period)?,
            gc: Knobs::read(&lookup)?,
            leader: leader_times(&read, base.leader)?,
            pool_resync: seconds("IPPOOL_INFORMER_RESYNC_PERIOD", base.pool_resync)?,
            subnet_resync: seconds("SUBNET_INFORMER_RESYNC_PERIOD", base.subnet_resync)?,
            coordinator: switched(
                "COORDINATOR_ENABLED",
                "COORDINATOR_INFORMER_RESYNC_PERIOD",
                &base.coordinator,
            )?,
            coordinator_name: read
                .text("COORDINATOR_DEAFULT_NAME")
                .unwrap_or(base.coordinator_name),
            multus_config: switched(
                "MULTUS_CONFIG_ENABLED",
                "MULTUS_CONFIG_INFORMER_RESYNC_PERIOD",
                &base.multus_config,
            )?,
            cni_config_dir: bare("CNI_CONFIG_DIR").map_or(base.cni_config_dir, PathBuf::from),
            cilium_config: bare("CILIUM_CONFIGMAP_NAMESPACE_NAME").unwrap_or(base.cilium_config),
            effectless: effectless::set(Of::Controller, &lookup)?,
            pod_name,
            namespace,
        })
    }
}

/// Separated by commas or blanks.
fn listed(text: &str) -> Vec<String> {
    let parts = text.split([',', ' ']).map(str::trim);
    parts
        .filter(|part| !part.is_empty())
        .map(str::to_owned)
        .collect()
}

fn seconds(
    read: &Environment<impl Fn(&str) -> Option<String>>,
    name: &str,
    default: Duration,
) -> Result<Duration, EnvError> {
    let default = SignedDuration::try_from(default).unwrap_or(SignedDuration::MAX);
    Ok(read.seconds(name, default)?.unsigned_abs())
}

fn leader_times(
    read: &Environment<impl Fn(&str) -> Option<String>>,
    base: LeaderTimes,
) -> Result<LeaderTimes, EnvError> {
    let times = LeaderTimes {
        duration: seconds(read, "LEADER_DURATION", base.duration)?,
        renew_deadline: seconds(read, "LEADER_RENEW_DEADLINE", base.renew_deadline)?,
        retry_period: seconds(read, "LEADER_RETRY_PERIOD", base.retry_period)?,
        retry_gap: seconds(read, "LEADER_RETRY_GAP", base.retry_gap)?,
    };
    let ordered = times.duration > times.renew_deadline
        && times.renew_deadline > times.retry_period
        && !times.retry_period.is_zero();
    ordered.then_some(times).ok_or(EnvError::LeaderTimes)
}

/// All settings of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The environment.
    pub env: Env,
    /// `conf.yml`.
    pub conf: Conf,
    /// A provided certificate of the webhooks.
    pub tls: Option<TlsFiles>,
}

impl Settings {
    /// Everything by default.
    #[must_use]
    pub fn new(pod_name: &str, namespace: &str) -> Self {
        Self {
            env: Env::new(pod_name, namespace),
            conf: Conf::default(),
            tls: None,
        }
    }

    /// The knobs of collection, those of the file included.
    #[must_use]
    pub fn gc_knobs(&self) -> Knobs {
        Knobs {
            clean_outdated_endpoints: self.conf.enable_clean_outdated_endpoint,
            ..self.env.gc.clone()
        }
    }
}

#[cfg(test)]
mod tests;
