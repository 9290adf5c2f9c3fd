//! `spiderpoolctl subeni …`: what the agent of this node counts on its parent NICs, and whether
//! Pods send what the cloud expects of them (spec dataplane 5.7). Owns these verbs, their exit
//! codes and rows.

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use spiderpool_api::names;
use spiderpool_api::observer_v1::{
    Counters, DetachReport, Finding, ObserverReport, ROUTE_DETACH, ROUTE_SUBENI, ROUTE_VERIFY,
    SubEniReport, UnknownReport, Verdict, VerifyReport,
};
use spiderpool_api::value::IfName;

use crate::agent_socket::ask;
use crate::output::print;
use crate::{Form, output};

/// A verification that could not be made.
const CANNOT_TELL: u8 = 2;

/// What the verbs share, and the verb.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes:
  0  done; verify: every frame was what the cloud expects
  1  failed; verify: some were not
  2  the command line is wrong; verify: cannot tell")]
pub(crate) struct SubEniArgs {
    #[command(subcommand)]
    verb: Verb,
    /// Socket of the agent of this node
    #[arg(long, global = true, value_name = "FILE", env = names::ENV_SOCKET, default_value = names::DEFAULT_SOCKET)]
    socket: PathBuf,
    /// Only sub-ENIs on this parent NIC
    #[arg(long, global = true, value_name = "NAME")]
    nic: Option<IfName>,
    /// Only the sub-ENIs of this Pod
    #[arg(long, global = true, value_name = "NAMESPACE/NAME")]
    pod: Option<String>,
    /// Form of the output
    #[arg(short, long, global = true, value_enum, default_value_t = Form::Table)]
    output: Form,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List the sub-ENIs of this node with their Pods
    List,
    /// Show frames, bytes and faults, counted since the observer was attached
    #[command(after_help = "Rows besides the sub-ENIs':
  *unknown    frames with a tag that no sub-ENI has
  *untagged   frames without a tag

Seen from the Pod: TX is what it sends. With GRO and GSO one frame stands for
many packets.")]
    Stats {
        /// Show them again after this time, until interrupted: 1s, 500ms, 2m
        #[arg(long, value_name = "DURATION", value_parser = duration)]
        watch: Option<Duration>,
    },
    /// Tell whether Pods send what the cloud expects of them
    Verify,
    /// Take the observer's programs off all NICs; they come back when the agent is started again
    Detach,
}

/// Runs a verb.
///
/// # Errors
/// The agent cannot be asked, or standard output is gone.
pub(crate) fn run(args: &SubEniArgs) -> Result<ExitCode, Box<dyn Error>> {
    match &args.verb {
        Verb::List => {
            let report = observed(args)?;
            let text = match args.output {
                Form::Json => output::pretty(&rows_json(&report.subeni, list_json))?,
                form => list_table(&report, form),
            };
            print(&text)?;
            Ok(ExitCode::SUCCESS)
        }
        Verb::Stats { watch } => stats(args, *watch),
        Verb::Verify => verify(args),
        Verb::Detach => detach(args),
    }
}

/// The report, as far as the filters let it through.
fn observed(args: &SubEniArgs) -> Result<ObserverReport, Box<dyn Error>> {
    let mut report: ObserverReport = ask(&args.socket, "GET", ROUTE_SUBENI)?;
    if let Some(error) = &report.error {
        return Err(error.clone().into());
    }
    report
        .subeni
        .retain(|row| fits(args, &row.nic, Some((&row.pod_namespace, &row.pod_name))));
    report.unknown.retain(|row| fits(args, &row.nic, None));
    report.nics.retain(|row| fits(args, &row.nic, None));
    Ok(report)
}

fn fits(args: &SubEniArgs, nic: &IfName, pod: Option<(&String, &String)>) -> bool {
    args.nic.as_ref().is_none_or(|wanted| wanted == nic)
        && args.pod.as_ref().is_none_or(|wanted| {
            pod.is_some_and(|(namespace, name)| *wanted == format!("{namespace}/{name}"))
        })
}

fn list_table(report: &ObserverReport, form: Form) -> String {
    let wide = form == Form::Wide;
    let mut header = vec![
        "NIC", "VLAN", "MAC", "IPV4", "IPV6", "POD", "IF", "STATE", "POOL",
    ];
    if wide {
        header.push("ATTACH");
    }
    let rows = report.subeni.iter().map(|row| {
        let mut cells = vec![
            row.nic.to_string(),
            row.vlan.to_string(),
            row.mac.to_string(),
            or_dash(row.ipv4),
            or_dash(row.ipv6),
            pod(row),
            row.interface.to_string(),
            row.state.clone(),
            row.pool.clone(),
        ];
        if wide {
            let nic = report.nics.iter().find(|nic| nic.nic == row.nic);
            cells.push(or_dash(nic.map(|nic| nic.attach.as_str())));
        }
        cells
    });
    output::grid(&header, rows)
}

fn rows_json<T>(rows: &[T], row: fn(&T) -> Value) -> Vec<Value> {
    rows.iter().map(row).collect()
}

fn list_json(row: &SubEniReport) -> Value {
    json!({
        "nic": row.nic, "vlan": row.vlan, "mac": row.mac, "ipv4": row.ipv4, "ipv6": row.ipv6,
        "interface": row.interface, "pod_namespace": row.pod_namespace, "pod_name": row.pod_name,
        "state": row.state, "pool": row.pool,
    })
}

fn stats(args: &SubEniArgs, watch: Option<Duration>) -> Result<ExitCode, Box<dyn Error>> {
    loop {
        let report = observed(args)?;
        let text = match (args.output, watch) {
            (Form::Json, None) => output::pretty(&stats_json(&report))?,
            // One line a time, for whoever reads along.
            (Form::Json, Some(_)) => format!("{}\n", Value::from(stats_json(&report))),
            _ => stats_table(&report),
        };
        if !print(&text)? {
            return Ok(ExitCode::SUCCESS);
        }
        let Some(period) = watch else {
            return Ok(ExitCode::SUCCESS);
        };
        if args.output != Form::Json && !print("\n")? {
            return Ok(ExitCode::SUCCESS);
        }
        std::thread::sleep(period);
    }
}

fn stats_table(report: &ObserverReport) -> String {
    let header = [
        "NIC", "VLAN", "POD", "RX-PKTS", "RX-BYTES", "TX-PKTS", "TX-BYTES", "DROPS", "MISMATCH",
    ];
    let mut rows: Vec<Vec<String>> = Vec::new();
    for row in &report.subeni {
        let mismatch: u64 = row.mismatch.values().sum();
        let pod = pod(row);
        let tail = (row.drops.to_string(), mismatch.to_string());
        rows.push(stats_row(
            row.nic.as_str(),
            &row.vlan.to_string(),
            &pod,
            &row.counters,
            tail,
        ));
    }
    for nic in &report.nics {
        let (unknown, seen) = unknown_of(report, &nic.nic);
        if seen > 0 {
            let tail = ("-".to_owned(), seen.to_string());
            rows.push(stats_row(nic.nic.as_str(), "*unknown", "", &unknown, tail));
        }
        let tail = ("-".to_owned(), "-".to_owned());
        rows.push(stats_row(
            nic.nic.as_str(),
            "*untagged",
            "",
            &nic.untagged,
            tail,
        ));
    }
    output::grid(&header, rows.into_iter())
}

fn stats_row(
    nic: &str,
    vlan: &str,
    pod: &str,
    counters: &Counters,
    (drops, mismatch): (String, String),
) -> Vec<String> {
    vec![
        nic.to_owned(),
        vlan.to_owned(),
        pod.to_owned(),
        counters.rx_packets.to_string(),
        counters.rx_bytes.to_string(),
        counters.tx_packets.to_string(),
        counters.tx_bytes.to_string(),
        drops,
        mismatch,
    ]
}

/// Sum over the VLANs of a NIC that no sub-ENI has, and packets in all.
fn unknown_of(report: &ObserverReport, nic: &IfName) -> (Counters, u64) {
    let mut sum = Counters::default();
    for seen in report.unknown.iter().filter(|seen| seen.nic == *nic) {
        if seen.direction == "rx" {
            sum.rx_packets += seen.packets;
            sum.rx_bytes += seen.bytes;
        } else {
            sum.tx_packets += seen.packets;
            sum.tx_bytes += seen.bytes;
        }
    }
    (sum, sum.rx_packets + sum.tx_packets)
}

/// Rows of sub-ENIs have a Pod, those of unknown VLANs a direction, those of a NIC neither.
fn stats_json(report: &ObserverReport) -> Vec<Value> {
    let mut rows = rows_json(&report.subeni, |row| {
        json!({
            "nic": row.nic, "vlan": row.vlan, "interface": row.interface,
            "pod_namespace": row.pod_namespace, "pod_name": row.pod_name,
            "rx_frames": row.counters.rx_frames, "rx_packets": row.counters.rx_packets,
            "rx_bytes": row.counters.rx_bytes, "tx_frames": row.counters.tx_frames,
            "tx_packets": row.counters.tx_packets, "tx_bytes": row.counters.tx_bytes,
            "drops": row.drops, "dropped": row.dropped, "mismatch": row.mismatch,
            "neighbor": row.neighbor,
        })
    });
    rows.extend(rows_json(&report.unknown, |row: &UnknownReport| {
        json!({"nic": row.nic, "vlan": row.vlan, "unknown": true, "direction": row.direction,
            "packets": row.packets, "bytes": row.bytes, "last_mac": row.last_mac})
    }));
    rows.extend(rows_json(&report.nics, |row| {
        json!({"nic": row.nic, "vlan": null, "untagged": true, "attach": row.attach,
            "rx_packets": row.untagged.rx_packets, "rx_bytes": row.untagged.rx_bytes,
            "tx_packets": row.untagged.tx_packets, "tx_bytes": row.untagged.tx_bytes})
    }));
    rows
}

/// A verdict by exit code: 2 also when the agent cannot be asked.
fn verify(args: &SubEniArgs) -> Result<ExitCode, Box<dyn Error>> {
    let report: Result<VerifyReport, _> = ask(&args.socket, "GET", ROUTE_VERIFY);
    let mut report = match report {
        Ok(report) => report,
        Err(error) => {
            crate::complain("error", &crate::one_line(&error));
            return Ok(CANNOT_TELL.into());
        }
    };
    report.findings.retain(|found| {
        let pod = found.pod_namespace.as_ref().zip(found.pod_name.as_ref());
        fits(args, &found.nic, pod)
    });
    if report.result == Verdict::Unknown {
        let why = report.error.as_deref().unwrap_or("nothing is observed");
        crate::complain("error", why);
        return Ok(CANNOT_TELL.into());
    }
    let text = match args.output {
        Form::Json => output::pretty(&serde_json::to_value(&report.findings)?)?,
        _ => verify_table(&report.findings),
    };
    print(&text)?;
    Ok(ExitCode::from(u8::from(!report.findings.is_empty())))
}

fn verify_table(findings: &[Finding]) -> String {
    let header = [
        "NIC", "VLAN", "POD", "CHECK", "EXPECTED", "OBSERVED", "COUNT", "LAST",
    ];
    let rows = findings.iter().map(|found| {
        let pod = found.pod_namespace.as_ref().zip(found.pod_name.as_ref());
        vec![
            found.nic.to_string(),
            found.vlan.to_string(),
            or_dash(pod.map(|(namespace, name)| format!("{namespace}/{name}"))),
            found.kind.clone(),
            or_dash(found.expected.as_ref()),
            or_dash(found.observed.as_ref()),
            found.count.to_string(),
            or_dash(found.last_seconds_ago.map(|ago| format!("{ago:.0}s ago"))),
        ]
    });
    let table = if findings.is_empty() {
        String::new()
    } else {
        output::grid(&header, rows)
    };
    // Conflicts are faults of the other side; none of the kinds is checked yet.
    let word = if findings.len() == 1 {
        "mismatch"
    } else {
        "mismatches"
    };
    format!("{table}result: {} {word}, 0 conflicts\n", findings.len())
}

fn detach(args: &SubEniArgs) -> Result<ExitCode, Box<dyn Error>> {
    let report: DetachReport = ask(&args.socket, "POST", ROUTE_DETACH)?;
    let text = match args.output {
        Form::Json => output::pretty(&serde_json::to_value(&report)?)?,
        _ => report
            .nics
            .iter()
            .map(|nic| format!("{nic} detached\n"))
            .collect(),
    };
    print(&text)?;
    for error in &report.errors {
        crate::complain("error", error);
    }
    Ok(ExitCode::from(u8::from(!report.errors.is_empty())))
}

fn pod(row: &SubEniReport) -> String {
    format!("{}/{}", row.pod_namespace, row.pod_name)
}

fn or_dash<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = text.get(digits.len()..).unwrap_or_default();
    let number: u64 = digits
        .parse()
        .map_err(|_| "expected a number and a unit, such as 1s or 500ms".to_owned())?;
    let duration = match unit {
        "ms" => Duration::from_millis(number),
        "s" | "" => Duration::from_secs(number),
        "m" => Duration::from_secs(number.saturating_mul(60)),
        _ => return Err(format!("unit {unit:?} is none of ms, s, m")),
    };
    if duration.is_zero() {
        return Err("it must be above zero".to_owned());
    }
    Ok(duration)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit_or_are_seconds() {
        for (text, millis) in [("1s", 1000), ("500ms", 500), ("2", 2000), ("1m", 60_000)] {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for bad in ["", "s", "1h", "0s", "-1s", "1.5s", "1 s"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }
}
