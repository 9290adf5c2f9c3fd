//! The Pods of the demo: what each asks for, how it is attached, and where its address came from.

use anyhow::{Context, Result};
use vm_tests::lab::layout::Stack;
use vm_tests::lab::provider::CloudSubEni;
use vm_tests::lab::{Cloud, Pod, writes};

use super::milliseconds;
use crate::demo_report::{Pod as PodRow, Preflight, Release};
use crate::term;

/// A Pod to be.
struct Wish {
    name: &'static str,
    /// Number of its node, from 0.
    node: usize,
    stack: Stack,
    /// Node where it has run and ended before.
    ran_on: Option<usize>,
}

const fn wish(name: &'static str, node: usize, stack: Stack) -> Wish {
    Wish {
        name,
        node,
        stack,
        ran_on: None,
    }
}

/// Addresses of the global pool: as many as Pods ask for one, so that the last has to steal.
pub(super) const GLOBALS: u8 = 3;
/// Pairs of the global pair.
pub(super) const GLOBAL_PAIRS: u8 = 2;
/// The Pods, in this order.
const WISHES: [Wish; 8] = [
    wish("web-0", 0, Stack::V4),
    wish("web-1", 1, Stack::V4),
    wish("api-0", 0, Stack::Dual),
    wish("api-1", 1, Stack::Dual),
    wish("job-0", 0, Stack::Global),
    // Its sub-ENI stays with the node when it ends, and is found again.
    Wish {
        ran_on: Some(0),
        ..wish("job-1", 0, Stack::Global)
    },
    // Its sub-ENI stays with the first node, and has to move to the second.
    Wish {
        ran_on: Some(0),
        ..wish("job-2", 1, Stack::Global)
    },
    wish("db-0", 1, Stack::GlobalDual),
];

/// A Pod that was attached.
pub(super) struct Attached {
    pub(super) pod: Pod,
    /// Number of its node.
    pub(super) node: usize,
    pub(super) stack: Stack,
    pub(super) row: PodRow,
}

/// Those that run, those that have ended, and how they did.
pub(super) struct Pods {
    pub(super) running: Vec<Attached>,
    pub(super) ended: Vec<Attached>,
    pub(super) releases: Vec<Release>,
}

/// Attaches all Pods; those that are to have run before are attached and released first.
pub(super) fn attach_all(cloud: &Cloud) -> Result<Pods> {
    let mut pods = Pods {
        running: Vec::new(),
        ended: Vec::new(),
        releases: Vec::new(),
    };
    for wish in &WISHES {
        if let Some(node) = wish.ran_on {
            let sandbox = format!("{}-ended", wish.name);
            let before = attach(cloud, &Wish { node, ..*wish }, &sandbox)?;
            pods.releases.push(release(cloud, &before)?);
            pods.ended.push(before);
            // What comes next shows what the provider knows, not how quickly it publishes.
            cloud.provider()?.flush()?;
        }
        pods.running.push(attach(cloud, wish, wish.name)?);
    }
    Ok(pods)
}

fn attach(cloud: &Cloud, wish: &Wish, sandbox: &str) -> Result<Attached> {
    let node = cloud.node(wish.node)?;
    let provider = cloud.provider()?;
    let (known, calls) = (provider.sub_enis()?, provider.allocate_calls()?);
    let uid = writes::create_pod(node, wish.name)?;
    let pod = writes::sandbox(cloud, sandbox, wish.name, &uid)?;
    let (result, outcome) = pod.attach(node, &node.conf(wish.stack))?;
    let sub_eni = result
        .sub_eni
        .as_ref()
        .with_context(|| format!("the result for {} names no sub-ENI", wish.name))?;
    let address = |v4: bool| {
        let mut ips = result.ips.iter().map(|ip| ip.address.addr());
        ips.find(|ip| ip.is_ipv4() == v4)
    };
    let before = known.iter().find(|sub| sub.mac == sub_eni.mac);
    let calls = provider.allocate_calls()? - calls;
    let row = PodRow {
        name: pod.object_name(),
        node: node.plan.name.clone(),
        mode: "eni-vlan".to_owned(),
        path: path(wish.stack, calls, before).to_owned(),
        ipv4: address(true).map(|ip| ip.to_string()),
        ipv6: address(false).map(|ip| ip.to_string()),
        mac: sub_eni.mac.to_string(),
        vlan: sub_eni.vlan.get(),
        attach_ms: milliseconds(outcome.elapsed),
    };
    Ok(Attached {
        pod,
        node: wish.node,
        stack: wish.stack,
        row,
    })
}

/// How the address came about, judged by the cloud: the calls its provider got, and what it had of
/// the sub-ENI before.
fn path(stack: Stack, calls: usize, before: Option<&CloudSubEni>) -> &'static str {
    let global = matches!(stack, Stack::Global | Stack::GlobalDual);
    let phase = before.map(|sub| sub.state.phase.as_str());
    match (global, calls, phase) {
        (false, 0, Some("bound")) => "prewarm",
        (true, 0, Some("bound")) => "global-hit",
        (true, 1, None) => "global-cold",
        (true, 1, Some("unbound")) => "global-rebind",
        (true, 1, Some("bound")) => "global-steal",
        _ => "unexpected",
    }
}

/// From the agents' logs: what each family's pre-flight found.
pub(super) fn preflights(cloud: &Cloud, attached: &[Attached]) -> Result<Vec<Preflight>> {
    let mut rows = Vec::new();
    for Attached { node, row, .. } in attached {
        let reports = cloud.node(*node)?.attach_reports();
        // The last: a Pod of this name may have run there before.
        let report = reports.iter().rfind(|report| report.pod == row.name);
        let flights = report.into_iter().flat_map(|report| &report.preflight);
        rows.extend(flights.map(|flight| Preflight {
            pod: row.name.clone(),
            family: if flight.family == "ipv4" { 4 } else { 6 },
            result: flight.result.clone(),
            attempts: flight.attempts,
            ms: flight.ms,
        }));
    }
    Ok(rows)
}

/// Ends a Pod: its object, then its NIC.
pub(super) fn release(cloud: &Cloud, attached: &Attached) -> Result<Release> {
    let Attached { pod, row, .. } = attached;
    let node = cloud.node(attached.node)?;
    let ended = writes::end_pod(node, pod, &node.conf(attached.stack));
    let (ok, ms) = match ended {
        Ok(outcome) => (true, milliseconds(outcome.elapsed)),
        Err(error) => {
            term::progress(&format!("release of {}: {error:#}", row.name));
            (false, 0.0)
        }
    };
    Ok(Release {
        pod: row.name.clone(),
        ok,
        ms,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_are_told_apart_by_calls_and_what_was_there() {
        let sub = |phase: &str| {
            let sub = json!({"mac": "02:00:00:00:00:01", "pool": "p", "state": {"phase": phase}});
            Some(serde_json::from_value::<CloudSubEni>(sub).unwrap())
        };
        for (stack, calls, before, wanted) in [
            (Stack::V4, 0, sub("bound"), "prewarm"),
            (Stack::Dual, 1, sub("bound"), "unexpected"),
            (Stack::Global, 0, sub("bound"), "global-hit"),
            (Stack::Global, 0, None, "unexpected"),
            (Stack::GlobalDual, 1, None, "global-cold"),
            (Stack::Global, 1, sub("unbound"), "global-rebind"),
            (Stack::Global, 1, sub("bound"), "global-steal"),
            (Stack::Global, 2, sub("bound"), "unexpected"),
        ] {
            assert_eq!(
                path(stack, calls, before.as_ref()),
                wanted,
                "{stack:?} {calls}"
            );
        }
    }
}
