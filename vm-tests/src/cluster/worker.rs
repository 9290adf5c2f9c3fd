//! A node: a namespace with the parent NIC and the agent in it. May touch that namespace, the wires'
//! and the node's folder.

use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use spiderpool_api::value::Mac;
use spiderpool_netops::netns::Netns;
use spiderpool_netops::rtnl::VethSpec;

use crate::control_plane::relay::Relay;
use crate::lab::http::{Request, exchange};
use crate::lab::namespace::{connect, in_netns, set_sysctl};
use crate::lab::process::{Daemon, NEW};
use crate::lab::wait;

use super::keeper::Program;
use super::settings::{AgentSettings, merge};
use super::{Cluster, PARENT, SOON, provider_conf};

/// The loopback interface has this index in every namespace.
const LO: u32 = 1;
/// The gateway's end of its wire, and the fabric's.
const GATEWAY: [&str; 2] = ["gw0", "port-gw"];
/// MAC of the gateway.
pub(super) const GATEWAY_MAC: Mac = Mac::new([0xfa, 0x16, 0x3e, 0xff, 0xff, 0xfe]);
/// Where an agent serves its metrics.
const METRICS_PORT: u16 = 5711;

/// A namespace without name; it ends with this value.
#[derive(Debug)]
pub struct Namespace {
    netns: Netns,
    _holder: Daemon,
}

impl Namespace {
    /// A new one with `lo` up.
    pub(super) fn start(bin_dir: &Path, dir: &Path, name: &str) -> Result<Self> {
        let mut holder = Program {
            name: format!("the holder of {name}"),
            bin_dir: bin_dir.to_owned(),
            netns: NEW.into(),
            argv: vec!["/bin/sleep".into(), "infinity".into()],
            env: Vec::new(),
            log_path: dir.join(format!("{name}.log")),
        }
        .start()?;
        let process = PathBuf::from("/proc").join(holder.pid().to_string());
        wait::until(SOON, "a namespace", || {
            holder.still_runs()?;
            let program = fs::read_link(process.join("exe")).unwrap_or_default();
            // Busybox and uutils are one program with many names.
            Ok((!program.ends_with("lab-run") && program != PathBuf::new()).then_some(()))
        })?;
        let netns = Netns::open(process.join("ns/net"))?;
        in_netns(&netns, async |rtnl| Ok(rtnl.set_up(LO).await?))?;
        set_sysctl(&netns, "ipv6/conf/default/disable_ipv6", "1")?;
        let _holder = holder;
        Ok(Self { netns, _holder })
    }

    /// The namespace.
    #[must_use]
    pub const fn netns(&self) -> &Netns {
        &self.netns
    }

    /// A wire for the gateway, both ends here: nobody asks it anything.
    pub(super) fn add_gateway(&self) -> Result<()> {
        let spec = VethSpec {
            name: GATEWAY[0],
            peer: GATEWAY[1],
            peer_target: None,
            mac: Some(GATEWAY_MAC),
            peer_mac: None,
        };
        connect(&self.netns, &spec, &self.netns).map(drop)
    }
}

/// The fabric's end of the gateway's wire.
pub(super) const fn gateway_port() -> &'static str {
    GATEWAY[1]
}

/// A node.
#[derive(Debug)]
pub struct Worker {
    agent: Option<Daemon>,
    /// Its name.
    pub name: String,
    /// MAC of its parent NIC.
    pub parent_mac: Mac,
    /// The fabric's end of its wire.
    pub(super) port: String,
    bin_dir: PathBuf,
    dir: PathBuf,
    _relays: Vec<Relay>,
    namespace: Namespace,
}

impl Worker {
    pub(super) fn new(
        bin_dir: &Path,
        dir: &Path,
        index: u8,
        wires: &Namespace,
        shared: &[u16],
    ) -> Result<Self> {
        let name = format!("n{index}");
        let dir = dir.join(&name);
        fs::create_dir_all(&dir).with_context(|| format!("create {}", dir.display()))?;
        let namespace = Namespace::start(bin_dir, &dir, &name)?;
        let port = format!("port-{index}");
        let parent_mac = Mac::new([0xfa, 0x16, 0x3e, 0x01, 0x00, index]);
        let spec = VethSpec {
            name: PARENT,
            peer: &port,
            peer_target: Some(wires.netns()),
            mac: Some(parent_mac),
            peer_mac: None,
        };
        connect(namespace.netns(), &spec, wires.netns())?;
        let relays = shared
            .iter()
            .map(|port| Relay::into_netns(namespace.netns(), *port))
            .collect::<Result<_>>()?;
        Ok(Self {
            agent: None,
            name,
            parent_mac,
            port,
            bin_dir: bin_dir.to_owned(),
            dir,
            _relays: relays,
            namespace,
        })
    }

    /// Its namespace.
    #[must_use]
    pub const fn netns(&self) -> &Netns {
        self.namespace.netns()
    }

    /// The agent's socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.run_dir().join("spiderpool.sock")
    }

    /// The agent's folder.
    #[must_use]
    pub fn run_dir(&self) -> PathBuf {
        self.dir.join("run")
    }

    pub(super) fn log_path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// What its agent has logged since its start.
    #[must_use]
    pub fn log(&self) -> String {
        self.agent.as_ref().map(Daemon::log).unwrap_or_default()
    }

    pub(super) fn log_tail(&self) -> String {
        let agent = self.agent.as_ref();
        agent.map_or_else(
            || format!("no agent runs on {}", self.name),
            Daemon::log_tail,
        )
    }

    /// The agent's process, if there is one.
    pub(super) const fn agent_mut(&mut self) -> Option<&mut Daemon> {
        self.agent.as_mut()
    }

    /// What the agent serves to Prometheus.
    ///
    /// # Errors
    /// It does not.
    pub fn metrics(&self) -> Result<String> {
        let connect = || TcpStream::connect((Ipv4Addr::LOCALHOST, METRICS_PORT));
        let mut stream = self.netns().run(connect)?.context("connect to metrics")?;
        let request = Request {
            method: "GET",
            path: "/metrics",
            headers: &[],
            body: b"",
        };
        String::from_utf8(exchange(&mut stream, &request)?.body).context("metrics")
    }

    /// The sum of the series of a metric that have all these labels; 0 when there are none.
    ///
    /// # Errors
    /// The agent does not tell.
    pub fn metric(&self, name: &str, labels: &[(&str, &str)]) -> Result<f64> {
        let mut sum = 0.0;
        for line in self.metrics()?.lines() {
            let Some(rest) = line.strip_prefix(name) else {
                continue;
            };
            let has = |(key, value): &(&str, &str)| rest.contains(&format!("{key}=\"{value}\""));
            if rest.starts_with(['{', ' ']) && labels.iter().all(has) {
                let (_, value) = rest.rsplit_once(' ').context("a metric without value")?;
                sum += value.parse::<f64>().context(line.to_owned())?;
            }
        }
        Ok(sum)
    }
}

impl Cluster {
    /// Starts a node's agent as the settings say, and waits until it answers STATUS.
    ///
    /// # Errors
    /// It ends, or does not answer within 30 s; with its log.
    pub fn start_agent(&mut self, node: &str) -> Result<()> {
        let settings = self.settings.agents.get(node).cloned();
        self.run_agent(node, &settings.unwrap_or_default())?;
        let status = self.status_call(node)?;
        let worker = self.worker_mut(node)?;
        wait::until(SOON, "an agent that answers STATUS", || {
            worker.agent.as_mut().context("no agent")?.still_runs()?;
            let outcome = status.run(&worker.bin_dir, worker.namespace.netns())?;
            Ok(outcome.silent().ok())
        })
        .with_context(|| self.logs())
    }

    /// Starts it and waits for nothing.
    pub(super) fn run_agent(&mut self, node: &str, settings: &AgentSettings) -> Result<()> {
        let (cluster_dir, tls_port) = (self.dir.clone(), self.ports[1]);
        let worker = self.worker_mut(node)?;
        let mut conf = provider_conf(&cluster_dir, tls_port);
        merge(&mut conf, &settings.conf);
        let conf_path = worker.dir.join("conf.yml");
        fs::write(&conf_path, conf.to_string()).context("write conf.yml")?;
        let mut argv = vec!["spiderpool-agent".into(), "daemon".into()];
        for (flag, value) in [
            ("--kubeconfig", cluster_dir.join("agent.kubeconfig")),
            ("--config-path", conf_path),
            ("--node-name", node.into()),
            ("--run-dir", worker.run_dir()),
            ("--bpf-dir", worker.dir.join("bpf")),
            // There are no links whose frames could be counted.
            ("--sub-eni-observer", "false".into()),
            ("--enable-metrics", "true".into()),
        ] {
            argv.extend([flag.into(), value.into_os_string()]);
        }
        argv.extend(settings.options.iter().map(Into::into));
        let log_path = worker.log_path("agent.log");
        // The log is what this process says.
        fs::write(&log_path, "").context("empty the agent's log")?;
        let program = Program {
            name: format!("the agent of {node}"),
            bin_dir: worker.bin_dir.clone(),
            netns: worker.netns().path().to_owned(),
            argv,
            env: settings.env.clone(),
            log_path,
        };
        worker.agent = Some(program.start()?);
        Ok(())
    }

    /// Kills a node's agent and starts it with other settings, until the test is over.
    ///
    /// # Errors
    /// It does not run, or does not start.
    pub fn restart_agent(&mut self, node: &str, settings: AgentSettings) -> Result<()> {
        self.settings.agents.insert(node.to_owned(), settings);
        self.kill_agent(node).ok();
        self.start_agent(node)
    }

    /// SIGKILL.
    ///
    /// # Errors
    /// None runs.
    pub fn kill_agent(&mut self, node: &str) -> Result<()> {
        let worker = self.worker_mut(node)?;
        worker.agent.take().context("no agent runs")?.kill()
    }

    /// Starts an agent that cannot use its settings; what it logs until it ends, which is not with
    /// success.
    ///
    /// # Errors
    /// It goes on.
    pub fn agent_that_ends(&mut self, node: &str, settings: &AgentSettings) -> Result<String> {
        self.kill_agent(node).ok();
        self.run_agent(node, settings)?;
        let agent = self.worker_mut(node)?.agent_mut().context("no agent")?;
        let log = super::controller::log_of_failed(agent)?;
        self.worker_mut(node)?.agent = None;
        Ok(log)
    }
}
