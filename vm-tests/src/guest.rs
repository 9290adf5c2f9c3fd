//! One boot: assemble the root folder, run the kernel under the supervisor, collect the outcome.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sched::{CpuSet, sched_getaffinity};
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::Pid;

use crate::console::Console;
use crate::kernel::{self, Kernel};
use crate::mailbox::SUPERVISOR;
use crate::modules;
use crate::plan::{GuestCommand, GuestPlan, Marker, OUT_DIR};
use crate::root::{self, RootSpec};

/// Where things lie on this host.
#[derive(Debug, Clone)]
pub struct Runner {
    /// Cache and run folders; `<target>/vm`.
    pub vm_dir: PathBuf,
    /// The static `guest-init` program.
    pub init_path: PathBuf,
    /// The `uml-supervise` program.
    pub supervisor_path: PathBuf,
}

/// A guest to boot once.
#[derive(Debug, Clone)]
pub struct Guest {
    /// Names the run folder `<vm_dir>/run/<name>` and the machine.
    pub name: String,
    /// (path on the host, absolute path in the guest).
    pub files: Vec<(PathBuf, PathBuf)>,
    /// Run one after the other; processes a command leaves behind are killed before the next.
    pub commands: Vec<GuestCommand>,
    /// Memory, MiB.
    pub mem_mib: u32,
    /// The supervisor kills the guest after this.
    pub timeout: Duration,
    /// Host CPU to pin it to; the last one allowed when `None`. Unpinned, the two host processes
    /// of a guest hop between cores and run several times slower.
    pub cpu: Option<usize>,
    /// Go on after the commands, keep their processes, and serve the mailbox.
    pub keep: bool,
}

/// How one command went.
#[derive(Debug, Clone)]
pub struct CommandOutcome {
    /// Its name.
    pub name: String,
    /// Exit code (128 + signal, 124 on timeout); `None` when it had not ended or not started.
    pub rc: Option<i32>,
    /// Standard output and error, interleaved.
    pub output: String,
    /// Run time.
    pub elapsed: Duration,
}

/// How a boot went.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// One entry per command, in the order given.
    pub commands: Vec<CommandOutcome>,
    /// Why the guest as a whole failed (panic, timeout, early end), with the log's tail.
    pub failure: Option<String>,
    /// The whole console.
    pub console_path: PathBuf,
    /// The guest's `/out`: a file written and closed there is readable here.
    pub out_dir: PathBuf,
    /// Kernel release.
    pub release: String,
    /// From the start of the kernel to a working userland.
    pub boot: Duration,
    /// From the start of the kernel to its end, or to readiness when kept.
    pub elapsed: Duration,
}

impl Runner {
    /// A runner whose programs lie beside each other in `bin_dir`.
    pub fn new(vm_dir: &Path, bin_dir: &Path) -> Self {
        Self {
            vm_dir: vm_dir.to_path_buf(),
            init_path: bin_dir.join("guest-init"),
            supervisor_path: bin_dir.join(SUPERVISOR),
        }
    }

    /// Run folder of the guest `name`.
    pub fn run_dir(&self, name: &str) -> PathBuf {
        self.vm_dir.join("run").join(name)
    }
}

impl Guest {
    /// Boots the guest and waits for its end, or for readiness when kept. Each console line goes
    /// to `on_line` as it comes; lines about fetching the kernel do too.
    ///
    /// # Errors
    /// What keeps the guest from starting. What goes wrong later is in the outcome.
    pub fn run(&self, runner: &Runner, on_line: &mut dyn FnMut(&str)) -> Result<Outcome> {
        self.check()?;
        let kernel = kernel::fetch(&runner.vm_dir, on_line)?;
        let run_dir = runner.run_dir(&self.name);
        fs::create_dir_all(&run_dir).with_context(|| format!("create {}", run_dir.display()))?;
        let lock = lock(&run_dir)?;
        let root = run_dir.join("root");
        root::assemble(
            &root,
            &RootSpec {
                kernel: &kernel,
                init: &runner.init_path,
                files: &self.files,
                modules: modules::DEFAULT,
                plan: GuestPlan {
                    hostname: self.name.clone(),
                    modules: Vec::new(),
                    commands: self.commands.clone(),
                    keep: self.keep,
                },
            },
        )?;
        let started = Instant::now();
        let mut child = self.start(runner, &kernel, &run_dir)?;
        let (console, boot) = follow(&mut child, started, on_line)?;
        if !console.ready {
            child.wait().context("wait for the supervisor")?;
        }
        drop(lock);
        Ok(self.outcome(&kernel, &run_dir, &console, boot, started.elapsed()))
    }

    fn check(&self) -> Result<()> {
        for command in &self.commands {
            if command.name.is_empty() || command.name.contains(char::is_whitespace) {
                bail!("guest command name {:?} must be one word", command.name);
            }
            if self
                .commands
                .iter()
                .filter(|c| c.name == command.name)
                .count()
                > 1
            {
                bail!("two guest commands are named {:?}", command.name);
            }
        }
        Ok(())
    }

    fn start(&self, runner: &Runner, kernel: &Kernel, run_dir: &Path) -> Result<Child> {
        let root = run_dir.join("root");
        let root = root
            .canonicalize()
            .with_context(|| format!("find {}", root.display()))?;
        let flags = root
            .to_str()
            .context("the target folder's path is not UTF-8")?;
        if flags.contains(|c: char| c.is_whitespace() || c == ',') {
            bail!(
                "{flags}: a kernel command line cannot carry blanks or commas; set CARGO_TARGET_DIR to another folder"
            );
        }
        let cpu = self.cpu.map_or_else(last_cpu, Ok)?;
        let mut command = Command::new(&runner.supervisor_path);
        command
            .arg("--cpu")
            .arg(cpu.to_string())
            .arg("--timeout")
            .arg(self.timeout.as_secs().to_string())
            .arg("--log")
            .arg(run_dir.join("console.log"));
        if self.keep {
            command.arg("--detach");
        }
        command
            .arg("--")
            .arg(&kernel.binary_path)
            .arg(format!("mem={}M", self.mem_mib))
            .arg(format!("uml_dir={}", run_dir.join("uml").display()))
            .args(["rootfstype=hostfs", &format!("rootflags={flags}")])
            .args([
                "rw",
                "init=/init",
                "con0=null,fd:1",
                "con=null",
                "quiet",
                "panic=-1",
            ])
            .env("TMPDIR", memory_dir(&runner.vm_dir, self.mem_mib)?)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        command
            .spawn()
            .with_context(|| format!("run {}", runner.supervisor_path.display()))
    }

    fn outcome(
        &self,
        kernel: &Kernel,
        run_dir: &Path,
        console: &Console,
        boot: Option<Duration>,
        elapsed: Duration,
    ) -> Outcome {
        let out_dir = run_dir.join("root").join(OUT_DIR);
        let commands = self
            .commands
            .iter()
            .map(|command| {
                let ran = console.commands.iter().find(|ran| ran.name == command.name);
                // The file has no kernel messages in between, but exists only after the end.
                let output = fs::read(out_dir.join(format!("{}.log", command.name)))
                    .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
                    .unwrap_or_else(|_| ran.map(|r| r.lines.join("\n")).unwrap_or_default());
                CommandOutcome {
                    name: command.name.clone(),
                    rc: ran.and_then(|r| r.rc),
                    output,
                    elapsed: Duration::from_millis(ran.map_or(0, |r| r.ms)),
                }
            })
            .collect();
        Outcome {
            commands,
            failure: failure(console, self.keep),
            console_path: run_dir.join("console.log"),
            out_dir,
            release: kernel.release.clone(),
            boot: boot.unwrap_or(elapsed),
            elapsed,
        }
    }
}

/// Reads the console until the guest ends or serves its mailbox.
fn follow(
    child: &mut Child,
    started: Instant,
    on_line: &mut dyn FnMut(&str),
) -> Result<(Console, Option<Duration>)> {
    let stdout = child
        .stdout
        .take()
        .context("the supervisor has no output")?;
    let mut reader = BufReader::new(stdout);
    let mut console = Console::default();
    let mut boot = None;
    let mut bytes = Vec::new();
    while !console.ready {
        bytes.clear();
        if reader
            .read_until(b'\n', &mut bytes)
            .context("read the console")?
            == 0
        {
            break;
        }
        let line = String::from_utf8_lossy(&bytes);
        let line = line.trim_end();
        if console.feed(line) == Some(Marker::Up) {
            boot = Some(started.elapsed());
        }
        on_line(line);
    }
    Ok((console, boot))
}

fn failure(console: &Console, keep: bool) -> Option<String> {
    let why = match &console.fatal {
        Some(line) => line.clone(),
        None if !console.up => "the guest ended before its init was up".to_owned(),
        None if keep && !console.ready => "the guest ended before it was ready".to_owned(),
        None if !keep && !console.ended => {
            "the guest ended in the middle of its commands".to_owned()
        }
        None => return None,
    };
    Some(format!(
        "{why}\nlast lines of the console:\n{}",
        console.tail()
    ))
}

/// One run at a time per folder; released when dropped.
fn lock(run_dir: &Path) -> Result<fs::File> {
    let path = run_dir.join("lock");
    let file = fs::File::create(&path).with_context(|| format!("create {}", path.display()))?;
    if file.try_lock().is_err() {
        bail!(
            "{} is in use by another run; wait for it or end it",
            run_dir.display()
        );
    }
    Ok(file)
}

/// The highest CPU this process may use; CPU 0 often serves interrupts and everything else.
fn last_cpu() -> Result<usize> {
    let set = sched_getaffinity(Pid::from_raw(0)).context("read the CPU affinity")?;
    (0..CpuSet::count())
        .rev()
        .find(|cpu| set.is_set(*cpu).unwrap_or(false))
        .context("no CPU is allowed")
}

/// Folder for the file that backs guest memory: `/dev/shm` when it is large enough and allows
/// executable mappings (containers often get 64 MiB without), else a folder on disk.
fn memory_dir(vm_dir: &Path, mem_mib: u32) -> Result<PathBuf> {
    let shm = Path::new("/dev/shm");
    if let Ok(stat) = statvfs(shm) {
        let free = stat.blocks_available().saturating_mul(stat.fragment_size());
        let needed = u64::from(mem_mib) * 1024 * 1024;
        if free > needed && !stat.flags().contains(FsFlags::ST_NOEXEC) {
            return Ok(shm.to_path_buf());
        }
    }
    let dir = vm_dir.join("memory");
    fs::create_dir_all(&dir).with_context(|| format!("create {}", dir.display()))?;
    Ok(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guest(names: &[&str]) -> Guest {
        Guest {
            name: "t".into(),
            files: Vec::new(),
            commands: names
                .iter()
                .map(|name| GuestCommand {
                    name: (*name).into(),
                    ..GuestCommand::default()
                })
                .collect(),
            mem_mib: 64,
            timeout: Duration::from_secs(1),
            cpu: None,
            keep: false,
        }
    }

    #[test]
    fn command_names_must_be_unique_words() {
        assert!(guest(&["a", "b"]).check().is_ok());
        assert!(guest(&["a", "a"]).check().is_err());
        assert!(guest(&["a b"]).check().is_err());
        assert!(guest(&[""]).check().is_err());
    }

    #[test]
    fn failures_of_a_guest() {
        let mut console = Console::default();
        assert!(
            failure(&console, false)
                .unwrap()
                .contains("before its init")
        );
        console.feed("@@UP");
        assert!(failure(&console, false).unwrap().contains("in the middle"));
        assert!(
            failure(&console, true)
                .unwrap()
                .contains("before it was ready")
        );
        console.feed("@@END");
        assert_eq!(failure(&console, false), None);
        console.feed("Kernel panic - not syncing");
        assert!(
            failure(&console, false)
                .unwrap()
                .starts_with("Kernel panic")
        );
    }
}
