//! From a failing list of steps to a short one that still fails: parts are left out while the same
//! invariant breaks, with a bound on the tries.

use std::time::Duration;

use crate::action::{Action, Step};
use crate::mutation::Mutation;
use crate::run::{Outcome, run};

/// Runs at most.
const TRIES: usize = 120;

/// What is left, by its place in the whole list, and what it comes to.
pub(crate) struct Short {
    pub(crate) kept: Vec<usize>,
    pub(crate) outcome: Outcome,
}

/// Leaves steps out, in halves, quarters and so on, while the invariant still breaks.
pub(crate) fn shorten(
    seed: u64,
    steps: &[Step],
    first: Outcome,
    mutation: Option<Mutation>,
) -> Short {
    let wanted = first
        .violation
        .as_ref()
        .map(|violation| violation.invariant);
    let mut short = Short {
        kept: (0..steps.len()).collect(),
        outcome: first,
    };
    let mut tries = 0;
    let mut part = short.kept.len().div_ceil(2);
    while part > 0 && tries < TRIES {
        let mut from = 0;
        let mut shorter = false;
        while from < short.kept.len() && tries < TRIES {
            let upto = (from + part).min(short.kept.len());
            let mut kept = short.kept.clone();
            kept.drain(from..upto);
            tries += 1;
            let outcome = run(seed, &selected(steps, &kept), mutation);
            let broken = outcome
                .violation
                .as_ref()
                .map(|violation| violation.invariant);
            if broken == wanted {
                short = Short { kept, outcome };
                shorter = true;
            } else {
                from = upto;
            }
        }
        if part == 1 && !shorter {
            break;
        }
        part = if part == 1 { 1 } else { part.div_ceil(2) };
    }
    short
}

/// The kept steps at their old times: what is left out leaves its pause.
pub(crate) fn selected(steps: &[Step], kept: &[usize]) -> Vec<Step> {
    let mut pause = Duration::ZERO;
    let mut selected: Vec<(Duration, Action)> = Vec::new();
    for (index, (wait, action)) in steps.iter().enumerate() {
        pause += *wait;
        if kept.contains(&index) {
            selected.push((std::mem::take(&mut pause), *action));
        }
    }
    selected
}
