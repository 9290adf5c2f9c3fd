//! Runtimes: threads that start the real CNI binary, one call after the other.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde_json::{Value, json};
use vm_tests::lab::cni_call::{CniCall, CniOutcome, kubernetes_args};

use super::Programs;
use super::cluster::Pod;

const IFNAME: &str = "eth0";

/// Callers of one agent, with one network configuration: somebody else's main plugin, our IPAM.
pub(super) struct Callers<'a> {
    programs: &'a Programs,
    conf: Value,
}

/// Calls that ran at the same time.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) outcomes: Vec<CniOutcome>,
    /// From the first start to the last end.
    pub(super) elapsed: Duration,
}

impl<'a> Callers<'a> {
    /// For IPv4 addresses of `pool`.
    pub(super) fn new(programs: &'a Programs, socket: &Path, pool: &str) -> Self {
        Self::with(programs, socket, "default_ipv4_ippool", pool)
    }

    /// For IPv6 addresses of `pool`.
    pub(super) fn of_ipv6(programs: &'a Programs, socket: &Path, pool: &str) -> Self {
        Self::with(programs, socket, "default_ipv6_ippool", pool)
    }

    fn with(programs: &'a Programs, socket: &Path, key: &str, pool: &str) -> Self {
        let conf = json!({"cniVersion": "1.1.0", "name": "bench", "type": "macvlan",
            "ipam": {"type": "spiderpool", "ipam_unix_socket_path": socket, key: [pool],
                "log_file_path": log_path(programs)}});
        Self { programs, conf }
    }

    /// One call; how it ends is in the outcome.
    pub(super) fn call(&self, command: &str, pod: &Pod) -> Result<CniOutcome> {
        let container_id = format!("box-{}", pod.name);
        let call = CniCall {
            plugin: "spiderpool".to_owned(),
            command: command.to_owned(),
            args: kubernetes_args("default", &pod.name, &pod.uid, &container_id),
            container_id,
            netns: "/proc/self/ns/net".to_owned(),
            ifname: IFNAME.to_owned(),
            stdin: self.conf.to_string(),
        };
        call.run_here(&self.programs.cni_dir)
    }

    /// One call for each Pod, by so many callers.
    pub(super) fn run(&self, command: &str, pods: &[Pod], callers: usize) -> Result<Run> {
        run_all(command, &[(self, pods)], callers)
    }
}

fn log_path(programs: &Programs) -> PathBuf {
    programs.work_dir.join("cni.log")
}

/// The same for several agents at the same time, each with callers and Pods of its own.
pub(super) fn run_all(
    command: &str,
    agents: &[(&Callers<'_>, &[Pod])],
    callers: usize,
) -> Result<Run> {
    let nexts: Vec<_> = agents.iter().map(|_| AtomicUsize::new(0)).collect();
    let begun = Instant::now();
    let outcomes = thread::scope(|scope| {
        let mut running = Vec::new();
        for ((agent, pods), next) in agents.iter().zip(&nexts) {
            for _ in 0..callers {
                running.push(scope.spawn(move || -> Result<Vec<CniOutcome>> {
                    let mut outcomes = Vec::new();
                    while let Some(pod) = pods.get(next.fetch_add(1, Ordering::Relaxed)) {
                        outcomes.push(agent.call(command, pod)?);
                    }
                    Ok(outcomes)
                }));
            }
        }
        let mut outcomes = Vec::new();
        for caller in running {
            match caller.join() {
                Ok(ended) => outcomes.extend(ended?),
                Err(_) => bail!("a caller panicked"),
            }
        }
        Ok(outcomes)
    })?;
    Ok(Run {
        outcomes,
        elapsed: begun.elapsed(),
    })
}
