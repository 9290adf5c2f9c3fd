//! Processes that outlive their starter, remembered in a file: found again, judged and ended by
//! process id. An id alone is not enough, ids are used again; the time of its start tells.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use super::ControlPlane;
use crate::lab::wait;

/// File name of what is remembered.
const FILE: &str = "processes.json";
/// After SIGKILL.
const END_LIMIT: Duration = Duration::from_secs(20);

/// One process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessId {
    /// Program.
    pub name: String,
    /// Process id.
    pub pid: i32,
    /// Clock ticks from boot to its start (proc(5), field 22 of `stat`).
    pub started: u64,
}

impl ProcessId {
    /// Of a process that runs.
    ///
    /// # Errors
    /// It does not run.
    pub fn of(name: &str, pid: u32) -> Result<Self> {
        let pid = i32::try_from(pid).context("pid")?;
        let started = started(pid).with_context(|| format!("{name} ({pid}) does not run"))?;
        Ok(Self {
            name: name.to_owned(),
            pid,
            started,
        })
    }

    /// Whether this very process runs.
    #[must_use]
    pub fn runs(&self) -> bool {
        started(self.pid) == Some(self.started)
    }

    /// SIGKILL, unless it is gone, and waits for its end.
    ///
    /// # Errors
    /// The kernel refuses, or it does not end within 20 s.
    pub fn end(&self) -> Result<()> {
        if !self.runs() {
            return Ok(());
        }
        match kill(Pid::from_raw(self.pid), Signal::SIGKILL) {
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(error) => {
                return Err(error).with_context(|| format!("kill {} ({})", self.name, self.pid));
            }
        }
        let what = format!("the end of {} ({})", self.name, self.pid);
        wait::until(END_LIMIT, &what, || Ok((!self.runs()).then_some(())))
    }
}

/// Start time of a process; none when it is gone, or dead and only not reaped.
fn started(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in field 2 may hold blanks and parentheses: what follows its last one counts.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// A control plane that a folder remembers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// Address of the API server.
    pub server: String,
    /// The kubeconfig.
    pub kubeconfig: PathBuf,
    /// Its processes.
    pub processes: Vec<ProcessId>,
}

impl Kept {
    /// Remembers a running control plane in its folder.
    ///
    /// # Errors
    /// A process has ended, or the file cannot be written.
    pub fn remember(plane: &ControlPlane) -> Result<Self> {
        let kept = Self {
            server: plane.server(),
            kubeconfig: plane.kubeconfig(),
            processes: plane.processes()?,
        };
        let path = plane.dir.join(FILE);
        fs::write(&path, serde_json::to_vec_pretty(&kept)?)
            .with_context(|| format!("write {}", path.display()))?;
        Ok(kept)
    }

    /// What `dir` remembers, if anything; its processes may be gone.
    ///
    /// # Errors
    /// The file is there and cannot be understood.
    pub fn recall(dir: &Path) -> Result<Option<Self>> {
        let path = dir.join(FILE);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("read {}", path.display())),
        };
        let kept = serde_json::from_slice(&text);
        kept.map(Some).with_context(|| {
            let shown = path.display();
            format!(
                "{shown} is damaged: end etcd and kube-apiserver yourself and remove its folder"
            )
        })
    }

    /// Whether all its processes run.
    #[must_use]
    pub fn runs(&self) -> bool {
        self.processes.iter().all(ProcessId::runs)
    }

    /// Ends its processes, the newest first.
    ///
    /// # Errors
    /// One does not end.
    pub fn end(&self) -> Result<()> {
        self.processes.iter().rev().try_for_each(ProcessId::end)
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    fn sleeper() -> (Child, ProcessId) {
        let child = Command::new("sleep").arg("600").spawn().unwrap();
        let id = ProcessId::of("sleep", child.id()).unwrap();
        (child, id)
    }

    #[test]
    fn a_process_is_ended_once_also_when_nobody_reaps_it() {
        let (mut child, id) = sleeper();
        assert!(id.runs());
        id.end().unwrap();
        assert!(!id.runs());
        id.end().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn another_process_with_the_same_id_is_left_alone() {
        let (mut child, id) = sleeper();
        let older = ProcessId {
            started: id.started - 1,
            ..id.clone()
        };
        assert!(!older.runs());
        older.end().unwrap();
        assert!(id.runs());
        id.end().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_folder_remembers_nothing_something_or_is_damaged() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Kept::recall(dir.path()).unwrap(), None);
        fs::write(dir.path().join(FILE), "{").unwrap();
        let error = Kept::recall(dir.path()).unwrap_err().to_string();
        assert!(error.contains("damaged"), "{error}");
    }
}
