//! A controller from start to end. Wiring alone.

use anyhow::Context as _;
use tokio::sync::mpsc::unbounded_channel;
use tokio_util::sync::CancellationToken;

use crate::chain::full;
use crate::client::bounded;
use crate::conf_file;
use crate::config::{DaemonArgs, Env, Settings, version};
use crate::connect::connect;
use crate::effectless;
use crate::election::Candidate;
use crate::events::Events;
use crate::gc;
use crate::listeners::Listeners;
use crate::pool_metrics;
use crate::reconcile::{coordinator, ippool, multus_config, subnet};
use crate::tasks::{Context, Ended, Ends, Group, Tasks};
use crate::webhook;

/// Everything that a controller does. Each task has one line here.
#[must_use]
pub fn tasks() -> Tasks {
    Tasks::new()
        .on_leader("pools and subnets", pools_and_subnets)
        .on_leader("multus-config", multus_config::run)
        .on_leader("coordinator", coordinator::run)
        .on_leader("gc", gc::task)
        .on_leader("pool metrics", pool_metrics::task)
        .on_every_replica("webhook", webhook::task::run)
}

/// The reconciler of subnets learns from that of pools what these hold.
async fn pools_and_subnets(context: Context, stop: CancellationToken) -> Ended {
    let env = &context.settings.env;
    let events = Events::new(context.client.clone(), &env.pod_name);
    let (tell, told) = unbounded_channel();
    let tell = move |news| {
        // Its reader ends with us.
        let _nobody = tell.send(news).is_err();
    };
    let (client, resync) = (context.client.clone(), env.pool_resync);
    tokio::join!(
        ippool::run_telling(client, events, resync, stop.clone(), tell),
        subnet::run(context.clone(), told, stop),
    );
    Ok(())
}

/// Runs a replica until `stop`.
///
/// # Errors
/// What keeps it from starting or from going on.
pub async fn run_daemon(
    args: &DaemonArgs,
    env: Env,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let (conf, provider) = conf_file::read(&args.config_path)?;
    let tls = args.tls_files()?;
    let settings = Settings { env, conf, tls };
    let client = connect(args.kubeconfig.as_deref()).await?;
    let context = Context {
        provider,
        ..Context::new(bounded(client), settings)
    };
    let listeners = Listeners::open(&context.settings.env).await?;
    let env = &context.settings.env;
    tracing::info!(
        identity = env.pod_name,
        namespace = env.namespace,
        version = version(),
        "controller is starting"
    );
    effectless::tell(&env.effectless);
    let serving = stop.child_token();
    let probes = tokio::spawn(listeners.serve(context.clone(), serving.clone()));
    let result = run_all(&tasks(), &context, stop).await;
    // Probes are answered until everything else has ended.
    serving.cancel();
    probes.await.context("health and metrics failed")?;
    result
}

/// Both groups; when one cannot go on, neither does.
async fn run_all(tasks: &Tasks, context: &Context, stop: CancellationToken) -> anyhow::Result<()> {
    let ends = Ends {
        stop: stop.child_token(),
        lost: CancellationToken::new(),
    };
    let ended = |result| {
        if let Err(error) = &result {
            tracing::error!("{}", full(error));
        }
        ends.stop.cancel();
        result
    };
    let replica = async { ended(tasks.run(Group::Replica, context, &ends).await) };
    let candidate = Candidate::new(context);
    let leader = async { ended(candidate.run(tasks, context, ends.stop.clone()).await) };
    let (replica, leader) = tokio::join!(replica, leader);
    Ok(replica.and(leader)?)
}

/// What the leader of a cluster does, without an election: for a node that is its whole cluster.
///
/// # Errors
/// As [`Tasks::run`].
pub async fn run_alone(context: Context, stop: CancellationToken) -> anyhow::Result<()> {
    let ends = Ends {
        stop,
        lost: CancellationToken::new(),
    };
    Ok(tasks().run(Group::Leader, &context, &ends).await?)
}
