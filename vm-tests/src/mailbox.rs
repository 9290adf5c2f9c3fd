//! Requests to a kept guest, as files in its root folder.
//!
//! hostfs has no change notification from the host into the guest, so the guest looks every 50 ms;
//! files are complete when they appear (written aside, then renamed).

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::plan::MAILBOX_DIR;

/// How often either side looks.
pub const POLL: Duration = Duration::from_millis(50);
/// File whose appearance asks the guest to power off.
pub const STOP: &str = "stop";
/// The supervisor's mark of life: its pid; it removes this file when the guest is gone.
pub const ALIVE: &str = "alive";

/// Program name of the supervisor.
pub const SUPERVISOR: &str = "uml-supervise";

/// A command to run in the guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Killed after this many seconds.
    pub timeout_s: u64,
}

/// What the command did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// Exit code, as in the plan.
    pub rc: i32,
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: Vec<u8>,
}

/// Whether the kept guest of this run folder still runs.
pub fn alive(run_dir: &Path) -> bool {
    // A supervisor that was killed, or a machine that lost power, left the file behind.
    fs::read_to_string(run_dir.join(ALIVE))
        .and_then(|pid| fs::read_to_string(format!("/proc/{}/comm", pid.trim())))
        .is_ok_and(|comm| comm.trim_end() == SUPERVISOR)
}

/// Runs a command in the kept guest of `run_dir` and waits for its end.
///
/// # Errors
/// No such guest, a guest that ends or does not answer in time.
pub fn exec(run_dir: &Path, request: &Request) -> Result<Reply> {
    let dir = mailbox(run_dir)?;
    let id = std::process::id().to_string();
    for end in ["rc", "out", "err"] {
        remove(&dir.join(format!("{id}.{end}")))?;
    }
    publish(&dir, &format!("{id}.req"), &serde_json::to_vec(request)?)?;
    let rc_path = dir.join(format!("{id}.rc"));
    let deadline = Instant::now() + Duration::from_secs(request.timeout_s + 10);
    wait(run_dir, deadline, "answer the request", || rc_path.exists())?;
    let rc = fs::read_to_string(&rc_path)?;
    let reply = Reply {
        rc: rc
            .trim()
            .parse()
            .with_context(|| format!("{} holds {rc:?}", rc_path.display()))?,
        stdout: fs::read(dir.join(format!("{id}.out")))?,
        stderr: fs::read(dir.join(format!("{id}.err")))?,
    };
    for end in ["rc", "out", "err"] {
        remove(&dir.join(format!("{id}.{end}")))?;
    }
    Ok(reply)
}

/// Asks the kept guest to power off and waits until it is gone.
///
/// # Errors
/// No such guest, or one that is still there after 20 s.
pub fn stop(run_dir: &Path) -> Result<()> {
    let dir = mailbox(run_dir)?;
    publish(&dir, STOP, b"")?;
    let deadline = Instant::now() + Duration::from_secs(20);
    while alive(run_dir) {
        if Instant::now() > deadline {
            bail!("the guest in {} does not stop", run_dir.display());
        }
        thread::sleep(POLL);
    }
    Ok(())
}

/// Writes `name` so that it appears whole.
///
/// # Errors
/// The folder cannot be written.
pub fn publish(dir: &Path, name: &str, bytes: &[u8]) -> Result<()> {
    let aside = dir.join(format!(".{name}.new"));
    fs::write(&aside, bytes).with_context(|| format!("write {}", aside.display()))?;
    fs::rename(&aside, dir.join(name)).with_context(|| format!("publish {name}"))
}

fn mailbox(run_dir: &Path) -> Result<PathBuf> {
    if !alive(run_dir) {
        bail!("no kept guest in {}", run_dir.display());
    }
    Ok(run_dir.join("root").join(MAILBOX_DIR))
}

fn wait(run_dir: &Path, deadline: Instant, what: &str, done: impl Fn() -> bool) -> Result<()> {
    while !done() {
        if !alive(run_dir) {
            bail!("the guest ended before it could {what}");
        }
        if Instant::now() > deadline {
            bail!("the guest did not {what} in time");
        }
        thread::sleep(POLL);
    }
    Ok(())
}

fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("remove {}", path.display()))
        }
        _ => Ok(()),
    }
}
