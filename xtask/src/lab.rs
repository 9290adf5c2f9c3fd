//! `cargo xtask lab`: keeps a real control plane on loopback for whoever wants to look at it or run
//! something against it. Owns `target/lab/control-plane` and the processes remembered there.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};
use vm_tests::control_plane::{ControlPlane, ControlPlaneSpec, Kept, Lifetime};

use crate::{build, control_plane, paths, term};

/// What to do with it.
#[derive(Debug, Args)]
pub(crate) struct LabArgs {
    #[command(subcommand)]
    action: Action,
    /// One JSON object on stdout.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Clone, Copy, Subcommand)]
enum Action {
    /// Start it, unless it runs; the first time, build it (about five minutes).
    Up,
    /// End it and remove its data.
    Down,
    /// Print the path of its kubeconfig.
    Kubeconfig,
}

/// What `--json` prints for `up` and `kubeconfig`.
#[derive(Debug, Serialize)]
struct Report {
    #[serde(flatten)]
    kept: Kept,
    /// Whether this call started it.
    started: bool,
    seconds: f64,
}

/// Runs one action.
pub(crate) fn run(args: &LabArgs) -> Result<ExitCode> {
    match args.action {
        Action::Up => up(args.json),
        Action::Down => down(args.json),
        Action::Kubeconfig => kubeconfig(args.json),
    }
}

fn dir() -> PathBuf {
    paths::target_dir().join("lab").join("control-plane")
}

fn up(json: bool) -> Result<ExitCode> {
    let begun = Instant::now();
    if let Some(kept) = Kept::recall(&dir())? {
        if kept.runs() {
            return show(kept, false, begun, json);
        }
        term::progress("the last control plane did not end by `lab down`; its remains are removed");
    }
    clear()?;
    let programs_dir = control_plane::build()?;
    let bin_dir = build::guest_tools()?;
    let begun = Instant::now();
    let stopped = on_signals()?;
    let spec = ControlPlaneSpec {
        programs_dir: &programs_dir,
        bin_dir: &bin_dir,
        dir: dir(),
        lifetime: Lifetime::Kept,
        wanted: &|| match stopped.load(Ordering::Relaxed) {
            true => bail!("interrupted"),
            false => Ok(()),
        },
    };
    let started = ControlPlane::start(&spec).and_then(|plane| Kept::remember(&plane));
    match started {
        Ok(kept) => show(kept, true, begun, json),
        Err(error) => {
            clear()?;
            Err(error)
        }
    }
}

fn show(kept: Kept, started: bool, begun: Instant, json: bool) -> Result<ExitCode> {
    let seconds = begun.elapsed().as_secs_f64();
    if json {
        let report = Report {
            kept,
            started,
            seconds,
        };
        term::result(&serde_json::to_string(&report)?);
        return Ok(ExitCode::SUCCESS);
    }
    let ids: Vec<_> = kept
        .processes
        .iter()
        .map(|process| format!("{} (pid {})", process.name, process.pid))
        .collect();
    let what = if started {
        format!("started in {seconds:.1} s")
    } else {
        "runs already".to_owned()
    };
    term::result(&format!("{} at {}: {what}", ids.join(", "), kept.server));
    let path = kept.kubeconfig.display();
    term::result(&format!("kubectl --kubeconfig {path} get spiderippools"));
    term::result("end it: cargo xtask lab down");
    Ok(ExitCode::SUCCESS)
}

fn down(json: bool) -> Result<ExitCode> {
    let ran = Kept::recall(&dir())?.is_some_and(|kept| kept.runs());
    clear()?;
    if json {
        term::result(&serde_json::json!({"ended": ran}).to_string());
    } else {
        term::result(if ran { "ended" } else { "nothing ran" });
    }
    Ok(ExitCode::SUCCESS)
}

fn kubeconfig(json: bool) -> Result<ExitCode> {
    let kept = Kept::recall(&dir())?.filter(Kept::runs);
    let kept = kept.context("no control plane runs; start it by `cargo xtask lab up`")?;
    if json {
        return show(kept, false, Instant::now(), true);
    }
    term::result(&kept.kubeconfig.display().to_string());
    Ok(ExitCode::SUCCESS)
}

/// Ends what is remembered and removes everything.
fn clear() -> Result<()> {
    if let Some(kept) = Kept::recall(&dir())? {
        kept.end()?;
    }
    match fs::remove_dir_all(dir()) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("remove {}", dir().display()))
        }
        _ => Ok(()),
    }
}

/// Set at SIGINT and SIGTERM, which end nothing by themselves from now on.
fn on_signals() -> Result<Arc<AtomicBool>> {
    let stopped = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&stopped);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .context("start a runtime for signals")?;
    let (mut interrupt, mut terminate) = {
        let _inside = runtime.enter();
        (
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
        )
    };
    thread::spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        });
        seen.store(true, Ordering::Relaxed);
    });
    Ok(stopped)
}
