//! Pings and TCP transfers of the demo. Silence is a row that says so.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::Result;
use vm_tests::lab::Cloud;
use vm_tests::lab::layout::{GATEWAY_V4, GATEWAY_V6};
use vm_tests::lab::peers;

use super::pods::Attached;
use crate::demo_report::{Ping, Tcp};
use crate::term;

const COUNT: u32 = 3;
/// The gateway's neighbour entry for a new Pod takes 48 ms and more.
const LIMIT: Duration = Duration::from_secs(2);
/// Enough segments that wrong checksums or lengths on the way show.
const BYTES: u64 = 8 * 1024 * 1024;
const GATEWAY: &str = "gateway";

/// Each Pod to the gateway, and to the next Pod, in every family both have.
pub(super) fn pings(cloud: &Cloud, attached: &[Attached]) -> Result<Vec<Ping>> {
    let mut rows = Vec::new();
    for from in attached {
        for (_, gateway) in gateways(from) {
            rows.push(ping(from, GATEWAY, gateway)?);
        }
    }
    for (from, to) in neighbours(attached) {
        for address in shared(from, to)? {
            rows.push(ping(from, &to.row.name, address)?);
        }
    }
    // The fabric must have let all of it pass.
    for drop in cloud.drops()? {
        term::progress(&format!("the fabric dropped {drop}"));
    }
    Ok(rows)
}

/// One Pod of each kind to the gateway.
pub(super) fn tcp_to_gateway(cloud: &Cloud, attached: &[Attached]) -> Result<Vec<Tcp>> {
    let mut rows = Vec::new();
    let mut families = Vec::new();
    for from in attached {
        for (family, gateway) in gateways(from) {
            if !families.contains(&family) {
                families.push(family);
                rows.push(transfer(from, GATEWAY, &cloud.gateway, gateway));
            }
        }
    }
    Ok(rows)
}

/// Each Pod to the next.
pub(super) fn tcp_between(attached: &[Attached]) -> Result<Vec<Tcp>> {
    let mut rows = Vec::new();
    for (from, to) in neighbours(attached) {
        for address in shared(from, to)? {
            rows.push(transfer(from, &to.row.name, to.pod.netns(), address));
        }
    }
    Ok(rows)
}

/// (family, gateway address) for each address of a Pod.
fn gateways(pod: &Attached) -> Vec<(u8, IpAddr)> {
    let v4 = pod.row.ipv4.as_ref().map(|_| (4, GATEWAY_V4.into()));
    let v6 = pod.row.ipv6.as_ref().map(|_| (6, GATEWAY_V6.into()));
    v4.into_iter().chain(v6).collect()
}

/// Each Pod with the one after it, the last with the first.
fn neighbours(attached: &[Attached]) -> impl Iterator<Item = (&Attached, &Attached)> {
    attached.iter().zip(attached.iter().cycle().skip(1))
}

/// Addresses of `to` in the families both have.
fn shared(from: &Attached, to: &Attached) -> Result<Vec<IpAddr>> {
    let pairs = [
        (&from.row.ipv4, &to.row.ipv4),
        (&from.row.ipv6, &to.row.ipv6),
    ];
    pairs
        .into_iter()
        .filter_map(|(own, other)| own.as_ref().and(other.as_ref()))
        .map(|address| Ok(address.parse()?))
        .collect()
}

fn family(address: IpAddr) -> u8 {
    if address.is_ipv4() { 4 } else { 6 }
}

fn ping(from: &Attached, name: &str, to: IpAddr) -> Result<Ping> {
    let mut row = Ping {
        from: from.row.name.clone(),
        to: name.to_owned(),
        family: family(to),
        ..Ping::default()
    };
    match peers::ping(from.pod.netns(), to, COUNT, LIMIT) {
        Ok(ping) => {
            row.ok = ping.complete();
            row.ms = ping.ms;
        }
        Err(error) => term::progress(&format!("{error:#}")),
    }
    Ok(row)
}

fn transfer(from: &Attached, name: &str, server: &vm_tests::lab::Netns, to: IpAddr) -> Tcp {
    let mut row = Tcp {
        from: from.row.name.clone(),
        to: name.to_owned(),
        family: family(to),
        ..Tcp::default()
    };
    match peers::tcp_echo(from.pod.netns(), server, to, BYTES) {
        Ok(transfer) => {
            row.ok = true;
            row.bytes = transfer.bytes;
            row.ms = transfer.ms;
        }
        Err(error) => term::progress(&format!("{error:#}")),
    }
    row
}
