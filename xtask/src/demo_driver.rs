//! The demo itself, in the kernel it is started in: two nodes that share an API, a provider with its
//! fabric, eight Pods attached by the real CNI binary, everything tried, released and looked for
//! afterwards.
//!
//! Owns the work folder and what [`vm_tests::lab`] makes below it. A check that fails is a line
//! of the report, not an error: the other checks still tell something.

mod kept;
mod observed;
mod pods;
mod traffic;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use vm_tests::lab::{Cloud, LabSpec, Lifetime, ProviderPlan};
use vm_tests::lab::{leaks, namespace};

use self::pods::{Attached, Pods};
use crate::demo_report::{DemoReport, Env};
use crate::term;

pub(crate) use kept::stop;

/// Nodes: the first brings the API, the second joins it.
const NODES: u8 = 2;
/// Sub-ENIs of each kind that the provider has ready on each node: more than Pods, as in a real
/// pool.
const SUB_ENIS: u8 = 2;
/// Steps a run has, for the progress lines.
const STEPS: usize = 11;

/// How the driver is started, natively or in the guest.
#[derive(Debug, Clone, Args)]
pub(crate) struct DriverOptions {
    /// Folder with the programs of the product.
    #[arg(long)]
    pub(crate) bin_dir: PathBuf,
    /// Folder for sockets, state and logs; made afresh.
    #[arg(long)]
    pub(crate) work_dir: PathBuf,
    /// Where the report goes.
    #[arg(long)]
    pub(crate) report: PathBuf,
    /// Leave nodes and Pods running.
    #[arg(long)]
    pub(crate) keep: bool,
}

/// Runs the demo and writes its report.
pub(crate) fn main(options: &DriverOptions) -> Result<()> {
    let report = run(options)?;
    for (what, _) in report.verdicts().iter().filter(|(_, ok)| !ok) {
        term::progress(&format!("FAILED: {what}"));
    }
    fs::write(&options.report, serde_json::to_vec_pretty(&report)?)
        .with_context(|| format!("write {}", options.report.display()))
}

/// Attaches the Pods, tries everything, releases (unless kept), and reports.
pub(crate) fn run(options: &DriverOptions) -> Result<DemoReport> {
    if options.work_dir.exists() {
        kept::stop(&options.work_dir)?;
    }
    step(1, "building a cloud: fabric, gateway, provider, two nodes");
    let mut cloud = Cloud::build(&spec(options))?;
    step(
        2,
        "starting the agents, the second on the first one's API; the provider makes sub-ENIs",
    );
    cloud.start_agents()?;
    let mut report = DemoReport {
        env: Env {
            kernel: kernel()?,
            attach: observed::attach(&cloud)?,
            kept: options.keep,
            ..Env::default()
        },
        ..DemoReport::default()
    };
    step(
        3,
        "attaching eight Pods: made ahead, made on demand, found again, moved",
    );
    let pods = pods::attach_all(&cloud)?;
    report.pods = pods.running.iter().map(|a| a.row.clone()).collect();
    step(4, "reading the pre-flight results");
    report.preflight = pods::preflights(&cloud, &pods.running)?;
    try_traffic(&cloud, &pods.running, &mut report)?;
    let expected = observe(&cloud, &pods.running, &mut report)?;
    report.audit = cloud.provider()?.audit()?;
    report.release.clone_from(&pods.releases);
    if options.keep {
        return kept::leave(&options.work_dir, &cloud, &pods).map(|()| report);
    }
    end(&cloud, &pods, &expected, &mut report)?;
    Ok(report)
}

fn spec(options: &DriverOptions) -> LabSpec {
    let lifetime = if options.keep {
        Lifetime::Kept
    } else {
        Lifetime::Lab
    };
    LabSpec {
        bin_dir: options.bin_dir.clone(),
        dir: options.work_dir.clone(),
        // What is kept is looked at by people.
        name: match lifetime {
            Lifetime::Lab => namespace::unique("demo"),
            Lifetime::Kept => "demo".to_owned(),
        },
        lifetime,
        nodes: NODES,
        sub_enis: SUB_ENIS,
        provider: Some(ProviderPlan::quick(pods::GLOBALS, pods::GLOBAL_PAIRS)),
    }
}

fn step(number: usize, what: &str) {
    term::progress(&format!("[{number:>2}/{STEPS}] {what}"));
}

fn kernel() -> Result<String> {
    let text =
        fs::read_to_string("/proc/sys/kernel/osrelease").context("read the kernel release")?;
    Ok(text.trim().to_owned())
}

fn milliseconds(elapsed: std::time::Duration) -> f64 {
    elapsed.as_secs_f64() * 1000.0
}

fn try_traffic(cloud: &Cloud, attached: &[Attached], report: &mut DemoReport) -> Result<()> {
    step(
        5,
        "pinging the gateway from each Pod, and each Pod from the next",
    );
    report.pings = traffic::pings(cloud, attached)?;
    step(6, "TCP to the gateway and back, 8 MiB");
    report.tcp = traffic::tcp_to_gateway(cloud, attached)?;
    step(7, "TCP from Pod to Pod and back, 8 MiB");
    report.tcp.extend(traffic::tcp_between(attached)?);
    Ok(())
}

/// Counters and forged frames; how many frames the fabric was to drop, by reason.
fn observe(
    cloud: &Cloud,
    attached: &[Attached],
    report: &mut DemoReport,
) -> Result<BTreeMap<String, u64>> {
    step(
        8,
        "comparing what the observers counted with the Pods' own counters",
    );
    report.counters = observed::counters(cloud, attached)?;
    step(
        9,
        "forging a source address, a source MAC and an ARP sender",
    );
    let (violations, expected) = observed::forge(cloud, attached)?;
    report.violations = violations;
    Ok(expected)
}

fn end(
    cloud: &Cloud,
    pods: &Pods,
    expected: &BTreeMap<String, u64>,
    report: &mut DemoReport,
) -> Result<()> {
    step(10, "releasing the Pods");
    for attached in &pods.running {
        report.release.push(pods::release(cloud, attached)?);
    }
    step(11, "looking for leaks, on the nodes and in the cloud");
    let all = pods.running.iter().chain(&pods.ended);
    let all: Vec<_> = all.map(|attached| &attached.pod).collect();
    report.leaks = leaks::find_besides(cloud, &all, expected)?;
    Ok(())
}

/// Whether a folder of that kind may be cleared: only one the demo made.
fn is_demo_dir(dir: &Path) -> bool {
    dir.join("topology.yaml").exists() || dir.join(kept::FILE).exists()
}
