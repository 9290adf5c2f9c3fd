//! What the calls of [`KernelObserver`](super::KernelObserver) and the reader of events share: how
//! far the observer is, and the steps that call the kernel. All of them block.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use spiderpool_api::observer_v1::{Attach, ObserverReport, Verdict, VerifyReport};
use spiderpool_api::value::IfName;
use spiderpool_netops::netns::Netns;
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::attach::{self, Target};
use super::bpffs::Pins;
use super::error::ObserverError;
use super::events::{self, Observed};
use super::state::{Nic, State};
use super::{Wanted, load, report};
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
    pub(super) host: Netns,
    pub(super) stage: Mutex<Stage>,
    pub(super) events: broadcast::Sender<Observed>,
    pub(super) stop: CancellationToken,
    pub(super) tasks: TaskTracker,
}

impl Shared {
    /// Nothing is loaded yet.
    pub(super) fn new(settings: ObserverSettings, host: Netns) -> Self {
        let (events, _) = broadcast::channel(EVENT_BACKLOG);
        Self {
            settings,
            host,
            stage: Mutex::new(Stage::Idle),
            events,
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn observes(&self, nic: &IfName, ifindex: u32) -> bool {
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
    pub(super) fn attach(self: &Arc<Self>, target: &Target) {
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
            attached.and_then(|attach| loaded.maps.add_nic(target.ifindex).map(|_| attach));
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

    pub(super) fn reconcile(&self, wanted: Wanted) {
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

    pub(super) fn report(&self) -> ObserverReport {
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

    pub(super) fn verify(&self) -> VerifyReport {
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
    pub(super) fn take_down(&self) -> (Vec<(u32, IfName)>, Option<Pins>) {
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

    pub(super) fn detach_from(&self, nics: &[(u32, IfName)], pins: Option<&Pins>) -> Vec<String> {
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
