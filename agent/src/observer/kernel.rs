//! [`KernelObserver`]: the observer in the kernel.
//!
//! Loads when the first parent NIC is named: a node without sub-ENIs has no programs. What cannot
//! be loaded or attached is logged once and not tried again before the next start (loading) or
//! the next sub-ENI of that NIC (attaching).

// lines: one object with one lock; its load, attach and read steps are in files of their own

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use spiderpool_api::observer_v1::{Attach, DetachReport, ObserverReport, Verdict, VerifyReport};
use spiderpool_api::value::{IfName, Mac};
use spiderpool_ebpf_common::layout::State as Life;
use spiderpool_netops::netns::Netns;
use spiderpool_netops::rtnl::{Hook, Rtnl};
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::attach::{self, CLSACT, Target};
use super::bpffs::Pins;
use super::error::ObserverError;
use super::events::{self, Observed};
use super::load;
use super::state::{Nic, State};
use super::{Entry, ObserverOps, Place, Wanted, report};
use crate::clock;
use crate::flow::error::full;

/// Events a slow listener may be behind.
const EVENT_BACKLOG: usize = 256;

/// What the observer is told at start.
#[derive(Debug, Clone)]
pub struct ObserverSettings {
    /// Folder of the pins.
    pub bpf_dir: PathBuf,
    /// Time between two events of one (NIC, VLAN, direction, kind).
    pub event_interval: Duration,
}

impl ObserverSettings {
    /// One event a second (spec dataplane 5.5).
    #[must_use]
    pub fn new(bpf_dir: PathBuf) -> Self {
        Self {
            bpf_dir,
            event_interval: Duration::from_secs(1),
        }
    }
}

/// How far it is.
pub(super) enum Stage {
    /// No parent NIC yet.
    Idle,
    /// Loaded.
    Up(Box<State>),
    /// Nothing is observed, for this reason.
    Down(String),
}

/// What calls and the reader of events share.
pub(super) struct Shared {
    settings: ObserverSettings,
    host: Netns,
    pub(super) stage: Mutex<Stage>,
    pub(super) events: broadcast::Sender<Observed>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

/// The observer in the kernel. Needs CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON; CAP_SYS_ADMIN to mount a
/// BPF file system and to enter the host's namespace.
pub struct KernelObserver {
    shared: Arc<Shared>,
}

impl KernelObserver {
    /// For the parent NICs in `host`. Touches nothing yet.
    #[must_use]
    pub fn new(settings: ObserverSettings, host: Netns) -> Self {
        let (events, _) = broadcast::channel(EVENT_BACKLOG);
        Self {
            shared: Arc::new(Shared {
                settings,
                host,
                stage: Mutex::new(Stage::Idle),
                events,
                stop: CancellationToken::new(),
                tasks: TaskTracker::new(),
            }),
        }
    }

    /// Events from now on, with their Pods.
    #[must_use]
    pub fn events(&self) -> broadcast::Receiver<Observed> {
        self.shared.events.subscribe()
    }

    /// Stops reading events. Programs and pins stay.
    pub async fn close(&self) {
        self.shared.stop.cancel();
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
    }

    /// Makes sure that a NIC is observed; `ifindex` saves a look at it when it is already.
    async fn observe(&self, nic: &IfName, ifindex: Option<u32>) {
        if ifindex.is_some_and(|ifindex| self.shared.observes(nic, ifindex)) {
            return;
        }
        match self.look_up(nic).await {
            Ok(Some(target)) => self.blocking(move |shared| shared.attach(&target)).await,
            Ok(None) => tracing::debug!(%nic, "this node has no such NIC to observe"),
            Err(error) => tracing::warn!(error = %full(&error), "a NIC is not observed"),
        }
    }

    async fn look_up(&self, nic: &IfName) -> Result<Option<Target>, ObserverError> {
        let failed = |source| ObserverError::Netlink {
            nic: nic.clone(),
            source: Box::new(source),
        };
        let host = Rtnl::open_in(&self.shared.host).await.map_err(failed)?;
        let looked = async {
            let Some(link) = host.link_by_name(nic.as_str()).await? else {
                return Ok(None);
            };
            Ok(Some(Target {
                nic: nic.clone(),
                ifindex: link.ifindex,
                qdisc: host.ingress_qdisc(link.ifindex).await?,
            }))
        }
        .await;
        host.close().await;
        looked.map_err(failed)
    }

    /// Runs what calls the kernel on a thread that may wait.
    async fn blocking<R: Default + Send + 'static>(
        &self,
        work: impl FnOnce(&Arc<Shared>) -> R + Send + 'static,
    ) -> R {
        let shared = Arc::clone(&self.shared);
        match tokio::task::spawn_blocking(move || work(&shared)).await {
            Ok(done) => done,
            Err(error) => {
                tracing::error!(%error, "the observer failed");
                R::default()
            }
        }
    }

    async fn change(
        &self,
        change: impl FnOnce(&mut State) -> Result<(), ObserverError> + Send + 'static,
    ) {
        self.blocking(move |shared| {
            if let Stage::Up(state) = &mut *shared.lock()
                && let Err(error) = change(state)
            {
                tracing::warn!(error = %full(&error), "an entry of the observer is not as it should be");
            }
        })
        .await;
    }

    /// Deletes the qdiscs we made, unless somebody uses them.
    async fn delete_qdiscs(&self, ifindexes: Vec<u32>) -> Vec<String> {
        let mut errors = Vec::new();
        let host = match Rtnl::open_in(&self.shared.host).await {
            Ok(host) => host,
            Err(error) => return vec![full(&error)],
        };
        for ifindex in ifindexes {
            let deleted = async {
                if host.ingress_qdisc(ifindex).await?.as_deref() == Some(CLSACT)
                    && host.filters(ifindex, Hook::Ingress).await?.is_empty()
                    && host.filters(ifindex, Hook::Egress).await?.is_empty()
                {
                    host.delete_clsact(ifindex).await?;
                }
                Ok::<(), spiderpool_netops::rtnl::RtnlError>(())
            }
            .await;
            if let Err(error) = deleted {
                errors.push(full(&error));
            }
        }
        host.close().await;
        errors
    }

    /// Index and name of the NICs that pins name.
    async fn pinned_nics(&self, pins: &Pins) -> Vec<(u32, IfName)> {
        let Ok(host) = Rtnl::open_in(&self.shared.host).await else {
            return Vec::new();
        };
        let mut found = Vec::new();
        for ifindex in pins.nics() {
            if let Ok(Some(link)) = host.link_by_index(ifindex).await
                && let Ok(name) = link.name.parse()
            {
                found.push((ifindex, name));
            }
        }
        host.close().await;
        found
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn observes(&self, nic: &IfName, ifindex: u32) -> bool {
        match &*self.lock() {
            Stage::Up(state) => state
                .nics
                .get(nic)
                .is_some_and(|nic| nic.ifindex == ifindex && nic.attach != Attach::None),
            // Nothing will be attached.
            Stage::Down(_) => true,
            Stage::Idle => false,
        }
    }

    /// Attaches to a NIC; loads first if that has not been done.
    fn attach(self: &Arc<Self>, target: &Target) {
        let mut stage = self.lock();
        if matches!(*stage, Stage::Idle) {
            *stage = self.load();
        }
        let Stage::Up(state) = &mut *stage else {
            return;
        };
        let before = state.nics.get(&target.nic).cloned();
        if let Some(before) = &before
            && before.ifindex != target.ifindex
            && let Err(error) = state.drop_nic(before.ifindex)
        {
            tracing::warn!(nic = %target.nic, error = %full(&error), "entries of a NIC that was replaced are left behind");
        }
        let loaded = &mut state.loaded;
        let attached = match self.host.run(|| attach::attach(loaded, target)) {
            Ok(attached) => attached,
            Err(error) => Err(ObserverError::Netns(error)),
        };
        let attached =
            attached.and_then(|attach| loaded.maps.add_nic(target.ifindex).map(|()| attach));
        let (attach, error) = match attached {
            Ok(attach) => {
                tracing::info!(nic = %target.nic, attach = attach.as_str(), "the NIC is observed");
                (attach, None)
            }
            Err(error) => (Attach::None, Some(full(&error))),
        };
        let known = before.and_then(|before| before.error);
        if let Some(error) = error.as_ref().filter(|error| known.as_ref() != Some(error)) {
            tracing::warn!(nic = %target.nic, error, "the NIC is not observed");
        }
        let nic = Nic {
            ifindex: target.ifindex,
            attach,
            error,
        };
        state.nics.insert(target.nic.clone(), nic);
    }

    fn load(self: &Arc<Self>) -> Stage {
        let pins = match Pins::open(&self.settings.bpf_dir) {
            Ok(pins) => Some(pins),
            Err(error) => {
                tracing::warn!(error = %full(&error), "nothing is pinned: counters end with this agent");
                None
            }
        };
        let interval = u64::try_from(self.settings.event_interval.as_nanos()).unwrap_or(u64::MAX);
        let loaded = load::load(pins).and_then(|(mut loaded, ring)| {
            loaded.maps.configure(interval)?;
            Ok((loaded, ring))
        });
        match loaded {
            Ok((loaded, ring)) => {
                let reader = events::run(ring, Arc::downgrade(self), self.stop.clone());
                self.tasks.spawn(reader);
                Stage::Up(Box::new(State::new(loaded)))
            }
            Err(error) => {
                let text = full(&error);
                tracing::warn!(
                    error = text,
                    "sub-ENIs are not observed; Pods are attached all the same"
                );
                Stage::Down(text)
            }
        }
    }

    fn reconcile(&self, wanted: Wanted) {
        let Stage::Up(state) = &mut *self.lock() else {
            return;
        };
        if let Err(error) = state.reconcile(wanted()) {
            tracing::warn!(error = %full(&error), "entries of the observer are not as they should be");
        }
        // Links of all NICs known so far have moved to our version.
        if let Some(pins) = &state.loaded.pins {
            pins.remove_others();
        }
    }

    fn report(&self) -> ObserverReport {
        let failed = |error: String| ObserverReport {
            error: Some(error),
            ..ObserverReport::default()
        };
        match &*self.lock() {
            // A node without sub-ENIs has nothing to show, and nothing is wrong with it.
            Stage::Idle => ObserverReport::default(),
            Stage::Up(state) => state
                .report(clock::since_boot_ns())
                .unwrap_or_else(|error| failed(full(&error))),
            Stage::Down(error) => failed(error.clone()),
        }
    }

    fn verify(&self) -> VerifyReport {
        let state = match &*self.lock() {
            Stage::Idle => {
                return VerifyReport {
                    result: Verdict::Clean,
                    error: None,
                    findings: Vec::new(),
                };
            }
            Stage::Down(error) => return report::cannot_tell(error),
            Stage::Up(state) => {
                let blind = state
                    .nics
                    .iter()
                    .find_map(|(name, nic)| Some((name, nic.error.as_ref()?)));
                if let Some((name, error)) = blind {
                    return report::cannot_tell(&format!("NIC {name} is not observed: {error}"));
                }
                state.findings(clock::since_boot_ns())
            }
        };
        match state {
            Ok(findings) => VerifyReport {
                result: if findings.is_empty() {
                    Verdict::Clean
                } else {
                    Verdict::Mismatch
                },
                error: None,
                findings,
            },
            Err(error) => report::cannot_tell(&full(&error)),
        }
    }

    /// Ends the observation; what it was attached to, and its pins.
    fn take_down(&self) -> (Vec<(u32, IfName)>, Option<Pins>) {
        let down =
            Stage::Down("an operator detached it; restart the agent to attach again".to_owned());
        let before = std::mem::replace(&mut *self.lock(), down);
        self.stop.cancel();
        match before {
            Stage::Up(state) => {
                let nics = state
                    .nics
                    .iter()
                    .map(|(name, nic)| (nic.ifindex, name.clone()));
                (nics.collect(), state.loaded.pins.clone())
            }
            // An earlier agent may have left something.
            Stage::Idle | Stage::Down(_) => {
                let pins = self
                    .settings
                    .bpf_dir
                    .is_dir()
                    .then(|| Pins::open(&self.settings.bpf_dir));
                (Vec::new(), pins.and_then(Result::ok))
            }
        }
    }
}

impl ObserverOps for KernelObserver {
    fn prepare(&self, entry: Entry, ifindex: u32) -> BoxFuture<'_, ()> {
        async move {
            self.observe(&entry.place.nic, Some(ifindex)).await;
            self.change(move |state| state.put(entry, Life::Pending))
                .await;
        }
        .boxed()
    }

    fn activate<'a>(
        &'a self,
        place: &'a Place,
        gateways: &'a [(IpAddr, Mac)],
    ) -> BoxFuture<'a, ()> {
        let (place, gateway) = (place.clone(), gateways.first().map(|(_, mac)| *mac));
        self.change(move |state| state.advance(&place, Life::Active, gateway))
            .boxed()
    }

    fn draining<'a>(&'a self, place: &'a Place) -> BoxFuture<'a, ()> {
        let place = place.clone();
        self.change(move |state| state.advance(&place, Life::Draining, None))
            .boxed()
    }

    fn remove<'a>(&'a self, place: &'a Place) -> BoxFuture<'a, ()> {
        let place = place.clone();
        self.change(move |state| state.remove(&place)).boxed()
    }

    fn reconcile(&self, nics: Vec<IfName>, wanted: Wanted) -> BoxFuture<'_, ()> {
        async move {
            for nic in nics {
                self.observe(&nic, None).await;
            }
            self.blocking(move |shared| shared.reconcile(wanted)).await;
        }
        .boxed()
    }

    fn report(&self) -> BoxFuture<'_, ObserverReport> {
        self.blocking(|shared| shared.report()).boxed()
    }

    fn verify(&self) -> BoxFuture<'_, VerifyReport> {
        let shared = Arc::clone(&self.shared);
        async move {
            match tokio::task::spawn_blocking(move || shared.verify()).await {
                Ok(report) => report,
                Err(error) => report::cannot_tell(&error.to_string()),
            }
        }
        .boxed()
    }

    fn detach(&self) -> BoxFuture<'_, DetachReport> {
        async move {
            let (mut nics, pins) = self.shared.take_down();
            if let Some(pins) = &pins {
                nics.extend(self.pinned_nics(pins).await);
            }
            nics.sort();
            nics.dedup();
            let made: Vec<u32> = nics
                .iter()
                .map(|(ifindex, _)| *ifindex)
                .filter(|ifindex| pins.as_ref().is_some_and(|pins| pins.made_clsact(*ifindex)))
                .collect();
            let targets = nics.clone();
            let mut errors = self
                .blocking(move |shared| shared.detach_from(&targets, pins.as_ref()))
                .await;
            errors.extend(self.delete_qdiscs(made).await);
            DetachReport {
                nics: nics.into_iter().map(|(_, name)| name).collect(),
                errors,
            }
        }
        .boxed()
    }
}

impl Shared {
    fn detach_from(&self, nics: &[(u32, IfName)], pins: Option<&Pins>) -> Vec<String> {
        let detached = self.host.run(|| {
            let tried = nics
                .iter()
                .map(|(ifindex, nic)| attach::detach(pins, nic, *ifindex));
            tried
                .filter_map(Result::err)
                .map(|error| full(&error))
                .collect()
        });
        let mut errors: Vec<String> = detached.unwrap_or_else(|error| vec![full(&error)]);
        if let Some(Err(error)) = pins.map(Pins::remove) {
            errors.push(format!("cannot remove the pins: {error}"));
        }
        errors
    }
}
