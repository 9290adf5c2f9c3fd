//! The life of an agent: start over a store and a kernel, serve, replay what waits, stop without
//! losing what is under way.

use std::sync::Arc;

use anyhow::Context;
use tokio_util::sync::CancellationToken;

use crate::agent::{Agent, Seams, Settings};
use crate::api::{self, socket::Socket};
use crate::http::{HttpSettings, Listeners};
use crate::paths::Paths;
use crate::spool::REPLAY_PERIOD;

/// Serves until `stop`. Returns when every call under way has been answered.
///
/// # Errors
/// What keeps the agent from starting or serving; the socket is then not there.
pub async fn run(
    settings: Settings,
    seams: Seams,
    paths: &Paths,
    http: &HttpSettings,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    paths.prepare()?;
    let agent = Arc::new(Agent::new(settings, seams, paths)?);
    agent.reconcile_observer().await;
    let listeners = Listeners::open(http).await?;
    let socket = Socket::bind(paths.socket_path())?;
    let shown = paths.socket_path().display();
    tracing::info!(node = agent.node(), socket = %shown, version = crate::config::version(), "agent is listening");
    let replaying = tokio::spawn(replay(Arc::clone(&agent), stop.clone()));
    let observing = tokio::spawn(Arc::clone(&agent).keep_observer(stop.clone()));
    let telling = tokio::spawn(Arc::clone(&agent).tell_mismatches(stop.clone()));
    tokio::join!(
        listeners.serve(Arc::clone(&agent), paths.socket_path(), stop.clone()),
        api::serve(Arc::clone(&agent), socket, stop)
    );
    let replayed = replaying.await.context("the replay of waiting DELs failed");
    let observed = observing.await.context("the care for the observer failed");
    let told = telling
        .await
        .context("the watch over what Pods send failed");
    let tasks = agent.tasks().clone();
    tasks.close();
    // The writers end with the last owner of the agent.
    drop(agent);
    tasks.wait().await;
    replayed.and(observed).and(told)
}

/// At start and once a minute.
async fn replay(agent: Arc<Agent>, stop: CancellationToken) {
    loop {
        agent.replay_spool().await;
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(REPLAY_PERIOD) => {}
        }
    }
}
