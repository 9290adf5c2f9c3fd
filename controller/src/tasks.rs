//! What a controller does, as named tasks: those that one process of a cluster may run at a time,
//! and those of every replica. A standalone node runs the former without an election.
//!
//! Owns how tasks start and end. Knows none of them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use kube::Client;
use spiderpool_iaas::provider::Provider;
use tokio::task::{self, JoinError, JoinSet};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::clock::{Clock, Jitter, SystemClock};
use crate::config::Settings;
use crate::gc::ScanRequests;
use crate::health::Health;
use crate::metrics::Metrics;

/// Time that tasks have to end after they were told to.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a task works with.
#[derive(Clone)]
pub struct Context {
    /// The API. Every request ends; a leader's are refused once its lease may be taken.
    pub client: Client,
    /// Command line, environment, file.
    pub settings: Arc<Settings>,
    /// Who is told that prewarmed sub-ENIs are released.
    pub provider: Option<Arc<dyn Provider>>,
    /// Wall time.
    pub clock: Arc<dyn Clock>,
    /// Random waits.
    pub jitter: Arc<Jitter>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// Where a task says how it is.
    pub health: Arc<Health>,
    /// Who asks for a scan.
    pub scans: Arc<ScanRequests>,
}

impl Context {
    /// With the system's clock and randomness, no provider, nothing counted yet.
    #[must_use]
    pub fn new(client: Client, settings: Settings) -> Self {
        Self {
            client,
            settings: Arc::new(settings),
            provider: None,
            clock: Arc::new(SystemClock),
            jitter: Arc::new(Jitter::from_entropy()),
            metrics: Arc::default(),
            health: Arc::default(),
            scans: Arc::default(),
        }
    }
}

/// Why a task cannot go on.
pub type TaskError = Box<dyn std::error::Error + Send + Sync>;

/// How a task ends: well once it was told to, else with the reason why the process must end. What can
/// be tried again is the task's own business and no end.
pub type Ended = Result<(), TaskError>;

type Start = Box<dyn Fn(Context, CancellationToken) -> BoxFuture<'static, Ended> + Send + Sync>;

struct Task {
    name: &'static str,
    start: Start,
}

/// The tasks of a process.
#[derive(Default)]
pub struct Tasks {
    leader: Vec<Task>,
    replica: Vec<Task>,
}

/// Which tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// One process of a cluster at a time.
    Leader,
    /// Every replica.
    Replica,
}

/// A task ended that should not have.
#[derive(Debug, thiserror::Error)]
#[error("the task {name} {how}")]
pub struct TaskFailed {
    name: &'static str,
    how: &'static str,
    source: Option<TaskError>,
}

/// When tasks end.
#[derive(Debug, Clone, Default)]
pub struct Ends {
    /// They are told to, and have time to finish what is under way.
    pub stop: CancellationToken,
    /// They are dropped where they stand: somebody else may take over.
    pub lost: CancellationToken,
}

impl Tasks {
    /// None.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// One more for the leader. It is dropped without a word when the leadership is lost, and started
    /// again with the next one: what it holds must stand that.
    #[must_use]
    pub fn on_leader<F, T>(mut self, name: &'static str, start: F) -> Self
    where
        F: Fn(Context, CancellationToken) -> T + Send + Sync + 'static,
        T: Future<Output = Ended> + Send + 'static,
    {
        self.leader.push(task(name, start));
        self
    }

    /// One more for every replica.
    #[must_use]
    pub fn on_every_replica<F, T>(mut self, name: &'static str, start: F) -> Self
    where
        F: Fn(Context, CancellationToken) -> T + Send + Sync + 'static,
        T: Future<Output = Ended> + Send + 'static,
    {
        self.replica.push(task(name, start));
        self
    }

    /// Runs a group until it is told to end.
    ///
    /// # Errors
    /// [`TaskFailed`] when a task ends before; the others have been told to end and are dropped if they
    /// do not.
    pub async fn run(
        &self,
        group: Group,
        context: &Context,
        ends: &Ends,
    ) -> Result<(), TaskFailed> {
        let tasks = match group {
            Group::Leader => &self.leader,
            Group::Replica => &self.replica,
        };
        let stop = ends.stop.child_token();
        let mut running = Running::default();
        for Task { name, start } in tasks {
            let handle = running.set.spawn(start(context.clone(), stop.clone()));
            running.names.insert(handle.id(), *name);
        }
        tokio::select! {
            biased;
            () = ends.lost.cancelled() => {
                running.set.shutdown().await;
                Ok(())
            }
            ended = running.end(&stop) => ended,
        }
    }
}

#[derive(Default)]
struct Running {
    set: JoinSet<Ended>,
    names: HashMap<task::Id, &'static str>,
}

impl Running {
    /// Until all have ended, none before `stop`.
    async fn end(&mut self, stop: &CancellationToken) -> Result<(), TaskFailed> {
        let early = tokio::select! {
            biased;
            () = stop.cancelled() => None,
            joined = self.set.join_next_with_id(), if !self.set.is_empty() => joined,
        };
        stop.cancel();
        let mut result = early.map_or(Ok(()), |joined| Err(self.failed(joined)));
        let ended = async {
            while let Some(joined) = self.set.join_next_with_id().await {
                let broken = !matches!(joined, Ok((_, Ok(()))));
                if broken && result.is_ok() {
                    result = Err(self.failed(joined));
                }
            }
        };
        if timeout(PATIENCE, ended).await.is_err() {
            let seconds = PATIENCE.as_secs();
            tracing::warn!("tasks did not end in {seconds} s and are dropped");
            self.set.shutdown().await;
        }
        result
    }

    fn failed(&self, joined: Result<(task::Id, Ended), JoinError>) -> TaskFailed {
        let (id, how, source) = match joined {
            Ok((id, Ok(()))) => (id, "ended by itself", None),
            Ok((id, Err(source))) => (id, "cannot go on", Some(source)),
            Err(error) => (
                error.id(),
                "failed by a fault of the program, see above",
                None,
            ),
        };
        let name = self.names.get(&id).copied().unwrap_or_default();
        TaskFailed { name, how, source }
    }
}

fn task<F, T>(name: &'static str, start: F) -> Task
where
    F: Fn(Context, CancellationToken) -> T + Send + Sync + 'static,
    T: Future<Output = Ended> + Send + 'static,
{
    let start: Start = Box::new(move |context, stop| start(context, stop).boxed());
    Task { name, start }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain::full;
    use http::{Request, Response};
    use kube::client::Body;
    use std::future::pending;

    fn context() -> Context {
        let nobody =
            tower::service_fn(|_: Request<Body>| pending::<Result<Response<Body>, TaskError>>());
        Context::new(
            Client::new(nobody, "default"),
            Settings::new("c-0", "spiderpool"),
        )
    }

    async fn patient(_: Context, stop: CancellationToken) -> Ended {
        stop.cancelled().await;
        Ok(())
    }

    #[tokio::test(start_paused = true)]
    async fn tasks_end_when_they_are_told_to() {
        let tasks = Tasks::new()
            .on_leader("a", patient)
            .on_every_replica("b", patient);
        let ends = Ends::default();
        let context = context();
        for group in [Group::Leader, Group::Replica] {
            let running = tasks.run(group, &context, &ends);
            assert!(
                timeout(PATIENCE * 10, running).await.is_err(),
                "it ended too early"
            );
        }
        ends.stop.cancel();
        tasks.run(Group::Leader, &context, &ends).await.unwrap();
        // A group without tasks waits too.
        let none = Tasks::new();
        let forever = Ends::default();
        let running = none.run(Group::Leader, &context, &forever);
        assert!(timeout(PATIENCE * 10, running).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_ends_early_ends_them_all_and_is_named() {
        let fail = |_, _| async { Err("port 5722 is taken".into()) };
        let tasks = Tasks::new()
            .on_every_replica("a", patient)
            .on_every_replica("webhook", fail);
        let error = tasks
            .run(Group::Replica, &context(), &Ends::default())
            .await
            .unwrap_err();
        assert_eq!(
            full(&error),
            "the task webhook cannot go on: port 5722 is taken"
        );
        let tasks = Tasks::new().on_leader("gc", |_, _| async { Ok(()) });
        let error = tasks
            .run(Group::Leader, &context(), &Ends::default())
            .await
            .unwrap_err();
        assert_eq!(full(&error), "the task gc ended by itself");
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_leadership_drops_what_does_not_listen() {
        let deaf = |_, _| pending();
        let tasks = Tasks::new().on_leader("deaf", deaf);
        let ends = Ends::default();
        ends.lost.cancel();
        let before = tokio::time::Instant::now();
        tasks.run(Group::Leader, &context(), &ends).await.unwrap();
        assert_eq!(before.elapsed(), Duration::ZERO);
        // One that is only told to stop gets its time, then it is dropped too.
        let ends = Ends::default();
        ends.stop.cancel();
        tasks.run(Group::Leader, &context(), &ends).await.unwrap();
        assert_eq!(before.elapsed(), PATIENCE);
    }
}
