//! Sysctls, addresses, routes and announcements of the NIC. The plan of routes is pure.

use std::net::IpAddr;

use ipnet::IpNet;
use spiderpool_netops::netns::Netns;
use spiderpool_netops::probe::{announce_arp, announce_ndp};
use spiderpool_netops::rtnl::{Link, Route, Rtnl};
use spiderpool_netops::sysctl::{Absent, Setting, SysctlKey, Sysctls};

use super::{Family, NicAddress, NicError, NicRoute, NicSpec};
use crate::failpoint::add_step;

/// What a link gets before it is up: no IPv6 frame may leave it before the pre-flight, no router
/// may configure it, and it must answer ARP for its own addresses only (two NICs in one subnet).
pub(super) async fn harden(sysctls: &Sysctls, netns: &Netns, link: &str) -> Result<(), NicError> {
    let setting = |key, value, absent| Setting { key, value, absent };
    let settings = vec![
        setting(
            SysctlKey::ipv6_conf(link, "disable_ipv6"),
            "1",
            Absent::Fine,
        ),
        setting(SysctlKey::ipv6_conf(link, "accept_ra"), "0", Absent::Fine),
        setting(SysctlKey::ipv4_conf(link, "arp_ignore"), "1", Absent::Error),
        setting(
            SysctlKey::ipv4_conf(link, "arp_announce"),
            "2",
            Absent::Error,
        ),
    ];
    let failed = |source| NicError::Sysctl {
        doing: "preparing the new link",
        source,
    };
    sysctls.write(netns, settings).await.map_err(failed)
}

/// Lets IPv6 run on a link that gets an IPv6 address, and keeps the address over a link down.
async fn allow_ipv6(sysctls: &Sysctls, netns: &Netns, link: &str) -> Result<(), NicError> {
    let setting = |link, name, value, absent| Setting {
        key: SysctlKey::ipv6_conf(link, name),
        value,
        absent,
    };
    let settings = vec![
        setting("lo", "disable_ipv6", "0", Absent::Error),
        setting(link, "disable_ipv6", "0", Absent::Error),
        setting(link, "keep_addr_on_down", "1", Absent::Fine),
    ];
    let failed = |source| NicError::Sysctl {
        doing: "enabling IPv6 for its IPv6 address",
        source,
    };
    sysctls.write(netns, settings).await.map_err(failed)
}

/// Adds addresses and routes.
pub(super) async fn configure(
    sysctls: &Sysctls,
    netns: &Netns,
    pod: &Rtnl,
    link: &Link,
    spec: &NicSpec,
) -> Result<(), NicError> {
    if spec
        .addresses
        .iter()
        .any(|a| matches!(a.address, IpNet::V6(_)))
    {
        allow_ipv6(sysctls, netns, &link.name).await?;
    }
    for NicAddress { address, .. } in &spec.addresses {
        let failed = |source| NicError::Netlink {
            doing: "adding an address",
            source,
        };
        add_step!(Address, pod.add_address(link.ifindex, *address)).map_err(failed)?;
    }
    for route in plan_routes(&spec.addresses, &spec.routes, link.ifindex) {
        let failed = |source| NicError::Netlink {
            doing: "adding a route",
            source,
        };
        add_step!(Route, pod.add_route(&route)).map_err(failed)?;
    }
    Ok(())
}

/// Tells the neighbours; a failure costs a second of ARP at most and is only logged.
pub(super) async fn announce(netns: &Netns, link: &Link, spec: &NicSpec) {
    for NicAddress { address, .. } in &spec.addresses {
        let sent = match address.addr() {
            IpAddr::V4(ip) => announce_arp(netns, link.ifindex, spec.mac, ip).await,
            IpAddr::V6(ip) => announce_ndp(netns, link.ifindex, spec.mac, ip).await,
        };
        if let Err(error) = sent {
            tracing::warn!(ifname = %link.name, %address, %error, "address not announced; neighbours learn it later");
        }
    }
}

/// The routes in the order the kernel accepts them: a next hop outside the NIC's subnets needs a
/// host route on the link first.
pub(super) fn plan_routes(
    addresses: &[NicAddress],
    routes: &[NicRoute],
    ifindex: u32,
) -> Vec<Route> {
    let mut plan: Vec<Route> = Vec::new();
    for NicRoute { dst, gw } in routes {
        let gateway = gw
            .or_else(|| gateway_of(addresses, Family::of(dst.addr())).map(|(_, gateway)| gateway));
        if let Some(hop) = gateway.filter(|hop| !is_on_link(addresses, *hop)) {
            let host = Route {
                dst: IpNet::from(hop),
                gateway: None,
                ifindex,
            };
            if !plan.contains(&host) {
                plan.push(host);
            }
        }
        plan.push(Route {
            dst: dst.trunc(),
            gateway,
            ifindex,
        });
    }
    plan
}

/// Address and gateway of a family: of the first address that has one.
pub(super) fn gateway_of(addresses: &[NicAddress], family: Family) -> Option<(IpAddr, IpAddr)> {
    addresses
        .iter()
        .filter(|a| Family::of(a.address.addr()) == family)
        .find_map(|a| Some((a.address.addr(), a.gateway?)))
        .filter(|(_, gateway)| Family::of(*gateway) == family)
}

fn is_on_link(addresses: &[NicAddress], hop: IpAddr) -> bool {
    let link_local = matches!(hop, IpAddr::V6(ip) if ip.is_unicast_link_local());
    link_local || addresses.iter().any(|a| a.address.contains(&hop))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str, gateway: Option<&str>) -> NicAddress {
        NicAddress {
            address: text.parse().unwrap(),
            gateway: gateway.map(|g| g.parse().unwrap()),
        }
    }

    fn route(dst: &str, gw: Option<&str>) -> NicRoute {
        NicRoute {
            dst: dst.parse().unwrap(),
            gw: gw.map(|g| g.parse().unwrap()),
        }
    }

    fn plan(addresses: &[NicAddress], routes: &[NicRoute]) -> Vec<String> {
        let text = |r: Route| match r.gateway {
            Some(gateway) => format!("{} via {gateway}", r.dst),
            None => r.dst.to_string(),
        };
        plan_routes(addresses, routes, 7)
            .into_iter()
            .map(text)
            .collect()
    }

    #[test]
    fn missing_gateways_are_the_familys() {
        let addresses = [
            address("10.71.0.10/24", Some("10.71.0.1")),
            address("fd71::a/64", Some("fd71::1")),
        ];
        let routes = [
            route("0.0.0.0/0", None),
            route("::/0", None),
            route("10.9.1.1/16", Some("10.71.0.2")),
        ];
        let wanted = [
            "0.0.0.0/0 via 10.71.0.1",
            "::/0 via fd71::1",
            "10.9.0.0/16 via 10.71.0.2",
        ];
        assert_eq!(plan(&addresses, &routes), wanted);
    }

    #[test]
    fn gateways_off_the_subnet_get_one_host_route_first() {
        let addresses = [
            address("10.71.0.10/32", Some("169.254.1.1")),
            address("fd71::a/128", Some("fd72::1")),
        ];
        let routes = [
            route("0.0.0.0/0", None),
            route("10.0.0.0/8", None),
            route("::/0", None),
        ];
        let wanted = [
            "169.254.1.1/32",
            "0.0.0.0/0 via 169.254.1.1",
            "10.0.0.0/8 via 169.254.1.1",
            "fd72::1/128",
            "::/0 via fd72::1",
        ];
        assert_eq!(plan(&addresses, &routes), wanted);
    }

    #[test]
    fn without_a_gateway_a_route_is_on_link_and_link_local_hops_always_are() {
        let addresses = [
            address("10.71.0.10/24", None),
            address("fd71::a/64", Some("fe80::1")),
        ];
        let routes = [route("10.80.0.0/16", None), route("::/0", None)];
        assert_eq!(
            plan(&addresses, &routes),
            ["10.80.0.0/16", "::/0 via fe80::1"]
        );
    }
}
