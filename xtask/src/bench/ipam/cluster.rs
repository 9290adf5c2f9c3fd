//! A control plane with nodes, agents and Pods, for the time of one measurement.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Map, Value, json};
use vm_tests::control_plane::{ControlPlane, ControlPlaneSpec, Lifetime};
use vm_tests::lab::api_client::{ApiClient, ENDPOINTS, POOLS, records};
use vm_tests::lab::process::{Daemon, DaemonSpec, HERE};
use vm_tests::lab::wait;

use super::Programs;
use super::callers::Callers;

/// Of states that come at once on an idle machine.
pub(super) const SOON: Duration = Duration::from_secs(60);
/// Pods of the measurements.
pub(super) const PODS: &str = "/api/v1/namespaces/default/pods";
/// Connections over which Pods are made.
const MAKERS: usize = 8;

/// A control plane and the folder of its processes.
pub(super) struct Cluster<'a> {
    pub(super) programs: &'a Programs,
    pub(super) plane: ControlPlane,
    pub(super) api: ApiClient,
    made: AtomicUsize,
}

/// An agent.
pub(super) struct Agent {
    daemon: Daemon,
    pub(super) socket: PathBuf,
}

/// A Pod that is there.
#[derive(Debug, Clone)]
pub(super) struct Pod {
    pub(super) name: String,
    pub(super) uid: String,
}

impl<'a> Cluster<'a> {
    pub(super) fn start(programs: &'a Programs) -> Result<Self> {
        let dir = &programs.work_dir;
        if dir.exists() {
            fs::remove_dir_all(dir).with_context(|| format!("clear {}", dir.display()))?;
        }
        let plane = ControlPlane::start(&ControlPlaneSpec {
            programs_dir: &programs.control_plane_dir,
            bin_dir: &programs.lab_dir,
            dir: dir.join("control-plane"),
            lifetime: Lifetime::Lab,
            wanted: &|| Ok(()),
        })?;
        let api = plane.api()?;
        Ok(Self {
            programs,
            plane,
            api,
            made: AtomicUsize::new(0),
        })
    }

    /// Makes the node, unless it is there, and starts an agent for it that nothing has been asked of.
    pub(super) fn agent(&self, node: &str, kubeconfig: &Path) -> Result<Agent> {
        if self.api.get(&format!("/api/v1/nodes/{node}"))?.is_none() {
            let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}});
            self.api.create("/api/v1/nodes", &object)?;
        }
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let dir = self.programs.work_dir.join(format!("{node}-{number}"));
        fs::create_dir_all(&dir).with_context(|| format!("create {}", dir.display()))?;
        let run_dir = dir.join("run");
        let mut argv: Vec<OsString> = vec![self.programs.agent.clone().into(), "daemon".into()];
        for (flag, value) in [
            ("--kubeconfig", kubeconfig.as_os_str()),
            ("--config-path", dir.join("conf.yml").as_os_str()),
            ("--node-name", node.as_ref()),
            ("--run-dir", run_dir.as_os_str()),
            ("--bpf-dir", dir.join("bpf").as_os_str()),
            ("--sub-eni-observer", "false".as_ref()),
            // Several agents of one host.
            ("--health-port", "0".as_ref()),
        ] {
            argv.extend([flag.into(), value.into()]);
        }
        let daemon = Daemon::start(&DaemonSpec {
            name: "the agent",
            bin_dir: &self.programs.lab_dir,
            netns: Path::new(HERE),
            argv,
            env: &[],
            log_path: dir.join("agent.log"),
            lifetime: Lifetime::Lab,
        })?;
        let mut agent = Agent {
            daemon,
            socket: run_dir.join("spiderpool.sock"),
        };
        wait::until(SOON, "an agent that listens", || {
            agent.daemon.still_runs()?;
            Ok(agent.socket.exists().then_some(()))
        })?;
        Ok(agent)
    }

    /// Makes an IPv4 pool of 10.`net`.0.10 to 10.`net`.99.255 and waits until these agents give from it.
    pub(super) fn pool(&self, name: &str, net: u8, agents: &[&Agent]) -> Result<()> {
        let spec = json!({"subnet": format!("10.{net}.0.0/16"), "ipVersion": 4,
            "ips": [format!("10.{net}.0.10-10.{net}.99.255")], "gateway": format!("10.{net}.0.1")});
        self.api.create(POOLS, &pool_object(name, spec))?;
        self.wait_for_pool(name, agents)
    }

    /// A Pod of its own for each agent, so that nothing is measured before its caches are filled.
    fn wait_for_pool(&self, name: &str, agents: &[&Agent]) -> Result<()> {
        for agent in agents {
            let pods = self.pods("none", 1)?;
            let callers = Callers::new(self.programs, &agent.socket, name);
            let pod = pods.first().context("no Pod")?;
            wait::until(SOON, "an address of the new pool", || {
                let outcome = callers.call("ADD", pod)?;
                Ok((outcome.code == 0).then_some(()))
            })?;
            self.end(&callers, &pods)?;
        }
        Ok(())
    }

    /// Records of other nodes' Pods in a pool, `count` from 10.`net`.1.0 on.
    pub(super) fn fill(&self, pool: &str, net: u8, count: usize) -> Result<()> {
        let mut taken = Map::new();
        for n in 0..count {
            let address = format!("10.{net}.{}.{}", 1 + n / 256, n % 256);
            let record = json!({"pod": format!("default/elsewhere-{n:05}"),
                "podUid": format!("00000000-0000-4000-8000-{n:012}"), "nic": "eth0"});
            taken.insert(address, record);
        }
        let status = json!({"status": {"allocatedIPs": Value::Object(taken).to_string(),
            "allocatedIPCount": count}});
        self.api.merge(&format!("{POOLS}/{pool}/status"), &status)?;
        Ok(())
    }

    /// Makes Pods of a node, over several connections.
    pub(super) fn pods(&self, node: &str, count: usize) -> Result<Vec<Pod>> {
        let first = self.made.fetch_add(count, Ordering::Relaxed);
        let next = AtomicUsize::new(first);
        let make = || -> Result<Vec<Pod>> {
            let mut session = self.api.session()?;
            let mut pods = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= first + count {
                    return Ok(pods);
                }
                let name = format!("b-{number:05}");
                let pod = json!({"apiVersion": "v1", "kind": "Pod",
                    "metadata": {"name": name, "labels": {"round": first.to_string()}},
                    "spec": {"nodeName": node, "containers": [{"name": "c", "image": "none"}]}});
                let made = session.request("POST", PODS, &pod)?;
                let uid = made.pointer("/metadata/uid").and_then(Value::as_str);
                let uid = uid.context("a Pod without a UID")?.to_owned();
                pods.push(Pod { name, uid });
            }
        };
        let makers = MAKERS.min(count);
        thread::scope(|scope| {
            let running: Vec<_> = (0..makers).map(|_| scope.spawn(make)).collect();
            let mut pods = Vec::new();
            for maker in running {
                match maker.join() {
                    Ok(made) => pods.extend(made?),
                    Err(_) => bail!("a thread that makes Pods panicked"),
                }
            }
            Ok(pods)
        })
    }

    /// Ends Pods as a kubelet does: the objects go, then each sandbox is torn down.
    pub(super) fn end(&self, callers: &Callers<'_>, pods: &[Pod]) -> Result<()> {
        let mut session = self.api.session()?;
        for pod in pods {
            let path = format!("{PODS}/{}?gracePeriodSeconds=0", pod.name);
            session.request("DELETE", &path, &Value::Null)?;
        }
        let outcomes = callers.run("DEL", pods, 8)?;
        for outcome in &outcomes.outcomes {
            outcome.silent()?;
        }
        Ok(())
    }

    /// Addresses of a pool that these Pods hold, and endpoints that are left.
    pub(super) fn left(&self, pool: &str, pods: &[Pod]) -> Result<usize> {
        let uids: BTreeSet<&str> = pods.iter().map(|pod| pod.uid.as_str()).collect();
        let held = records(&self.api.pool(pool)?)?;
        let held = held.as_object().context("records")?.values();
        let held = held.filter(|record| {
            let uid = record.get("podUid").and_then(Value::as_str);
            uid.is_some_and(|uid| uids.contains(uid))
        });
        Ok(held.count() + self.api.list(ENDPOINTS)?.len())
    }
}

impl Agent {
    /// `VmRSS` or `VmHWM` of its process, bytes.
    pub(super) fn memory(&mut self, field: &str) -> Result<f64> {
        self.daemon.still_runs()?;
        let path = format!("/proc/{}/status", self.daemon.pid());
        let text = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))
            .with_context(|| format!("{path} has no {field}"))?;
        let kib: u32 = line.trim().trim_end_matches(" kB").parse()?;
        Ok(f64::from(kib) * 1024.0)
    }

    /// Ends it at once.
    pub(super) fn kill(self) -> Result<()> {
        self.daemon.kill()
    }
}

/// Each ADD has to have given an address of its own.
pub(super) fn all_given(outcomes: &[vm_tests::lab::cni_call::CniOutcome]) -> Result<()> {
    let mut given = BTreeSet::new();
    for outcome in outcomes {
        let result = serde_json::to_value(outcome.result()?)?;
        let address = result.pointer("/ips/0/address").and_then(Value::as_str);
        let address = address.context("an ADD without an address")?.to_owned();
        ensure!(given.insert(address.clone()), "{address} was given twice");
    }
    Ok(())
}

/// A pool object.
pub(super) fn pool_object(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "spiderpool.spidernet.io/v2beta1", "kind": "SpiderIPPool",
        "metadata": {"name": name}, "spec": spec})
}
