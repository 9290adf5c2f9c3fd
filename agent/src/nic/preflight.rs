//! Does the fabric carry (IP, MAC, VLAN)? Asked on the bare link, before it has an address: an
//! address would make the kernel answer ARP for a binding that may be wrong. Fails closed.

use std::net::IpAddr;
use std::time::Duration;

use spiderpool_api::value::Mac;
use spiderpool_netops::netns::Netns;
use spiderpool_netops::probe::{ProbeError, run_arp, run_ndp};

use super::layer3::gateway_of;
use super::{Family, NicError, NicSpec, Preflight, PreflightReport, PreflightResult};

/// One family's way through the pre-flight.
#[derive(Debug)]
pub(super) struct Passed {
    /// What is reported.
    pub(super) report: PreflightReport,
    /// Gateway and the MAC that answered for it.
    pub(super) gateway: Option<(IpAddr, Mac)>,
}

/// Asks the gateways of both families at the same time; each that has one must answer.
pub(super) async fn validate(
    netns: &Netns,
    ifindex: u32,
    spec: &NicSpec,
    preflight: Preflight,
) -> Result<Vec<Passed>, NicError> {
    let family = |family| validate_family(netns, ifindex, spec, preflight, family);
    let (v4, v6) = tokio::join!(family(Family::V4), family(Family::V6));
    if let (Err(_), Err(also)) = (&v4, &v6) {
        tracing::warn!(ifname = %spec.ifname, error = %also, "the other family failed its validation too");
    }
    Ok([v4?, v6?].into_iter().flatten().collect())
}

/// `None`: the NIC has no address of this family.
async fn validate_family(
    netns: &Netns,
    ifindex: u32,
    spec: &NicSpec,
    preflight: Preflight,
    family: Family,
) -> Result<Option<Passed>, NicError> {
    let Some(first) = spec
        .addresses
        .iter()
        .find(|a| Family::of(a.address.addr()) == family)
    else {
        return Ok(None);
    };
    let Preflight { attempts, timeout } = preflight;
    let (mac, asked) = (spec.mac, gateway_of(&spec.addresses, family));
    let (ip, gateway, answered) = match asked {
        Some((IpAddr::V4(ip), IpAddr::V4(gw))) => (
            ip.into(),
            gw.into(),
            run_arp(netns, ifindex, mac, ip, gw, attempts, timeout).await,
        ),
        Some((IpAddr::V6(ip), IpAddr::V6(gw))) => (
            ip.into(),
            gw.into(),
            run_ndp(netns, ifindex, mac, ip, gw, attempts, timeout).await,
        ),
        _ => return Ok(Some(skipped(spec, family, first.address.addr()))),
    };
    match answered {
        Ok(reply) => {
            let report = PreflightReport {
                family,
                result: PreflightResult::Ok,
                attempts: reply.attempts,
                duration: reply.elapsed,
            };
            Ok(Some(Passed {
                report,
                gateway: Some((gateway, reply.mac)),
            }))
        }
        Err(ProbeError::Timeout { .. }) => Err(failed(spec, ip, gateway, preflight)),
        Err(source) => Err(NicError::PreflightBroken {
            gateway,
            ip,
            mac: spec.mac,
            vlan: spec.vlan,
            master: spec.master.clone(),
            source: Box::new(source),
        }),
    }
}

fn skipped(spec: &NicSpec, family: Family, ip: IpAddr) -> Passed {
    tracing::warn!(ifname = %spec.ifname, %ip, "no gateway to ask: address not validated against the fabric");
    let report = PreflightReport {
        family,
        result: PreflightResult::Skipped,
        attempts: 0,
        duration: Duration::ZERO,
    };
    Passed {
        report,
        gateway: None,
    }
}

fn failed(spec: &NicSpec, ip: IpAddr, gateway: IpAddr, preflight: Preflight) -> NicError {
    NicError::PreflightFailed {
        gateway,
        ip,
        mac: spec.mac,
        vlan: spec.vlan,
        master: spec.master.clone(),
        attempts: preflight.attempts,
        timeout: preflight.timeout,
    }
}
