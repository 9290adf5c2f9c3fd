//! The address engine against a real kube-apiserver: the agent and the CNI binary as they ship, called
//! as a runtime calls them.
//!
//! Owns a control plane, agents and folders for the time of a measurement. The Pods are there before
//! the clock runs, as they are for a kubelet. The load of the machine goes to stderr beside each
//! figure: callers, agents, API server and etcd share its processors.

mod callers;
mod cluster;
mod memory;
mod raw;
mod throughput;
mod traffic;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use super::{Asked, Better, Figure, median};
use crate::{build, control_plane, paths, term};

pub(super) const NAMES: &[&str] = &[
    "raw_write_p50",
    "raw_16_writers",
    "raw_write_5000_records",
    "add_one_caller_p50",
    "api_requests_per_add",
    "add_16_callers",
    "add_4x8_callers",
    "add_4x8_failed",
    "add_4x8_left",
    "add_5000_records",
    "fd12_64",
    "fd12_64_memory",
    "rss_idle",
    "rss_110_pods",
    "bytes_per_add_elsewhere",
];

/// Measurements; a figure is their median.
const ROUNDS: usize = 5;

/// What a measurement runs.
struct Programs {
    agent: PathBuf,
    cni_dir: PathBuf,
    lab_dir: PathBuf,
    control_plane_dir: PathBuf,
    /// Emptied before each cluster.
    work_dir: PathBuf,
}

type Measurement = fn(&Programs) -> Result<Vec<Figure>>;

/// Figures that one cluster gives, in the order in which they are taken.
const MEASUREMENTS: &[(&[&str], Measurement)] = &[
    (&["rss_idle"], memory::idle),
    (
        &["raw_write_p50", "raw_16_writers", "raw_write_5000_records"],
        raw::measure,
    ),
    (
        &["add_one_caller_p50", "api_requests_per_add"],
        throughput::one_caller,
    ),
    (&["add_16_callers"], throughput::sixteen_callers),
    (
        &["add_4x8_callers", "add_4x8_failed", "add_4x8_left"],
        throughput::four_agents,
    ),
    (&["add_5000_records"], throughput::full_pool),
    (&["fd12_64", "fd12_64_memory"], memory::wide_range),
    (&["bytes_per_add_elsewhere"], traffic::elsewhere),
    (&["rss_110_pods"], memory::busy_node),
];

/// Builds what ships and measures what is wanted of it.
pub(super) fn measure(asked: &Asked<'_>) -> Result<Vec<Figure>> {
    term::progress(
        "building the control plane (the first time, about five minutes), agent and CNI binary (dist)",
    );
    let cni = build::cni()?;
    let programs = Programs {
        agent: build::agent()?,
        cni_dir: cni.parent().context("cni lies in no folder")?.to_owned(),
        lab_dir: build::guest_tools()?,
        control_plane_dir: control_plane::build()?,
        work_dir: paths::target_dir().join("bench").join("ipam"),
    };
    let mut figures = Vec::new();
    for (names, take) in MEASUREMENTS {
        if asked.any(names) {
            term::progress(&format!("measuring {} (load {})", names.join(", "), load()));
            let taken = take(&programs)?;
            for figure in &taken {
                let Figure {
                    name, value, unit, ..
                } = figure;
                term::progress(&format!("  {name} {value} {unit} (load {})", load()));
            }
            figures.extend(taken);
        }
    }
    Ok(figures)
}

/// Processes that wanted a processor, on average over the last minute.
fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or_default().to_owned()
}

/// A figure with the median of its rounds, to three decimals.
fn figure(name: &'static str, unit: &'static str, rounds: &mut [f64]) -> Figure {
    Figure {
        name,
        value: (median(rounds) * 1e3).round() / 1e3,
        unit,
        reference: None,
        limit: None,
        better: Better::Lower,
    }
}

impl Figure {
    fn at_most(self, limit: f64) -> Self {
        Self {
            limit: Some(limit),
            better: Better::Lower,
            ..self
        }
    }

    fn at_least(self, limit: f64) -> Self {
        Self {
            limit: Some(limit),
            better: Better::Higher,
            ..self
        }
    }

    fn beside(self, reference: f64) -> Self {
        Self {
            reference: Some(reference),
            ..self
        }
    }
}

/// A count as a figure's value; counts here are far below 2^32.
fn float(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}
