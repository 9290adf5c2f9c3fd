//! `spiderpoolctl pool …` and `ip find`: reads the API, prints. Owns these verbs and their exit codes.

use std::error::Error;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use spiderpool_api::names;
use spiderpool_api::trace_v1::{HeldAttachment, ROUTE_ATTACHMENTS};

use crate::cluster::{Cluster, ListError};
use crate::output::{self, PrintError, print};
use crate::{Form, agent_socket, complain, facts, find, one_line, pool, show, usage};

/// What can be done with pools.
#[derive(Debug, Subcommand)]
pub(crate) enum PoolVerb {
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
    /// Show one pool: its settings, how full it is, what the provider has ready, what is wrong
    #[command(after_help = "Exit codes:
  0  nothing is wrong with it
  1  failed, or a warning is shown: it gives less than expected, or nothing")]
    Show {
        /// Name of the pool
        name: String,
        /// Form of the output
        #[arg(short, long, value_enum, default_value_t = Form::Table)]
        output: Form,
    },
    /// Show how full all pools are, the fullest first
    #[command(after_help = "Columns:
  TOTAL     addresses the pool has
  USED      addresses with a record
  RESERVED  kept back by a SpiderReservedIP, or the gateway's, and not used
  FREE      what is left; of a provider's pool not all of it may be ready
  USED%     USED of TOTAL")]
    Usage {
        /// Form of the output
        #[arg(short, long, value_enum, default_value_t = Form::Table)]
        output: Form,
    },
}

/// What can be asked of an address.
#[derive(Debug, Subcommand)]
pub(crate) enum IpVerb {
    /// Tell who has an address, since when, from which pool, and whether all sources agree
    #[command(after_help = "Sources:
  record      the pool's entry; it alone decides who has the address
  endpoint    the Pod's SpiderEndpoint, made from the record
  attachment  what the agent of this host gave to a sandbox
  pod         the Pod object of the record's name

Exit codes:
  0  all agree, or nobody has it
  1  failed, or a problem is shown")]
    Find(FindArgs),
}

/// What `ip find` is told.
#[derive(Debug, Args)]
pub(crate) struct FindArgs {
    /// The address
    address: IpAddr,
    /// Socket of the agent of this node, for attachments
    #[arg(long, value_name = "FILE", env = names::ENV_SOCKET, default_value = names::DEFAULT_SOCKET)]
    socket: PathBuf,
    /// Form of the output
    #[arg(short, long, value_enum, default_value_t = Form::Table)]
    output: Form,
}

/// There is no such pool.
#[derive(Debug, thiserror::Error)]
#[error("{server} has no pool {name}; spiderpoolctl pool list shows those it has")]
struct NoPool {
    server: String,
    name: String,
}

/// Runs a verb on pools.
///
/// # Errors
/// The API cannot be asked, or standard output is gone.
pub(crate) async fn run(cluster: &Cluster, verb: &PoolVerb) -> Result<ExitCode, Box<dyn Error>> {
    match verb {
        PoolVerb::List { output } => list(cluster, *output).await,
        PoolVerb::Show { name, output } => show(cluster, name, *output).await,
        PoolVerb::Usage { output } => usage(cluster, *output).await,
    }
}

async fn list(cluster: &Cluster, form: Form) -> Result<ExitCode, Box<dyn Error>> {
    let listed = cluster.pools().await?;
    let rows = pool::rows(&listed.objects);
    let text = match form {
        Form::Table => output::table(&rows, output::Columns::Usual),
        Form::Wide => output::table(&rows, output::Columns::All),
        Form::Json => output::json(&rows)?,
    };
    say(cluster, rows.is_empty(), form, &text)?;
    Ok(exit(&listed.unreadable))
}

async fn usage(cluster: &Cluster, form: Form) -> Result<ExitCode, Box<dyn Error>> {
    let listed = cluster.pools().await?;
    let reserved = facts::reserved(&cluster.reserved().await?.objects);
    let known = facts::pools(listed.objects);
    let rows = usage::rows(&known, &reserved);
    let text = match form {
        Form::Json => output::pretty(&rows)?,
        _ => usage::table(&rows),
    };
    say(cluster, rows.is_empty(), form, &text)?;
    let mut unreadable = listed.unreadable;
    for pool in &known {
        if let Err(error) = &pool.pool {
            unreadable.push(ListError::Unreadable {
                kind: "spiderippool",
                name: pool.name(),
                reason: error.to_string(),
            });
        }
    }
    Ok(exit(&unreadable))
}

async fn show(cluster: &Cluster, name: &str, form: Form) -> Result<ExitCode, Box<dyn Error>> {
    let listed = cluster.pools().await?;
    let reserved = facts::reserved(&cluster.reserved().await?.objects);
    let known = facts::pools(listed.objects);
    let Some(wanted) = known.iter().find(|known| known.name() == name) else {
        let mut about = listed.unreadable.into_iter();
        if let Some(error) = about.find(|error| error.is_about(name)) {
            return Err(error.into());
        }
        return Err(Box::new(NoPool {
            server: cluster.server().to_owned(),
            name: name.to_owned(),
        }));
    };
    let shown = show::show(wanted, &facts::usable(&known), &reserved);
    print(&match form {
        Form::Json => output::pretty(&shown)?,
        _ => show::text(&shown),
    })?;
    Ok(ExitCode::from(u8::from(!shown.is_fine())))
}

/// Runs a verb on addresses.
///
/// # Errors
/// The API cannot be asked, or standard output is gone.
pub(crate) async fn run_ip(cluster: &Cluster, verb: &IpVerb) -> Result<ExitCode, Box<dyn Error>> {
    let IpVerb::Find(args) = verb;
    let known = facts::pools(cluster.pools().await?.objects);
    let reserved = facts::reserved(&cluster.reserved().await?.objects);
    let endpoints = cluster.endpoints().await?.objects;
    let attachments = attachments(&args.socket);
    let sources = find::Sources {
        address: args.address,
        pools: &known,
        reserved: &reserved,
        endpoints: &endpoints,
        attachments: attachments.as_deref(),
    };
    let owners = find::owners(&sources);
    let named = owners
        .first()
        .and_then(|owner| Some((owner, owner.pod.split_once('/')?)));
    let pod = match named {
        // The records of a machine have its name, its Pods have others.
        Some((owner, (namespace, _))) if sources.is_machines(owner) => {
            cluster.launcher(namespace, &owner.pod_uid).await?
        }
        Some((_, (namespace, name))) => cluster.pod(namespace, name).await?,
        None => None,
    };
    let found = find::find(&sources, &owners, pod.as_ref());
    print(&match args.output {
        Form::Json => output::pretty(&found)?,
        _ => find::text(&found),
    })?;
    Ok(ExitCode::from(u8::from(!found.is_consistent())))
}

/// `None`: no agent here, which is no failure on an operator's own machine.
fn attachments(socket: &Path) -> Option<Vec<HeldAttachment>> {
    agent_socket::ask(socket, "GET", ROUTE_ATTACHMENTS).ok()
}

fn say(cluster: &Cluster, none: bool, form: Form, text: &str) -> Result<(), PrintError> {
    if none && form != Form::Json {
        complain("note", &format!("{} has no pools", cluster.server()));
        return Ok(());
    }
    print(text).map(drop)
}

fn exit(unreadable: &[ListError]) -> ExitCode {
    for error in unreadable {
        complain("error", &one_line(error));
    }
    ExitCode::from(u8::from(!unreadable.is_empty()))
}
