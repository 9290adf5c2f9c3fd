//! `spiderpool-controller`: command line, log, signals. Everything else is the library's.

use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use spiderpool_controller::chain::full;
use spiderpool_controller::config::{Cli, Command, DaemonArgs, Env};
use spiderpool_controller::process::{start_log, stop_on_signals};
use spiderpool_controller::run::run_daemon;
use tokio_util::sync::CancellationToken;

/// Threads that run tasks.
const WORKERS: usize = 2;

fn main() -> ExitCode {
    let Command::Daemon(args) = Cli::parse().command;
    match run(&args) {
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
    eprintln!("spiderpool-controller: {}", full(first));
}

fn run(args: &DaemonArgs) -> anyhow::Result<()> {
    let env = Env::read(|name| std::env::var(name).ok())?;
    start_log(&env.log_level).context("SPIDERPOOL_LOG_LEVEL")?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(async {
        let stop = CancellationToken::new();
        stop_on_signals(stop.clone()).context("cannot listen for signals")?;
        run_daemon(args, env, stop).await
    })
}
