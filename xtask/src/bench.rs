//! Figures the design promises: measured, compared with their limits, one JSON line each.
//!
//! Never a timed test: a figure is a median, its reference comes from the same run or is stated.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Args;
use comfy_table::{Table, presets};
use serde::Serialize;

use crate::{build, paths, term};

/// Starts of each program; the median of so many is steady on a busy machine.
const STARTS: usize = 301;
const REQUEST: &str = r#"{"cniVersion":"1.1.0"}"#;

/// Measure the figures the design promises.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// Figures; all of them by default.
    names: Vec<String>,
    /// One JSON line a figure.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Figure {
    name: &'static str,
    value: f64,
    unit: &'static str,
    /// What the figure is compared with: the peer's value.
    reference: f64,
    /// At most this.
    limit: f64,
}

type Measure = fn(&Path) -> Result<Figure>;

const FIGURES: &[(&str, Measure)] = &[
    ("cni_version_over_true_ms", version_over_true),
    ("cni_binary_bytes", binary_bytes),
];

/// Measures, prints, and fails when a figure is above its limit.
pub(crate) fn run(args: &BenchArgs) -> Result<ExitCode> {
    if let Some(name) = args
        .names
        .iter()
        .find(|name| !FIGURES.iter().any(|(known, _)| known == name))
    {
        let known: Vec<_> = FIGURES.iter().map(|(name, _)| *name).collect();
        bail!("no figure named {name}; there are {}", known.join(", "));
    }
    term::progress("building the CNI binary (dist)");
    let cni = build::cni()?;
    let mut figures = Vec::new();
    for (name, measure) in FIGURES {
        if args.names.is_empty() || args.names.iter().any(|asked| asked == name) {
            term::progress(&format!("measuring {name}"));
            figures.push(measure(&cni)?);
        }
    }
    for line in render(&figures, args.json)? {
        term::result(&line);
    }
    let over: Vec<_> = figures
        .iter()
        .filter(|f| f.value > f.limit)
        .map(|f| f.name)
        .collect();
    if !over.is_empty() {
        bail!("above the limit: {}", over.join(", "));
    }
    Ok(ExitCode::SUCCESS)
}

fn render(figures: &[Figure], json: bool) -> Result<Vec<String>> {
    if json {
        return figures
            .iter()
            .map(|f| Ok(serde_json::to_string(f)?))
            .collect();
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header([
        "FIGURE",
        "VALUE",
        "UNIT",
        "REFERENCE",
        "LIMIT",
    ]);
    for f in figures {
        table.add_row([
            f.name.to_owned(),
            trimmed(f.value),
            f.unit.to_owned(),
            trimmed(f.reference),
            trimmed(f.limit),
        ]);
    }
    Ok(table
        .lines()
        .map(|line| line.trim_end().to_owned())
        .collect())
}

/// Three decimals where there are any.
fn trimmed(value: f64) -> String {
    format!("{value:.3}")
        .trim_end_matches('0')
        .trim_end_matches('.')
        .to_owned()
}

/// The plugin's start-up beyond what any process costs: both programs in turn, so that load on
/// the machine hits both.
fn version_over_true(cni: &Path) -> Result<Figure> {
    let request = paths::log_dir().join("bench-request.json");
    fs::create_dir_all(paths::log_dir())?;
    fs::write(&request, REQUEST).with_context(|| format!("write {}", request.display()))?;
    let (mut plugin, mut base) = (Vec::new(), Vec::new());
    for _ in 0..STARTS {
        base.push(start(Path::new("/bin/true"), &request)?);
        plugin.push(start(cni, &request)?);
    }
    Ok(Figure {
        name: "cni_version_over_true_ms",
        value: ((median(&mut plugin) - median(&mut base)) * 1e3).round() / 1e3,
        unit: "ms",
        reference: 18.0,
        limit: 1.5,
    })
}

/// Start to exit, milliseconds.
fn start(program: &Path, request: &Path) -> Result<f64> {
    let mut command = Command::new(program);
    command.env_clear().env("CNI_COMMAND", "VERSION");
    command
        .stdin(File::open(request)?)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let begun = Instant::now();
    let status = command
        .status()
        .with_context(|| format!("run {}", program.display()))?;
    let ms = begun.elapsed().as_secs_f64() * 1e3;
    if !status.success() {
        bail!("{} ended with {status}", program.display());
    }
    Ok(ms)
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn binary_bytes(cni: &Path) -> Result<Figure> {
    let bytes = fs::metadata(cni)
        .with_context(|| format!("look at {}", cni.display()))?
        .len();
    let bytes = u32::try_from(bytes).context("a CNI binary of 4 GiB")?;
    Ok(Figure {
        name: "cni_binary_bytes",
        value: f64::from(bytes),
        unit: "bytes",
        reference: 35e6,
        limit: f64::from(2_u32 << 20),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert!((median(&mut [3.0, 1.0, 2.0]) - 2.0).abs() < f64::EPSILON);
        assert!(median(&mut []).is_nan());
    }

    #[test]
    fn one_json_line_a_figure() {
        let figure = Figure {
            name: "x",
            value: 0.5,
            unit: "ms",
            reference: 18.0,
            limit: 1.5,
        };
        let lines = render(&[figure.clone(), figure], true).unwrap();
        assert_eq!(lines.len(), 2);
        assert_eq!(
            lines[0],
            r#"{"name":"x","value":0.5,"unit":"ms","reference":18.0,"limit":1.5}"#
        );
    }

    #[test]
    fn numbers_for_people() {
        assert_eq!(trimmed(2_097_152.0), "2097152");
        assert_eq!(trimmed(0.65), "0.65");
    }
}
