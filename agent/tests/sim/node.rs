//! A node: the real agent over simulated seams, started again after each crash, and the CNI plugin
//! that finds it or does not.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::Value;
use spiderpool_agent::agent::{Agent, Seams, Settings};
use spiderpool_agent::clock::Jitter;
use spiderpool_agent::flow::call::Limits;
use spiderpool_agent::flow::error::Failure;
use spiderpool_agent::nic::{
    Attached, Drops, FunctionError, Holder, HostNic, MasterInfo, NicError, NicOps, NicSpec,
    NicTarget, OpenedTarget,
};
use spiderpool_agent::observer::NoObserver;
use spiderpool_agent::paths::Paths;
use spiderpool_agent::spool::REPLAY_PERIOD;
use spiderpool_agent::store::Marks;
use spiderpool_agent::store::kube::{KubeStore, Waits};
use spiderpool_api::agent_v1::CniRequest;
use spiderpool_api::cni::CniCommand;
use spiderpool_api::value::{IfName, Mac};
use spiderpool_iaas::provider::Provider;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::fake_nic::FakeNic;
use crate::gate::{Actor, Gate};
use crate::http;
use crate::mutation::Mutation;
use crate::provider::SimProvider;
use crate::world::World;

/// What a call has besides the plugin's patience.
const DEADLINE: Duration = Duration::from_secs(97);
/// How long a call that overstays its deadline may still answer.
const GRACE: Duration = Duration::from_secs(2);
/// How long the plugin waits for an absent agent.
const ADD_PATIENCE: Duration = Duration::from_secs(20);
const DEL_PATIENCE: Duration = Duration::from_secs(3);
/// Between two tries of the plugin.
const POLL: Duration = Duration::from_millis(25);
/// How long an agent waits for its first lists.
const START_PATIENCE: Duration = Duration::from_secs(60);

/// One start of the agent.
struct Running {
    agent: Arc<Agent>,
    gate: Arc<Gate>,
    calls: Mutex<Vec<AbortHandle>>,
}

pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) mac: Mac,
    pub(crate) nic: Arc<FakeNic>,
    pub(crate) paths: Paths,
    world: Arc<World>,
    running: Mutex<Option<Arc<Running>>>,
    started: Notify,
    /// The gate of the start that is under way or running.
    gate: Mutex<Option<Arc<Gate>>>,
    /// It never comes back.
    pub(crate) lost: CancellationToken,
    power: Mutex<Power>,
    _dir: tempfile::TempDir,
}

/// Whether the machine runs.
struct Power {
    /// Ends with the power.
    on: CancellationToken,
    /// When it is, or was, back.
    from: Instant,
    /// What was in memory is to be forgotten yet.
    lost: bool,
}

/// What the plugin came to.
pub(crate) enum Reply {
    Answer(Result<Option<Value>, Failure>),
    /// No agent, or none any more.
    NoAgent,
}

impl Node {
    pub(crate) fn new(world: &Arc<World>, name: &str, mac: &str) -> Arc<Self> {
        let dir = tempfile::tempdir().unwrap();
        let paths = Paths::new(dir.path());
        paths.prepare().unwrap();
        let nic = Arc::new(FakeNic::default());
        nic.add_master("eth1", mac);
        Arc::new(Self {
            name: name.to_owned(),
            mac: mac.parse().unwrap(),
            nic,
            paths,
            world: Arc::clone(world),
            running: Mutex::default(),
            started: Notify::new(),
            gate: Mutex::new(None),
            lost: CancellationToken::new(),
            power: Mutex::new(Power {
                on: CancellationToken::new(),
                from: Instant::now(),
                lost: false,
            }),
            _dir: dir,
        })
    }

    pub(crate) fn actor(&self) -> Actor {
        Actor::Agent(self.name.clone())
    }

    /// The gate of the process that runs or starts.
    pub(crate) fn gate(&self) -> Option<Arc<Gate>> {
        self.gate.lock().unwrap().clone()
    }

    /// For so long nothing runs, and what was in memory is gone: processes, namespaces, and the run folder
    /// with the attachment files and the DELs that wait for an agent.
    pub(crate) fn lose_power(&self, lasts: Duration) {
        if self.lost.is_cancelled() {
            return;
        }
        self.world.check().counts.outages += 1;
        let gone = {
            let mut power = self.power.lock().unwrap();
            power.from = Instant::now() + lasts;
            power.lost = true;
            std::mem::take(&mut power.on)
        };
        if let Some(gate) = self.gate() {
            gate.kill();
        }
        gone.cancel();
    }

    /// Waits for the power; what is returned ends with it.
    pub(crate) async fn powered(&self) -> CancellationToken {
        loop {
            let (on, from) = {
                let power = self.power.lock().unwrap();
                (power.on.clone(), power.from)
            };
            if Instant::now() >= from {
                return on;
            }
            sleep_until(from).await;
        }
    }

    /// Once no process of the node does anything any more.
    fn forget_memory(&self) {
        if !std::mem::take(&mut self.power.lock().unwrap().lost) {
            return;
        }
        for dir in [self.paths.attachments_dir(), self.paths.spool_dir()] {
            for entry in std::fs::read_dir(dir).unwrap() {
                std::fs::remove_file(entry.unwrap().path()).unwrap();
            }
        }
        self.world.log(format!("{} has lost its memory", self.name));
    }

    /// Starts the agent again whenever it is dead. Ends with the node.
    pub(crate) async fn supervise(self: Arc<Self>) {
        loop {
            self.forget_memory();
            self.powered().await;
            // It may have gone once more meanwhile.
            self.forget_memory();
            let gate = self.world.gate(self.actor());
            *self.gate.lock().unwrap() = Some(Arc::clone(&gate));
            tokio::select! {
                biased;
                () = self.lost.cancelled() => gate.kill(),
                () = gate.died() => self.world.check().counts.crashes += 1,
                () = self.live(&gate) => {}
            }
            let stopped = self.running.lock().unwrap().take();
            if let Some(running) = stopped {
                for call in running.calls.lock().unwrap().drain(..) {
                    call.abort();
                }
            }
            self.world.log(format!("{} agent is down", self.name));
            self.forget_memory();
            if self.lost.is_cancelled() {
                return;
            }
            sleep(Duration::from_millis(200 + self.world.weather.roll(8_000))).await;
        }
    }

    /// From start to failure; a running agent ends only with its gate.
    async fn live(&self, gate: &Arc<Gate>) {
        let client = http::client(&self.world, gate);
        let provider: Arc<dyn Provider> = Arc::new(SimProvider::new(&self.world, gate));
        let marks = Marks::of(Some(provider.as_ref()));
        let waits = Waits::new(START_PATIENCE);
        let store = match KubeStore::start_with(client, &self.name, waits, marks).await {
            Ok(store) => Arc::new(store),
            Err(_) => return gate.kill(),
        };
        let seams = Seams {
            store,
            nic: Arc::new(GatedNic {
                inner: Arc::clone(&self.nic),
                gate: Arc::clone(gate),
                world: Arc::clone(&self.world),
            }),
            provider: Some(provider),
            observer: Arc::new(NoObserver),
            clock: Arc::new(self.world.clock),
            jitter: Arc::new(Jitter::from_seed(gate.id)),
        };
        let agent = Agent::new(Settings::new(&self.name), seams, &self.paths);
        let agent = Arc::new(agent.unwrap());
        self.world.log(format!("{} agent is up", self.name));
        let running = Arc::new(Running {
            agent: Arc::clone(&agent),
            gate: Arc::clone(gate),
            calls: Mutex::default(),
        });
        *self.running.lock().unwrap() = Some(running);
        self.started.notify_waiters();
        loop {
            agent.replay_spool().await;
            sleep(REPLAY_PERIOD).await;
        }
    }

    /// As the CNI binary calls: waits for an agent, and keeps a DEL that finds none.
    pub(crate) async fn cni(&self, request: CniRequest) -> Reply {
        let is_del = request.command == CniCommand::Del;
        let patience = if is_del { DEL_PATIENCE } else { ADD_PATIENCE };
        let until = Instant::now() + patience;
        loop {
            let found = timeout_at(until, self.agent()).await;
            let Ok(running) = found else { break };
            let reply = self.call(&running, request.clone()).await;
            // A DEL that was cut off is repeated.
            if is_del && matches!(reply, Reply::NoAgent) && Instant::now() < until {
                sleep(POLL).await;
                continue;
            }
            match reply {
                Reply::NoAgent if is_del => break,
                reply => return reply,
            }
        }
        if !is_del {
            return Reply::NoAgent;
        }
        if !self.world.mutates(Mutation::DelIsForgotten) {
            self.world.check().counts.spooled += 1;
            self.spool(&request);
        }
        Reply::Answer(Ok(None))
    }

    /// The agent, once there is one.
    async fn agent(&self) -> Arc<Running> {
        loop {
            let mut started = pin!(self.started.notified());
            started.as_mut().enable();
            if let Some(running) = &*self.running.lock().unwrap() {
                return Arc::clone(running);
            }
            started.await;
        }
    }

    /// What the CNI binary writes.
    fn spool(&self, request: &CniRequest) {
        let name = format!("{}-{}.json", request.container_id, request.ifname);
        let text = serde_json::to_vec(request).unwrap();
        std::fs::write(self.paths.spool_dir().join(name), text).unwrap();
    }

    async fn call(&self, running: &Running, request: CniRequest) -> Reply {
        let cancel = CancellationToken::new();
        let limits = Limits {
            deadline: Instant::now() + DEADLINE,
            cancel: cancel.clone(),
        };
        let _hang_up = cancel.drop_guard();
        let agent = Arc::clone(&running.agent);
        let task = tokio::spawn(async move { agent.cni(request, limits).await });
        running.calls.lock().unwrap().push(task.abort_handle());
        let answer = tokio::select! {
            biased;
            () = running.gate.died() => return Reply::NoAgent,
            answer = timeout(DEADLINE + GRACE, task) => answer,
        };
        match answer {
            Ok(Ok(answer)) => Reply::Answer(answer),
            Ok(Err(error)) if error.is_cancelled() => Reply::NoAgent,
            Ok(Err(error)) => {
                self.world
                    .check()
                    .broken(0, format!("a call panicked: {error}"));
                Reply::NoAgent
            }
            Err(_) => {
                let text = format!("a call on {} goes on after its deadline", self.name);
                self.world.check().broken(21, text);
                Reply::NoAgent
            }
        }
    }
}

/// The kernel behind the gate.
struct GatedNic {
    inner: Arc<FakeNic>,
    gate: Arc<Gate>,
    world: Arc<World>,
}

impl GatedNic {
    async fn through<T>(&self, effect: bool, work: impl Future<Output = T>) -> T {
        self.gate.begin(effect).await;
        sleep(Duration::from_millis(1 + self.world.weather.roll(20))).await;
        self.gate.alive().await;
        let done = work.await;
        self.gate.applied(effect);
        self.gate.alive().await;
        done
    }
}

impl NicOps for GatedNic {
    fn check_master<'a>(
        &'a self,
        master: &'a IfName,
        parent_mac: Option<Mac>,
        mtu: Option<u32>,
    ) -> BoxFuture<'a, Result<MasterInfo, NicError>> {
        let work = self.inner.check_master(master, parent_mac, mtu);
        self.through(false, work).boxed()
    }

    fn probe_vlan(&self) -> BoxFuture<'_, Result<(), NicError>> {
        self.through(false, self.inner.probe_vlan()).boxed()
    }

    fn open_target<'a>(
        &'a self,
        netns: &'a std::path::Path,
        ifname: &'a IfName,
    ) -> BoxFuture<'a, Result<OpenedTarget, NicError>> {
        let work = self.inner.open_target(netns, ifname);
        self.through(false, work).boxed()
    }

    fn host_nic<'a>(
        &'a self,
        netns: &'a std::path::Path,
        ifname: &'a IfName,
    ) -> BoxFuture<'a, Result<HostNic, FunctionError>> {
        self.through(false, self.inner.host_nic(netns, ifname))
            .boxed()
    }

    fn attach(&self, spec: NicSpec) -> BoxFuture<'_, Result<Attached, NicError>> {
        self.through(true, self.inner.attach(spec)).boxed()
    }

    fn detach(&self, target: NicTarget) -> BoxFuture<'_, Result<bool, NicError>> {
        self.through(true, self.inner.detach(target)).boxed()
    }

    fn evict(&self, holder: Holder) -> BoxFuture<'_, Result<(), NicError>> {
        self.through(true, self.inner.evict(holder)).boxed()
    }

    fn check(&self, spec: NicSpec) -> BoxFuture<'_, Result<(), NicError>> {
        self.through(false, self.inner.check(spec)).boxed()
    }

    fn drops(&self, target: NicTarget) -> BoxFuture<'_, Result<Option<Drops>, NicError>> {
        self.through(false, self.inner.drops(target)).boxed()
    }
}
