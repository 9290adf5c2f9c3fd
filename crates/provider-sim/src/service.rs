//! The running provider: its memory, the cloud it works on, faults, rate and records.
//!
//! Owns the one lock of that state and what follows each change of the cloud: the fabric's
//! bindings, the state file, a wake-up of the publisher. No lock is held across an await.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use spiderpool_api::value::Mac;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tracing::error;

use crate::bucket::Bucket;
use crate::cloud::{Cloud, Saved};
use crate::fabric::run::Fabric;
use crate::faults::{Faults, Subject};
use crate::locks::Locks;
use crate::memory::Memory;
use crate::pool::Pool;
use crate::publisher::Publisher;
use crate::records::Records;
use crate::refusal::Refusal;
use crate::settings::Settings;
use crate::state_file::{self, StateError};
use crate::topology::{Binding, Topology};

/// What the lock is for.
#[derive(Debug)]
pub struct World {
    /// The cloud's table.
    pub cloud: Cloud,
    /// The provider's memory.
    pub memory: Memory,
    /// Faults on demand.
    pub faults: Faults,
    /// Rate of contract calls.
    pub bucket: Bucket,
    /// Rate of what reclaim asks of the cloud.
    pub reclaim_bucket: Bucket,
    /// Numbers.
    pub settings: Settings,
    /// Nodes, parents, subnets.
    pub topology: Topology,
    /// Jitter of latencies.
    pub chance: fastrand::Rng,
    /// Attachments the fabric does not forward yet, and until when.
    pub(crate) fresh: BTreeMap<Mac, Duration>,
    saved: Saved,
    /// What the fabric was told last.
    shown: Vec<Binding>,
}

/// The provider.
#[derive(Debug)]
pub struct Service {
    world: Mutex<World>,
    /// Calls about one address follow one another.
    pub locks: Locks,
    /// Contract calls.
    pub records: Records,
    /// Woken after each change that may need a publication.
    pub changed: Notify,
    /// Woken when a prewarm pool may lack sub-ENIs.
    pub pools_changed: Notify,
    /// Woken when allocations changed: idle cache may be too much.
    pub reclaim_due: Notify,
    /// Woken when a pool may need the finalizer, or may do without.
    pub hold_due: Notify,
    /// One round of reclaim at a time.
    pub(crate) reclaiming: tokio::sync::Mutex<()>,
    /// Set when pools come from a Kubernetes API.
    pub publisher: Option<Publisher>,
    /// Whether nobody shall listen for contract calls; follows the faults.
    pub refusing: watch::Sender<bool>,
    /// Moves frames, if it was asked to.
    pub fabric: Option<Arc<Fabric>>,
    state_file: Option<PathBuf>,
    ready: watch::Sender<bool>,
    /// Down on command: nothing makes it ready.
    down: AtomicBool,
    /// Woken when the pools have to be listed again.
    pub(crate) relist: Notify,
    /// Woken when an attachment waits for the fabric's delay.
    pub(crate) forwarding: Notify,
    started: Instant,
}

impl Service {
    /// A provider of a topology, with what the state file remembers of the cloud. Reads it,
    /// blocking. With a publisher it does not serve before the pools are known.
    ///
    /// # Errors
    /// [`StateError`] for a state file that is there and can't be used.
    pub fn new(
        topology: Topology,
        settings: Settings,
        fabric: Option<Arc<Fabric>>,
        state_file: Option<PathBuf>,
        publisher: Option<Publisher>,
    ) -> Result<Arc<Self>, StateError> {
        let mut cloud = Cloud::new(&topology, settings.seed);
        cloud.quarantine_for(settings.vlan_quarantine());
        if let Some(path) = &state_file
            && let Some(saved) = state_file::read(path, &topology)?
        {
            cloud.restore(saved, Duration::ZERO);
        }
        let mut world = World {
            cloud,
            memory: Memory::default(),
            faults: Faults::default(),
            bucket: Bucket::new(settings.rate),
            reclaim_bucket: Bucket::new(settings.reclaim.rate),
            chance: fastrand::Rng::with_seed(settings.seed.wrapping_add(1)),
            settings,
            topology,
            fresh: BTreeMap::new(),
            saved: Saved::default(),
            shown: Vec::new(),
        };
        world.memory.epoch = Timestamp::now();
        world.learn_all();
        let ready = watch::Sender::new(publisher.is_none());
        let service = Arc::new(Self {
            world: Mutex::new(world),
            locks: Locks::default(),
            records: Records::default(),
            changed: Notify::new(),
            pools_changed: Notify::new(),
            reclaim_due: Notify::new(),
            hold_due: Notify::new(),
            reclaiming: tokio::sync::Mutex::default(),
            refusing: watch::Sender::new(false),
            publisher,
            fabric,
            state_file,
            ready,
            down: AtomicBool::new(false),
            relist: Notify::new(),
            forwarding: Notify::new(),
            started: Instant::now(),
        });
        service.change(|_| ());
        Ok(service)
    }

    /// Time since the start: what the pure parts call now.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Whether it serves, or still rebuilds its memory.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        *self.ready.borrow()
    }

    /// Begins or ends to serve. Wakes whoever waited for it.
    pub fn set_ready(&self, ready: bool) {
        if ready && self.down.load(Ordering::Acquire) {
            return;
        }
        self.ready.send_replace(ready);
        if ready {
            self.changed.notify_one();
            self.pools_changed.notify_one();
            self.reclaim_due.notify_one();
            self.hold_due.notify_one();
        }
    }

    /// Follows [`Self::is_ready`].
    pub(crate) fn readiness(&self) -> watch::Receiver<bool> {
        self.ready.subscribe()
    }

    /// Serves nobody until [`Self::end_down`].
    pub(crate) fn begin_down(&self) {
        self.down.store(true, Ordering::Release);
        self.set_ready(false);
    }

    /// Whether it is down on command.
    pub(crate) fn is_down(&self) -> bool {
        self.down.load(Ordering::Acquire)
    }

    /// May become ready again, once the pools are listed.
    pub(crate) fn end_down(&self) {
        self.down.store(false, Ordering::Release);
        self.relist.notify_one();
    }

    /// Looks at the state, or changes what is not the cloud's.
    pub fn with<T>(&self, look: impl FnOnce(&mut World) -> T) -> T {
        look(&mut self.world())
    }

    /// As [`Self::with`], but only while the memory is whole.
    ///
    /// # Errors
    /// [`Refusal::unready`].
    pub fn look<T>(&self, look: impl FnOnce(&mut World) -> T) -> Result<T, Refusal> {
        let mut world = self.world();
        // under the lock: it is unready before anything is forgotten
        if self.is_ready() {
            return Ok(look(&mut world));
        }
        Err(Refusal::unready())
    }

    /// Changes the cloud, the faults or what the fabric shows of it.
    pub fn change<T>(&self, change: impl FnOnce(&mut World) -> T) -> T {
        let mut world = self.world();
        let result = change(&mut world);
        if let Some(fabric) = &self.fabric {
            let forwarded = world.forwarded();
            if forwarded != world.shown {
                world.shown.clone_from(&forwarded);
                if let Err(cause) = fabric.replace_bindings(forwarded) {
                    error!(%cause, "the fabric refuses the cloud's bindings");
                }
            }
        }
        if !world.fresh.is_empty() {
            self.forwarding.notify_one();
        }
        let refuses = world.faults.refuses();
        self.refusing
            .send_if_modified(|refusing| std::mem::replace(refusing, refuses) != refuses);
        let saved = world.cloud.saved();
        if world.saved != saved {
            if let Some(path) = &self.state_file {
                state_file::write(path, &saved);
            }
            world.saved = saved;
            self.changed.notify_one();
            self.reclaim_due.notify_one();
            self.hold_due.notify_one();
        }
        result
    }

    /// Replaces the pools, or one of them. Wakes whoever follows them.
    pub fn update_pools(&self, update: impl FnOnce(&mut Memory)) {
        let now = self.now();
        self.with(|world| {
            update(&mut world.memory);
            world.memory.note_rest(now);
        });
        self.changed.notify_one();
        self.pools_changed.notify_one();
        self.reclaim_due.notify_one();
        self.hold_due.notify_one();
    }

    /// Back to the topology: records, faults and sub-ENIs are forgotten.
    pub fn reset(&self) {
        self.records.clear();
        self.change(|world| {
            world.faults = Faults::default();
            world.bucket = Bucket::new(world.settings.rate);
            world.reclaim_bucket = Bucket::new(world.settings.reclaim.rate);
            world.cloud = Cloud::new(&world.topology, world.settings.seed);
            let quarantine = world.settings.vlan_quarantine();
            world.cloud.quarantine_for(quarantine);
            world.fresh.clear();
            world.learn_all();
        });
        self.changed.notify_one();
        self.pools_changed.notify_one();
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl World {
    /// Pools and sub-ENIs from topology and cloud.
    pub(crate) fn learn_all(&mut self) {
        for spec in &self.topology.pools {
            let pool = Pool::of_spec(spec);
            self.memory.pools.insert(pool.name.clone(), pool);
        }
        self.memory.rebuild(&self.cloud);
    }

    /// Takes over another topology; sub-ENIs stay.
    pub fn rewire(&mut self, topology: Topology) {
        self.cloud.rewire(&topology);
        for spec in &self.topology.pools {
            self.memory.pools.remove(&spec.name);
        }
        for spec in &topology.pools {
            let pool = Pool::of_spec(spec);
            self.memory.pools.insert(pool.name.clone(), pool);
        }
        self.topology = topology;
    }

    /// What a call about these is matched by.
    #[must_use]
    pub fn subject(
        ips: &BTreeSet<IpAddr>,
        pools: impl IntoIterator<Item = String>,
        node: &str,
    ) -> Subject {
        Subject {
            pools: pools.into_iter().collect(),
            ips: ips.clone(),
            node: Some(node.to_owned()),
        }
    }
}
