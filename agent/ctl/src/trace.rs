//! `spiderpoolctl trace`: which pools a Pod's ADD has to choose from, why the others are refused, and
//! what was written. The agent of the Pod's node answers.

use std::error::Error;
use std::path::Path;

use spiderpool_api::endpoint::EndpointStatus;
use spiderpool_api::trace_v1::{
    HeldAttachment, HeldRecord, LastAdd, ROUTE_TRACE, TraceFamily, TraceNic, TraceReport,
};

use crate::agent_socket::ask;
use crate::find::short;
use crate::output;

/// Asks the agent.
///
/// # Errors
/// No agent, no such Pod, or a Pod of another node that nothing is known of.
pub(crate) fn ask_agent(
    socket: &Path,
    namespace: &str,
    name: &str,
) -> Result<TraceReport, Box<dyn Error>> {
    let route = format!("{ROUTE_TRACE}?podNamespace={namespace}&podName={name}");
    let report: TraceReport = ask(socket, "GET", &route)?;
    match report.error {
        Some(error) => Err(error.into()),
        None => Ok(report),
    }
}

/// The lines for a terminal.
pub(crate) fn text(pod: &str, report: &TraceReport) -> String {
    let node = match report.pod_node.as_str() {
        "" => "no node yet".to_owned(),
        node => format!("node {node}"),
    };
    let mut text = format!("Pod {pod}, UID {}, {node}\n", report.pod_uid);
    for nic in &report.nics {
        text.push_str(&nic_text(nic));
    }
    if report.nics.is_empty() {
        text.push_str(&format!(
            "candidates: ask the agent of that node; this is {}\n",
            report.node
        ));
    }
    text.push_str(&written(report));
    text
}

fn nic_text(nic: &TraceNic) -> String {
    let interface = &nic.interface;
    let mut text = match &nic.last {
        Some(last) => format!("\nNIC {interface}, last ADD {}\n", ended(last)),
        None => format!(
            "\nNIC {interface}: this agent has served no ADD of the Pod since it started; pools of the CNI configuration are not known to it\n"
        ),
    };
    if let Some(level) = &nic.level {
        text.push_str(&format!("pools are named by {level}\n"));
    }
    if !nic.families.is_empty() {
        let header = ["NIC", "FAMILY", "TRY", "POOL", "NOW"];
        text.push_str(&output::grid(&header, nic.families.iter().flat_map(rows)));
    }
    for dropped in &nic.dropped {
        text.push_str(&format!("note: {dropped}\n"));
    }
    if let Some(error) = &nic.error {
        text.push_str(&format!("an ADD fails now: {error}\n"));
    }
    text
}

fn ended(last: &LastAdd) -> String {
    let LastAdd {
        at,
        ms,
        code,
        error,
    } = last;
    match error {
        None => format!("at {at}: done in {ms} ms"),
        Some(error) => format!("at {at}: failed after {ms} ms with code {code}: {error}"),
    }
}

fn rows(family: &TraceFamily) -> Vec<Vec<String>> {
    let row = |order: String, pool: &str, verdict: String| {
        let (nic, version) = (family.nic.clone(), family.family.clone());
        vec![nic, version, order, pool.to_owned(), verdict]
    };
    let tried = family.candidates.iter().enumerate();
    let tried = tried.map(|(index, candidate)| {
        let gives: Vec<String> = candidate.gives.iter().map(ToString::to_string).collect();
        let verdict = match (&candidate.error, &candidate.path) {
            (Some(error), _) => error.clone(),
            (None, Some(path)) => format!("gives {} ({path})", gives.join(" and ")),
            (None, None) => format!("gives {}", gives.join(" and ")),
        };
        row((index + 1).to_string(), &candidate.pool, verdict)
    });
    let refused = family.refused.iter();
    let refused = refused.map(|one| row("-".to_owned(), &one.pool, one.reason.clone()));
    tried.chain(refused).collect()
}

/// What is stored: record, endpoint, attachment.
fn written(report: &TraceReport) -> String {
    let mut rows = records(report);
    rows.extend(endpoint(report));
    rows.extend(attachments(report));
    if rows.is_empty() {
        return "\nnothing is written for it\n".to_owned();
    }
    let header = ["WRITTEN", "ADDRESS", "POOL", "NIC", "NOTE"];
    format!("\n{}", output::grid(&header, rows.into_iter()))
}

fn row(source: &str, address: String, pool: &str, nic: &str, note: String) -> Vec<String> {
    vec![
        source.to_owned(),
        address,
        pool.to_owned(),
        nic.to_owned(),
        note,
    ]
}

fn records(report: &TraceReport) -> Vec<Vec<String>> {
    let one = |record: &HeldRecord| {
        let stale = record.pod_uid != report.pod_uid;
        let note = match (&record.releasing, stale) {
            (Some(mark), _) => format!("being given back {mark}"),
            (None, true) => format!("of an older Pod, UID {}", record.pod_uid),
            (None, false) => String::new(),
        };
        let (nic, address) = (record.nic.as_deref(), record.address.to_string());
        row("record", address, &record.pool, nic.unwrap_or("-"), note)
    };
    report.records.iter().map(one).collect()
}

fn endpoint(report: &TraceReport) -> Vec<Vec<String>> {
    let status = report.endpoint.clone();
    let status = status.and_then(|value| serde_json::from_value::<EndpointStatus>(value).ok());
    let Some(EndpointStatus { current, .. }) = status else {
        return Vec::new();
    };
    let mut rows = Vec::new();
    for nic in &current.ips {
        for (net, pool) in [(&nic.ipv4, &nic.ipv4_pool), (&nic.ipv6, &nic.ipv6_pool)] {
            let Some(net) = net else { continue };
            let note = match (current.uid == report.pod_uid, &nic.mac) {
                (false, _) => format!("of an older Pod, UID {}", current.uid),
                (true, Some(mac)) => format!("VLAN {}, {mac}", nic.vlan),
                (true, None) => String::new(),
            };
            let pool = pool.as_deref().unwrap_or("-");
            rows.push(row("endpoint", net.clone(), pool, &nic.interface, note));
        }
    }
    rows
}

fn attachments(report: &TraceReport) -> Vec<Vec<String>> {
    let of = |held: &HeldAttachment| {
        let sandbox = short(&held.container_id);
        let note = format!("sandbox {sandbox} since {}", held.attached_at);
        let ips = held.ips.iter();
        let rows = ips.map(|ip| {
            let address = ip.address.to_string();
            row(
                "attachment",
                address,
                &ip.pool,
                &held.interface,
                note.clone(),
            )
        });
        rows.collect::<Vec<_>>()
    };
    report.attachments.iter().flat_map(of).collect()
}
