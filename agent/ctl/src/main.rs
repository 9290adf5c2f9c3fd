//! `spiderpoolctl`: what operators ask of the API, as tables and JSON. Owns the command line and
//! the exit code; talks to the API server and to the agent's socket.

#![forbid(unsafe_code)]

mod agent_socket;
mod cluster;
mod output;
mod pool;
mod subeni;

use std::error::Error;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::LazyLock;

use clap::{Parser, Subcommand, ValueEnum};

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
    Pool(PoolVerb),
    /// Sub-ENIs of this node: who has which, what they send, and whether they may
    #[command(name = "subeni", arg_required_else_help = true)]
    SubEni(subeni::SubEniArgs),
}

#[derive(Subcommand)]
enum PoolVerb {
    /// List all pools
    #[command(after_help = "Columns:
  VERSION     IP version, 4 or 6
  ALLOCATED   addresses in use
  TOTAL       addresses the pool has
  MODE        plain: no cloud provider is involved
              prewarm(NODE): the provider keeps sub-ENIs ready on that node
              global: the provider moves sub-ENIs to the node that needs them
              invalid: marked for a provider, but for several nodes at once
  READY       addresses whose sub-ENI the provider has ready
  PARENT-NIC  NIC of the node that carries the sub-ENIs
  AGE         since the pool was created

'-' means not known, or not meant for this mode. In JSON that is null.")]
    List {
        /// Form of the output
        #[arg(short, long, value_enum, default_value_t = Form::Table)]
        output: Form,
    },
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
    let output = match &cli.area {
        Area::SubEni(args) => return subeni::run(args),
        Area::Pool(PoolVerb::List { output }) => output,
    };
    let cluster = cluster::Cluster::find(cli.kubeconfig.as_deref()).await?;
    let (pools, unreadable) = cluster.pools().await?;
    let rows = pool::rows(&pools);
    let text = match output {
        Form::Table => output::table(&rows, output::Columns::Usual),
        Form::Wide => output::table(&rows, output::Columns::All),
        Form::Json => output::json(&rows)?,
    };
    if rows.is_empty() && *output != Form::Json {
        complain("note", &format!("{} has no pools", cluster.server()));
    } else if let Err(error) = io::stdout().lock().write_all(text.as_bytes()) {
        // `spiderpoolctl pool list | head -1` is no failure
        if error.kind() != io::ErrorKind::BrokenPipe {
            return Err(error.into());
        }
    }
    for error in &unreadable {
        complain("error", &one_line(error));
    }
    Ok(match unreadable.as_slice() {
        [] => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

fn complain(kind: &str, text: &str) {
    // nowhere is left to say that stderr is closed
    writeln!(io::stderr().lock(), "{kind}: {text}").ok();
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
