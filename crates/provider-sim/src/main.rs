//! `provider-sim`: the simulated cloud as a process.

use std::fs;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::{Parser, Subcommand};
use provider_sim::admin::{Admin, AdminAddress};
use provider_sim::fabric::ports::Sockets;
use provider_sim::fabric::run::Running;
use provider_sim::publish;
use provider_sim::serve::{ServeArguments, Serving};
use provider_sim::settings::Settings;
use provider_sim::topology::Topology;
use tokio::signal::unix::{SignalKind, signal};
use tracing::{error, info};

/// What every help ends with.
const MORE: &str = "Logs go to stderr; RUST_LOG sets their level (info). Ends with 0 on SIGTERM and SIGINT, with 1 and \
the reason on stderr when it cannot start or a part of it breaks.\nFiles, settings, faults and the \
administration's endpoints are described in docs/provider-sim.md.";

/// Simulated cloud for tests and demonstrations: an IaaS network provider with the cloud behind
/// it, down to the frames.
#[derive(Debug, Parser)]
#[command(version, after_help = MORE)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Move frames between parent NICs and the gateway of a topology. Needs root.
    #[command(after_help = MORE)]
    Fabric(FabricArguments),
    /// Be the cloud and its provider: contract, pools' metadata and, with root, the fabric.
    #[command(after_help = MORE)]
    Serve(Box<ServeArguments>),
    /// Print all settings of `serve` as YAML, the defaults or those of a file, and check them.
    Settings(SettingsArguments),
    /// Write once what a provider publishes of the topology's sub-ENIs into the pools' status.
    Publish(PublishArguments),
}

#[derive(Debug, clap::Args)]
struct FabricArguments {
    /// Nodes, subnets and bindings (YAML).
    #[arg(long, value_name = "FILE")]
    topology: PathBuf,
    /// Where the administration listens: loopback address, unix:PATH, or 0 for nowhere.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8081")]
    admin: AdminAddress,
    /// File to write the administration's address to once frames are moved.
    #[arg(long, value_name = "FILE")]
    ready_file: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
struct SettingsArguments {
    /// File with settings (YAML); what it does not name is the default.
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
struct PublishArguments {
    /// Whose pools.
    #[arg(long, value_name = "FILE")]
    kubeconfig: PathBuf,
    /// Nodes, subnets and bindings (YAML); bindings name their pools.
    #[arg(long, value_name = "FILE")]
    topology: PathBuf,
    /// Only the pools of this node.
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Seconds to wait for each pool to exist and to have its parent NIC.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    wait: u64,
}

fn main() -> ExitCode {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .init();
    let ended = match Arguments::parse().command {
        Command::Fabric(arguments) => run(arguments),
        Command::Serve(arguments) => run_serve(&arguments),
        Command::Settings(arguments) => print_settings(&arguments),
        Command::Publish(arguments) => run_publish(&arguments),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(cause) => {
            error!("{cause:#}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main(worker_threads = 2)]
async fn run(arguments: FabricArguments) -> anyhow::Result<()> {
    let topology = Topology::read(&arguments.topology)?;
    let sockets = Sockets::open(&topology)?;
    let admin = Admin::bind(arguments.admin).await?;
    let address = admin.address().clone();
    let mut running = Running::start(topology, sockets)?;
    if let Some(path) = &arguments.ready_file {
        write_whole(path, &format!("{address}\n"))
            .with_context(|| format!("cannot write ready file {}", path.display()))?;
    }
    info!(%address, "fabric is running");
    let fabric = std::sync::Arc::clone(&running.fabric);
    let mut terminated = signal(SignalKind::terminate())?;
    let mut interrupted = signal(SignalKind::interrupt())?;
    tokio::select! {
        served = admin.serve(fabric) => served?,
        () = running.wait() => anyhow::bail!("a wire of the fabric failed; see the log above"),
        _ = terminated.recv() => info!("terminated"),
        _ = interrupted.recv() => info!("interrupted"),
    }
    Ok(())
}

#[tokio::main(worker_threads = 2)]
async fn run_serve(arguments: &ServeArguments) -> anyhow::Result<()> {
    let mut serving = Serving::start(arguments).await?;
    if let Some(path) = &arguments.ready_file {
        write_whole(path, &format!("{}\n", serving.admin))
            .with_context(|| format!("cannot write ready file {}", path.display()))?;
    }
    info!(admin = %serving.admin, "the provider is running");
    let mut terminated = signal(SignalKind::terminate())?;
    let mut interrupted = signal(SignalKind::interrupt())?;
    tokio::select! {
        ended = serving.wait() => ended?,
        _ = terminated.recv() => info!("terminated"),
        _ = interrupted.recv() => info!("interrupted"),
    }
    Ok(())
}

fn print_settings(arguments: &SettingsArguments) -> anyhow::Result<()> {
    let settings = Settings::read(arguments.file.as_deref())?;
    let text = serde_saphyr::to_string(&settings)?;
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn run_publish(arguments: &PublishArguments) -> anyhow::Result<()> {
    let topology = Topology::read(&arguments.topology)?;
    let client = publish::connect(&arguments.kubeconfig).await?;
    let limit = Duration::from_secs(arguments.wait);
    for publication in publish::publications(&topology, arguments.node.as_deref()) {
        publish::publish(&client, &publication, limit).await?;
    }
    Ok(())
}

/// Readers see the whole file or none.
fn write_whole(path: &Path, text: &str) -> std::io::Result<()> {
    let mut temporary = path.to_owned().into_os_string();
    temporary.push(".new");
    fs::write(&temporary, text)?;
    fs::rename(&temporary, path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn serve(words: &str) -> Result<ServeArguments, String> {
        let words = format!("provider-sim serve --topology t {words}");
        match Arguments::try_parse_from(words.split_whitespace()) {
            Ok(Arguments {
                command: Command::Serve(arguments),
            }) => Ok(*arguments),
            Ok(_) => Err("another command".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn words_are_taken_and_refused() {
        Arguments::command().debug_assert();
        let tls = "--tls-listen 127.0.0.1:0";
        assert!(serve(tls).unwrap_err().contains("--tls-ca-file"));
        assert!(serve(&format!("{tls} --tls-ca-file f")).is_ok());
        let alone = serve(&format!("{tls} --tls-secret")).unwrap_err();
        assert!(alone.contains("--kubeconfig"), "{alone}");
        let both = format!("{tls} --kubeconfig k --tls-ca-file f");
        for (word, place) in [
            (
                "--tls-secret",
                "iaas-network-provider-system/iaas-network-provider-tls",
            ),
            ("--tls-secret=a/b", "a/b"),
        ] {
            let secret = serve(&format!("{both} {word}")).unwrap().tls_secret;
            assert_eq!(secret.unwrap().to_string(), place);
        }
        assert!(serve(&format!("{both} --tls-secret=a")).is_err());
    }
}
