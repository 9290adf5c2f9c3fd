//! The observer of a node, as an operator sees it: the agent's socket and `spiderpoolctl`, beside
//! what a Pod's link counts itself.

use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use spiderpool_api::observer_v1::{ObserverReport, ROUTE_SUBENI, SubEniReport};
use spiderpool_netops::rtnl::LinkCounters;

use super::http::{Request, exchange};
use super::namespace::in_netns;
use super::node::IFNAME;
use super::{Node, Pod};

const PATIENCE: Duration = Duration::from_secs(10);
/// Length of the Ethernet header, which a VLAN link leaves out of its received bytes.
const ETHERNET_HEADER: u64 = 14;

/// How a `spiderpoolctl` call ended.
#[derive(Debug)]
pub struct CtlOutcome {
    /// Exit code.
    pub code: Option<i32>,
    /// Standard output, as JSON.
    pub output: Value,
}

/// Everything the node's observer counts.
///
/// # Errors
/// The agent does not answer, or with something else.
pub fn report(node: &Node) -> Result<ObserverReport> {
    let mut stream = UnixStream::connect(node.socket()).context("connect to the agent")?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let request = Request {
        method: "GET",
        path: ROUTE_SUBENI,
        headers: &[],
        body: &[],
    };
    let response = exchange(&mut stream, &request)?;
    ensure!(response.status == 200, "status {}", response.status);
    serde_json::from_slice(&response.body).context("report of the observer")
}

/// What the observer counted for a Pod; `None` when it has no entry.
///
/// # Errors
/// As [`report`].
pub fn of_pod(node: &Node, pod: &Pod) -> Result<Option<SubEniReport>> {
    let name = pod.object_name();
    let is_it = |row: &SubEniReport| format!("{}/{}", row.pod_namespace, row.pod_name) == name;
    Ok(report(node)?.subeni.into_iter().find(is_it))
}

/// What the Pod's own link has counted.
///
/// # Errors
/// The Pod has no such link.
pub fn of_link(pod: &Pod) -> Result<LinkCounters> {
    let counters = in_netns(pod.netns(), async |rtnl| {
        Ok(rtnl.link_counters(IFNAME).await?)
    })?;
    counters.with_context(|| format!("{} has no {IFNAME}", pod.container_id))
}

/// Whether both counted the same: frames equal, sent bytes equal, received bytes with the Ethernet
/// header that the link leaves out.
#[must_use]
pub fn agree(seen: &SubEniReport, link: &LinkCounters) -> bool {
    let counted = &seen.counters;
    counted.rx_frames == link.rx_frames
        && counted.tx_frames == link.tx_frames
        && counted.tx_bytes == link.tx_bytes
        && counted.rx_bytes + counted.tx_bytes == link_bytes(link)
}

/// Bytes of both directions, with the Ethernet headers that the link leaves out of the received.
#[must_use]
pub const fn link_bytes(link: &LinkCounters) -> u64 {
    link.rx_bytes + ETHERNET_HEADER * link.rx_frames + link.tx_bytes
}

/// `spiderpoolctl subeni VERB -o json` on the node.
///
/// # Errors
/// It cannot be started, or prints no JSON.
pub fn ctl(node: &Node, verb: &str) -> Result<CtlOutcome> {
    let mut command = Command::new(node.program("spiderpoolctl"));
    command.args(["subeni", verb, "-o", "json", "--socket"]);
    command.arg(node.socket());
    let output = command.output().context("run spiderpoolctl")?;
    let shown = String::from_utf8_lossy(&output.stderr);
    Ok(CtlOutcome {
        code: output.status.code(),
        output: serde_json::from_slice(&output.stdout)
            .with_context(|| format!("spiderpoolctl subeni {verb}: {shown}"))?,
    })
}
