//! What all processes of a simulation share: the API's truth, the weather, who watches, who judges.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use provider_sim::service::Service;
use serde_json::Value;
use spiderpool_agent::clock::Clock;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::api::{self, Api, Change, Kind};
use crate::check::Check;
use crate::gate::{Actor, Gate};
use crate::mutation::Mutation;
use crate::provider::Turns;
use crate::scenario::Scenario;
use crate::weather::Weather;

/// Virtual wall time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct VirtualClock(pub(crate) Instant);

impl Clock for VirtualClock {
    fn wall(&self) -> jiff::Timestamp {
        api::wall(self.0)
    }
}

/// The collector's clock: now and then it is ahead.
pub(crate) struct SkewedClock(pub(crate) Arc<World>);

impl Clock for SkewedClock {
    fn wall(&self) -> jiff::Timestamp {
        let ahead = self.0.ahead.load(Ordering::Relaxed);
        self.0.clock.wall() + Duration::from_secs(ahead)
    }
}

pub(crate) struct World {
    api: Mutex<Api>,
    check: Mutex<Check>,
    pub(crate) weather: Weather,
    /// Wakes whoever waits for a change, in the order of their waiting. A channel of tokio's would
    /// wake them in random order.
    pub(crate) news: Notify,
    cloud: OnceLock<Arc<Service>>,
    pub(crate) turns: Turns,
    pub(crate) mutation: Option<Mutation>,
    pub(crate) scenario: Scenario,
    /// Cancelled with the first violation.
    pub(crate) over: CancellationToken,
    pub(crate) clock: VirtualClock,
    /// Seconds that the collector's clock is ahead.
    pub(crate) ahead: AtomicU64,
    ids: AtomicU64,
}

impl World {
    pub(crate) fn new(seed: u64, mutation: Option<Mutation>) -> Arc<Self> {
        let mut api = Api::new();
        api.ignores_versions = mutation == Some(Mutation::StoreIgnoresVersions);
        let over = CancellationToken::new();
        let scenario = Scenario::of(seed, mutation);
        Arc::new(Self {
            clock: VirtualClock(api.epoch),
            check: Mutex::new(Check::new(api.epoch, over.clone(), scenario)),
            scenario,
            api: Mutex::new(api),
            weather: Weather::new(seed ^ 0x77ea_7e12),
            news: Notify::new(),
            cloud: OnceLock::new(),
            turns: Turns::default(),
            mutation,
            over,
            ahead: AtomicU64::new(0),
            ids: AtomicU64::new(0),
        })
    }

    pub(crate) fn api(&self) -> MutexGuard<'_, Api> {
        self.api.lock().unwrap()
    }

    pub(crate) fn check(&self) -> MutexGuard<'_, Check> {
        self.check.lock().unwrap()
    }

    pub(crate) fn set_cloud(&self, cloud: Arc<Service>) {
        assert!(self.cloud.set(cloud).is_ok());
    }

    pub(crate) fn cloud(&self) -> &Arc<Service> {
        self.cloud.get().unwrap()
    }

    pub(crate) fn mutates(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    pub(crate) fn gate(&self, actor: Actor) -> Arc<Gate> {
        Arc::new(Gate::new(actor, self.next_id()))
    }

    pub(crate) fn next_id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn log(&self, line: String) {
        self.check().log(line);
    }

    /// After a change: the invariants are judged, the watches woken.
    pub(crate) fn changed(&self, actor: &Actor, gate: u64, change: &Change) {
        {
            let api = self.api();
            let cloud = self.cloud.get();
            self.check()
                .on_change(&api, cloud.map(|cloud| &**cloud), actor, gate, change);
        }
        self.news.notify_waiters();
    }

    /// A change by hand, whatever the object was.
    pub(crate) fn put(&self, kind: Kind, key: &str, object: Option<Value>) {
        let change = self.api().commit(kind, key, object);
        self.changed(&Actor::Operator, 0, &change);
    }

    pub(crate) fn create(&self, kind: Kind, key: &str, object: Value) {
        let change = self.api().create(kind, key, object).unwrap();
        self.changed(&Actor::Operator, 0, &change);
    }

    /// Changes an object that may be there.
    pub(crate) fn edit(&self, kind: Kind, key: &str, edit: impl FnOnce(&mut Value)) -> bool {
        let found = self.api().get(kind, key).cloned();
        let Some(found) = found else { return false };
        let mut object = (*found).clone();
        edit(&mut object);
        self.put(kind, key, Some(object));
        true
    }

    pub(crate) fn get(&self, kind: Kind, key: &str) -> Option<Arc<Value>> {
        self.api().get(kind, key).cloned()
    }

    /// Waits for a state of the truth; `false` when it did not come in time.
    pub(crate) async fn until(
        &self,
        limit: Duration,
        mut holds: impl FnMut(&Self) -> bool,
    ) -> bool {
        let deadline = Instant::now() + limit;
        loop {
            // Waits from here on: a change during the look is not missed.
            let mut news = pin!(self.news.notified());
            news.as_mut().enable();
            if holds(self) {
                return true;
            }
            tokio::select! {
                biased;
                () = news => {}
                () = tokio::time::sleep_until(deadline) => return holds(self),
            }
        }
    }
}

/// Whether a Pod object may still use its addresses.
pub(crate) fn is_alive(pod: &Value) -> bool {
    pod["metadata"]["deletionTimestamp"].is_null()
}
