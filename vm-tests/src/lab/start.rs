//! Builds and starts the two shapes of a cloud: namespaces and wires first, then the processes in
//! the order in which they need each other.

use std::ffi::OsStr;
use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;
use spiderpool_netops::rtnl::VethSpec;

use super::fabric::{Fabric, FabricSpec};
use super::layout::{
    self, GATEWAY_MAC, GATEWAY_NIC, GATEWAY_PORT, GATEWAY_V4, GATEWAY_V6, NodePlan, PARENT,
};
use super::management;
use super::namespace::{NamedNetns, connect, in_netns, set_sysctl};
use super::node::{Node, NodeSpec};
use super::process::argv;
use super::provider;
use super::role::Role;
use super::wait;
use super::{Cloud, LabSpec};

/// How long the gateway takes to answer ARP, milliseconds.
const ANSWER_DELAY_MS: u64 = 48;
/// The provider has made all sub-ENIs after this, also on an emulated machine.
const WARM_LIMIT: Duration = Duration::from_secs(30);

impl Cloud {
    /// Builds it without agents. Its fabric runs, unless it comes with a provider, which needs the
    /// first agent's API.
    ///
    /// # Errors
    /// The first step that failed, with the log of the process concerned.
    pub fn build(spec: &LabSpec) -> Result<Self> {
        let plans = (1..=spec.nodes)
            .map(|index| NodePlan::new(index, spec.sub_enis))
            .collect::<Result<Vec<_>>>()?;
        fs::create_dir_all(&spec.dir).with_context(|| format!("create {}", spec.dir.display()))?;
        let named =
            |word: &str| NamedNetns::create_as(&format!("{}-{word}", spec.name), spec.lifetime);
        let fabric_netns = named("fabric")?;
        let gateway = named("gateway")?;
        connect_gateway(&gateway, &fabric_netns)?;
        let router = match &spec.provider {
            Some(_) => Some(named("cloud")?),
            None => None,
        };
        if let Some(router) = &router {
            management::make_router(router)?;
        }
        let mut nodes = Vec::new();
        for (plan, index) in plans.iter().zip(1..) {
            let netns = named(&plan.name)?;
            connect_node(&netns, plan, &fabric_netns)?;
            if let Some(router) = &router {
                management::connect_node(router, &netns, index)?;
            }
            nodes.push(Node::new(node_spec(spec, &plans, index, netns)?)?);
        }
        let mut cloud = Self {
            fabric: fabric(spec, &plans, router.as_ref(), &fabric_netns)?,
            nodes,
            gateway,
            fabric_netns,
            router,
            dir: spec.dir.clone(),
            lifetime: spec.lifetime,
            name: spec.name.clone(),
        };
        if !cloud.has_provider() {
            cloud.fabric.start()?;
        }
        Ok(cloud)
    }

    /// Starts each node's agent, and waits until they are healthy and the metadata of all pools is
    /// published.
    ///
    /// # Errors
    /// The first that failed, with its log.
    pub fn start_agents(&mut self) -> Result<()> {
        if self.has_provider() {
            return self.start_with_provider();
        }
        for node in &mut self.nodes {
            node.start_agent()?;
            node.publish(self.fabric.topology_path())
                .with_context(|| node.log_tail())?;
        }
        Ok(())
    }

    /// The first agent brings the API, which the provider serves, whose CA the others check.
    fn start_with_provider(&mut self) -> Result<()> {
        let mut nodes = self.nodes.iter_mut();
        let first = nodes.next().context("a cloud without node")?;
        first.write_conf(&provider::plain_conf())?;
        first.start_agent()?;
        self.fabric.start()?;
        for node in nodes {
            node.write_conf(&provider::tls_conf(&self.dir))?;
            node.start_agent()?;
        }
        self.provider()?.await_ready()?;
        self.await_warm()
    }

    /// Waits until all addresses of prewarm pools are ready, and global pools are known to the
    /// provider.
    ///
    /// # Errors
    /// They are not within 30 s; with the provider's log.
    pub fn await_warm(&self) -> Result<()> {
        let first = self.node(0)?;
        for pool in first.own_pools() {
            let name = pool.pointer("/metadata/name").and_then(Value::as_str);
            let name = name.context("a pool without name")?;
            wait::until(WARM_LIMIT, "a warm pool", || {
                Ok(is_warm(&first.api()?.pool(name)?).then_some(()))
            })
            .with_context(|| format!("pool {name}\n{}", self.fabric.log_tail()))?;
        }
        Ok(())
    }
}

/// Whether the provider has published what it is to publish of a pool by itself. The IPv6 pool of
/// a pair is published with the other.
fn is_warm(pool: &Value) -> bool {
    let is_v6 = pool.pointer("/spec/ipVersion") == Some(&Value::from(6));
    let length = |pointer| {
        pool.pointer(pointer)
            .and_then(Value::as_array)
            .map(Vec::len)
    };
    let count = |pointer| pool.pointer(pointer).and_then(Value::as_u64);
    let ready = count("/status/ipMetaData/readyIPCount");
    let wanted = match length("/spec/nodeName") {
        Some(1) => length("/spec/ips").and_then(|count| u64::try_from(count).ok()),
        _ => Some(0),
    };
    is_v6 || (ready.is_some() && ready >= wanted)
}

fn node_spec<'a>(
    spec: &'a LabSpec,
    plans: &[NodePlan],
    index: u8,
    netns: NamedNetns,
) -> Result<NodeSpec<'a>> {
    let plan = plans.get(usize::from(index) - 1).context("no such node")?;
    let (role, manifests) = match (&spec.provider, index) {
        (None, _) => (Role::Alone, plan.pools()),
        (Some(provider), 1) => {
            let mut pools: Vec<_> = plans.iter().flat_map(NodePlan::pools).collect();
            pools.extend(layout::global_pools(
                provider.globals,
                provider.global_pairs,
            ));
            let listen = management::api_address(index);
            (Role::First { listen }, pools)
        }
        (Some(_), _) => {
            let first = plans.first().context("no first node")?;
            let kubeconfig = Node::kubeconfig_below(&spec.dir, &first.name);
            (Role::Joined { kubeconfig }, Vec::new())
        }
    };
    Ok(NodeSpec {
        plan: plan.clone(),
        netns,
        role,
        manifests,
        dir: &spec.dir,
        bin_dir: &spec.bin_dir,
        lifetime: spec.lifetime,
    })
}

fn fabric(
    spec: &LabSpec,
    plans: &[NodePlan],
    router: Option<&NamedNetns>,
    fabric_netns: &NamedNetns,
) -> Result<Fabric> {
    let first = plans.first().map_or("", |plan| &plan.name);
    let (netns, words, bindings) = match (&spec.provider, router) {
        (Some(provider), Some(router)) => {
            let kubeconfig = Node::kubeconfig_below(&spec.dir, first);
            let words = provider::command(provider, &spec.dir, &kubeconfig, fabric_netns.path())?;
            (router.path(), words, Vec::new())
        }
        _ => {
            let words = argv([OsStr::new("fabric")]);
            (fabric_netns.path(), words, layout::bindings(plans))
        }
    };
    let spec = FabricSpec {
        bin_dir: spec.bin_dir.clone(),
        netns: netns.to_owned(),
        dir: spec.dir.clone(),
        words,
        lifetime: spec.lifetime,
    };
    let topology = layout::topology(plans, bindings, ANSWER_DELAY_MS);
    Fabric::new(spec, &topology)
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_pool_is_warm_when_its_provider_has_said_so() {
        let pool = |version: u8, nodes: &[&str], ready: Value| {
            json!({
                "spec": { "ipVersion": version, "ips": ["a", "b"], "nodeName": nodes },
                "status": { "ipMetaData": { "readyIPCount": ready } },
            })
        };
        for (version, nodes, ready, warm) in [
            (4, &["n"][..], json!(2), true),
            (4, &["n"], json!(1), false),
            (4, &["n"], Value::Null, false),
            (4, &[], json!(0), true),
            (4, &[], Value::Null, false),
            (6, &["n"], Value::Null, true),
        ] {
            assert_eq!(
                is_warm(&pool(version, nodes, ready.clone())),
                warm,
                "{nodes:?} {ready}"
            );
        }
    }
}
