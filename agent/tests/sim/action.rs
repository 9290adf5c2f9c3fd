//! What happens to a simulated cluster from outside: a list that is made from the seed alone, so
//! that any part of it can be left out and the rest be played again.

use std::time::Duration;

use crate::machines::{Deed, MACHINES};
use crate::scenario::Scenario;
use crate::wishes::KINDS;

/// Nodes of the cluster.
pub(crate) const NODES: u8 = 3;
/// Names that Pods may have.
pub(crate) const PODS: u8 = 10;
/// Ordinals that the StatefulSet may have. Its Pods are numbered after the others.
pub(crate) const MEMBERS: u8 = 3;
/// Pools that are edited.
pub(crate) const EDITED: &[&str] = &["plain4", "spare4", "glob", "warm-n1", "pair4"];

/// One thing that happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Create {
        pod: u8,
        node: u8,
        wish: u8,
    },
    Delete {
        pod: u8,
    },
    /// The object goes at once.
    Force {
        pod: u8,
    },
    /// Another Pod of this name follows.
    Replace {
        pod: u8,
        node: u8,
        wish: u8,
    },
    /// The StatefulSet wants so many Pods.
    Scale {
        replicas: u8,
    },
    /// The sandbox is made anew.
    Restart {
        pod: u8,
    },
    Crash {
        node: u8,
    },
    /// Dies at one of its next effects on the world.
    CrashAt {
        node: u8,
        effects: u32,
        after: bool,
    },
    CrashGc {
        effects: u32,
        after: bool,
    },
    Outage {
        seconds: u64,
    },
    BreakWatches {
        node: u8,
    },
    SilenceWatches {
        node: u8,
    },
    /// Old versions are forgotten: watches that resume have to list again.
    Compact,
    LoseNode {
        node: u8,
    },
    /// Of a virtual machine.
    Machine {
        machine: u8,
        deed: Deed,
    },
    /// The machine is off for a while and forgets its memory.
    PowerLoss {
        node: u8,
        seconds: u64,
    },
    Disable {
        pool: u8,
    },
    Enable {
        pool: u8,
    },
    /// Takes the last free address out of the pool.
    Shrink {
        pool: u8,
    },
    Reserve {
        last: u8,
    },
    Unreserve {
        last: u8,
    },
    /// Deletes the spare pool, or makes it again.
    SparePool,
    ProviderRefuses {
        seconds: u64,
    },
    ProviderSlow {
        seconds: u64,
        lasts: u64,
    },
    /// The provider does what it is asked for at once and answers so much later, perhaps to nobody.
    ProviderLate {
        seconds: u64,
        lasts: u64,
    },
    /// The provider is down, loses its memory and reads it off the cloud again.
    ProviderRestart {
        seconds: u64,
    },
    /// For a time two controllers collect: one has lost the leadership and does not know yet.
    SecondGc {
        seconds: u64,
    },
    /// The collector's clock is set, and set right again.
    GcClock {
        ahead: u64,
        lasts: u64,
    },
    Pause,
}

/// An action and how long after the one before it.
pub(crate) type Step = (Duration, Action);

/// The whole list of a seed.
pub(crate) fn plan(seed: u64, steps: usize, scenario: Scenario) -> Vec<Step> {
    let mut chance = fastrand::Rng::with_seed(seed);
    let mut lost = false;
    let mut one = || {
        let pause = match chance.u32(0..10) {
            0..4 => chance.u64(0..200),
            4..8 => chance.u64(200..6_000),
            _ => chance.u64(6_000..40_000),
        };
        let mut action = choose(&mut chance);
        if scenario.machines {
            action = of_machines(action);
        }
        // Two nodes are left at least.
        if let Action::LoseNode { .. } = action
            && std::mem::replace(&mut lost, true)
        {
            action = Action::Pause;
        }
        (Duration::from_millis(pause), action)
    };
    (0..steps).map(|_| one()).collect()
}

fn choose(chance: &mut fastrand::Rng) -> Action {
    let pod = chance.u8(0..PODS + MEMBERS);
    let node = chance.u8(0..NODES);
    let wish = chance.u8(0..KINDS);
    let pool = chance.u8(0..u8::try_from(EDITED.len()).unwrap());
    let effects = chance.u32(0..12);
    let after = chance.bool();
    match chance.u32(0..110) {
        0..34 => Action::Create { pod, node, wish },
        34..46 => Action::Delete { pod },
        46..49 => Action::Force { pod },
        49..57 => Action::Replace { pod, node, wish },
        57..63 => Action::Restart { pod },
        63..66 => Action::Crash { node },
        66..76 => Action::CrashAt {
            node,
            effects,
            after,
        },
        76..78 => Action::CrashGc { effects, after },
        78..80 => Action::Outage {
            seconds: chance.u64(1..90),
        },
        80..82 => Action::BreakWatches { node },
        82..84 => Action::SilenceWatches { node },
        84 => Action::Compact,
        85 => Action::LoseNode { node },
        86 => Action::Disable { pool },
        87..89 => Action::Enable { pool },
        89 => Action::Shrink { pool },
        90..92 => Action::Reserve {
            last: chance.u8(10..16),
        },
        92 => Action::Unreserve {
            last: chance.u8(10..16),
        },
        93 => Action::SparePool,
        94..96 => Action::ProviderRefuses {
            seconds: chance.u64(5..60),
        },
        96..98 => Action::ProviderSlow {
            seconds: chance.u64(1..70),
            lasts: chance.u64(5..90),
        },
        98 => Action::Scale {
            replicas: chance.u8(0..=MEMBERS),
        },
        109 => power_loss(node, effects),
        other => choose_other(other, chance),
    }
}

/// Some of what happens to Pods happens to virtual machines instead.
fn of_machines(action: Action) -> Action {
    let Action::Create { pod, node, wish } = action else {
        return action;
    };
    let deed = match (pod / MACHINES, wish) {
        (_, 0..6) if pod >= PODS => Deed::Start,
        (_, 0..6) => return action,
        (0..3, _) => Deed::Migrate {
            node,
            fails: wish == 8,
        },
        (3, _) => Deed::Stop,
        (4, 8) => Deed::Kill,
        (4, _) => Deed::Reboot,
        (5, 8) => Deed::Delete,
        _ => Deed::Start,
    };
    Action::Machine {
        machine: pod % MACHINES,
        deed,
    }
}

/// Made of what is drawn for every step, so that a seed's other steps do not hang on it.
fn power_loss(node: u8, effects: u32) -> Action {
    Action::PowerLoss {
        node,
        seconds: u64::from(effects) * 9 + 1,
    }
}

/// What happens to the provider's and the collector's process.
fn choose_other(number: u32, chance: &mut fastrand::Rng) -> Action {
    match number {
        99..101 => Action::ProviderLate {
            seconds: chance.u64(1..120),
            lasts: chance.u64(5..90),
        },
        101..103 => Action::ProviderRestart {
            seconds: chance.u64(0..30),
        },
        103..105 => Action::SecondGc {
            seconds: chance.u64(1..90),
        },
        105..109 => Action::GcClock {
            ahead: chance.u64(30..500),
            lasts: chance.u64(10..240),
        },
        _ => Action::Pause,
    }
}
