//! A cloud in network namespaces: nodes with parent NICs, a fabric between them, a gateway, Pods.
//!
//! Built by tests in a guest and by the demo, with the product's real binaries; needs root, and
//! 8021q where Pods are attached. Owns the namespaces, folders and processes it makes, and they
//! end with it (see [`Lifetime`]). It sees the product by its binaries, sockets and API, and the
//! kernel by netlink.
//!
//! ```text
//!   node-1 eth1 ──┐                    ┌── eth0 gateway (172.91.0.1, fd91::1)
//!   node-2 eth1 ──┴── fabric process ──┘
//!   Pod net1 (VLAN link on its node's eth1)
//! ```
//!
//! It comes in two shapes. Without a provider each node stands alone, and the metadata of its
//! pools is written once. With one ([`ProviderPlan`]), the nodes share the first one's API over a
//! [`management`] network, and `provider-sim serve` makes, publishes and moves the sub-ENIs.

pub mod agent_log;
pub mod api_client;
pub mod cni_call;
pub mod fabric;
pub mod forge;
pub mod http;
pub mod inspect;
pub mod layout;
pub mod leaks;
pub mod management;
pub mod namespace;
pub mod node;
pub mod observer;
pub mod peers;
pub mod pod;
pub mod process;
pub mod provider;
pub mod rights;
pub mod role;
mod start;
pub mod wait;
pub mod webhooks;
pub mod writes;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nix::mount::{MntFlags, umount2};
use serde_json::Value;

pub use fabric::Fabric;
pub use layout::{NodePlan, Stack};
pub use node::Node;
pub use pod::Pod;
pub use process::Lifetime;
pub use provider::{Provider, ProviderPlan};
pub use spiderpool_netops::netns::Netns;

use namespace::{NamedNetns, unique};

/// Folder of the product's binaries, for tests.
pub const ENV_BIN_DIR: &str = "SPIDERPOOL_BIN_DIR";

/// What to build.
#[derive(Debug)]
pub struct LabSpec {
    /// Folder of the product's binaries.
    pub bin_dir: PathBuf,
    /// Folder for sockets, state and logs; on a file system that has sockets.
    pub dir: PathBuf,
    /// First word of the namespaces' names; taken names are refused.
    pub name: String,
    /// Whether it outlives this value.
    pub lifetime: Lifetime,
    /// Number of nodes.
    pub nodes: u8,
    /// Sub-ENIs of each kind on each node.
    pub sub_enis: u8,
    /// The second shape: with a provider.
    pub provider: Option<ProviderPlan>,
}

/// A running cloud. The first field to drop is the nodes' agents, then the fabric, then the names.
#[derive(Debug)]
pub struct Cloud {
    /// The nodes, agents running, metadata published.
    pub nodes: Vec<Node>,
    /// The fabric.
    pub fabric: Fabric,
    /// The gateway's namespace.
    pub gateway: NamedNetns,
    fabric_netns: NamedNetns,
    /// With a provider: the namespace it is in.
    router: Option<NamedNetns>,
    dir: PathBuf,
    lifetime: Lifetime,
    name: String,
}

impl LabSpec {
    /// For tests: binaries from the environment, a folder of its own under `/tmp`.
    ///
    /// # Errors
    /// `SPIDERPOOL_BIN_DIR` is not set.
    pub fn for_test(nodes: u8, sub_enis: u8) -> Result<Self> {
        let bin_dir = env::var_os(ENV_BIN_DIR)
            .with_context(|| format!("{ENV_BIN_DIR} does not name the folder of the binaries"))?;
        Ok(Self {
            bin_dir: bin_dir.into(),
            dir: Path::new("/tmp").join(unique("cloud")),
            name: unique("cloud"),
            lifetime: Lifetime::Lab,
            nodes,
            sub_enis,
            provider: None,
        })
    }

    /// The same in the second shape.
    #[must_use]
    pub fn with_provider(mut self, plan: ProviderPlan) -> Self {
        self.provider = Some(plan);
        self
    }
}

impl Cloud {
    /// Builds it and starts the agents.
    ///
    /// # Errors
    /// The first step that failed, with the log of the process concerned.
    pub fn start(spec: &LabSpec) -> Result<Self> {
        let mut cloud = Self::build(spec)?;
        cloud.start_agents()?;
        Ok(cloud)
    }

    /// The provider of the second shape.
    ///
    /// # Errors
    /// This is the first shape.
    pub fn provider(&self) -> Result<Provider<'_>> {
        self.router.as_ref().context("this cloud has no provider")?;
        Ok(Provider::of(&self.fabric))
    }

    /// Whether this is the second shape.
    #[must_use]
    pub const fn has_provider(&self) -> bool {
        self.router.is_some()
    }

    /// Kills the provider, and the fabric with it.
    ///
    /// # Errors
    /// It does not run.
    pub fn kill_provider(&mut self) -> Result<()> {
        self.fabric.kill()
    }

    /// Starts a killed provider again, on the state it left, and waits until it serves.
    ///
    /// # Errors
    /// It does not start; with its log.
    pub fn restart_provider(&mut self) -> Result<()> {
        self.fabric.start()?;
        self.provider()?.await_ready()
    }

    /// A node, by its number from 0.
    ///
    /// # Errors
    /// There are fewer.
    pub fn node(&self, index: usize) -> Result<&Node> {
        self.nodes.get(index).context("no such node")
    }

    /// A Pod to be: a namespace with a name, not attached.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn pod(&self, name: &str) -> Result<Pod> {
        let netns = NamedNetns::create_as(&format!("{}-{name}", self.name), self.lifetime)?;
        Ok(Pod::new(name, netns))
    }

    /// Names of the namespaces the cloud itself made.
    #[must_use]
    pub fn netns_names(&self) -> Vec<String> {
        let nodes = self.nodes.iter().map(Node::netns);
        let router = self.router.as_deref();
        [&*self.fabric_netns, &*self.gateway]
            .into_iter()
            .chain(router)
            .chain(nodes)
            .map(ToString::to_string)
            .collect()
    }

    /// Process ids of the fabric and the agents.
    #[must_use]
    pub fn pids(&self) -> Vec<u32> {
        let agents = self.nodes.iter().filter_map(Node::agent_pid);
        self.fabric.pid().into_iter().chain(agents).collect()
    }

    /// Frames the fabric dropped, one line each; empty is as it should be.
    ///
    /// # Errors
    /// The fabric is gone.
    pub fn drops(&self) -> Result<Vec<String>> {
        let counts = self.fabric.counts()?;
        let mut lines: Vec<_> = counts.recent.iter().map(Value::to_string).collect();
        if counts.dropped > 0 && lines.is_empty() {
            lines.push(format!("{} frames", counts.dropped));
        }
        Ok(lines)
    }
}

impl Drop for Cloud {
    fn drop(&mut self) {
        if self.lifetime == Lifetime::Lab && std::thread::panicking() {
            // The folder stays for whoever looks into the failure; the logs go with the output.
            for node in &self.nodes {
                show(&node.log_tail());
            }
            show(&self.fabric.log_tail());
        } else if self.lifetime == Lifetime::Lab {
            // Leftovers under /tmp of a guest vanish with it; natively they are seen.
            for node in &self.nodes {
                // Never mounted, if no agent met its parent NIC.
                umount2(&node.bpf_dir(), MntFlags::MNT_DETACH).ok();
            }
            drop(fs::remove_dir_all(&self.dir));
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
