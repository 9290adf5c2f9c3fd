//! What the observers of the nodes saw: frames beside the Pods' own count, and forged ones.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use spiderpool_api::observer_v1::{Finding, SubEniReport};
use vm_tests::lab::forge::Forgery;
use vm_tests::lab::{Cloud, Node, observer, wait};

use super::pods::Attached;
use crate::demo_report::{Counter, Violation};
use crate::term;

/// Frames on their way have arrived, and events are read, after this.
const LIMIT: Duration = Duration::from_secs(5);

/// How the observer hangs on the parent NICs; all nodes have the same kernel.
pub(super) fn attach(cloud: &Cloud) -> Result<String> {
    let report = observer::report(cloud.node(0)?)?;
    let nic = report.nics.first().context("no NIC is observed")?;
    Ok(nic.attach.as_str().to_owned())
}

/// For each Pod both counts, once they are equal; if they do not become so, as they are.
pub(super) fn counters(cloud: &Cloud, attached: &[Attached]) -> Result<Vec<Counter>> {
    attached.iter().map(|one| counter(cloud, one)).collect()
}

fn counter(cloud: &Cloud, attached: &Attached) -> Result<Counter> {
    let node = cloud.node(attached.node)?;
    let mut row = Counter::default();
    let equal = wait::until(LIMIT, "equal counters", || {
        row = compare(node, attached)?;
        Ok(row.equal.then_some(()))
    });
    if let Err(error) = equal {
        term::progress(&format!("{}: {error:#}", attached.row.name));
    }
    Ok(row)
}

fn compare(node: &Node, attached: &Attached) -> Result<Counter> {
    let link = observer::of_link(&attached.pod)?;
    let seen = observer::of_pod(node, &attached.pod)?;
    let counted = seen.as_ref().map(|row: &SubEniReport| row.counters);
    let counted = counted.unwrap_or_default();
    Ok(Counter {
        pod: attached.row.name.clone(),
        observer: counted.rx_frames + counted.tx_frames,
        link: link.rx_frames + link.tx_frames,
        observer_bytes: counted.rx_bytes + counted.tx_bytes,
        link_bytes: observer::link_bytes(&link),
        equal: seen.is_some_and(|seen| observer::agree(&seen, &link)),
    })
}

/// Forged frames of the first Pod, with what became of each, and how many the fabric was to drop
/// for them, by reason.
pub(super) fn forge(
    cloud: &Cloud,
    attached: &[Attached],
) -> Result<(Vec<Violation>, BTreeMap<String, u64>)> {
    let forger = attached.first().context("no Pod to forge from")?;
    let mut expected = BTreeMap::new();
    let mut rows = Vec::new();
    for forgery in Forgery::ALL {
        let dropped = expected.entry(forgery.reason().to_owned()).or_insert(0);
        *dropped += 1;
        forgery.send(&forger.pod)?;
        rows.push(Violation {
            kind: forgery.kind().to_owned(),
            pod: forger.row.name.clone(),
            observed: observed(cloud.node(forger.node)?, forger, forgery)?,
            dropped_by_fabric: is_dropped(cloud, forgery, *dropped)?,
        });
    }
    Ok((rows, expected))
}

/// How often the node's observer saw such a frame of the Pod.
fn observed(node: &Node, forger: &Attached, forgery: Forgery) -> Result<u64> {
    let is_it = |found: &Finding| {
        let pod = found.pod_namespace.as_ref().zip(found.pod_name.as_ref());
        let pod = pod.map(|(namespace, name)| format!("{namespace}/{name}"));
        found.kind == forgery.kind() && pod.as_deref() == Some(forger.row.name.as_str())
    };
    let seen = wait::until(LIMIT, "the forged frame in the observer's findings", || {
        let verified = observer::ctl(node, "verify")?;
        let findings: Vec<Finding> = serde_json::from_value(verified.output)?;
        Ok(findings
            .iter()
            .find(|found| is_it(found))
            .map(|found| found.count))
    });
    Ok(seen.unwrap_or_else(|error| {
        term::progress(&format!("{}: {error:#}", forgery.kind()));
        0
    }))
}

/// Whether the fabric has dropped so many frames for this reason, and no more.
fn is_dropped(cloud: &Cloud, forgery: Forgery, wanted: u64) -> Result<bool> {
    let drops = || -> Result<u64> {
        let counts = cloud.fabric.counts()?;
        Ok(counts.drops.get(forgery.reason()).copied().unwrap_or(0))
    };
    let dropped = wait::until(LIMIT, "the fabric's drop", || {
        Ok((drops()? >= wanted).then_some(()))
    });
    Ok(dropped.is_ok() && drops()? == wanted)
}
