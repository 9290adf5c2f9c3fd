//! Which replica leads: the holder of a Lease that it renews (spec api 4.3). At most one at a time may
//! write, so a leader stops before its lease can be taken: by then its tasks are dropped and its client
//! refuses every request.
//!
//! Owns the Lease. Whether a lease has run out is judged by this process's own clock alone, from when
//! it saw the last renewal: clocks of nodes differ.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use http::Request;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::PostParams;
use kube::client::Body;
use kube::{Api, Client, ResourceExt};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::chain::full;
use crate::clock::Clock;
use crate::config::LeaderTimes;
use crate::health::Counts;
use crate::objects::StoreError;
use crate::objects::error::store_error;
use crate::tasks::{Context, Ends, Group, TaskError, TaskFailed, Tasks};

/// Name of the lease.
pub const LEASE: &str = "spiderpool-controller-leases";

/// One request about the lease takes no longer: a hanging one must leave time for another.
const REQUEST_TIME: Duration = Duration::from_secs(4);

/// A lease promises its holder no more than so many times our own `LEADER_DURATION` without a renewal:
/// one that somebody wrote by hand, or with other settings, must not keep everybody from leading for
/// ever. Replicas whose settings differ by more may lead at once.
const LONGEST_PROMISE: u32 = 10;

/// Until when this process may write as the leader.
#[derive(Debug, Clone)]
pub struct Fence(Arc<Mutex<Instant>>);

/// This process may not write any more.
#[derive(Debug, thiserror::Error)]
#[error("this replica is not the leader any more: the request was not sent")]
struct NotLeader;

impl Fence {
    fn new(until: Instant) -> Self {
        Self(Arc::new(Mutex::new(until)))
    }

    fn until(&self) -> Instant {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn move_to(&self, until: Instant) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = until;
    }

    /// The same client; it sends nothing from the fence's time on. A process that was stopped and goes
    /// on later finds its client closed, whatever its tasks are about to do.
    fn client(&self, client: Client) -> Client {
        let namespace = client.default_namespace().to_owned();
        let fence = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let client = client.clone();
            let open = Instant::now() < fence.until();
            async move {
                if !open {
                    return Err(TaskError::from(NotLeader));
                }
                client.send(request).await.map_err(TaskError::from)
            }
        });
        Client::new(service, namespace)
    }
}

/// A lease as it was last seen.
#[derive(Debug, Clone)]
struct Seen {
    lease: Lease,
    /// When this holder's renewal was first seen.
    since: Instant,
}

impl Seen {
    fn holder(&self) -> &str {
        let spec = self.lease.spec.as_ref();
        let holder = spec.and_then(|spec| spec.holder_identity.as_deref());
        holder.unwrap_or_default()
    }

    /// Whom this replica waits for, and how long unless the lease is renewed; once for each holder.
    fn tell(&self, told: &mut String, ends: Instant) {
        let holder = self.holder();
        if holder != told {
            let seconds = ends.saturating_duration_since(Instant::now()).as_secs();
            tracing::info!(holder, seconds, "waiting for the holder of Lease {LEASE}");
            holder.clone_into(told);
        }
    }

    /// When it may be taken unless it is renewed.
    fn ends(&self, default: Duration) -> Instant {
        let spec = self.lease.spec.as_ref();
        let seconds = spec.and_then(|spec| spec.lease_duration_seconds);
        let promised = seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let promised = promised.map_or(default, Duration::from_secs);
        self.since + promised.min(default * LONGEST_PROMISE)
    }
}

/// A replica that stands for election.
pub struct Candidate {
    leases: Api<Lease>,
    identity: String,
    times: LeaderTimes,
    clock: Arc<dyn Clock>,
    seen: Arc<Mutex<Option<Seen>>>,
}

impl Candidate {
    /// The replica that `context` describes.
    #[must_use]
    pub fn new(context: &Context) -> Self {
        let env = &context.settings.env;
        Self {
            leases: Api::namespaced(context.client.clone(), &env.namespace),
            identity: env.pod_name.clone(),
            times: env.leader,
            clock: Arc::clone(&context.clock),
            seen: Arc::default(),
        }
    }

    /// Stands for election until `stop`, and runs the leader's tasks whenever it is elected.
    ///
    /// # Errors
    /// [`TaskFailed`] of a leader's task; the lease is given back first.
    pub async fn run(
        self,
        tasks: &Tasks,
        context: &Context,
        stop: CancellationToken,
    ) -> Result<(), TaskFailed> {
        let seen = Arc::clone(&self.seen);
        let duration = self.times.duration;
        let _checked = context.health.add("leader", Counts::ForReadiness, move || {
            let known = leader_of(&seen, duration);
            async { known.map(drop).ok_or_else(|| "no replica leads".to_owned()) }.boxed()
        });
        loop {
            let acquired = tokio::select! {
                acquired = self.acquire() => acquired,
                () = stop.cancelled() => return Ok(()),
            };
            tracing::info!(identity = self.identity, "this replica leads");
            self.lead(tasks, context, acquired, &stop).await?;
            if stop.is_cancelled() {
                return Ok(());
            }
            let holder = self.known().map(|seen| seen.holder().to_owned());
            let holder = holder.unwrap_or_default();
            tracing::warn!(identity = self.identity, holder, "the leadership is lost");
            sleep(self.times.retry_gap).await;
        }
    }

    /// Waits until the lease is ours; the answer is when the request that took it was sent.
    async fn acquire(&self) -> Instant {
        let mut own_restart = true;
        let mut waited_for = String::new();
        // A lease that somebody deletes was nevertheless promised to its holder, who goes on.
        let mut promised = Instant::now();
        loop {
            match self.look().await {
                Ok(seen) => {
                    let ends = seen.as_ref().map(|seen| {
                        let ours = own_restart && seen.holder() == self.identity;
                        let free = seen.holder().is_empty() || ours;
                        if free {
                            Instant::now()
                        } else {
                            seen.ends(self.times.duration)
                        }
                    });
                    promised = ends.unwrap_or(promised);
                    let free = promised <= Instant::now();
                    own_restart = false;
                    if let Some(seen) = seen.as_ref().filter(|_| !free) {
                        seen.tell(&mut waited_for, promised);
                    }
                    let sent = Instant::now();
                    if free {
                        match self.write(seen.as_ref(), &self.identity).await {
                            Ok(()) => return sent,
                            Err(StoreError::Conflict(_)) => {}
                            Err(error) => tracing::warn!("{}", full(&error)),
                        }
                    }
                    let retry = Instant::now() + self.times.retry_period;
                    let early = Some(promised).filter(|ends| *ends > Instant::now());
                    sleep_until(early.map_or(retry, |ends| ends.min(retry))).await;
                }
                Err(error) => {
                    tracing::warn!("{}", full(&error));
                    sleep(self.times.retry_period).await;
                }
            }
        }
    }

    async fn lead(
        &self,
        tasks: &Tasks,
        context: &Context,
        acquired: Instant,
        stop: &CancellationToken,
    ) -> Result<(), TaskFailed> {
        let fence = Fence::new(acquired + self.times.renew_deadline);
        let leader = Context {
            client: fence.client(context.client.clone()),
            ..context.clone()
        };
        let ends = Ends {
            stop: stop.clone(),
            lost: CancellationToken::new(),
        };
        let mut working = std::pin::pin!(tasks.run(Group::Leader, &leader, &ends));
        let ended = tokio::select! {
            biased;
            () = self.renew(&fence) => None,
            ended = working.as_mut() => Some(ended),
        };
        let Some(ended) = ended else {
            ends.lost.cancel();
            return working.await;
        };
        // Nobody writes any more: the next leader need not wait.
        fence.move_to(Instant::now());
        self.give_back().await;
        ended
    }

    /// Renews until that failed for too long, or somebody else holds the lease.
    async fn renew(&self, fence: &Fence) {
        loop {
            let next = Instant::now() + self.times.retry_period;
            sleep_until(next.min(fence.until())).await;
            if Instant::now() >= fence.until() {
                return;
            }
            let sent = Instant::now();
            match timeout_at(fence.until(), self.renew_once()).await {
                Ok(Ok(true)) => fence.move_to(sent + self.times.renew_deadline),
                Ok(Ok(false)) => return fence.move_to(sent),
                Ok(Err(error)) => tracing::warn!("{}", full(&error)),
                Err(_) => return,
            }
        }
    }

    /// `false`: somebody else holds it.
    async fn renew_once(&self) -> Result<bool, StoreError> {
        let known = self.known();
        match self.write(known.as_ref(), &self.identity).await {
            // Our own write may have been the one that answered too late.
            Err(StoreError::Conflict(_) | StoreError::NotFound(_)) => {}
            other => return other.map(|()| true),
        }
        let found = self.look().await?;
        if found
            .as_ref()
            .is_some_and(|seen| seen.holder() != self.identity)
        {
            return Ok(false);
        }
        self.write(found.as_ref(), &self.identity)
            .await
            .map(|()| true)
    }

    async fn give_back(&self) {
        let known = self.known();
        if let Err(error) = self.write(known.as_ref(), "").await {
            tracing::warn!("{}", full(&error));
        }
    }

    fn known(&self) -> Option<Seen> {
        self.seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Reads the lease.
    async fn look(&self) -> Result<Option<Seen>, StoreError> {
        let read = bounded(self.leases.get_opt(LEASE)).await;
        let found = read.map_err(|error| store_error(error, "read", &shown()))?;
        Ok(self.note(found))
    }

    /// Creates or replaces what was seen, with `holder` in it.
    async fn write(&self, seen: Option<&Seen>, holder: &str) -> Result<(), StoreError> {
        let lease = self.next(seen.map(|seen| &seen.lease), holder);
        let params = PostParams::default();
        let written = match seen {
            None => bounded(self.leases.create(&params, &lease)).await,
            Some(_) => bounded(self.leases.replace(LEASE, &params, &lease)).await,
        };
        let written = written.map_err(|error| store_error(error, "write", &shown()))?;
        self.note(Some(written));
        Ok(())
    }

    /// Remembers a lease; the time is that of the first look at this version of it.
    fn note(&self, found: Option<Lease>) -> Option<Seen> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let since = match (seen.as_ref(), &found) {
            (Some(known), Some(found))
                if known.lease.resource_version() == found.resource_version() =>
            {
                known.since
            }
            _ => Instant::now(),
        };
        *seen = found.map(|lease| Seen { lease, since });
        seen.clone()
    }

    fn next(&self, before: Option<&Lease>, holder: &str) -> Lease {
        let now = MicroTime(self.clock.wall());
        let old = before
            .and_then(|lease| lease.spec.clone())
            .unwrap_or_default();
        let same = old.holder_identity.as_deref() == Some(holder);
        let transitions = old.lease_transitions.unwrap_or(0);
        // A lease without holder ends at once.
        let seconds = if holder.is_empty() {
            1
        } else {
            self.times.duration.as_secs()
        };
        Lease {
            metadata: before.map_or_else(
                || ObjectMeta {
                    name: Some(LEASE.to_owned()),
                    ..ObjectMeta::default()
                },
                |lease| lease.metadata.clone(),
            ),
            spec: Some(LeaseSpec {
                holder_identity: Some(holder.to_owned()),
                lease_duration_seconds: i32::try_from(seconds).ok(),
                acquire_time: if same {
                    old.acquire_time.clone()
                } else {
                    Some(now.clone())
                },
                renew_time: Some(now),
                lease_transitions: Some(if same {
                    transitions
                } else {
                    transitions.saturating_add(1)
                }),
                ..old
            }),
        }
    }
}

/// Who leads, as far as this replica knows.
fn leader_of(seen: &Mutex<Option<Seen>>, duration: Duration) -> Option<String> {
    let seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    let seen = seen.as_ref()?;
    let led = !seen.holder().is_empty() && seen.ends(duration) > Instant::now();
    led.then(|| seen.holder().to_owned())
}

async fn bounded<T>(
    request: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, kube::Error> {
    match timeout_at(Instant::now() + REQUEST_TIME, request).await {
        Ok(answer) => answer,
        Err(_) => Err(kube::Error::Service(Box::new(NoAnswer))),
    }
}

/// The lease could not be read or written in time.
#[derive(Debug, thiserror::Error)]
#[error("no answer within {} s", REQUEST_TIME.as_secs())]
struct NoAnswer;

fn shown() -> String {
    format!("Lease {LEASE}")
}
