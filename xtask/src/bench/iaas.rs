//! What pools of a provider cost where nobody has to be called. Measured in one process: the agent's
//! library over the embedded API, with a kernel in memory (`agent/benches/iaas.rs`).

use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::{Better, Figure, median};
use crate::{build, cargo, term};

pub(super) const NAMES: &[&str] = &[
    "iaas_decode_unchanged",
    "iaas_prewarm_over_plain",
    "iaas_cached_over_plain",
];

/// Measurements; a figure is their median.
const ROUNDS: usize = 5;
/// Milliseconds.
const LIMIT: f64 = 1.0;

/// Milliseconds, medians of one round.
#[derive(Debug, Deserialize)]
struct Round {
    read_unchanged: f64,
    read_changed: f64,
    plain: f64,
    prewarm: f64,
    cached: f64,
}

/// Builds it optimised, and measures.
pub(super) fn measure() -> Result<Vec<Figure>> {
    term::progress("building the agent's library (release)");
    let built = cargo::executables(&[
        "build",
        "--release",
        "-p",
        "spiderpool-agent",
        "--bench",
        "iaas",
    ])?;
    let program = build::find(&built, "iaas")?;
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let output = Command::new(program).output().context("run the bench")?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "the bench failed:\n{errors}");
        let round: Round = serde_json::from_slice(&output.stdout).context("read its result")?;
        term::progress(&format!("  {round:?}"));
        rounds.push(round);
    }
    let of = |take: fn(&Round) -> f64| median(&mut rounds.iter().map(take).collect::<Vec<_>>());
    let figure = |name, value: f64, reference: f64| Figure {
        name,
        value: (value * 1e3).round() / 1e3,
        unit: "ms",
        reference: Some((reference * 1e3).round() / 1e3),
        limit: Some(LIMIT),
        better: Better::Lower,
    };
    let plain = of(|round| round.plain);
    Ok(vec![
        figure(
            "iaas_decode_unchanged",
            of(|round| round.read_unchanged),
            of(|round| round.read_changed),
        ),
        figure(
            "iaas_prewarm_over_plain",
            of(|round| round.prewarm - round.plain),
            plain,
        ),
        figure(
            "iaas_cached_over_plain",
            of(|round| round.cached - round.plain),
            plain,
        ),
    ])
}
