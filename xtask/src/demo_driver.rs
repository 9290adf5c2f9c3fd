//! The demo itself, in the kernel it is started in: one node in standalone mode, a fabric, pools
//! with metadata, four Pods attached by the real CNI binary, everything tried, released and
//! looked for afterwards.
//!
//! Owns the work folder and what [`vm_tests::lab`] makes below it. A check that fails is a line
//! of the report, not an error: the other checks still tell something.

mod kept;
mod traffic;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use serde_json::Value;
use vm_tests::lab::{Cloud, LabSpec, Lifetime, Node, Pod, Stack};
use vm_tests::lab::{leaks, namespace};

use crate::demo_report::{DemoReport, Env, Pod as PodRow, Preflight, Release};
use crate::term;

pub(crate) use kept::stop;

/// Sub-ENIs of each kind that the provider has ready: more than Pods, as in a real pool.
const SUB_ENIS: u8 = 4;
/// The Pods: name and what they ask for.
const PODS: [(&str, Stack); 4] = [
    ("web-0", Stack::V4),
    ("web-1", Stack::V4),
    ("api-0", Stack::Dual),
    ("api-1", Stack::Dual),
];
/// Steps a run has, for the progress lines.
const STEPS: usize = 9;

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

/// A Pod that was attached.
struct Attached {
    pod: Pod,
    stack: Stack,
    row: PodRow,
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
    let lifetime = if options.keep {
        Lifetime::Kept
    } else {
        Lifetime::Lab
    };
    if options.work_dir.exists() {
        kept::stop(&options.work_dir)?;
    }
    step(1, "building a cloud: fabric, gateway, one node");
    let mut cloud = Cloud::build(&LabSpec {
        bin_dir: options.bin_dir.clone(),
        dir: options.work_dir.clone(),
        // What is kept is looked at by people.
        name: match lifetime {
            Lifetime::Lab => namespace::unique("demo"),
            Lifetime::Kept => "demo".to_owned(),
        },
        lifetime,
        nodes: 1,
        sub_enis: SUB_ENIS,
    })?;
    step(
        2,
        "starting the agent (standalone); the provider publishes its sub-ENIs",
    );
    cloud.start_agents()?;
    let mut report = DemoReport {
        env: Env {
            kernel: kernel()?,
            kept: options.keep,
            ..Env::default()
        },
        ..DemoReport::default()
    };
    step(3, "attaching four Pods: two IPv4, two dual-stack");
    let attached = attach_all(&cloud)?;
    report.pods = attached.iter().map(|a| a.row.clone()).collect();
    step(4, "reading the pre-flight results");
    report.preflight = preflights(cloud.node(0)?, &attached);
    try_traffic(&cloud, &attached, &mut report)?;
    if options.keep {
        return kept::leave(&options.work_dir, &cloud, &attached).map(|()| report);
    }
    step(8, "releasing the Pods");
    report.release = release_all(cloud.node(0)?, &attached)?;
    step(9, "looking for leaks");
    let pods: Vec<_> = attached.iter().map(|a| &a.pod).collect();
    report.leaks = leaks::find(&cloud, &pods)?;
    Ok(report)
}

fn step(number: usize, what: &str) {
    term::progress(&format!("[{number:>2}/{STEPS}] {what}"));
}

fn kernel() -> Result<String> {
    let text =
        fs::read_to_string("/proc/sys/kernel/osrelease").context("read the kernel release")?;
    Ok(text.trim().to_owned())
}

fn attach_all(cloud: &Cloud) -> Result<Vec<Attached>> {
    let node = cloud.node(0)?;
    PODS.iter()
        .map(|(name, stack)| attach(cloud, node, name, *stack))
        .collect()
}

fn attach(cloud: &Cloud, node: &Node, name: &str, stack: Stack) -> Result<Attached> {
    let pod = cloud.pod(name)?;
    let (result, outcome) = pod.attach(node, &node.conf(stack))?;
    let sub_eni = result
        .sub_eni
        .as_ref()
        .with_context(|| format!("the result for {name} names no sub-ENI"))?;
    let address = |v4: bool| {
        let found = result
            .ips
            .iter()
            .find(|ip| ip.address.addr().is_ipv4() == v4);
        found.map(|ip| ip.address.addr().to_string())
    };
    let ipv4 = address(true);
    let row = PodRow {
        name: pod.object_name(),
        node: node.plan.name.clone(),
        mode: "eni-vlan".to_owned(),
        path: path_of(node, ipv4.as_deref())?,
        ipv6: address(false),
        ipv4,
        mac: sub_eni.mac.to_string(),
        vlan: sub_eni.vlan.get(),
        attach_ms: milliseconds(outcome.elapsed),
    };
    Ok(Attached { pod, stack, row })
}

fn milliseconds(elapsed: std::time::Duration) -> f64 {
    elapsed.as_secs_f64() * 1000.0
}

/// How the address came about, from the shape of the pool that records it.
fn path_of(node: &Node, ipv4: Option<&str>) -> Result<String> {
    let ipv4 = ipv4.context("a Pod without IPv4 address")?.parse()?;
    let pool = node.api()?.pool(&node.plan.sub_eni(ipv4)?.pool)?;
    let marked = pool
        .pointer("/metadata/annotations")
        .and_then(Value::as_object)
        .is_some_and(|all| all.contains_key("ipam.spidernet.io/iaas-provider"));
    let nodes = pool.pointer("/spec/nodeName").and_then(Value::as_array);
    let path = match (marked, nodes.map_or(0, Vec::len)) {
        (false, _) => "plain",
        (true, 1) => "prewarm",
        (true, _) => "global",
    };
    Ok(path.to_owned())
}

/// From the agent's log: one line an attach, with what each family's pre-flight found.
fn preflights(node: &Node, attached: &[Attached]) -> Vec<Preflight> {
    let reports = node.attach_reports();
    let mut rows = Vec::new();
    for Attached { row, .. } in attached {
        for report in reports.iter().filter(|report| report.pod == row.name) {
            rows.extend(report.preflight.iter().map(|flight| Preflight {
                pod: row.name.clone(),
                family: if flight.family == "ipv4" { 4 } else { 6 },
                result: flight.result.clone(),
                attempts: flight.attempts,
                ms: flight.ms,
            }));
        }
    }
    rows
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

fn release_all(node: &Node, attached: &[Attached]) -> Result<Vec<Release>> {
    let mut rows = Vec::new();
    for Attached { pod, stack, row } in attached {
        let call = pod.call(node, "DEL", &node.conf(*stack));
        let outcome = node.run_one(&call)?;
        if let Err(error) = outcome.silent() {
            term::progress(&format!("release of {}: {error:#}", row.name));
        }
        rows.push(Release {
            pod: row.name.clone(),
            ok: outcome.silent().is_ok(),
            ms: milliseconds(outcome.elapsed),
        });
    }
    Ok(rows)
}

/// Whether a folder of that kind may be cleared: only one the demo made.
fn is_demo_dir(dir: &Path) -> bool {
    dir.join("topology.yaml").exists() || dir.join(kept::FILE).exists()
}
