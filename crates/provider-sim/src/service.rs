//! The running provider: its memory, the cloud it works on, faults, rate and records.
//!
//! Owns the one lock of that state and what follows each change of the cloud: the fabric's
//! bindings, the state file, a wake-up of the publisher. No lock is held across an await.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use spiderpool_iaas::regular_file;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tracing::{error, info};

use crate::bucket::Bucket;
use crate::cloud::{Cloud, Saved};
use crate::fabric::run::Fabric;
use crate::faults::{Faults, Subject};
use crate::locks::Locks;
use crate::memory::Memory;
use crate::pool::Pool;
use crate::publisher::Publisher;
use crate::records::Records;
use crate::settings::Settings;
use crate::topology::{Binding, BindingState, Topology};

/// Longest state file, bytes: 100,000 sub-ENIs.
const MAX_STATE: u64 = 64 << 20;

/// The provider cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// The state file can't be read.
    #[error("cannot read the state file {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The state file is not ours.
    #[error("the state file {} is not valid: remove it to begin with an empty cloud", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: serde_json::Error,
    },
}

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
    /// One round of reclaim at a time.
    pub(crate) reclaiming: tokio::sync::Mutex<()>,
    /// Set when pools come from a Kubernetes API.
    pub publisher: Option<Publisher>,
    /// Whether nobody shall listen for contract calls; follows the faults.
    pub refusing: watch::Sender<bool>,
    /// Moves frames, if it was asked to.
    pub fabric: Option<Arc<Fabric>>,
    state_file: Option<PathBuf>,
    ready: AtomicBool,
    started: Instant,
}

impl Service {
    /// A provider of a topology, with what the state file remembers of the cloud. Reads it,
    /// blocking. With a publisher it does not serve before the pools are known.
    ///
    /// # Errors
    /// [`ServiceError`] for a state file that is there and can't be used.
    pub fn new(
        topology: Topology,
        settings: Settings,
        fabric: Option<Arc<Fabric>>,
        state_file: Option<PathBuf>,
        publisher: Option<Publisher>,
    ) -> Result<Arc<Self>, ServiceError> {
        let mut cloud = Cloud::new(&topology, settings.seed);
        if let Some(saved) = read_state(state_file.as_ref())? {
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
            saved: Saved::default(),
            shown: Vec::new(),
        };
        world.memory.epoch = Timestamp::now();
        world.learn_all();
        let ready = AtomicBool::new(publisher.is_none());
        let service = Arc::new(Self {
            world: Mutex::new(world),
            locks: Locks::default(),
            records: Records::default(),
            changed: Notify::new(),
            pools_changed: Notify::new(),
            reclaim_due: Notify::new(),
            reclaiming: tokio::sync::Mutex::default(),
            refusing: watch::Sender::new(false),
            publisher,
            fabric,
            state_file,
            ready,
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
        self.ready.load(Ordering::Acquire)
    }

    /// Begins or ends to serve.
    pub fn set_ready(&self, ready: bool) {
        self.ready.store(ready, Ordering::Release);
    }

    /// Looks at the state, or changes what is not the cloud's.
    pub fn with<T>(&self, look: impl FnOnce(&mut World) -> T) -> T {
        look(&mut self.world())
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
        let refuses = world.faults.refuses();
        self.refusing
            .send_if_modified(|refusing| std::mem::replace(refusing, refuses) != refuses);
        let saved = world.cloud.saved();
        if world.saved != saved {
            self.write_state(&saved);
            world.saved = saved;
            self.changed.notify_one();
            self.reclaim_due.notify_one();
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
    }

    /// The provider loses its memory and reads it off the cloud again (P17); pools are kept, as
    /// a new process would be told of them at once.
    pub fn restart_memory(&self) {
        self.set_ready(false);
        self.with(|world| {
            let World { cloud, memory, .. } = world;
            memory.rebuild(cloud);
        });
        self.set_ready(true);
        self.changed.notify_one();
        self.pools_changed.notify_one();
    }

    /// Back to the topology: records, faults and sub-ENIs are forgotten.
    pub fn reset(&self) {
        self.records.clear();
        self.change(|world| {
            world.faults = Faults::default();
            world.bucket = Bucket::new(world.settings.rate);
            world.reclaim_bucket = Bucket::new(world.settings.reclaim.rate);
            world.cloud = Cloud::new(&world.topology, world.settings.seed);
            world.learn_all();
        });
        self.changed.notify_one();
        self.pools_changed.notify_one();
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Readers see the whole file or none. A failure is loud but stops nothing: the cloud works,
    /// it will only not outlive the process.
    fn write_state(&self, saved: &Saved) {
        let Some(path) = &self.state_file else {
            return;
        };
        let temporary = path.with_extension("new");
        let text = serde_json::to_vec(saved).map_err(io::Error::from);
        let written = text
            .and_then(|text| fs::write(&temporary, text))
            .and_then(|()| fs::rename(&temporary, path));
        if let Err(cause) = written {
            error!(path = %path.display(), %cause, "cannot write the state file");
        }
    }
}

impl World {
    /// Pools and sub-ENIs from topology and cloud.
    fn learn_all(&mut self) {
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

    /// The cloud's bindings, less those a fault holds back.
    fn forwarded(&self) -> Vec<Binding> {
        let mut bindings = self.cloud.bindings();
        for binding in &mut bindings {
            let ips: Vec<IpAddr> = binding.addresses().collect();
            let pool = binding.pool.as_deref().unwrap_or_default();
            let node = self.cloud.node_of(binding.parent);
            if self.faults.holds(pool, &ips, node) {
                binding.state = BindingState::Unbound;
            }
        }
        bindings
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

fn read_state(path: Option<&PathBuf>) -> Result<Option<Saved>, ServiceError> {
    let Some(path) = path else {
        return Ok(None);
    };
    let path_of = || path.clone();
    match regular_file::read(path, MAX_STATE) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(ServiceError::Read {
            path: path_of(),
            source,
        }),
        Ok(text) => {
            let saved = serde_json::from_slice(&text).map_err(|source| ServiceError::Parse {
                path: path_of(),
                source,
            })?;
            info!(path = %path.display(), "the cloud is read from the state file");
            Ok(Some(saved))
        }
    }
}
