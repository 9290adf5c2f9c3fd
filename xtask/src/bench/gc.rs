//! A scan of garbage collection in a large cluster: the controller as it ships against an API server
//! that plays 50,000 Pods with two addresses each.

mod server;

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;

use super::{Better, Figure, median};
use crate::{build, cargo, paths, term};

pub(super) const NAMES: &[&str] = &["gc_scan_cpu_s", "gc_scan_rss_mb"];

/// Measurements; a figure is their median.
const ROUNDS: usize = 3;
/// Far above what a loaded machine needs.
const LIMIT: Duration = Duration::from_secs(240);
const LOOK: Duration = Duration::from_millis(20);

/// CPU time and peak memory from the start of the process to the end of its first scan: the list of
/// all Pods is part of it.
pub(super) fn measure() -> Result<Vec<Figure>> {
    term::progress("building the controller (dist)");
    let built = cargo::executables(&[
        "build",
        "--profile",
        "dist",
        "-p",
        "spiderpool-controller",
        "--bins",
    ])?;
    let controller = build::find(&built, "spiderpool-controller")?;
    let dir = paths::target_dir().join("bench").join("gc");
    fs::create_dir_all(&dir).with_context(|| format!("make {}", dir.display()))?;
    let port = server::start()?;
    let kubeconfig = dir.join("kubeconfig");
    let config = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "k", "cluster": {"server": format!("http://127.0.0.1:{port}")}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}]});
    fs::write(&kubeconfig, config.to_string()).context("write a kubeconfig")?;
    let (mut cpu, mut memory) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        term::progress(&format!("gc: scan {} of {ROUNDS}", round + 1));
        let log = dir.join(format!("controller-{round}.log"));
        let mut running = start(controller, &kubeconfig, &log)?;
        let measured = first_scan(&mut running, &log);
        running
            .kill()
            .and_then(|()| running.wait())
            .context("end the controller")?;
        let (seconds, mb) = measured?;
        cpu.push(seconds);
        memory.push(mb);
    }
    let figure = |name, unit, values: &mut [f64], limit| Figure {
        name,
        value: median(values),
        unit,
        reference: None,
        limit: Some(limit),
        better: Better::Lower,
    };
    Ok(vec![
        figure("gc_scan_cpu_s", "s", &mut cpu, 5.0),
        figure("gc_scan_rss_mb", "MB", &mut memory, 150.0),
    ])
}

fn start(controller: &Path, kubeconfig: &Path, log: &Path) -> Result<Child> {
    let out = File::create(log).with_context(|| format!("make {}", log.display()))?;
    let errors = out.try_clone().context("its standard error")?;
    Command::new(controller)
        .args(["daemon", "--config-path", "/nowhere", "--kubeconfig"])
        .arg(kubeconfig)
        .env("SPIDERPOOL_POD_NAME", "bench")
        .env("SPIDERPOOL_POD_NAMESPACE", "spiderpool")
        .env("SPIDERPOOL_HEALTH_PORT", "0")
        .env("SPIDERPOOL_WEBHOOK_PORT", "0")
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(errors)
        .spawn()
        .with_context(|| format!("start {}", controller.display()))
}

/// CPU seconds and MB.
fn first_scan(running: &mut Child, log: &Path) -> Result<(f64, f64)> {
    let begun = Instant::now();
    loop {
        let text = fs::read_to_string(log).unwrap_or_default();
        if let Some(line) = text
            .lines()
            .find(|line| line.contains("scanned all records"))
        {
            let told: serde_json::Value = serde_json::from_str(line).context("read its log")?;
            let count = |key: &str| told.get(key).and_then(serde_json::Value::as_u64);
            ensure!(
                count("records") == Some(server::RECORDS) && count("suspected") == Some(0),
                "not the scan that was expected: {line}"
            );
            return Ok((cpu_seconds(running.id())?, peak_mb(running.id())?));
        }
        if let Some(status) = running.try_wait()? {
            bail!("the controller ended with {status}:\n{text}");
        }
        ensure!(begun.elapsed() < LIMIT, "no scan within {LIMIT:?}:\n{text}");
        thread::sleep(LOOK);
    }
}

/// User and system time of all threads, proc(5).
fn cpu_seconds(pid: u32) -> Result<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).context("read its times")?;
    // After the name, which may hold anything, comes the third field.
    let (_, rest) = text.rsplit_once(") ").context("no times")?;
    let mut fields = rest.split(' ').skip(11);
    let mut ticks = || -> Result<f64> { Ok(fields.next().context("no time")?.parse()?) };
    // The kernel's clock for these is 100 Hz on every architecture we build for.
    Ok((ticks()? + ticks()?) / 100.0)
}

/// The most that was resident at once.
fn peak_mb(pid: u32) -> Result<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).context("read its memory")?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    let kib: f64 = kib.context("no peak in its status")?.parse()?;
    Ok(kib * 1024.0 / 1e6)
}
