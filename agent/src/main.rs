//! `spiderpool-agent`: command line, log, signals. Everything else is the library's.

use std::io;
use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use spiderpool_agent::allocator;
use spiderpool_agent::config::{Cli, Mode};
#[cfg(feature = "failpoints")]
use spiderpool_agent::failpoint;
use spiderpool_agent::flow::error::full;
use spiderpool_agent::standalone;
use spiderpool_controller::effectless::{self, Of};
use spiderpool_controller::process::{start_log, stop_on_signals};
use tokio_util::sync::CancellationToken;

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
    let effectless = effectless::set(Of::Agent, |name| std::env::var(name).ok())?;
    start_log(&node.log_level).context("--log-level")?;
    effectless::tell(&effectless);
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
        stop_on_signals(stop.clone()).context("cannot listen for signals")?;
        match &cli.mode {
            Mode::Standalone(args) => standalone::run_standalone(args, stop).await,
            Mode::Daemon(args) => standalone::run_daemon(args, stop).await,
        }
    })
}
