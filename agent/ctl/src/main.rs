//! `spiderpoolctl`: what operators ask of the API, as tables and JSON. Owns the command line and
//! the exit code; talks to the API server and to the agent's socket.

#![forbid(unsafe_code)]

mod agent_socket;
mod clean;
mod cluster;
mod facts;
mod find;
mod gc;
mod init;
mod output;
mod pool;
mod pools;
mod provider;
mod show;
mod subeni;
mod trace;
mod usage;

use std::error::Error;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::LazyLock;

use clap::{Args, Parser, Subcommand, ValueEnum};
use spiderpool_api::names;

/// Release and commit; the build's environment names the commit.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let commit = option_env!("GIT_COMMIT_VERSION").filter(|text| !text.is_empty());
    let (release, commit) = (env!("CARGO_PKG_VERSION"), commit.unwrap_or("unknown"));
    format!("{release} (commit {commit})")
});

/// Shows what Spiderpool has and does.
#[derive(Parser)]
#[command(
    version = VERSION.as_str(),
    arg_required_else_help = true,
    after_help = "Which API server is asked (the first that is there):
  --kubeconfig FILE, KUBECONFIG, /etc/spiderpool/kubeconfig (a standalone node),
  the service account of the Pod this runs in, ~/.kube/config

Exit codes:
  0  done
  1  failed: one line on stderr says what and what to do
  2  the command line is wrong"
)]
struct Cli {
    #[command(subcommand)]
    area: Area,
    /// API server and credentials to use, as kubectl reads them
    #[arg(long, global = true, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Area {
    /// Pools: the addresses Pods get, and how many are left
    #[command(subcommand, arg_required_else_help = true)]
    Pool(pools::PoolVerb),
    /// Addresses: who has them
    #[command(subcommand, arg_required_else_help = true)]
    Ip(pools::IpVerb),
    /// Garbage collection: what becomes of the addresses of Pods that are gone
    #[command(subcommand, arg_required_else_help = true)]
    Gc(gc::GcVerb),
    /// Providers: whether one keeps the contract
    #[command(subcommand, arg_required_else_help = true)]
    Provider(provider::ProviderVerb),
    /// Tell which pools a Pod has to choose from, why the others are refused, and what was written
    #[command(arg_required_else_help = true)]
    Trace(TraceArgs),
    /// Sub-ENIs of this node: who has which, what they send, and whether they may
    #[command(name = "subeni", arg_required_else_help = true)]
    SubEni(subeni::SubEniArgs),
    /// Make what a cluster needs from the start, as SPIDERPOOL_INIT_* variables say; the chart's first job
    #[command(after_help = "\
Waits until a controller is ready (Service SPIDERPOOL_CONTROLLER_NAME, namespace
SPIDERPOOL_NAMESPACE), then makes each of these whose name is set and that does
not exist yet:

  SpiderCoordinator   SPIDERPOOL_INIT_DEFAULT_COORDINATOR_ with NAME, MODE,
                      POD_CIDR_TYPE, TUNE_POD_ROUTES, HIJACK_CIDR,
                      POLICY_ROUTES, VETH_LINK_ADDRESS, VETH_MTU
  SpiderSubnet        SPIDERPOOL_INIT_DEFAULT_IPV4_ with SUBNET_NAME,
                      IPPOOL_SUBNET, IPPOOL_IPRANGES, IPPOOL_GATEWAY
  SpiderIPPool        SPIDERPOOL_INIT_DEFAULT_IPV4_ with IPPOOL_NAME and the
                      same subnet, ranges and gateway; both also with IPV6_
  SpiderMultusConfig  SPIDERPOOL_INIT_ with ENABLE_MULTUS_CONFIG (true),
                      DEFAULT_CNI_NAME, DEFAULT_CNI_NAMESPACE, DEFAULT_CNI_DIR

A value that can never be is refused at once, with its variable. Everything else
is waited for: each step is repeated every 2 s until it is done.")]
    Init,
    /// Take everything of Spiderpool out of the cluster; the chart's last job
    #[command(arg_required_else_help = true)]
    Clean(clean::CleanArgs),
}

/// What `trace` is told.
#[derive(Args)]
struct TraceArgs {
    /// The Pod; without a namespace in default
    #[arg(value_name = "[NAMESPACE/]NAME", value_parser = pod)]
    pod: (String, String),
    /// Socket of the agent of this node, which has to be the Pod's
    #[arg(long, value_name = "FILE", env = names::ENV_SOCKET, default_value = names::DEFAULT_SOCKET)]
    socket: PathBuf,
    /// Form of the output
    #[arg(short, long, value_enum, default_value_t = Form::Table)]
    output: Form,
}

fn pod(text: &str) -> Result<(String, String), String> {
    let (namespace, name) = text.split_once('/').unwrap_or(("default", text));
    let is_name = |name: &str| {
        let legal = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
        !name.is_empty() && name.chars().all(legal)
    };
    if is_name(namespace) && is_name(name) {
        Ok((namespace.to_owned(), name.to_owned()))
    } else {
        Err("expected the name of a Pod, or namespace/name".to_owned())
    }
}

/// Form of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    /// Aligned columns
    Table,
    /// More columns
    Wide,
    /// An array of objects with the same keys in every release
    Json,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    // kube finds its TLS through the process-wide default; a second install is refused, and then
    // the first one serves
    rustls::crypto::aws_lc_rs::default_provider()
        .install_default()
        .ok();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(run(&cli)),
        Err(error) => Err(error.into()),
    };
    match result {
        Ok(exit) => exit,
        Err(error) => {
            complain("error", &one_line(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

async fn run(cli: &Cli) -> Result<ExitCode, Box<dyn Error>> {
    match &cli.area {
        Area::SubEni(args) => subeni::run(args),
        Area::Trace(args) => trace(args),
        Area::Provider(verb) => Ok(provider::run(cli.kubeconfig.as_deref(), verb).await),
        Area::Pool(verb) => {
            let cluster = cluster::Cluster::find(cli.kubeconfig.as_deref()).await?;
            pools::run(&cluster, verb).await
        }
        Area::Gc(verb) => {
            let cluster = cluster::Cluster::find(cli.kubeconfig.as_deref()).await?;
            gc::run(&cluster, verb).await
        }
        Area::Ip(verb) => {
            let cluster = cluster::Cluster::find(cli.kubeconfig.as_deref()).await?;
            pools::run_ip(&cluster, verb).await
        }
        Area::Init => {
            let cluster = cluster::Cluster::find(cli.kubeconfig.as_deref()).await?;
            init::run(&cluster).await
        }
        Area::Clean(args) => {
            let cluster = cluster::Cluster::find(cli.kubeconfig.as_deref()).await?;
            clean::run(&cluster, args).await
        }
    }
}

fn trace(args: &TraceArgs) -> Result<ExitCode, Box<dyn Error>> {
    let (namespace, name) = &args.pod;
    let report = trace::ask_agent(&args.socket, namespace, name)?;
    output::print(&match args.output {
        Form::Json => output::pretty(&report)?,
        _ => trace::text(&format!("{namespace}/{name}"), &report),
    })?;
    Ok(ExitCode::SUCCESS)
}

fn complain(kind: &str, text: &str) {
    // nowhere is left to say that stderr is closed
    writeln!(io::stderr().lock(), "{kind}: {}", output::harmless(text)).ok();
}

/// The error and its root cause. What lies between repeats one of them: the client library's
/// texts contain those of their sources.
fn one_line(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut root = error;
    while let Some(cause) = root.source() {
        root = cause;
    }
    let cause = root.to_string();
    if !text.contains(&cause) {
        text = format!("{text}: {cause}");
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    /// Columns of a help text's own lines stay columns on a terminal of the usual width.
    #[test]
    fn no_line_of_a_help_text_is_wrapped() {
        let mut commands = vec![Cli::command()];
        while let Some(command) = commands.pop() {
            let after = command.get_after_help().map(ToString::to_string);
            let text = after.unwrap_or_default();
            let long = text.lines().find(|line| line.chars().count() > 80);
            assert_eq!(long, None, "{}", command.get_name());
            commands.extend(command.get_subcommands().cloned());
        }
    }
}
