//! Pods of a cluster and what kubelet and runtime do with them: the object, ADD and DEL by the real
//! IPAM plugin in the node's namespace, the object's end.
#![expect(
    clippy::indexing_slicing,
    reason = "what a JSON object lacks is null, and all of these are objects"
)]

use std::net::IpAddr;
use std::thread;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use spiderpool_api::cni::CniError;
use spiderpool_api::names;

use crate::lab::cni_call::{CniCall, CniOutcome, kubernetes_args};

use super::settings::merge;
use super::{Cluster, PARENT};

/// Pods of the tests.
pub const PODS: &str = "/api/v1/namespaces/default/pods";
/// Their endpoints.
pub const ENDPOINTS: &str =
    "/apis/spiderpool.spidernet.io/v2beta1/namespaces/default/spiderendpoints";
/// Their events.
pub const EVENTS: &str = "/api/v1/namespaces/default/events";
/// The interface of a Pod's first call.
pub const IFNAME: &str = "eth0";

/// A Pod on a node, with the network it asks for.
#[derive(Debug, Clone)]
pub struct Workload {
    /// Its name.
    pub name: String,
    /// Of the object.
    pub uid: String,
    /// Its node.
    pub node: String,
    /// Network configuration of its calls.
    pub conf: Value,
    /// Interface of its calls.
    pub ifname: String,
}

/// What an ADD gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given {
    /// IPv4 first.
    pub ips: Vec<IpAddr>,
    /// Of the sub-ENI.
    pub mac: String,
    /// On the parent NIC.
    pub vlan: u64,
}

impl Given {
    /// The first address, as text.
    #[must_use]
    pub fn ip(&self) -> String {
        self.ips
            .first()
            .map(ToString::to_string)
            .unwrap_or_default()
    }
}

/// A network of type `eni-vlan` whose Pods have their addresses from these pools.
#[must_use]
pub fn network(v4: &[&str], v6: &[&str]) -> Value {
    let mut conf = json!({ "cniVersion": "1.1.0", "name": "net", "type": names::PLUGIN_ENI_VLAN,
        "master": PARENT, "ipam": { "type": names::PLUGIN_IPAM } });
    for (key, pools) in [("default_ipv4_ippool", v4), ("default_ipv6_ippool", v6)] {
        if !pools.is_empty() {
            conf["ipam"][key] = json!(pools);
        }
    }
    conf
}

impl Cluster {
    /// Makes a Pod of a node.
    ///
    /// # Errors
    /// The API server refuses.
    pub fn pod(&self, name: &str, node: &str, conf: &Value) -> Result<Workload> {
        self.pod_with(name, node, conf, &Value::Null)
    }

    /// Makes a Pod of a node whose object has these keys besides, merged.
    ///
    /// # Errors
    /// The API server refuses.
    pub fn pod_with(&self, name: &str, node: &str, conf: &Value, keys: &Value) -> Result<Workload> {
        let mut pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name },
            "spec": { "nodeName": node, "containers": [{ "name": "c", "image": "none" }] } });
        merge(&mut pod, keys);
        let made = self.api.create(PODS, &pod)?;
        let uid = made.pointer("/metadata/uid").and_then(Value::as_str);
        Ok(Workload {
            name: name.to_owned(),
            uid: uid.context("a Pod without UID")?.to_owned(),
            node: node.to_owned(),
            conf: conf.clone(),
            ifname: IFNAME.to_owned(),
        })
    }

    /// A call of the runtime.
    ///
    /// # Errors
    /// The plugin cannot be run.
    pub fn call(&self, command: &str, pod: &Workload) -> Result<CniOutcome> {
        let worker = self.worker(&pod.node)?;
        self.cni_call(command, pod)?
            .run(&self.bin_dir, worker.netns())
    }

    fn cni_call(&self, command: &str, pod: &Workload) -> Result<CniCall> {
        let worker = self.worker(&pod.node)?;
        let mut conf = pod.conf.clone();
        conf["ipam"]["ipam_unix_socket_path"] = json!(worker.socket());
        conf["ipam"]["log_file_path"] = json!(worker.log_path("cni.log"));
        let container_id = format!("box-{}", pod.uid);
        Ok(CniCall {
            plugin: names::PLUGIN_IPAM.to_owned(),
            command: command.to_owned(),
            args: kubernetes_args("default", &pod.name, &pod.uid, &container_id),
            container_id,
            netns: "/proc/self/ns/net".to_owned(),
            ifname: pod.ifname.clone(),
            stdin: conf.to_string(),
        })
    }

    pub(super) fn status_call(&self, node: &str) -> Result<CniCall> {
        self.cni_call(
            "STATUS",
            &Workload {
                name: String::new(),
                uid: String::new(),
                node: node.to_owned(),
                conf: network(&[], &[]),
                ifname: IFNAME.to_owned(),
            },
        )
    }

    /// ADD that succeeds with a sub-ENI, which the endpoint has too.
    ///
    /// # Errors
    /// It does not; with the logs.
    pub fn add(&self, pod: &Workload) -> Result<Given> {
        let outcome = self.call("ADD", pod)?;
        self.given(pod, &outcome).with_context(|| self.logs())
    }

    /// ADD until it succeeds, as kubelet tries again and again.
    ///
    /// # Errors
    /// It does not within 30 s; with its last words.
    pub fn add_in_the_end(&self, pod: &Workload) -> Result<Given> {
        let mut last = String::new();
        let outcome = self.until_some("an ADD that succeeds", || {
            let outcome = self.call("ADD", pod)?;
            last.clone_from(&outcome.stdout);
            Ok((outcome.code == 0).then_some(outcome))
        });
        let outcome = outcome.with_context(|| last)?;
        self.given(pod, &outcome)
    }

    /// What a call gave, which the Pod's endpoint says as well.
    ///
    /// # Errors
    /// It gave no sub-ENI, or the endpoint has another.
    pub fn given(&self, pod: &Workload, outcome: &CniOutcome) -> Result<Given> {
        let result = outcome.result()?;
        let sub_eni = result.sub_eni.context("the result has no sub-ENI")?;
        let given = Given {
            ips: result.ips.iter().map(|ip| ip.address.addr()).collect(),
            mac: sub_eni.mac.to_string(),
            vlan: sub_eni.vlan.get().into(),
        };
        let nic = self
            .endpoint_nic(pod)?
            .context("the endpoint lacks the NIC")?;
        let told = (nic["mac"].as_str(), nic["vlan"].as_u64());
        if told != (Some(given.mac.as_str()), Some(given.vlan)) {
            bail!("the result is {given:?}, the endpoint has {nic}");
        }
        Ok(given)
    }

    /// ADD that fails: what the runtime is told.
    ///
    /// # Errors
    /// It does not fail.
    pub fn refused(&self, pod: &Workload) -> Result<CniError> {
        self.call("ADD", pod)?.error()
    }

    /// ADD of all at the same time; the outcomes in their order.
    ///
    /// # Errors
    /// The plugin cannot be run.
    pub fn add_at_once(&self, pods: &[Workload]) -> Result<Vec<CniOutcome>> {
        thread::scope(|scope| {
            let running: Vec<_> = pods
                .iter()
                .map(|pod| scope.spawn(|| self.call("ADD", pod)))
                .collect();
            running
                .into_iter()
                .map(|call| match call.join() {
                    Ok(outcome) => outcome,
                    Err(_) => bail!("a call's thread panicked"),
                })
                .collect()
        })
    }

    /// The NIC of a Pod in its endpoint.
    ///
    /// # Errors
    /// The API server does not answer.
    pub fn endpoint_nic(&self, pod: &Workload) -> Result<Option<Value>> {
        let endpoint = self.endpoint(pod)?.unwrap_or_default();
        let nics = endpoint.pointer("/status/current/ips");
        let mut nics = nics.and_then(Value::as_array).into_iter().flatten();
        Ok(nics.find(|nic| nic["interface"] == pod.ifname).cloned())
    }

    /// The endpoint of a Pod.
    ///
    /// # Errors
    /// The API server does not answer.
    pub fn endpoint(&self, pod: &Workload) -> Result<Option<Value>> {
        self.api.get(&format!("{ENDPOINTS}/{}", pod.name))
    }

    /// Marks a Pod for deletion, as a user does.
    ///
    /// # Errors
    /// The API server refuses.
    pub fn mark(&self, pod: &Workload) -> Result<()> {
        self.api.delete(&format!("{PODS}/{}", pod.name))
    }

    /// DEL, which has to succeed whatever the agent says.
    ///
    /// # Errors
    /// It does not.
    pub fn del(&self, pod: &Workload) -> Result<()> {
        self.call("DEL", pod)?.silent()
    }

    /// Removes the object, as kubelet does when the containers are gone, or a user by force.
    ///
    /// # Errors
    /// The API server refuses.
    pub fn remove(&self, pod: &Workload) -> Result<()> {
        let path = format!("{PODS}/{}?gracePeriodSeconds=0", pod.name);
        self.api.delete(&path)
    }

    /// A Pod's whole end: marked, DEL, removed.
    ///
    /// # Errors
    /// One of the steps'.
    pub fn end(&self, pod: &Workload) -> Result<()> {
        self.mark(pod)?;
        self.del(pod)?;
        self.remove(pod)
    }

    /// Messages of the events about an object, by its name, with this reason.
    ///
    /// # Errors
    /// The API server does not answer.
    pub fn events(&self, name: &str, reason: &str) -> Result<Vec<String>> {
        let events = self.api.list(EVENTS)?;
        let about =
            |event: &&Value| event["involvedObject"]["name"] == name && event["reason"] == reason;
        let message = |event: &Value| event["message"].as_str().map(str::to_owned);
        Ok(events.iter().filter(about).filter_map(message).collect())
    }
}
