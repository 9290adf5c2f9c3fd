//! Garbage collection (spec ipam 6, iaas 9): the scan of all records, the trace of Pods that end, the
//! endpoints that nobody answers for. On the leader alone.
//!
//! Owns when and in which order; whether is `spiderpool_ipam::gc`'s. Records are read before Pods.
//! Watches only say where to look: before anything is freed the API server itself is asked, and a read
//! that fails frees nothing (case B12). Every write names the UID it is about. What is taken away for its
//! age has been watched for that long too: a step of the wall clock frees nothing.

pub mod explain;
pub mod pod_row;
pub mod read;

mod calls;
mod endpoints;
mod first_seen;
mod follow;
mod free;
mod marks;
mod orphans;
mod request;
mod scan;
mod silent;
mod trace;

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;
use kube::Client;
use spiderpool_api::endpoint::EndpointAllocation;
use spiderpool_iaas::provider::{Generation, Provider};
use spiderpool_ipam::batch::TAKEOVER_SECONDS;
use spiderpool_ipam::gc::{Knobs, NodeState};
use tokio::sync::{Notify, Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::clock::{Clock, Jitter};
use crate::health::{Checked, Counts, Health};
use crate::metrics::{MeteredProvider, Metrics};
use crate::objects::ObjectKey;
use crate::objects::pool::Marks;
use crate::objects::pool_api::PoolApi;
use crate::tasks::{Context, Ended};

use calls::Calls;
use follow::{Pods, follow};
use marks::ReleaseMarks;
use pod_row::RawPod;
use read::Reader;
use silent::Silent;
use trace::Traces;

/// A collector that has not scanned for so many periods is not healthy.
const MISSED_SCANS: u32 = 3;
/// After so long a release of somebody else may be taken over, and a call without an answer has no effect
/// any more.
const TAKEOVER: Duration = Duration::from_secs(TAKEOVER_SECONDS.unsigned_abs());
/// Between two looks at whether the first list of Pods is in.
const LOOK: Duration = Duration::from_millis(50);

/// A record that goes.
#[derive(Debug, Clone)]
struct Garbage {
    pool: String,
    address: IpAddr,
    /// UID that the record must carry.
    uid: String,
    /// The Pod or machine that the record names.
    key: ObjectKey,
    /// Node that its endpoint names.
    node: Option<String>,
    /// What the endpoint says of the NICs, and the node of the Pod while there is one: for records that
    /// agents of other releases wrote.
    endpoint: Option<EndpointAllocation>,
    pod_node: Option<String>,
    /// For the log.
    why: &'static str,
}

/// Asks for a scan before its time; a process that does not lead leaves it to the one that does.
#[derive(Debug, Default)]
pub struct ScanRequests {
    wanted: Notify,
    collecting: Mutex<u32>,
}

impl ScanRequests {
    /// Asks. `false`: nobody collects here.
    pub fn ask(&self) -> bool {
        let collecting = *self
            .collecting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            > 0;
        if collecting {
            self.wanted.notify_one();
        }
        collecting
    }

    fn count(&self, change: impl FnOnce(u32) -> u32) {
        let mut collecting = self
            .collecting
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *collecting = change(*collecting);
    }
}

/// A collector that runs, until this is dropped.
struct Collecting(Arc<ScanRequests>);

impl Collecting {
    fn begin(requests: &Arc<ScanRequests>) -> Self {
        requests.count(|count| count.saturating_add(1));
        Self(Arc::clone(requests))
    }
}

impl Drop for Collecting {
    fn drop(&mut self) {
        self.0.count(|count| count.saturating_sub(1));
    }
}

/// One collector. Made anew with each leadership: what an earlier one had under way is not known.
struct Gc {
    client: Client,
    reader: Reader,
    pools: PoolApi,
    provider: Option<Arc<dyn Provider>>,
    knobs: Knobs,
    clock: Arc<dyn Clock>,
    jitter: Arc<Jitter>,
    metrics: Arc<Metrics>,
    /// Who we are in release markers.
    actor: String,
    pods: Pods,
    traces: Traces,
    calls: Calls,
    marks: ReleaseMarks,
    silent: Silent,
    workers: Semaphore,
    requests: Arc<ScanRequests>,
    scanned: Arc<Mutex<Instant>>,
}

/// Collects until `stop`. What is under way then is dropped: its markers get old.
///
/// # Errors
/// None; what fails is tried again.
pub async fn task(context: Context, stop: CancellationToken) -> Ended {
    let gc = Gc::new(&context);
    if !gc.knobs.enabled {
        tracing::info!("garbage collection is switched off");
        stop.cancelled().await;
        return Ok(());
    }
    let _collecting = Collecting::begin(&gc.requests);
    let _checked = gc.check(&context.health);
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        () = gc.run() => {}
    }
    Ok(())
}

impl Gc {
    fn new(context: &Context) -> Self {
        let settings = &context.settings;
        let knobs = settings.gc_knobs();
        let started = context.clock.wall().as_nanosecond();
        let workers = usize::try_from(knobs.workers).unwrap_or(usize::MAX);
        Self {
            reader: Reader::new(context.client.clone(), settings.conf.sticky()),
            pools: PoolApi::new(context.client.clone())
                .with_marks(Marks::of(context.provider.as_deref())),
            client: context.client.clone(),
            provider: context.provider.clone().map(|inner| {
                Arc::new(MeteredProvider::new(inner, context.metrics.calls.clone()))
                    as Arc<dyn Provider>
            }),
            clock: Arc::clone(&context.clock),
            jitter: Arc::clone(&context.jitter),
            metrics: Arc::clone(&context.metrics),
            actor: format!("controller/{}/{started}", settings.env.pod_name),
            pods: Pods::default(),
            traces: Traces::new(knobs.traced_pods),
            calls: Calls::default(),
            marks: ReleaseMarks::default(),
            silent: Silent::new(context),
            workers: Semaphore::new(workers.clamp(1, Semaphore::MAX_PERMITS)),
            requests: Arc::clone(&context.scans),
            scanned: Arc::new(Mutex::new(Instant::now())),
            knobs,
        }
    }

    /// Whether records, not pools, tell what a provider has bound.
    fn is_first_generation(&self) -> bool {
        let provider = self.provider.as_ref();
        provider.is_some_and(|provider| provider.generation() == Generation::First)
    }

    /// Healthy while scans succeed.
    fn check(&self, health: &Arc<Health>) -> Checked {
        let scanned = Arc::clone(&self.scanned);
        let limit = self.period() * MISSED_SCANS;
        health.add("gc", Counts::ForReadiness, move || {
            let age = scanned
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .elapsed();
            let answer = match age <= limit {
                true => Ok(()),
                false => Err(format!("no scan has succeeded for {} s", age.as_secs())),
            };
            async move { answer }.boxed()
        })
    }

    async fn run(&self) {
        // One after the other in a fixed order: the same events have the same effects.
        let parts: [BoxFuture<'_, ()>; 3] = [
            follow::<RawPod>(&self.client, |news| {
                let now = self.clock.wall();
                for change in self.pods.take(news) {
                    self.traces.note(&self.knobs, &change, now);
                }
            })
            .boxed(),
            self.scan_for_ever().boxed(),
            self.trace_for_ever().boxed(),
        ];
        futures::future::join_all(parts).await;
    }

    async fn scan_for_ever(&self) {
        while !self.pods.is_filled() {
            sleep(LOOK).await;
        }
        loop {
            let wait = self.scan_once().await;
            tokio::select! {
                biased;
                () = self.requests.wanted.notified() => {
                    sleep(self.knobs.request_gap.unsigned_abs()).await;
                }
                () = sleep(wait) => {}
            }
        }
    }

    fn period(&self) -> Duration {
        self.knobs
            .interval
            .unsigned_abs()
            .max(Duration::from_secs(1))
    }

    fn now(&self) -> Timestamp {
        self.clock.wall()
    }

    async fn worker(&self) -> Option<SemaphorePermit<'_>> {
        // The semaphore is never closed.
        self.workers.acquire().await.ok()
    }
}

/// A node whose Pods are collected, if there can be one: for guesses that are checked later.
const fn worst_node(knobs: &Knobs) -> NodeState {
    if knobs.ready_node {
        NodeState::Ready
    } else {
        NodeState::NotReady
    }
}
