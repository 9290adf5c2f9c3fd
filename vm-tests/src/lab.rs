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

pub mod agent_log;
pub mod api_client;
pub mod cni_call;
pub mod fabric;
pub mod http;
pub mod inspect;
pub mod layout;
pub mod leaks;
pub mod namespace;
pub mod node;
pub mod observer;
pub mod peers;
pub mod pod;
pub mod process;
pub mod wait;
pub mod writes;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nix::mount::{MntFlags, umount2};
use serde_json::Value;
use spiderpool_netops::rtnl::VethSpec;

pub use fabric::Fabric;
pub use layout::{NodePlan, Stack};
pub use node::Node;
pub use pod::Pod;
pub use process::Lifetime;
pub use spiderpool_netops::netns::Netns;

use layout::{GATEWAY_MAC, GATEWAY_NIC, GATEWAY_PORT, GATEWAY_V4, GATEWAY_V6, PARENT};
use namespace::{NamedNetns, connect, in_netns, set_sysctl, unique};

/// Folder of the product's binaries, for tests.
pub const ENV_BIN_DIR: &str = "SPIDERPOOL_BIN_DIR";
/// How long the gateway takes to answer ARP, milliseconds.
const ANSWER_DELAY_MS: u64 = 48;

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
        })
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

    /// Builds it without agents.
    ///
    /// # Errors
    /// The first step that failed, with the log of the process concerned.
    pub fn build(spec: &LabSpec) -> Result<Self> {
        let plans = (1..=spec.nodes)
            .map(|index| NodePlan::new(index, spec.sub_enis))
            .collect::<Result<Vec<_>>>()?;
        fs::create_dir_all(&spec.dir).with_context(|| format!("create {}", spec.dir.display()))?;
        let name = spec.name.clone();
        let named = |word: &str| NamedNetns::create_as(&format!("{name}-{word}"), spec.lifetime);
        let fabric_netns = named("fabric")?;
        let gateway = named("gateway")?;
        connect_gateway(&gateway, &fabric_netns)?;
        let mut nodes = Vec::new();
        for plan in plans.clone() {
            let netns = named(&plan.name)?;
            connect_node(&netns, &plan, &fabric_netns)?;
            nodes.push(Node::new(
                plan,
                netns,
                &spec.dir,
                &spec.bin_dir,
                spec.lifetime,
            )?);
        }
        let topology = layout::topology(&plans, ANSWER_DELAY_MS);
        let fabric = Fabric::start(
            &spec.bin_dir,
            fabric_netns.path(),
            &spec.dir,
            &topology,
            spec.lifetime,
        )?;
        Ok(Self {
            nodes,
            fabric,
            gateway,
            fabric_netns,
            dir: spec.dir.clone(),
            lifetime: spec.lifetime,
            name,
        })
    }

    /// Starts each node's agent, waits until it is healthy, and publishes its pools' metadata.
    ///
    /// # Errors
    /// The first that failed, with its log.
    pub fn start_agents(&mut self) -> Result<()> {
        for node in &mut self.nodes {
            node.start_agent()?;
            node.publish(self.fabric.topology_path())
                .with_context(|| node.log_tail())?;
        }
        Ok(())
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
        [&*self.fabric_netns, &*self.gateway]
            .into_iter()
            .chain(nodes)
            .map(ToString::to_string)
            .collect()
    }

    /// Process ids of the fabric and the agents.
    #[must_use]
    pub fn pids(&self) -> Vec<u32> {
        let agents = self.nodes.iter().filter_map(Node::agent_pid);
        std::iter::once(self.fabric.pid()).chain(agents).collect()
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

fn connect_gateway(gateway: &NamedNetns, fabric: &NamedNetns) -> Result<()> {
    let spec = VethSpec {
        name: GATEWAY_NIC,
        peer: GATEWAY_PORT,
        peer_target: Some(fabric),
        mac: Some(GATEWAY_MAC),
        peer_mac: None,
    };
    quiet(fabric)?;
    let link = connect(gateway, &spec, fabric)?;
    in_netns(gateway, async |rtnl| {
        rtnl.add_address(link.ifindex, format!("{GATEWAY_V4}/24").parse()?)
            .await?;
        Ok(rtnl
            .add_address(link.ifindex, format!("{GATEWAY_V6}/64").parse()?)
            .await?)
    })?;
    set_sysctl(gateway, "ipv4/ip_forward", "1")?;
    set_sysctl(gateway, "ipv6/conf/all/forwarding", "1")
}

fn connect_node(netns: &NamedNetns, plan: &NodePlan, fabric: &NamedNetns) -> Result<()> {
    let spec = VethSpec {
        name: PARENT,
        peer: &plan.port,
        peer_target: Some(fabric),
        mac: Some(plan.parent_mac),
        peer_mac: None,
    };
    connect(netns, &spec, fabric).map(drop)
}

/// No address configuration on new links: the fabric's ends of the wires are wires only.
fn quiet(netns: &NamedNetns) -> Result<()> {
    set_sysctl(netns, "ipv6/conf/default/disable_ipv6", "1")
}
