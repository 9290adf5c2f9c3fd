//! The deterministic simulation: several real agents with their real stores, the controller, a
//! collector and the provider over one simulated API server, on virtual time, all from one seed.
//! Crashes fall between any two effects; messages are late or lost; caches are old; Pods come and
//! go under the same names. The invariants of spec ipam section 10 are judged with every change.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that cannot go on fails, in its helpers too"
)]

mod action;
mod api;
mod check;
mod cluster;
#[expect(dead_code, reason = "the flows' tests use more of it")]
#[path = "../flows/fake_nic.rs"]
mod fake_nic;
mod gate;
mod gc;
mod healing;
mod http;
mod identities;
mod kubelet;
mod life;
mod machines;
mod mutation;
mod node;
mod provider;
mod rest;
mod run;
mod scenario;
mod sets;
mod shrink;
mod weather;
mod wishes;
mod world;

use crate::check::Counts;
use crate::mutation::Mutation;
use crate::run::{Outcome, run};
use crate::scenario::Scenario;
use crate::shrink::{selected, shorten};

/// Seeds of a plain `cargo test`; CI asks for more.
const SEEDS: u64 = 20;
/// Steps of a seed.
const STEPS: usize = 60;
/// Seeds within which a built-in fault is caught.
const MUTATION_SEEDS: u64 = 40;
/// Lines of a trace that are shown.
const SHOWN: usize = 120;

/// A number from the environment.
fn asked(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

fn steps() -> usize {
    let steps = asked("SPIDERPOOL_SIM_STEPS").map(|steps| usize::try_from(steps).unwrap());
    steps.unwrap_or(STEPS)
}

/// The seeds of this call: those asked for, from the first or another one on, or one with a part of its
/// steps.
fn seeds() -> std::ops::Range<u64> {
    match asked("SPIDERPOOL_SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => {
            let first = asked("SPIDERPOOL_SIM_FROM").unwrap_or(0);
            first..first + asked("SPIDERPOOL_SIM_SEEDS").unwrap_or(SEEDS)
        }
    }
}

/// The steps of a seed that a replay is limited to.
fn limited() -> Option<Vec<usize>> {
    let text = std::env::var("SPIDERPOOL_SIM_KEEP").ok()?;
    let numbers = text.split(',').filter(|part| !part.is_empty());
    Some(numbers.map(|number| number.parse().unwrap()).collect())
}

fn play(seed: u64, mutation: Option<Mutation>) -> Outcome {
    let steps = action::plan(seed, steps(), Scenario::of(seed, mutation));
    match limited() {
        Some(kept) => run(seed, &selected(&steps, &kept), mutation),
        None => run(seed, &steps, mutation),
    }
}

/// What a person needs to see a failure again and to read it.
fn report(seed: u64, failed: Outcome) -> String {
    let whole = action::plan(seed, steps(), Scenario::of(seed, None));
    let (kept, outcome) = if limited().is_some() {
        (limited().unwrap_or_default(), failed)
    } else {
        let short = shorten(seed, &whole, failed, None);
        (short.kept, short.outcome)
    };
    let violation = outcome.violation.unwrap();
    let numbers: Vec<String> = kept.iter().map(ToString::to_string).collect();
    let mut lines = vec![format!(
        "seed {seed}: invariant {} is broken: {}\nsteps:",
        violation.invariant, violation.text
    )];
    let needed = selected(&whole, &kept).into_iter();
    lines.extend(
        needed.map(|(pause, action)| format!("  +{:.3} s {action:?}", pause.as_secs_f64())),
    );
    lines.push(format!("trace, last {SHOWN} lines:"));
    let from = outcome.trace.len().saturating_sub(SHOWN);
    lines.extend(outcome.trace[from..].iter().cloned());
    lines.push(format!(
        "again: SPIDERPOOL_SIM_SEED={seed} SPIDERPOOL_SIM_STEPS={} SPIDERPOOL_SIM_KEEP={} cargo test -p spiderpool-agent --test sim seeds_hold",
        steps(),
        numbers.join(",")
    ));
    lines.join("\n")
}

#[test]
fn seeds_hold() {
    let begun = std::time::Instant::now();
    let done = std::sync::Mutex::new(Counts::default());
    let failures: Vec<String> = across_threads(seeds(), |seed| {
        let outcome = play(seed, None);
        done.lock().unwrap().add(outcome.counts);
        outcome.violation.is_some().then(|| report(seed, outcome))
    });
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
    let done = done.into_inner().unwrap();
    println!(
        "{} seeds, {:.1} s: {done:?}",
        seeds().count(),
        begun.elapsed().as_secs_f64()
    );
    // What happens in no seed is not tested by any.
    if limited().is_none() && seeds().count() >= 20 {
        assert!(done.all_happened(), "{done:?}");
    }
}

/// Runs are single-threaded; several of them use the machine.
fn across_threads<T: Send>(
    seeds: std::ops::Range<u64>,
    work: impl Fn(u64) -> Option<T> + Sync,
) -> Vec<T> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let next = std::sync::atomic::AtomicU64::new(seeds.start);
    let found = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    // One failure is enough to read.
                    if seed >= seeds.end || !found.lock().unwrap().is_empty() {
                        return;
                    }
                    if let Some(one) = work(seed) {
                        found.lock().unwrap().push(one);
                    }
                }
            });
        }
    });
    found.into_inner().unwrap()
}

#[test]
fn one_seed_twice_is_the_same_run() {
    for seed in 0..6 {
        let (first, second) = (play(seed, None), play(seed, None));
        let lines = first.trace.iter().zip(&second.trace);
        if let Some((line, other)) = lines.clone().find(|(line, other)| line != other) {
            panic!("seed {seed} differs:\n{line}\n{other}");
        }
        assert_eq!(first.trace.len(), second.trace.len());
    }
}

/// Each fault built in on purpose is caught, by one of these invariants, within so many seeds.
#[test]
fn built_in_faults_are_caught() {
    const CAUGHT: &[(Mutation, &[u8])] = &[
        (Mutation::StoreIgnoresVersions, &[1, 4, 8, 10, 13, 17, 23]),
        (Mutation::GcIgnoresUids, &[10, 16]),
        (Mutation::GcSkipsFence, &[16]),
        (Mutation::GcFreesFirst, &[16]),
        (Mutation::GcTrustsOldLists, &[10]),
        (Mutation::GcIgnoresIdentities, &[11]),
        (Mutation::GcTrustsItsClock, &[10]),
        (Mutation::GcNever, &[22]),
        (Mutation::DelIsForgotten, &[22]),
        (Mutation::ProviderReleasesLate, &[16]),
        (Mutation::ProviderKeepsDeadEntries, &[15]),
        (Mutation::ProviderReclaimsClaimed, &[15]),
        (Mutation::ProviderOverwritesRecords, &[4, 10, 17]),
        (Mutation::FinalizerStays, &[22]),
        (Mutation::GcHasNoProvider, &[16]),
        (Mutation::ProviderForgetsReleases, &[22]),
        (Mutation::MachinesAreUnknown, &[11]),
    ];
    let last = CAUGHT.len() as u64;
    let missed = across_threads(0..last, |index| {
        let (mutation, invariants) = CAUGHT[usize::try_from(index).unwrap()];
        let caught = (0..MUTATION_SEEDS).find_map(|seed| {
            let steps = action::plan(seed, STEPS, Scenario::of(seed, Some(mutation)));
            let outcome = run(seed, &steps, Some(mutation));
            let found = outcome.violation?;
            invariants
                .contains(&found.invariant)
                .then_some((seed, found))
        });
        match caught {
            Some((seed, found)) => {
                println!(
                    "{mutation:?}: seed {seed}, {}: {}",
                    found.invariant, found.text
                );
                None
            }
            None => Some(format!(
                "{mutation:?} is not caught within {MUTATION_SEEDS} seeds"
            )),
        }
    });
    assert!(missed.is_empty(), "{missed:#?}");
}
