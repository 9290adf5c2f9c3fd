//! What must be gone after the last release, and is named when it is not.

use std::collections::BTreeMap;

use anyhow::Result;
use serde_json::Value;
use spiderpool_api::names;

use super::api_client::{ENDPOINTS, PODS, records};
use super::fabric::Counts;
use super::inspect::{self, LinkState};
use super::layout::PARENT;
use super::{Cloud, Node, Pod, management, observer};

/// One line for each thing that is left of these Pods, on the nodes, in their APIs, and in the
/// cloud.
///
/// # Errors
/// Something cannot be looked at.
pub fn find(cloud: &Cloud, pods: &[&Pod]) -> Result<Vec<String>> {
    find_besides(cloud, pods, &BTreeMap::new())
}

/// The same, where so many frames were to be dropped by the fabric, by reason.
///
/// # Errors
/// As [`find`].
pub fn find_besides(
    cloud: &Cloud,
    pods: &[&Pod],
    expected: &BTreeMap<String, u64>,
) -> Result<Vec<String>> {
    let mut leaks = Vec::new();
    for pod in pods {
        pod_leaks(pod, &mut leaks)?;
    }
    for node in &cloud.nodes {
        node_leaks(node, &mut leaks)?;
        if node.role.has_api() {
            api_leaks(node, &mut leaks)?;
        }
    }
    if cloud.has_provider() {
        let found = cloud.provider()?.audit()?;
        leaks.extend(
            found
                .iter()
                .map(|line| format!("audit of the cloud: {line}")),
        );
    }
    leaks.extend(unexpected(&cloud.fabric.counts()?, expected));
    Ok(leaks)
}

/// A line for each reason the fabric dropped another number of frames for.
fn unexpected(counts: &Counts, expected: &BTreeMap<String, u64>) -> Vec<String> {
    let mut lines = Vec::new();
    for (reason, dropped) in &counts.drops {
        let expected = expected.get(reason).copied().unwrap_or(0);
        if *dropped == expected {
            continue;
        }
        let of_reason = |drop: &&Value| drop.get("reason").and_then(Value::as_str) == Some(reason);
        let recent: Vec<_> = counts.recent.iter().filter(of_reason).collect();
        let details: Vec<_> = recent.iter().map(ToString::to_string).collect();
        lines.push(format!(
            "{dropped} frames dropped by the fabric for {reason}, {expected} were to be: {}",
            details.join(" ")
        ));
    }
    lines
}

/// Links of a Pod.
fn pod_leaks(pod: &Pod, leaks: &mut Vec<String>) -> Result<()> {
    for LinkState { link, routes, .. } in inspect::links(pod.netns())? {
        let Pod { container_id, .. } = pod;
        leaks.push(format!(
            "link {} with {} routes in {container_id}",
            link.name,
            routes.len()
        ));
    }
    Ok(())
}

/// Links, routes, files and observed sub-ENIs of a node.
fn node_leaks(node: &Node, leaks: &mut Vec<String>) -> Result<()> {
    let name = &node.plan.name;
    for LinkState { link, routes, .. } in inspect::links(node.netns())? {
        if link.name == management::NIC {
            continue;
        }
        if link.name != PARENT {
            leaks.push(format!("link {} on {name}", link.name));
        }
        // The kernel itself routes fe80::/64 and ff00::/8 over every link that is up.
        for route in routes
            .iter()
            .filter(|route| !route.dst.to_string().starts_with('f'))
        {
            leaks.push(format!("route {} over {} on {name}", route.dst, link.name));
        }
    }
    for (what, dir) in [
        (
            "attachment file",
            node.run_dir().join(names::ATTACHMENTS_DIR),
        ),
        ("waiting DEL", node.spool_dir()),
    ] {
        let files = inspect::file_names(&dir)?;
        leaks.extend(files.iter().map(|file| format!("{what} {file} on {name}")));
    }
    // What its observer has is what the pinned maps have.
    for row in observer::report(node)?.subeni {
        let (nic, vlan) = (&row.nic, row.vlan);
        leaks.push(format!("map entry of {nic} VLAN {vlan} on {name}"));
    }
    Ok(())
}

/// Records and objects of a node's API.
fn api_leaks(node: &Node, leaks: &mut Vec<String>) -> Result<()> {
    let api = node.api()?;
    for pool in node.own_pools() {
        let pool = pool
            .pointer("/metadata/name")
            .and_then(Value::as_str)
            .unwrap_or_default();
        if let Value::Object(records) = records(&api.pool(pool)?)? {
            let lines = records
                .iter()
                .map(|(ip, record)| format!("record {ip} in {pool}: {record}"));
            leaks.extend(lines);
        }
    }
    for (kind, path) in [("endpoint", ENDPOINTS), ("Pod object", PODS)] {
        for object in api.list(path)? {
            let name = object.pointer("/metadata/name").unwrap_or(&Value::Null);
            leaks.push(format!("{kind} {name}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_are_leaks_unless_they_were_to_be() {
        let counts = Counts {
            dropped: 3,
            drops: [("src_ip", 2), ("src_mac", 1), ("held", 0)]
                .map(|(reason, count)| (reason.to_owned(), count))
                .into(),
            ..Counts::default()
        };
        assert_eq!(unexpected(&counts, &BTreeMap::new()).len(), 2);
        let expected = |ip| BTreeMap::from([("src_ip".to_owned(), ip), ("src_mac".to_owned(), 1)]);
        assert_eq!(unexpected(&counts, &expected(2)), Vec::<String>::new());
        let lines = unexpected(&counts, &expected(1));
        assert!(lines[0].starts_with("2 frames"), "{lines:?}");
    }
}
