//! A cluster without containers: a real API server, agents of two nodes, a provider with its fabric
//! and, where asked for, a controller, all as processes. Its caller plays kubelet and runtime.
//!
//! ```text
//!   here: etcd, kube-apiserver, provider-sim serve, spiderpool-controller
//!   n1:   spiderpool-agent, eth1 ──┐
//!   n2:   spiderpool-agent, eth1 ──┴── fabric (a namespace of the wires)
//! ```
//!
//! A node's namespace finds the API server and the provider at its own loopback, through relays. No
//! VLAN links are made: a Pod's address, MAC and VLAN come from the IPAM plugin, as another
//! implementation of `eni-vlan` asks for them. So any kernel will do, but root is needed.
//!
//! Building one takes some seconds, so a suite has one: [`Cluster::take`] lends it, and
//! [`Cluster::finish`] judges it (the audit, the fabric's drops), cleans it and takes it back. After a
//! failed test there is a new one.

pub mod controller;
mod keeper;
pub mod pods;
pub mod pools;
mod provider;
pub mod settings;
mod tidy;
pub mod worker;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::control_plane::{ControlPlane, ports};
use crate::lab::api_client::ApiClient;
use crate::lab::fabric::Fabric;
use crate::lab::namespace::unique;
use crate::lab::rights;
use crate::lab::wait;

use controller::Controller;
use settings::Settings;
use worker::{Namespace, Worker};

/// For states that a healthy system reaches at once.
pub const SOON: Duration = Duration::from_secs(30);
/// Name of the first node.
pub const N1: &str = "n1";
/// Name of the second node.
pub const N2: &str = "n2";
/// Name of the parent NIC on every node.
pub const PARENT: &str = "eth1";

static IDLE: Mutex<Option<Cluster>> = Mutex::new(None);

/// A running cluster.
#[derive(Debug)]
pub struct Cluster {
    // dropped in this order: what calls before what is called, the namespaces last
    workers: Vec<Worker>,
    controller: Option<Controller>,
    cloud: Option<Fabric>,
    /// The API of the cluster, with all rights.
    pub api: ApiClient,
    /// The API server and etcd.
    pub plane: ControlPlane,
    settings: Settings,
    bin_dir: PathBuf,
    dir: PathBuf,
    /// Of the contract: without TLS, with TLS.
    ports: [u16; 2],
    /// Drops before this test, by reason.
    drops: BTreeMap<String, u64>,
    /// Drops the test has caused on purpose, by reason.
    wanted_drops: BTreeMap<String, u64>,
    _wires: Namespace,
}

impl Cluster {
    /// Two nodes, the provider quick and everything idle. `None`, and a line that says why, where
    /// this user cannot make namespaces.
    ///
    /// # Errors
    /// The first part that does not start, with its log.
    pub fn take(test: &str) -> Result<Option<Self>> {
        Self::take_with(test, 2)
    }

    /// The same with so many nodes, `n1` and on.
    ///
    /// # Errors
    /// As [`Cluster::take`].
    pub fn take_with(test: &str, nodes: u8) -> Result<Option<Self>> {
        if !nix::unistd::geteuid().is_root() {
            skipped(test);
            return Ok(None);
        }
        let idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner).take();
        match idle.filter(|idle| idle.workers.len() == usize::from(nodes)) {
            Some(idle) => Ok(Some(idle)),
            None => Self::start(nodes).map(Some),
        }
    }

    fn start(nodes: u8) -> Result<Self> {
        let dir = std::env::temp_dir().join(unique("cluster"));
        std::fs::create_dir_all(&dir).with_context(|| format!("create {}", dir.display()))?;
        keeper::remove_at_end(dir.clone())?;
        let below = dir.clone();
        let (plane, bin_dir) = keeper::run(move || ControlPlane::for_test(&below))??;
        let api = plane.api()?;
        rights::install(&api)?;
        let wires = Namespace::start(&bin_dir, &dir, "wires")?;
        let ports = ports::free()?;
        let shared = [plane.port(), ports[0], ports[1]];
        let mut workers = Vec::new();
        for index in 1..=nodes {
            workers.push(Worker::new(&bin_dir, &dir, index, &wires, &shared)?);
        }
        wires.add_gateway()?;
        let agent_kubeconfig = dir.join("agent.kubeconfig");
        let admin = plane.kubeconfig();
        rights::kubeconfig(&api, &admin, "spiderpool-agent", &agent_kubeconfig)?;
        let cloud = provider::new(&bin_dir, &dir, &workers, ports, &wires, &admin)?;
        let mut cluster = Self {
            workers,
            controller: None,
            cloud: Some(cloud),
            api,
            plane,
            settings: Settings::default(),
            bin_dir,
            dir,
            ports,
            drops: BTreeMap::new(),
            wanted_drops: BTreeMap::new(),
            _wires: wires,
        };
        cluster.start_cloud()?;
        for name in cluster.node_names() {
            let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
            cluster.api.create("/api/v1/nodes", &node)?;
            cluster.start_agent(&name)?;
        }
        Ok(cluster)
    }

    /// Names of its nodes.
    #[must_use]
    pub fn node_names(&self) -> Vec<String> {
        self.workers
            .iter()
            .map(|worker| worker.name.clone())
            .collect()
    }

    /// A node.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn worker(&self, node: &str) -> Result<&Worker> {
        let mut workers = self.workers.iter();
        let found = workers.find(|worker| worker.name == node);
        found.with_context(|| format!("no node {node}"))
    }

    fn worker_mut(&mut self, node: &str) -> Result<&mut Worker> {
        let mut workers = self.workers.iter_mut();
        let found = workers.find(|worker| worker.name == node);
        found.with_context(|| format!("no node {node}"))
    }

    /// Folder of its files.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Waits until `holds` says yes; with the logs when it does not.
    ///
    /// # Errors
    /// It does not within 30 s, or its own.
    pub fn until(&self, what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
        self.until_some(what, || Ok(holds()?.then_some(())))
    }

    /// Waits until `look` finds something; with the logs when it does not.
    ///
    /// # Errors
    /// It does not within 30 s, or its own.
    pub fn until_some<T>(&self, what: &str, look: impl FnMut() -> Result<Option<T>>) -> Result<T> {
        wait::until(SOON, what, look).with_context(|| self.logs())
    }

    /// The ends of all logs.
    #[must_use]
    pub fn logs(&self) -> String {
        let mut tails: Vec<_> = self.workers.iter().map(Worker::log_tail).collect();
        tails.extend(self.controller.as_ref().map(Controller::log_tail));
        tails.extend(self.cloud.as_ref().map(Fabric::log_tail));
        tails.join("\n")
    }

    /// How often an agent has logged this since its start.
    ///
    /// # Errors
    /// There is no such node.
    pub fn logged(&self, node: &str, text: &str) -> Result<usize> {
        Ok(self.worker(node)?.log().matches(text).count())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            show(&self.logs());
        }
    }
}

/// Into the captured output of a failed test.
#[expect(
    clippy::print_stderr,
    reason = "the logs belong to the failed test's output"
)]
fn show(text: &str) {
    eprintln!("{text}");
}

#[expect(clippy::print_stderr, reason = "the line that tells of a skip")]
fn skipped(test: &str) {
    eprintln!("SKIPPED {test}: needs root (network namespaces)");
}

/// `conf.yml` of agents and controller whose provider is this cluster's.
fn provider_conf(dir: &Path, tls_port: u16) -> Value {
    json!({ "iaasNetworkProvider": {
        "service": { "name": "iaas-network-provider",
            "namespace": "iaas-network-provider-system", "port": tls_port },
        // There is no cluster DNS.
        "url": format!("https://127.0.0.1:{tls_port}"),
        "tls": { "caFile": provider::ca_path(dir) },
    } })
}
