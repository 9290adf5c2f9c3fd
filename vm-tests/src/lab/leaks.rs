//! What must be gone after the last release, and is named when it is not.

use anyhow::Result;
use serde_json::Value;

use super::api_client::{ENDPOINTS, PODS, records};
use super::inspect::{self, LinkState};
use super::layout::PARENT;
use super::{Cloud, Node, Pod};

/// One line for each thing that is left of these Pods, on the nodes, and in their APIs.
///
/// # Errors
/// Something cannot be looked at.
pub fn find(cloud: &Cloud, pods: &[&Pod]) -> Result<Vec<String>> {
    let mut leaks = Vec::new();
    for pod in pods {
        pod_leaks(pod, &mut leaks)?;
    }
    for node in &cloud.nodes {
        node_leaks(node, &mut leaks)?;
    }
    for drop in cloud.drops()? {
        leaks.push(format!("frame dropped by the fabric: {drop}"));
    }
    Ok(leaks)
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

/// Links, routes, files, records and objects of a node.
fn node_leaks(node: &Node, leaks: &mut Vec<String>) -> Result<()> {
    let name = &node.plan.name;
    for LinkState { link, routes, .. } in inspect::links(node.netns())? {
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
    let files = node.attachments()?;
    leaks.extend(
        files
            .iter()
            .map(|file| format!("attachment file {file} on {name}")),
    );
    let api = node.api()?;
    for pool in node.plan.pools() {
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
