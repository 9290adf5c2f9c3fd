//! A Pod of the lab: its namespace and the calls that attach and release it.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;
use spiderpool_api::cni::CniResult;
use spiderpool_netops::netns::Netns;

use super::cni_call::{CniCall, CniOutcome, kubernetes_args};
use super::inspect::{self, LinkState};
use super::namespace::NamedNetns;
use super::node::{IFNAME, Node, Sandbox};

/// A sandbox. Without `args` it is a bare container: the agent makes the Pod object.
#[derive(Debug)]
pub struct Pod {
    /// `CNI_CONTAINERID`, unique in the lab.
    pub container_id: String,
    /// `CNI_ARGS`.
    pub args: String,
    object: String,
    netns: NamedNetns,
}

impl Pod {
    /// A bare container in this namespace.
    #[must_use]
    pub fn new(name: &str, netns: NamedNetns) -> Self {
        let short: String = name.chars().take(12).collect();
        Self {
            container_id: name.to_owned(),
            args: String::new(),
            object: format!("default/c-{short}"),
            netns,
        }
    }

    /// The same for a Pod of Kubernetes with this UID.
    #[must_use]
    pub fn of_object(mut self, namespace: &str, name: &str, uid: &str) -> Self {
        self.args = kubernetes_args(namespace, name, uid, &self.container_id);
        self.object = format!("{namespace}/{name}");
        self
    }

    /// `namespace/name` of the Pod object; a bare container's is made by the agent.
    #[must_use]
    pub fn object_name(&self) -> String {
        self.object.clone()
    }

    /// Its namespace.
    #[must_use]
    pub fn netns(&self) -> &Netns {
        &self.netns
    }

    /// The path the runtime hands over.
    #[must_use]
    pub fn netns_path(&self) -> &Path {
        self.netns.path()
    }

    /// A call for this sandbox.
    #[must_use]
    pub fn call(&self, node: &Node, command: &str, conf: &Value) -> CniCall {
        let netns = self.netns.path().to_string_lossy();
        let sandbox = Sandbox {
            container_id: &self.container_id,
            netns: &netns,
            args: &self.args,
        };
        node.call(command, &sandbox, conf)
    }

    /// ADD, with its result.
    ///
    /// # Errors
    /// It fails; with what the plugin printed and the agent's log.
    pub fn attach(&self, node: &Node, conf: &Value) -> Result<(CniResult, CniOutcome)> {
        let outcome = node.run_one(&self.call(node, "ADD", conf))?;
        let result = outcome
            .result()
            .with_context(|| format!("attach {}\n{}", self.container_id, node.log_tail()))?;
        Ok((result, outcome))
    }

    /// DEL, which prints nothing.
    ///
    /// # Errors
    /// It fails or prints something; with the agent's log.
    pub fn release(&self, node: &Node, conf: &Value) -> Result<CniOutcome> {
        let outcome = node.run_one(&self.call(node, "DEL", conf))?;
        outcome
            .silent()
            .with_context(|| format!("release {}\n{}", self.container_id, node.log_tail()))?;
        Ok(outcome)
    }

    /// Its NIC, if it has one.
    ///
    /// # Errors
    /// The namespace is gone.
    pub fn nic(&self) -> Result<Option<LinkState>> {
        inspect::link(&self.netns, IFNAME)
    }
}
