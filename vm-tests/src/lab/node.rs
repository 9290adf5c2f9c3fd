//! A node of the lab: its namespace with the parent NIC, its agent, and calls to the CNI binary as
//! the node's runtime makes them.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use spiderpool_api::names;
use spiderpool_netops::netns::Netns;

use super::agent_log::{self, AttachReport};
use super::api_client::ApiClient;
use super::cni_call::{CniCall, CniOutcome, run_at_once};
use super::fabric::publish;
use super::http::{Request, exchange};
use super::inspect::{ProcessUse, file_names, process_use};
use super::layout::{NodePlan, Stack};
use super::namespace::NamedNetns;
use super::process::{Daemon, DaemonSpec, Lifetime};
use super::role::{AgentFiles, Role};
use super::wait;

/// The agent has made its state and answers after this, also on an emulated machine.
const START_LIMIT: Duration = Duration::from_secs(30);
/// File in a node's folder.
const KUBECONFIG: &str = "kubeconfig";
/// Interface name the lab attaches under.
pub const IFNAME: &str = "net1";

/// What a node is made from.
#[derive(Debug)]
pub struct NodeSpec<'a> {
    /// Name, NIC, pools.
    pub plan: NodePlan,
    /// Its namespace, wired.
    pub netns: NamedNetns,
    /// Which API it works on.
    pub role: Role,
    /// Objects its own API begins with; none where it has no API.
    pub manifests: Vec<Value>,
    /// Folder of the lab; the node's is made below it.
    pub dir: &'a Path,
    /// Folder of the binaries.
    pub bin_dir: &'a Path,
    /// Of its processes.
    pub lifetime: Lifetime,
}

/// A node with its agent.
#[derive(Debug)]
pub struct Node {
    /// What it was made from.
    pub plan: NodePlan,
    /// Which API it works on.
    pub role: Role,
    netns: NamedNetns,
    manifests: Vec<Value>,
    dir: PathBuf,
    bin_dir: PathBuf,
    lifetime: Lifetime,
    agent: Option<Daemon>,
}

impl Node {
    /// A node without agent.
    ///
    /// # Errors
    /// Its folders cannot be made.
    pub fn new(spec: NodeSpec<'_>) -> Result<Self> {
        let dir = spec.dir.join(&spec.plan.name);
        let manifests = dir.join("etc").join("manifests");
        fs::create_dir_all(&manifests)
            .with_context(|| format!("create {}", manifests.display()))?;
        let documents: Vec<_> = spec.manifests.iter().map(Value::to_string).collect();
        // One JSON object a document: YAML without a YAML writer.
        fs::write(manifests.join("pools.yaml"), documents.join("\n---\n"))?;
        Ok(Self {
            plan: spec.plan,
            role: spec.role,
            netns: spec.netns,
            manifests: spec.manifests,
            dir,
            bin_dir: spec.bin_dir.to_path_buf(),
            lifetime: spec.lifetime,
            agent: None,
        })
    }

    /// Writes the settings that the agent reads at its next start, `conf.yml`.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write_conf(&self, conf: &Value) -> Result<()> {
        let path = self.conf_path();
        fs::write(&path, conf.to_string()).with_context(|| format!("write {}", path.display()))
    }

    /// Starts the agent and waits until its socket says it is healthy.
    ///
    /// # Errors
    /// It ends or is not healthy within 30 s; with its log.
    pub fn start_agent(&mut self) -> Result<()> {
        self.start_agent_with(&[])
    }

    /// The same with more environment.
    ///
    /// # Errors
    /// As [`Node::start_agent`].
    pub fn start_agent_with(&mut self, env: &[(&str, &str)]) -> Result<()> {
        let files = AgentFiles {
            etc: &self.dir.join("etc"),
            run: &self.run_dir(),
            bpf: &self.bpf_dir(),
            state: &self.dir.join("state.redb"),
            conf: &self.conf_path(),
            kubeconfig: &self.dir.join(KUBECONFIG),
        };
        let daemon = Daemon::start(&DaemonSpec {
            name: &format!("the agent of {}", self.plan.name),
            bin_dir: &self.bin_dir,
            netns: self.netns.path(),
            argv: self.role.command(&self.plan.name, &files),
            env,
            log_path: self.dir.join("agent.log"),
            lifetime: self.lifetime,
        })?;
        self.agent = Some(daemon);
        wait::until(START_LIMIT, "a healthy agent", || {
            self.agent_mut()?.still_runs()?;
            Ok((self.health().unwrap_or(0) == 200).then_some(()))
        })
        .with_context(|| self.log_tail())
    }

    /// Waits until the agent has ended by itself.
    ///
    /// # Errors
    /// It goes on; none was started.
    pub fn await_agent_end(&mut self) -> Result<()> {
        wait::until(START_LIMIT, "the agent's end", || {
            Ok(self.agent_mut()?.has_ended()?.then_some(()))
        })?;
        self.agent = None;
        Ok(())
    }

    /// Kills the agent with SIGKILL.
    ///
    /// # Errors
    /// None runs.
    pub fn kill_agent(&mut self) -> Result<()> {
        self.agent.take().context("no agent runs")?.kill()
    }

    /// Publishes the metadata of the node's pools and waits until the API shows them all.
    ///
    /// # Errors
    /// The publication fails.
    pub fn publish(&self, topology: &Path) -> Result<()> {
        publish(
            &self.bin_dir,
            &self.netns,
            &self.kubeconfig(),
            topology,
            &self.plan.name,
        )
    }

    /// The node's namespace.
    #[must_use]
    pub fn netns(&self) -> &Netns {
        &self.netns
    }

    /// The agent's run folder.
    #[must_use]
    pub fn run_dir(&self) -> PathBuf {
        self.dir.join("run")
    }

    /// Where the agent pins its observer: nodes of the lab share a kernel, so not in the usual
    /// place. The agent mounts a BPF file system there.
    #[must_use]
    pub fn bpf_dir(&self) -> PathBuf {
        self.dir.join("bpf")
    }

    /// A program of the product.
    #[must_use]
    pub fn program(&self, name: &str) -> PathBuf {
        self.bin_dir.join(name)
    }

    /// The agent's socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        let name = Path::new(names::DEFAULT_SOCKET)
            .file_name()
            .unwrap_or_default();
        self.run_dir().join(name)
    }

    /// The folder of DELs that found no agent.
    #[must_use]
    pub fn spool_dir(&self) -> PathBuf {
        self.run_dir().join(names::SPOOL_DIR)
    }

    /// The kubeconfig that the node of this name will write in a lab's folder.
    #[must_use]
    pub fn kubeconfig_below(dir: &Path, node: &str) -> PathBuf {
        dir.join(node).join(KUBECONFIG)
    }

    /// The kubeconfig of the API it works on.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        match &self.role {
            Role::Alone | Role::First { .. } => self.dir.join(KUBECONFIG),
            Role::Joined { kubeconfig } => kubeconfig.clone(),
        }
    }

    fn conf_path(&self) -> PathBuf {
        self.dir.join("etc").join("conf.yml")
    }

    /// The pools its own API began with.
    pub fn own_pools(&self) -> impl Iterator<Item = &Value> {
        self.manifests.iter()
    }

    /// A client of the node's API.
    ///
    /// # Errors
    /// The agent has written no kubeconfig.
    pub fn api(&self) -> Result<ApiClient> {
        ApiClient::new(&self.kubeconfig(), &self.netns)
    }

    /// The CNI configuration for a Pod of this node.
    #[must_use]
    pub fn conf(&self, stack: Stack) -> Value {
        self.plan
            .conf(stack, &self.socket(), &self.dir.join("eni-vlan.log"))
    }

    /// A call of the `eni-vlan` plugin.
    #[must_use]
    pub fn call(&self, command: &str, sandbox: &Sandbox<'_>, conf: &Value) -> CniCall {
        CniCall {
            plugin: names::PLUGIN_ENI_VLAN.to_owned(),
            command: command.to_owned(),
            container_id: sandbox.container_id.to_owned(),
            netns: sandbox.netns.to_owned(),
            ifname: IFNAME.to_owned(),
            args: sandbox.args.to_owned(),
            stdin: conf.to_string(),
        }
    }

    /// Runs calls at the same time, as this node's runtime.
    ///
    /// # Errors
    /// One of them could not be run.
    pub fn run(&self, calls: &[CniCall]) -> Result<Vec<CniOutcome>> {
        run_at_once(calls, &self.bin_dir, &self.netns)
    }

    /// Runs one call.
    ///
    /// # Errors
    /// It could not be run.
    pub fn run_one(&self, call: &CniCall) -> Result<CniOutcome> {
        call.run(&self.bin_dir, &self.netns)
    }

    /// File names of the attachments.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn attachments(&self) -> Result<Vec<String>> {
        file_names(&self.run_dir().join(names::ATTACHMENTS_DIR))
    }

    /// What the agent holds.
    ///
    /// # Errors
    /// None runs.
    pub fn agent_use(&self) -> Result<ProcessUse> {
        process_use(self.agent.as_ref().context("no agent runs")?.pid())
    }

    /// The agent's process id, if it runs.
    #[must_use]
    pub fn agent_pid(&self) -> Option<u32> {
        self.agent.as_ref().map(Daemon::pid)
    }

    /// What the agent logged of each attach, oldest first.
    #[must_use]
    pub fn attach_reports(&self) -> Vec<AttachReport> {
        agent_log::attach_reports(&self.agent_log())
    }

    /// Everything the agent has logged, over all its starts.
    #[must_use]
    pub fn agent_log(&self) -> String {
        fs::read_to_string(self.dir.join("agent.log")).unwrap_or_default()
    }

    /// The end of the agent's log.
    #[must_use]
    pub fn log_tail(&self) -> String {
        self.agent
            .as_ref()
            .map_or_else(|| "no agent runs".to_owned(), Daemon::log_tail)
    }

    fn agent_mut(&mut self) -> Result<&mut Daemon> {
        self.agent.as_mut().context("no agent runs")
    }

    /// Status of the health call on the socket.
    fn health(&self) -> Result<u16> {
        let mut stream = UnixStream::connect(self.socket())?;
        stream.set_read_timeout(Some(START_LIMIT))?;
        let request = Request {
            method: "GET",
            path: names::ROUTE_HEALTHY,
            headers: &[],
            body: &[],
        };
        let response = exchange(&mut stream, &request)?;
        ensure!(response.status != 0, "no status");
        Ok(response.status)
    }
}

/// A sandbox as the runtime names it in a call.
#[derive(Debug, Clone, Copy)]
pub struct Sandbox<'a> {
    /// `CNI_CONTAINERID`.
    pub container_id: &'a str,
    /// `CNI_NETNS`.
    pub netns: &'a str,
    /// `CNI_ARGS`.
    pub args: &'a str,
}
