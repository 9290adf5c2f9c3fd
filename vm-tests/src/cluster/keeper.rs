//! The thread that starts a cluster's processes. They end with the thread that started them, and
//! a cluster outlives the test that made it: so it is this one, which ends with the process.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{self, Sender};
use std::thread;

use anyhow::{Context, Result};

use crate::lab::Lifetime;
use crate::lab::process::{Daemon, DaemonSpec};

type Job = Box<dyn FnOnce() + Send>;

static KEEPER: OnceLock<Sender<Job>> = OnceLock::new();

/// Does `work` on the keeper's thread; waits for it.
pub(super) fn run<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    let keeper = KEEPER.get_or_init(|| {
        let (jobs, inbox) = mpsc::channel::<Job>();
        thread::spawn(move || inbox.into_iter().for_each(|job| job()));
        jobs
    });
    let (answer, answered) = mpsc::channel();
    let job = move || drop(answer.send(work()));
    keeper.send(Box::new(job)).ok().context("no keeper runs")?;
    answered.recv().context("the keeper is gone")
}

/// What to run, as [`DaemonSpec`] has it.
#[derive(Debug, Clone)]
pub(super) struct Program {
    pub(super) name: String,
    pub(super) bin_dir: PathBuf,
    pub(super) netns: PathBuf,
    pub(super) argv: Vec<OsString>,
    pub(super) env: Vec<(String, String)>,
    pub(super) log_path: PathBuf,
}

impl Program {
    pub(super) fn start(self) -> Result<Daemon> {
        run(move || {
            let env: Vec<_> = self
                .env
                .iter()
                .map(|(key, value)| (key.as_str(), value.as_str()))
                .collect();
            Daemon::start(&DaemonSpec {
                name: &self.name,
                bin_dir: &self.bin_dir,
                netns: &self.netns,
                argv: self.argv,
                env: &env,
                log_path: self.log_path,
                lifetime: Lifetime::Lab,
            })
        })?
    }
}

/// Removes `dir` when this process has ended, however it ends: nothing here runs then any more.
/// Its processes are being killed at that moment and may still write.
pub(super) fn remove_at_end(dir: PathBuf) -> Result<()> {
    let script = "cat; for _ in 1 2 3 4 5 6 7 8 9; do rm -rf -- \"$0\" && break; sleep 1; done";
    let mut broom = Command::new("sh")
        .args(["-c", script])
        .arg(dir)
        // What ends us by our group, such as Ctrl-C, is not to end it.
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("run sh")?;
    // Its end is the sign; nothing is ever written.
    let held = broom.stdin.take().context("no pipe")?;
    static HELD: std::sync::Mutex<Vec<std::process::ChildStdin>> =
        std::sync::Mutex::new(Vec::new());
    HELD.lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
        .push(held);
    Ok(())
}
