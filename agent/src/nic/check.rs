//! CNI CHECK of a NIC: the kernel's state against what was attached. Reads only.

use std::fmt::Display;

use spiderpool_netops::rtnl::{Link, LinkKind, Route};

use super::layer3::plan_routes;
use super::sandbox::Sandbox;
use super::{NicError, NicSpec};

/// Compares everything and names every difference.
pub(super) async fn compare(sandbox: &Sandbox<'_>, spec: &NicSpec) -> Result<(), NicError> {
    let mut differences = Vec::new();
    match sandbox.link(spec.ifname.as_str()).await? {
        None => differences.push("it does not exist".to_owned()),
        Some(link) => {
            compare_link(spec, &link, &mut differences);
            compare_parent(sandbox, spec, &link, &mut differences).await?;
            compare_layer3(sandbox, spec, &link, &mut differences).await?;
        }
    }
    if differences.is_empty() {
        return Ok(());
    }
    Err(NicError::Drift {
        ifname: spec.ifname.clone(),
        netns: spec.netns.clone(),
        differences,
    })
}

fn compare_link(spec: &NicSpec, link: &Link, differences: &mut Vec<String>) {
    if link.kind != LinkKind::Vlan {
        differences.push(format!("it is a {} link, not vlan", kind(link)));
        return;
    }
    if link.vlan != Some(spec.vlan) {
        differences.push(format!("VLAN id is {}, not {}", text(link.vlan), spec.vlan));
    }
    if link.mac != Some(spec.mac) {
        differences.push(format!("MAC is {}, not {}", text(link.mac), spec.mac));
    }
    if !link.up {
        differences.push("it is down".to_owned());
    }
}

fn text(value: Option<impl Display>) -> String {
    value.map_or_else(|| "none".to_owned(), |value| value.to_string())
}

fn kind(link: &Link) -> &str {
    match &link.kind {
        LinkKind::Device => "device",
        LinkKind::Vlan => "vlan",
        LinkKind::Other(kind) => kind,
    }
}

async fn compare_parent(
    sandbox: &Sandbox<'_>,
    spec: &NicSpec,
    link: &Link,
    differences: &mut Vec<String>,
) -> Result<(), NicError> {
    let failed = |source| NicError::Netlink {
        doing: "looking at the master",
        source,
    };
    let Some(master) = sandbox
        .host
        .link_by_name(spec.master.as_str())
        .await
        .map_err(failed)?
    else {
        differences.push(format!("master {} does not exist", spec.master));
        return Ok(());
    };
    if !sandbox.is_under(link, master.ifindex).await? {
        differences.push(format!("parent is not {}", spec.master));
    }
    let mtu = spec.mtu.filter(|mtu| *mtu != 0).unwrap_or(master.mtu);
    if link.mtu != mtu {
        differences.push(format!("MTU is {}, not {mtu}", link.mtu));
    }
    Ok(())
}

async fn compare_layer3(
    sandbox: &Sandbox<'_>,
    spec: &NicSpec,
    link: &Link,
    differences: &mut Vec<String>,
) -> Result<(), NicError> {
    let failed = |source| NicError::Netlink {
        doing: "listing the NIC's addresses",
        source,
    };
    let present = sandbox.pod.addresses(link.ifindex).await.map_err(failed)?;
    for wanted in spec.addresses.iter().map(|a| a.address) {
        if !present.iter().any(|a| a.address == wanted) {
            differences.push(format!("address {wanted} is missing"));
        }
    }
    let failed = |source| NicError::Netlink {
        doing: "listing the NIC's routes",
        source,
    };
    let present = sandbox.pod.routes(link.ifindex).await.map_err(failed)?;
    for wanted in plan_routes(&spec.addresses, &spec.routes, link.ifindex) {
        if !present.contains(&wanted) {
            differences.push(format!("route {} is missing", describe(&wanted)));
        }
    }
    Ok(())
}

fn describe(route: &Route) -> String {
    match route.gateway {
        Some(gateway) => format!("{} via {gateway}", route.dst),
        None => route.dst.to_string(),
    }
}
