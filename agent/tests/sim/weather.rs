//! How well everything travels: latencies, losses, outages, lagging and broken watches, slow or
//! failing providers. All from one seeded stream, until it is told to be calm.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::gate::Actor;

/// One call's fate.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Way {
    pub(crate) there: Duration,
    pub(crate) back: Duration,
    pub(crate) loses_request: bool,
    pub(crate) loses_answer: bool,
    /// What is lost is noticed at once.
    pub(crate) resets: bool,
}

/// What a provider does with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProviderMood {
    Works,
    Refuses,
    /// Works, and takes this much longer.
    Slow(Duration),
    /// Works, and answers this much later.
    Late(Duration),
}

pub(crate) struct Weather {
    inner: Mutex<Inner>,
}

struct Inner {
    chance: fastrand::Rng,
    calm: bool,
    out_until: Instant,
    mood: ProviderMood,
    mood_until: Instant,
    watches: u64,
    faults: BTreeMap<Actor, (Fate, u64)>,
    /// Answers that nobody will ever send.
    limbo: Vec<Box<dyn Send>>,
}

impl Weather {
    pub(crate) fn new(seed: u64) -> Self {
        let now = Instant::now();
        Self {
            inner: Mutex::new(Inner {
                chance: fastrand::Rng::with_seed(seed),
                calm: false,
                out_until: now,
                mood: ProviderMood::Works,
                mood_until: now,
                watches: 0,
                faults: BTreeMap::new(),
                limbo: Vec::new(),
            }),
        }
    }

    fn with<T>(&self, look: impl FnOnce(&mut Inner) -> T) -> T {
        look(&mut self.inner.lock().unwrap())
    }

    /// No more faults from here on.
    pub(crate) fn calm_down(&self) {
        self.with(|inner| {
            inner.calm = true;
            inner.out_until = Instant::now();
            inner.mood = ProviderMood::Works;
        });
    }

    pub(crate) fn way(&self) -> Way {
        self.with(|inner| {
            let chance = &mut inner.chance;
            let usual = |chance: &mut fastrand::Rng| Duration::from_millis(chance.u64(1..12));
            let slow = |chance: &mut fastrand::Rng| Duration::from_millis(chance.u64(20..3_000));
            let mut leg = |calm: bool| match chance.u32(0..100) {
                0..4 if !calm => slow(chance),
                _ => usual(chance),
            };
            let (there, back) = (leg(inner.calm), leg(inner.calm));
            let lost = chance.u32(0..1_000);
            Way {
                there,
                back,
                loses_request: !inner.calm && lost < 6,
                loses_answer: !inner.calm && (6..15).contains(&lost),
                resets: chance.bool(),
            }
        })
    }

    /// The caller hears nothing, or that the connection broke.
    pub(crate) fn lose<T: Send + 'static>(&self, reply: oneshot::Sender<T>, resets: bool) {
        if !resets {
            self.with(|inner| inner.limbo.push(Box::new(reply)));
        }
    }

    pub(crate) fn api_outage(&self, lasts: Duration) {
        self.with(|inner| inner.out_until = Instant::now() + lasts);
    }

    pub(crate) fn is_out(&self) -> bool {
        self.with(|inner| Instant::now() < inner.out_until)
    }

    pub(crate) fn set_mood(&self, mood: ProviderMood, lasts: Duration) {
        self.with(|inner| {
            inner.mood = mood;
            inner.mood_until = Instant::now() + lasts;
        });
    }

    pub(crate) fn mood(&self) -> ProviderMood {
        self.with(|inner| match Instant::now() < inner.mood_until {
            true => inner.mood,
            false => ProviderMood::Works,
        })
    }

    /// How many changes a replica that answers a list is behind.
    pub(crate) fn replica_lag(&self) -> u64 {
        self.with(|inner| match inner.chance.u32(0..10) {
            0..3 if !inner.calm => inner.chance.u64(1..20),
            _ => 0,
        })
    }

    pub(crate) fn watch_lag(&self) -> Duration {
        self.with(|inner| {
            let ms = match inner.chance.u32(0..100) {
                0..5 if !inner.calm => inner.chance.u64(500..8_000),
                5..20 if !inner.calm => inner.chance.u64(50..500),
                _ => inner.chance.u64(1..30),
            };
            Duration::from_millis(ms)
        })
    }

    pub(crate) fn watch_opened(&self) -> u64 {
        self.with(|inner| {
            inner.watches += 1;
            inner.watches
        })
    }

    /// All open watches of this actor meet this fate with their next event.
    pub(crate) fn break_watches(&self, actor: Actor, fate: Fate) {
        self.with(|inner| {
            let upto = inner.watches;
            inner.faults.insert(actor, (fate, upto));
        });
    }

    pub(crate) fn watch_fate(&self, actor: &Actor, opened: u64) -> Fate {
        self.with(|inner| match inner.faults.get(actor) {
            Some((fate, upto)) if opened <= *upto => *fate,
            _ if Instant::now() < inner.out_until => Fate::Broken,
            _ => Fate::Open,
        })
    }

    /// A number below `below`.
    pub(crate) fn roll(&self, below: u64) -> u64 {
        self.with(|inner| inner.chance.u64(0..below))
    }
}

/// What a watch connection comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Open,
    Broken,
    Silent,
}
