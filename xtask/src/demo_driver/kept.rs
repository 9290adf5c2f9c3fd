//! A kept demo: what it consists of, so that `demo stop` finds it, and its end.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use vm_tests::lab::{Cloud, Netns, wait};

use super::is_demo_dir;
use super::pods::{Attached, Pods};
use crate::term;

/// Name of the list in the work folder.
pub(super) const FILE: &str = "kept.json";
const END_LIMIT: Duration = Duration::from_secs(10);

/// Processes and namespaces of a kept demo.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    pids: Vec<u32>,
    netns: Vec<String>,
}

/// Writes the list and tells where to look.
pub(super) fn leave(work_dir: &Path, cloud: &Cloud, pods: &Pods) -> Result<()> {
    let all = pods.running.iter().chain(&pods.ended);
    let of_pods = all.map(|attached| attached.pod.netns().to_string());
    let kept = Kept {
        pids: cloud.pids(),
        netns: cloud.netns_names().into_iter().chain(of_pods).collect(),
    };
    let path = work_dir.join(FILE);
    fs::write(&path, serde_json::to_vec_pretty(&kept)?)
        .with_context(|| format!("write {}", path.display()))?;
    for node in &cloud.nodes {
        let (netns, kubeconfig) = (node.netns(), node.kubeconfig());
        let kubeconfig = kubeconfig.display();
        let socket = node.socket();
        let socket = socket.display();
        term::progress(&format!(
            "kept: {} in namespace {netns}, agent socket {socket}, kubeconfig {kubeconfig}",
            node.plan.name,
        ));
        term::progress(&format!(
            "try:  cargo xtask demo exec -- lab-run {netns} kept spiderpoolctl --kubeconfig {kubeconfig} pool list"
        ));
        term::progress(&format!(
            "try:  cargo xtask demo exec -- spiderpoolctl subeni stats --socket {socket}"
        ));
    }
    for Attached { pod, row, .. } in &pods.running {
        term::progress(&format!("kept: {} in namespace {}", row.name, pod.netns()));
    }
    Ok(())
}

/// Ends what a kept native run left: processes and namespaces under `work_dir`.
pub(crate) fn stop(work_dir: &Path) -> Result<()> {
    anyhow::ensure!(
        is_demo_dir(work_dir),
        "{} exists and is not of a demo; remove it or choose another --work-dir",
        work_dir.display()
    );
    let path = work_dir.join(FILE);
    if let Ok(text) = fs::read(&path) {
        let kept: Kept =
            serde_json::from_slice(&text).with_context(|| format!("parse {}", path.display()))?;
        for pid in kept.pids {
            end(pid, work_dir)?;
        }
        for netns in kept.netns {
            Netns::remove(&netns)?;
        }
    }
    fs::remove_dir_all(work_dir).with_context(|| format!("remove {}", work_dir.display()))
}

/// Kills a process of the demo and waits until it is gone. The number may belong to another
/// process by now: ours carries the work folder in its arguments.
fn end(pid: u32, work_dir: &Path) -> Result<()> {
    let command_line = Path::new("/proc").join(pid.to_string()).join("cmdline");
    let ours = || {
        let text = fs::read(&command_line).unwrap_or_default();
        String::from_utf8_lossy(&text).contains(&*work_dir.to_string_lossy())
    };
    if !ours() {
        return Ok(());
    }
    match kill(Pid::from_raw(i32::try_from(pid)?), Signal::SIGKILL) {
        Ok(()) | Err(Errno::ESRCH) => {}
        Err(error) => return Err(error).with_context(|| format!("kill process {pid}")),
    }
    wait::until(END_LIMIT, "the end of a kept process", || {
        Ok((!ours()).then_some(()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_demo_folder_is_removed() {
        let dir = std::env::temp_dir().join(format!("kept-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        assert!(stop(&dir).is_err());
        assert!(dir.exists(), "a foreign folder stays");
        // A process of another program with a listed number lives on.
        let kept = Kept {
            pids: vec![std::process::id()],
            netns: Vec::new(),
        };
        fs::write(dir.join(FILE), serde_json::to_vec(&kept).unwrap()).unwrap();
        stop(&dir).unwrap();
        assert!(!dir.exists());
    }
}
