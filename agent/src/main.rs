//! `spiderpool-agent`: command line, log, signals. Everything else is the library's.

use std::io::{self, IsTerminal};
use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use spiderpool_agent::allocator;
use spiderpool_agent::config::{Cli, Mode};
#[cfg(feature = "failpoints")]
use spiderpool_agent::failpoint;
use spiderpool_agent::flow::error::full;
use spiderpool_agent::standalone;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// Threads that run tasks, and threads for short work that blocks, at most, whatever the machine has:
/// each keeps memory of its own, and what a node's Pods ask for is far below what so many can do.
const WORKERS: usize = 2;
const BLOCKING: usize = 8;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let settled = allocator::settle();
    match run(&cli, settled) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            ExitCode::FAILURE
        }
    }
}

#[expect(
    clippy::print_stderr,
    reason = "a start that fails may fail before there is a log"
)]
fn complain(error: &anyhow::Error) {
    let first: &(dyn std::error::Error + 'static) = error.as_ref();
    eprintln!("spiderpool-agent: {}", full(first));
}

fn run(cli: &Cli, settled: io::Result<()>) -> anyhow::Result<()> {
    let node = match &cli.mode {
        Mode::Standalone(args) => &args.node,
        Mode::Daemon(args) => &args.node,
    };
    start_log(&node.log_level)?;
    if let Err(error) = settled {
        tracing::warn!(%error, "the allocator keeps its usual settings and more memory");
    }
    #[cfg(feature = "failpoints")]
    failpoint::arm(std::env::var_os(failpoint::ENV).as_deref())?;
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(processors.min(WORKERS))
        .max_blocking_threads(BLOCKING)
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(async {
        let stop = CancellationToken::new();
        stop_on_signals(stop.clone())?;
        match &cli.mode {
            Mode::Standalone(args) => standalone::run_standalone(args, stop).await,
            Mode::Daemon(args) => standalone::run_daemon(args, stop).await,
        }
    })
}

/// The client logs each failed request, every retry of every watch with it; whoever made the
/// request says it once, with the object. A directive of the user's wins.
const QUIET: &str = "kube_client=off";

/// JSON lines for machines, plain ones for a person at a terminal; always on stderr.
fn start_log(level: &str) -> anyhow::Result<()> {
    // A bare word that is no level would be taken for a module and silence everything else.
    for word in level.split(',').filter(|part| !part.contains('=')) {
        word.trim().parse::<LevelFilter>().with_context(|| {
            format!("--log-level: {word:?} is none of off, error, warn, info, debug, trace")
        })?;
    }
    let filter = EnvFilter::try_new(format!("{QUIET},{level}"))
        .with_context(|| format!("--log-level {level:?} is no level and no filter"))?;
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    if std::io::stderr().is_terminal() {
        log.init();
    } else {
        log.json().flatten_event(true).init();
    }
    Ok(())
}

/// The first SIGTERM or SIGINT lets calls under way finish; the process ends after them.
fn stop_on_signals(stop: CancellationToken) -> anyhow::Result<()> {
    let listen = |kind| signal(kind).context("cannot listen for signals");
    let mut terminate = listen(SignalKind::terminate())?;
    let mut interrupt = listen(SignalKind::interrupt())?;
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("stopping; calls under way are finished first");
        stop.cancel();
    });
    Ok(())
}
