//! The agent of one node: what the flows share, and the way in for a CNI call.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use spiderpool_api::agent_v1::{BatchDelRequest, CniRequest};
use spiderpool_api::cni::CniCommand;
use spiderpool_api::cni_conf::NetConf;
use spiderpool_api::value::IfName;
use spiderpool_iaas::provider::{Generation, Provider};
use spiderpool_ipam::pick::DEFAULT_RECORD_CAP;
use spiderpool_ipam::sticky::Switches;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::attachment::{AttachmentError, Attachments};
use crate::clock::{Clock, Jitter};
use crate::events::Events;
use crate::flow::batch_del::BatchError;
use crate::flow::call::{Call, Limits, NicCall};
use crate::flow::category::Category;
use crate::flow::error::{Failure, FlowError};
use crate::flow::journal::Journal;
use crate::flow::leaving::Released;
use crate::flow::memory::Memory;
use crate::locks::KeyedLocks;
use crate::metrics::{MeteredProvider, Metrics};
use crate::nic::NicOps;
use crate::observer::ObserverOps;
use crate::paths::Paths;
use crate::spool::{Ran, Replay, Spool};
use crate::store::Store;
use crate::writer::Writers;

/// Time a DEL from the spool has.
const REPLAY_BUDGET: Duration = Duration::from_secs(97);
/// Time an undo has, whatever is left of its call's.
const UNDO_BUDGET: Duration = Duration::from_secs(10);

/// What an agent is told at start.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Name of this node.
    pub node: String,
    /// Containers without `K8S_*` arguments are served.
    pub standalone: bool,
    /// IPv4 is in use.
    pub enable_ipv4: bool,
    /// IPv6 is in use; with IPv4, pairs are too.
    pub enable_ipv6: bool,
    /// Records a pool may have.
    pub record_cap: i64,
    /// Namespace of the agent, for unqualified names in `multusName`.
    pub agent_namespace: String,
    /// Network of `eth0`, `ns/name` (`MULTUS_CLUSTER_NETWORK`).
    pub cluster_network: Option<String>,
    /// Which identities keep their addresses beyond their Pods.
    pub switches: Switches,
    /// A batch DEL may release addresses that somebody else uses.
    pub release_conflicts: bool,
}

impl Settings {
    /// Both families, the default limits.
    #[must_use]
    pub fn new(node: &str) -> Self {
        Self {
            node: node.to_owned(),
            standalone: false,
            enable_ipv4: true,
            enable_ipv6: true,
            record_cap: DEFAULT_RECORD_CAP,
            agent_namespace: "kube-system".to_owned(),
            cluster_network: None,
            switches: Switches::ON,
            release_conflicts: true,
        }
    }
}

/// The seams an agent stands on.
#[derive(Clone)]
pub struct Seams {
    /// The API.
    pub store: Arc<dyn Store>,
    /// The kernel.
    pub nic: Arc<dyn NicOps>,
    /// Who binds sub-ENIs on demand; `None`: only what is ready is given out.
    pub provider: Option<Arc<dyn Provider>>,
    /// Who counts the frames of sub-ENIs.
    pub observer: Arc<dyn ObserverOps>,
    /// Wall time.
    pub clock: Arc<dyn Clock>,
    /// Random waits.
    pub jitter: Arc<Jitter>,
}

/// The agent.
pub struct Agent {
    pub(crate) settings: Settings,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) nic: Arc<dyn NicOps>,
    pub(crate) provider: Option<Arc<dyn Provider>>,
    pub(crate) observer: Arc<dyn ObserverOps>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) jitter: Arc<Jitter>,
    pub(crate) attachments: Attachments,
    pub(crate) writers: Writers,
    pub(crate) locks: KeyedLocks<(String, IfName)>,
    pub(crate) releases: KeyedLocks<String>,
    pub(crate) memory: Memory,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) events: Events,
    pub(crate) journal: Journal,
    /// Who we are in release markers: unique for each start of a process.
    pub(crate) actor: String,
    pub(crate) spool: Spool,
    tasks: TaskTracker,
}

impl Agent {
    /// An agent over its seams. Reads the attachment files; blocks for that long.
    ///
    /// # Errors
    /// [`AttachmentError`] when their folder cannot be read.
    pub fn new(settings: Settings, seams: Seams, paths: &Paths) -> Result<Self, AttachmentError> {
        let tasks = TaskTracker::new();
        let metrics = Arc::new(Metrics::new());
        let writers = Writers::new(
            Arc::clone(&seams.store),
            Arc::clone(&seams.jitter),
            tasks.clone(),
            Arc::clone(&metrics),
        );
        let provider = seams.provider.map(|inner| {
            Arc::new(MeteredProvider::new(inner, metrics.iaas.calls.clone())) as Arc<dyn Provider>
        });
        let started = seams.clock.wall().as_nanosecond();
        Ok(Self {
            actor: format!("agent/{}/{}/{started}", settings.node, std::process::id()),
            settings,
            attachments: Attachments::open(&paths.attachments_dir())?,
            spool: Spool::new(paths.spool_dir()),
            events: Events::new(Arc::clone(&seams.store), tasks.clone()),
            store: seams.store,
            nic: seams.nic,
            provider,
            observer: seams.observer,
            clock: seams.clock,
            jitter: seams.jitter,
            writers,
            locks: KeyedLocks::default(),
            releases: KeyedLocks::default(),
            memory: Memory::default(),
            metrics,
            journal: Journal::default(),
            tasks,
        })
    }

    /// Name of this node.
    #[must_use]
    pub fn node(&self) -> &str {
        &self.settings.node
    }

    /// The parent NIC of a sub-ENI, whoever makes its link; `None`: the NIC is no sub-ENI.
    pub(crate) fn sub_eni_master<'a>(&self, conf: &'a NetConf) -> Option<&'a IfName> {
        let first = || {
            conf.vlan_master
                .as_ref()
                .filter(|_| self.is_first_generation())
        };
        conf.sub_eni_master().or_else(first)
    }

    /// Whether the configuration of a NIC makes it a sub-ENI, not its pool.
    pub(crate) fn is_first_generation(&self) -> bool {
        let provider = self.provider.as_ref();
        provider.is_some_and(|provider| provider.generation() == Generation::First)
    }

    /// The Pod a request is about, as far as it says; for the log.
    #[must_use]
    pub fn pod_named_by(&self, request: &CniRequest) -> String {
        let named = self.named_in(request);
        named.map_or_else(String::new, |named| named.key.to_string())
    }

    /// What the agent counts of itself and what its observer does, as OpenMetrics text.
    ///
    /// # Errors
    /// None that a value can cause; the encoder's type says so.
    pub async fn metrics_text(&self) -> Result<String, std::fmt::Error> {
        let observed = self.observer_report().await;
        self.metrics.text(&observed)
    }

    /// Tasks that must end before the process does.
    #[must_use]
    pub fn tasks(&self) -> &TaskTracker {
        &self.tasks
    }

    /// Serves one CNI call; the value is the result to print.
    ///
    /// # Errors
    /// [`Failure`] with the CNI code.
    pub async fn cni(&self, request: CniRequest, limits: Limits) -> Result<Option<Value>, Failure> {
        let result = match request.command {
            CniCommand::Add => self.on_add(&request, limits).await,
            CniCommand::Del => self.on_del(&request, limits).await.map(|_| None),
            CniCommand::Check => match nic_call(&request, limits) {
                Ok(call) => self.check(call).await.map(|()| None),
                Err(error) => Err(error),
            },
            CniCommand::Gc => match any_call(&request, limits) {
                Ok(call) => self.gc(call).await.map(|()| None),
                Err(error) => Err(error),
            },
            CniCommand::Status => match any_call(&request, limits) {
                Ok(call) => self.status(call).await.map(|()| None),
                Err(error) => Err(error),
            },
            CniCommand::Version => Ok(None),
        };
        result.map_err(|error| Failure::of(&error))
    }

    async fn on_add(
        &self,
        request: &CniRequest,
        limits: Limits,
    ) -> Result<Option<Value>, FlowError> {
        let running = self.metrics.allocation.begin();
        let begun = Instant::now();
        let result = match nic_call(request, limits) {
            Ok(call) => {
                let asked = self.request(&call);
                let result = self.add_in_turn(request, call).await;
                self.note_add(request, asked, begun.elapsed(), result.as_ref().err());
                result
            }
            Err(error) => Err(error),
        };
        running.end(result.as_ref().err().map(Category::of));
        if let Err(error) = &result {
            self.tell_failed_add(request, error);
        }
        result
    }

    /// After an older DEL of the same NIC.
    async fn add_in_turn(
        &self,
        request: &CniRequest,
        call: NicCall,
    ) -> Result<Option<Value>, FlowError> {
        let (container, ifname) = (&request.container_id, &request.ifname);
        if self.spool.holds(container, ifname).await {
            // Else that older DEL would take away what this ADD makes.
            let waiting = "an older DEL of this NIC was under way";
            let replayed = call.call.limits.wait(waiting, self.replay_spool()).await;
            replayed.map_err(FlowError::Ended)?;
            if self.spool.holds(container, ifname).await {
                return Err(FlowError::OlderDel {
                    container: container.clone(),
                    ifname: ifname.clone(),
                });
            }
        }
        let result = self.add(call).await?;
        Ok(serde_json::to_value(result).ok())
    }

    async fn on_del(&self, request: &CniRequest, limits: Limits) -> Result<Released, FlowError> {
        let running = self.metrics.release.begin();
        let result = match nic_call(request, limits) {
            Ok(call) => self.del(call).await,
            Err(error) => Err(error),
        };
        running.end(result.as_ref().err().map(Category::of));
        result
    }

    /// Serves a batch DEL.
    pub(crate) async fn on_batch_del(
        &self,
        call: &BatchDelRequest,
        deadline: Instant,
    ) -> Result<(), BatchError> {
        let running = self.metrics.release.begin();
        let result = self.batch_del(call, deadline).await;
        running.end(result.as_ref().err().map(BatchError::category));
        result
    }

    /// Runs the DELs that found no agent, and those whose release had to wait.
    pub async fn replay_spool(&self) -> Replay {
        let run = async |request: CniRequest| {
            let limits = Limits {
                deadline: Instant::now() + REPLAY_BUDGET,
                cancel: CancellationToken::new(),
            };
            match self.on_del(&request, limits).await {
                Ok(Released::Done | Released::Nothing) => Ok(Ran::Done),
                Ok(Released::Waiting(_)) => Ok(Ran::Waits),
                Err(error) => Err(Failure::of(&error)),
            }
        };
        self.spool.replay(run).await
    }

    pub(crate) fn undo_deadline(&self) -> Instant {
        Instant::now() + UNDO_BUDGET
    }
}

fn nic_call(request: &CniRequest, limits: Limits) -> Result<NicCall, FlowError> {
    NicCall::parse(request, limits).map_err(FlowError::Call)
}

fn any_call(request: &CniRequest, limits: Limits) -> Result<Call, FlowError> {
    Call::parse(request, limits).map_err(FlowError::Call)
}
