//! `spiderpoolctl provider verify`: drives a provider through the contract and reports, clause by
//! clause, whether it keeps it. For a test provider in a test cluster. Owns the run: which checks,
//! their order, signals, the clean-up, the exit code.

mod asked;
mod catalogue;
mod checks;
mod cleanup;
mod cluster_target;
mod ctx;
mod greeting;
mod judge;
mod kit;
mod pools;
mod progress;
mod report;
mod target;
mod topology;
mod wire;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use clap::{Args, Subcommand};
use spiderpool_api::causes::with_causes;
use spiderpool_api::value::Mac;
use spiderpool_iaas::client::{ClientError, Endpoint, raw};
use tokio::signal::unix::{SignalKind, signal};

use self::asked::UsageError;
use self::catalogue::Check;
use self::ctx::Ctx;
use self::kit::{Kit, Seen, Stop, Verified};
use self::pools::Pools;
use self::progress::Progress;
use self::report::{Line, Report};
use self::target::Target;
use self::wire::Identity;
use crate::cluster::Cluster;
use crate::{Form, complain, one_line, output};

/// Could not be run.
const NOT_RUN: u8 = 2;

/// What can be done with a provider.
#[derive(Debug, Subcommand)]
pub(crate) enum ProviderVerb {
    /// Test whether a provider keeps the contract: drive a test provider and report clause by clause
    #[command(after_help = "\
It binds and releases sub-ENIs: use a test provider. In a cluster it takes free
addresses of the pools that are named, writes records for them first so that no
Pod gets them, and removes the records at the end; an address that has a record
is never touched. What was bound is released, also after Ctrl-C; what could not
be given back is listed.

What it tests with:
  --pool NAME        pools of the cluster (--kubeconfig): name a global pool,
                     the IPv4 pool of a pair of global pools, and a prewarm
                     pool; what is missing is skipped
  --node NAME[=MAC]  nodes and their parent NICs, two at best; without MAC the
                     one that its annotation ipam.spidernet.io/parent-nics
                     has under the pool's parent NIC
  --topology FILE    no cluster: parents (node, mac) and pools (name, subnet,
                     ips, node, pair) in YAML; the file of provider-sim serves
                     as it is

An answer that breaks the contract counts whatever --only names: its check is
listed too.

Exit codes:
  0  no check failed
  1  a check failed
  2  it could not be run, was interrupted, skipped all it was asked for, or left
     records in pools")]
    Verify(Box<VerifyArgs>),
}

/// What `verify` is told.
#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// URL of the provider, such as https://localhost:8443
    #[arg(required_unless_present = "list")]
    url: Option<String>,
    /// CA bundle (PEM) its certificate is verified by
    #[arg(long, value_name = "FILE", conflicts_with = "insecure_skip_verify")]
    ca: Option<PathBuf>,
    /// Name its certificate has to carry, if not the URL's: NAME.NAMESPACE.svc behind a port-forward
    #[arg(long, value_name = "NAME")]
    server_name: Option<String>,
    /// Do not verify its certificate
    #[arg(long)]
    insecure_skip_verify: bool,
    /// Speak contract version 1, that of a provider named by iaasNetworkProvider.serverUrl
    #[arg(long)]
    v1: bool,
    /// Pools of the cluster to test with
    #[arg(
        long = "pool",
        value_name = "NAME",
        value_delimiter = ',',
        conflicts_with = "topology"
    )]
    pools: Vec<String>,
    /// Nodes to allocate on, and the MACs of their parent NICs
    #[arg(long = "node", value_name = "NAME[=MAC]", value_delimiter = ',', value_parser = asked::node)]
    nodes: Vec<(String, Option<Mac>)>,
    /// Nodes and pools of a provider without a cluster (YAML)
    #[arg(long, value_name = "FILE")]
    topology: Option<PathBuf>,
    /// Budget of a call, seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..100))]
    timeout: u64,
    /// Only these checks or groups, such as answer,release.prewarm
    #[arg(long, value_name = "CHECK", value_delimiter = ',')]
    only: Vec<String>,
    /// List the checks and their clauses, test nothing
    #[arg(long)]
    list: bool,
    /// Form of the output
    #[arg(short, long, value_enum, default_value_t = Form::Table)]
    output: Form,
}

/// Runs a verb. Its failures have an exit code of their own.
pub(crate) async fn run(kubeconfig: Option<&Path>, verb: &ProviderVerb) -> ExitCode {
    let ProviderVerb::Verify(args) = verb;
    match verify(kubeconfig, args).await {
        Ok(exit) => exit,
        Err(error) => {
            complain("error", &one_line(error.as_ref()));
            ExitCode::from(NOT_RUN)
        }
    }
}

async fn verify(kubeconfig: Option<&Path>, args: &VerifyArgs) -> Result<ExitCode, Box<dyn Error>> {
    let checks = asked::selected(&args.only, args.v1)?;
    let Some(url) = args.url.as_deref().filter(|_| !args.list) else {
        list(&checks, args.output)?;
        return Ok(ExitCode::SUCCESS);
    };
    let endpoint = endpoint(url, args)?;
    asked::apart(&args.nodes)?;
    let (target, pools, identity) = target(kubeconfig, args).await?;
    if target.addresses().is_empty() && target.global.is_none() {
        return Err(UsageError::Pool.into());
    }
    let mut kit = Kit {
        verified: Verified::Not("nothing was sent"),
        endpoint,
        is_v1: args.v1,
        target,
        timeout: Duration::from_secs(args.timeout),
        pools,
        identity,
        seen: Seen::default(),
    };
    kit.verified = greeting::greet(&kit, args.ca.as_deref()).await?;
    if let Verified::Refused(refused) = &kit.verified {
        if checks.iter().all(|check| check.id != "tls.verified") {
            return Err(refused.clone().into());
        }
        let why = "the provider's certificate is refused: see tls.verified";
        kit.seen.gone.set(Some(why));
    }
    let kit = Rc::new(kit);
    let mut report = play(&kit, &checks).await?;
    clean_up(&kit, &mut report).await;
    let text = match args.output {
        Form::Json => output::pretty(&report)?,
        _ => report.text(),
    };
    let printed = output::print(&text);
    if !matches!(printed, Ok(true)) {
        // nobody has read of it
        report.left.iter().for_each(|left| complain("left", left));
    }
    printed?;
    Ok(match (report.was_run(), report.summary.fail) {
        (true, 1..) => ExitCode::FAILURE,
        (true, 0) if !report.holds_addresses => ExitCode::SUCCESS,
        _ => ExitCode::from(NOT_RUN),
    })
}

/// Gives back, also after a signal; a second one cuts it short.
async fn clean_up(kit: &Rc<Kit>, report: &mut Report) {
    if report.interrupted {
        complain(
            "note",
            "interrupted; giving back what was bound. Again to leave it",
        );
    }
    let left = tokio::select! {
        left = cleanup::give_back(kit) => left,
        () = interrupted() => {
            report.interrupted = true;
            cleanup::all_of_it(kit)
        }
    };
    report.leaves(left);
}

fn list(checks: &[&'static Check], form: Form) -> Result<(), Box<dyn Error>> {
    let listed = report::list(checks);
    output::print(&match form {
        Form::Json => output::pretty(&listed)?,
        _ => report::list_text(&listed),
    })?;
    Ok(())
}

fn endpoint(url: &str, args: &VerifyArgs) -> Result<Endpoint, Box<dyn Error>> {
    let told = |error: ClientError| with_causes(&error);
    let mut endpoint = Endpoint::parse(url).map_err(told)?;
    if let Some(name) = &args.server_name {
        endpoint = endpoint.with_server_name(name);
    }
    match &args.ca {
        Some(ca) => endpoint = endpoint.with_ca_file(ca),
        None if url.starts_with("https") && !args.insecure_skip_verify => {
            return Err(UsageError::Ca.into());
        }
        None => {}
    }
    raw::probe(&endpoint).map_err(told)?;
    Ok(endpoint)
}

/// What is tested with; in a cluster its addresses are held from here on.
async fn target(
    kubeconfig: Option<&Path>,
    args: &VerifyArgs,
) -> Result<(Target, Option<Pools>, Identity), Box<dyn Error>> {
    let identity = Identity::of_new_run();
    if let Some(path) = &args.topology {
        return Ok((topology::read(path, &args.nodes)?, None, identity));
    }
    if args.pools.is_empty() {
        return Err(UsageError::Target.into());
    }
    let cluster = Cluster::find(kubeconfig).await?;
    let target = cluster_target::choose(&cluster, &args.pools, &args.nodes).await?;
    let pools = Pools::new(cluster.client().clone(), identity.clone());
    Ok((target, Some(pools), identity))
}

/// Holds the addresses and plays all checks, until a signal comes.
async fn play(kit: &Rc<Kit>, checks: &[&'static Check]) -> Result<Report, Box<dyn Error>> {
    let mut lines = Vec::new();
    let progress = Progress::new(checks.len());
    let all = async {
        if let Some(pools) = &kit.pools {
            for (pool, addresses) in cleanup::by_pool(kit) {
                pools.claim(&pool, &addresses).await?;
            }
        }
        for check in checks {
            progress.begins(check.id);
            let line = one(kit, check).await;
            progress.ended(&line);
            lines.push(line);
        }
        Ok::<(), pools::PoolsError>(())
    };
    let ended = tokio::select! {
        ended = all => Some(ended),
        () = interrupted() => None,
    };
    progress.done();
    if let Some(Err(error)) = ended {
        for left in cleanup::give_back(kit).await.lines {
            complain("left", &left);
        }
        return Err(error.into());
    }
    // an answer that is broken counts, whatever was asked for
    for check in unselected(kit, checks) {
        lines.push(one(kit, check).await);
    }
    let mut report = Report::new(kit.endpoint.to_string(), lines);
    report.interrupted = ended.is_none();
    Ok(report)
}

/// The checks of answers that would fail and were not asked for.
fn unselected(kit: &Kit, selected: &[&'static Check]) -> Vec<&'static Check> {
    let broken = kit.seen.broken.borrow();
    let fails = |check: &&Check| {
        let mut broken = broken
            .iter()
            .filter(|broken| broken.rule.breaks_the_contract());
        broken.any(|broken| broken.rule.check() == check.id)
    };
    let is_selected = |check: &&Check| selected.iter().any(|known| known.id == check.id);
    catalogue::all()
        .filter(|check| fails(check) && !is_selected(check))
        .collect()
}

async fn one(kit: &Rc<Kit>, check: &'static Check) -> Line {
    let ctx = Ctx::new(Rc::clone(kit));
    let is_of_memory = check.id.starts_with("tls.")
        || check.id.starts_with("answer.") && kit.seen.judged.get() > 0;
    let ended = match kit.seen.gone.get() {
        Some(why) if !is_of_memory => Err(Stop::Skip(why.to_owned())),
        _ => (check.run)(&ctx).await,
    };
    Line::new(check, ended, ctx.log())
}

/// SIGINT or SIGTERM.
async fn interrupted() {
    let (int, term, hangup) = (
        signal(SignalKind::interrupt()),
        signal(SignalKind::terminate()),
        signal(SignalKind::hangup()),
    );
    let (Ok(mut int), Ok(mut term), Ok(mut hangup)) = (int, term, hangup) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = int.recv() => {}
        _ = term.recv() => {}
        _ = hangup.recv() => {}
    }
}
