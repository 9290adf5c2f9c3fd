//! `cargo xtask demo`: builds, decides where the demo runs, runs it there, shows what it found.
//!
//! What happens inside is `demo_driver`'s. Natively the driver is a child of this program; in the
//! guest it is the only command, and its report comes back through the guest's `/out`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use serde::{Deserialize, Serialize};
use vm_tests::libtest::Tally;
use vm_tests::mailbox::{self, Request};
use vm_tests::plan::Marker;
use vm_tests::{Guest, GuestCommand, Outcome, Runner};

use crate::demo_report::DemoReport;
use crate::{build, demo_driver, demo_table, kernel_probe, paths, term};

/// Name of the guest and of its run folder.
const NAME: &str = "demo";
/// The driver's folder for sockets and state, on a tmpfs natively and in the guest.
const WORK_DIR: &str = "/run/spiderpool-demo";
const DRIVER_TIMEOUT: Duration = Duration::from_secs(120);
/// A kept guest ends after this even if nobody stops it.
const KEPT_TIMEOUT: Duration = Duration::from_secs(8 * 3600);
const EXEC_TIMEOUT_S: u64 = 600;
const MEM_MIB: u32 = 1024;

/// Attach Pods in a simulated cloud and show what happened.
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Leave it running for `demo exec`; `demo stop` ends it.
    #[arg(long)]
    keep: bool,
    /// Print only one JSON object on stdout.
    #[arg(long)]
    json: bool,
    /// Where to run: in this kernel, in a User-Mode Linux guest, or as the kernel allows.
    #[arg(long, value_enum, default_value_t = Backend::Auto)]
    backend: Backend,
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Backend {
    Auto,
    Native,
    Uml,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Run a command inside the kept demo; ends with its exit code.
    Exec {
        /// Program and arguments.
        #[arg(required = true, last = true)]
        argv: Vec<String>,
    },
    /// End the kept demo.
    Stop,
}

/// What a later `exec` or `stop` must know.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    backend: Backend,
    bin_dir: PathBuf,
}

/// Runs the demo or one of its actions.
pub(crate) fn run(args: &DemoArgs) -> Result<ExitCode> {
    match &args.action {
        Some(Action::Exec { argv }) => exec(argv),
        Some(Action::Stop) => stop().map(|()| ExitCode::SUCCESS),
        None => show(args),
    }
}

/// The demo as a test level: runs the command as a script would and judges its JSON.
pub(crate) fn judge() -> Result<Tally> {
    let output = Command::new(paths::SELF_EXE)
        .args(["demo", "--json"])
        .stderr(std::process::Stdio::inherit())
        .output()
        .context("run the demo")?;
    let report: DemoReport = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("the demo ({}) printed no report", output.status))?;
    let mut tally = Tally::default();
    let mut verdicts = report.verdicts();
    verdicts.push((
        format!("exit code: {}", output.status),
        output.status.success(),
    ));
    for (what, ok) in verdicts {
        if ok {
            tally.passed += 1;
        } else {
            tally.failed += 1;
            tally.failures.push(format!("demo: {what}"));
        }
    }
    Ok(tally)
}

fn show(args: &DemoArgs) -> Result<ExitCode> {
    if kept().is_some() {
        bail!("a kept demo is running: `cargo xtask demo stop` ends it");
    }
    let backend = decide(args.backend);
    term::progress("building the programs");
    let bin_dir = build::demo_bin_dir()?;
    let tools = match backend {
        Backend::Uml => Some(build::guest_tools()?),
        _ => None,
    };
    let started = Instant::now();
    let mut report = match &tools {
        Some(tools) => in_guest(&bin_dir, tools, args.keep)?,
        None => natively(&bin_dir, args.keep)?,
    };
    report.env.backend = if tools.is_some() { "uml" } else { "native" }.to_owned();
    report.env.seconds = started.elapsed().as_secs_f64();
    if args.keep {
        fs::write(kept_path(), serde_json::to_vec(&Kept { backend, bin_dir })?)
            .with_context(|| format!("write {}", kept_path().display()))?;
        term::progress(
            "kept: `cargo xtask demo exec -- CMD` runs a command inside, `cargo xtask demo stop` ends it",
        );
    }
    if args.json {
        term::result(&serde_json::to_string(&report)?);
    } else {
        demo_table::print(&report, term::colours());
    }
    Ok(if report.ok() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn decide(asked: Backend) -> Backend {
    if asked != Backend::Auto {
        return asked;
    }
    match kernel_probe::vlan_links() {
        Ok(()) => {
            term::progress("this kernel makes VLAN links: running natively");
            Backend::Native
        }
        Err(error) => {
            term::progress(&format!(
                "no VLAN links on this machine, running in a User-Mode Linux guest ({error:#})"
            ));
            Backend::Uml
        }
    }
}

fn driver_args(bin_dir: &str, report: &str, keep: bool) -> Vec<String> {
    let mut args = [
        "demo-driver",
        "--bin-dir",
        bin_dir,
        "--work-dir",
        WORK_DIR,
        "--report",
        report,
    ]
    .map(str::to_owned)
    .to_vec();
    if keep {
        args.push("--keep".to_owned());
    }
    args
}

fn natively(bin_dir: &Path, keep: bool) -> Result<DemoReport> {
    let path = paths::target_dir().join(NAME).join("demo.json");
    let report = path
        .to_str()
        .context("the target folder's path is not UTF-8")?;
    let bin = bin_dir
        .to_str()
        .context("the target folder's path is not UTF-8")?;
    drop(fs::remove_file(&path));
    let status = Command::new(bin_dir.join("xtask"))
        .args(driver_args(bin, report, keep))
        .stdout(io::stderr())
        .status()
        .context("run the demo driver")?;
    if !status.success() {
        bail!("the demo failed ({status})");
    }
    read_report(&path)
}

fn in_guest(bin_dir: &Path, tools: &Path, keep: bool) -> Result<DemoReport> {
    let mut files = Vec::new();
    for entry in fs::read_dir(bin_dir)? {
        let path = entry?.path();
        let name = path.file_name().context("a program without a name")?;
        files.push((path.clone(), Path::new("/bin").join(name)));
    }
    let mut argv = vec!["/bin/xtask".to_owned()];
    argv.extend(driver_args("/bin", "/out/demo.json", keep));
    let guest = Guest {
        name: NAME.to_owned(),
        files,
        commands: vec![GuestCommand {
            name: "driver".to_owned(),
            argv,
            env: Vec::new(),
            timeout_s: DRIVER_TIMEOUT.as_secs(),
        }],
        mem_mib: MEM_MIB,
        timeout: if keep {
            KEPT_TIMEOUT
        } else {
            DRIVER_TIMEOUT + Duration::from_secs(30)
        },
        cpu: None,
        keep,
    };
    let mut inside = false;
    let outcome = guest.run(&Runner::new(&paths::vm_dir(), tools), &mut |line| {
        follow(line, &mut inside);
    })?;
    collect(&outcome)
}

/// The driver's lines are progress; the kernel's and init's are in the log.
fn follow(line: &str, inside: &mut bool) {
    match Marker::parse(line) {
        Some(Marker::Start(_)) => *inside = true,
        Some(Marker::Rc(..)) => *inside = false,
        Some(_) => {}
        // before the boot these lines tell about the kernel package
        None if *inside || line.contains("apt") || line.starts_with("warning:") => {
            term::progress(line)
        }
        None => {}
    }
}

fn collect(outcome: &Outcome) -> Result<DemoReport> {
    if let Some(failure) = &outcome.failure {
        bail!(
            "the guest failed: {failure}\nwhole console: {}",
            outcome.console_path.display()
        );
    }
    term::progress(&format!(
        "guest: kernel {}, userland after {:.1} s, {:.1} s in all; console: {}",
        outcome.release,
        outcome.boot.as_secs_f64(),
        outcome.elapsed.as_secs_f64(),
        outcome.console_path.display()
    ));
    for command in &outcome.commands {
        if command.rc != Some(0) {
            bail!(
                "the demo failed in the guest (code {}); console: {}",
                command.rc.unwrap_or(-1),
                outcome.console_path.display()
            );
        }
    }
    read_report(&outcome.out_dir.join("demo.json"))
}

fn read_report(path: &Path) -> Result<DemoReport> {
    let text =
        fs::read(path).with_context(|| format!("the demo left no report at {}", path.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("parse {}", path.display()))
}

fn kept_path() -> PathBuf {
    paths::target_dir().join(NAME).join("kept.json")
}

fn run_dir() -> PathBuf {
    paths::vm_dir().join("run").join(NAME)
}

/// The kept demo, if it still runs.
fn kept() -> Option<Kept> {
    let kept: Kept = serde_json::from_slice(&fs::read(kept_path()).ok()?).ok()?;
    let runs = match kept.backend {
        Backend::Uml => mailbox::alive(&run_dir()),
        _ => Path::new(WORK_DIR).exists(),
    };
    runs.then_some(kept)
}

fn exec(argv: &[String]) -> Result<ExitCode> {
    let kept = kept().context("no kept demo is running: `cargo xtask demo --keep` starts one")?;
    let rc = match kept.backend {
        Backend::Uml => {
            let request = Request {
                argv: argv.to_vec(),
                timeout_s: EXEC_TIMEOUT_S,
            };
            let reply = mailbox::exec(&run_dir(), &request)?;
            term::raw(&reply.stdout, &reply.stderr);
            reply.rc
        }
        _ => exec_natively(&kept.bin_dir, argv)?,
    };
    Ok(ExitCode::from(u8::try_from(rc).unwrap_or(1)))
}

fn exec_natively(bin_dir: &Path, argv: &[String]) -> Result<i32> {
    let (program, args) = argv.split_first().context("no command")?;
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", bin_dir.display());
    let status = Command::new("env")
        // env looks the program up in the PATH it was just given
        .arg(format!("PATH={path}"))
        .arg(program)
        .args(args)
        .current_dir(WORK_DIR)
        .status()
        .with_context(|| format!("run {program}"))?;
    Ok(status.code().unwrap_or(1))
}

fn stop() -> Result<()> {
    let Some(kept) = kept() else {
        term::progress("no kept demo is running");
        return Ok(());
    };
    match kept.backend {
        Backend::Uml => mailbox::stop(&run_dir())?,
        _ => demo_driver::stop(Path::new(WORK_DIR))?,
    }
    fs::remove_file(kept_path()).with_context(|| format!("remove {}", kept_path().display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_driver_is_told_where_things_lie() {
        let args = driver_args("/bin", "/out/demo.json", true);
        assert_eq!(args.first().unwrap(), "demo-driver");
        assert_eq!(args.last().unwrap(), "--keep");
        assert!(args.windows(2).any(|w| w == ["--report", "/out/demo.json"]));
    }

    #[test]
    fn kept_state_survives_the_file() {
        let kept = Kept {
            backend: Backend::Uml,
            bin_dir: PathBuf::from("/x"),
        };
        let text = serde_json::to_string(&kept).unwrap();
        assert_eq!(text, r#"{"backend":"uml","bin_dir":"/x"}"#);
        assert!(serde_json::from_str::<Kept>(&text).is_ok());
    }
}
