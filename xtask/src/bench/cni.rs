//! The CNI binary as it ships: how small it is and how fast it starts.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use super::{Better, Figure, median};
use crate::{build, paths, term};

pub(super) const NAMES: &[&str] = &["cni_version_over_true_ms", "cni_binary_bytes"];

/// Starts of each program; the median of so many is steady on a busy machine.
const STARTS: usize = 301;
const REQUEST: &str = r#"{"cniVersion":"1.1.0"}"#;

/// Builds it and measures both.
pub(super) fn measure() -> Result<Vec<Figure>> {
    term::progress("building the CNI binary (dist)");
    let cni = build::cni()?;
    term::progress("starting it many times");
    Ok(vec![version_over_true(&cni)?, binary_bytes(&cni)?])
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
        reference: Some(18.0),
        limit: Some(1.5),
        better: Better::Lower,
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

fn binary_bytes(cni: &Path) -> Result<Figure> {
    let bytes = fs::metadata(cni)
        .with_context(|| format!("look at {}", cni.display()))?
        .len();
    let bytes = u32::try_from(bytes).context("a CNI binary of 4 GiB")?;
    Ok(Figure {
        name: "cni_binary_bytes",
        value: f64::from(bytes),
        unit: "bytes",
        reference: Some(35e6),
        limit: Some(f64::from(2_u32 << 20)),
        better: Better::Lower,
    })
}
