//! SpiderCoordinator, and the same fields inside a SpiderMultusConfig (spec api 3.5).

use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::{Map, Value, json};
use spiderpool_api::coordinator::SpiderCoordinatorSpec;
use spiderpool_api::ippool::Route;

use super::object::{is_terminating, may_still_change, name, spec};
use super::{FieldError, FieldErrorKind, Refusal, stop};
use crate::range::Family;

/// Fills in what is absent.
pub(super) fn defaults(spec: &mut Map<String, Value>) {
    for (key, value) in [
        ("mode", json!("auto")),
        ("tunePodRoutes", json!(true)),
        ("hostRuleTable", json!(500)),
        ("podRPFilter", json!(0)),
        ("txQueueLen", json!(0)),
        ("vethLinkAddress", json!("")),
        ("vethMTU", json!(1500)),
    ] {
        super::mutation::fill(spec, key, value);
    }
}

/// Addresses become networks of one host. What is neither is left for the judge.
pub(super) fn networks(spec: &mut Map<String, Value>) {
    let hijacked = spec.get_mut("hijackCIDR").and_then(Value::as_array_mut);
    for item in hijacked.into_iter().flatten() {
        widen(item);
    }
    let routes = spec.get_mut("policyRoutes").and_then(Value::as_array_mut);
    for route in routes.into_iter().flatten() {
        if let Some(dst) = route.get_mut("dst") {
            widen(dst);
        }
    }
}

fn widen(item: &mut Value) {
    let address = item.as_str().and_then(|text| text.parse::<IpAddr>().ok());
    if let Some(address) = address {
        *item = json!(IpNet::from(address).to_string());
    }
}

pub(super) fn create(new: &Value) -> Result<(), Refusal> {
    let read: SpiderCoordinatorSpec = spec(new).map_err(stop)?;
    if read.pod_cidr_type.is_none() {
        return Err(stop(FieldError::new(
            FieldErrorKind::Required,
            "spec.podCIDRType",
            Value::Null,
            "give auto, cluster, calico, cilium or none",
        )));
    }
    judge(&read, "spec").map_err(stop)
}

pub(super) fn update(new: &Value, old: &Value) -> Result<(), Refusal> {
    if !is_terminating(old) {
        return create(new);
    }
    if may_still_change(new, old) {
        Ok(())
    } else {
        Err(Refusal::Forbidden(format!(
            "SpiderCoordinator {} is terminating and cannot be changed any more",
            name(old)
        )))
    }
}

/// The first thing wrong.
pub(super) fn judge(spec: &SpiderCoordinatorSpec, at: &str) -> Result<(), FieldError> {
    for (index, text) in spec.hijack_cidr.iter().flatten().enumerate() {
        if network(text).is_none() {
            let field = format!("{at}.hijackCIDR[{index}]");
            return Err(FieldError::invalid(
                &field,
                text.as_str(),
                "is neither an address nor a CIDR",
            ));
        }
    }
    for (index, route) in spec.policy_routes.iter().flatten().enumerate() {
        policy_route(route, &format!("{at}.policyRoutes[{index}]"))?;
    }
    let prefix = spec.pod_mac_prefix.as_deref().unwrap_or_default();
    if !prefix.is_empty() && !is_mac_prefix(prefix) {
        let message = "is not two bytes such as 0a:1b with an even first one";
        return Err(FieldError::invalid(
            &format!("{at}.podMACPrefix"),
            prefix,
            message,
        ));
    }
    numbers(spec, at)
}

fn numbers(spec: &SpiderCoordinatorSpec, at: &str) -> Result<(), FieldError> {
    let wrong = |key: &str, value: i64, message: &str| {
        Err(FieldError::invalid(&format!("{at}.{key}"), value, message))
    };
    match spec.tx_queue_len {
        Some(length) if length < 0 => {
            return wrong(
                "txQueueLen",
                length,
                "must not be negative; 0 leaves it alone",
            );
        }
        _ => {}
    }
    match spec.pod_rp_filter {
        None => {
            return Err(FieldError::new(
                FieldErrorKind::Required,
                &format!("{at}.podRPFilter"),
                Value::Null,
                "give 0, 1 or 2, or a negative number to leave it alone",
            ));
        }
        Some(filter) if filter > 2 => {
            return wrong("podRPFilter", filter, "must be 0, 1 or 2, or negative");
        }
        Some(_) => {}
    }
    let link = spec.veth_link_address.as_deref().unwrap_or_default();
    if !link.is_empty() && link.parse::<IpAddr>().is_err() {
        let field = format!("{at}.vethLinkAddress");
        return Err(FieldError::invalid(&field, link, "is not an IP address"));
    }
    match spec.veth_mtu {
        Some(mtu) if mtu < 1 => wrong("vethMTU", mtu, "must be at least 1"),
        _ => Ok(()),
    }
}

/// An address, or a CIDR.
fn network(text: &str) -> Option<IpNet> {
    let address = || text.parse::<IpAddr>().ok().map(IpNet::from);
    text.parse::<IpNet>().ok().or_else(address)
}

fn policy_route(route: &Route, field: &str) -> Result<(), FieldError> {
    let Some(dst) = network(&route.dst) else {
        return Err(FieldError::invalid(
            &format!("{field}.dst"),
            route.dst.as_str(),
            "is neither an address nor a CIDR",
        ));
    };
    let family = Family::of_net(dst);
    let gateway = route.gw.parse::<IpAddr>().ok();
    if gateway.is_none_or(|gateway| Family::of_net(IpNet::from(gateway)) != family) {
        let message = format!("is not an {family} address, like dst");
        return Err(FieldError::invalid(
            &format!("{field}.gw"),
            route.gw.as_str(),
            message,
        ));
    }
    Ok(())
}

/// Two bytes in hexadecimal; an odd first one is a group address.
fn is_mac_prefix(text: &str) -> bool {
    let byte = |part: &str| {
        let two = part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_hexdigit());
        two.then(|| u8::from_str_radix(part, 16).ok()).flatten()
    };
    let (first, second) = text.split_once(':').unwrap_or_default();
    byte(first).is_some_and(|first| first % 2 == 0) && byte(second).is_some()
}
