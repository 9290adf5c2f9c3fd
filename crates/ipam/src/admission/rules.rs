//! Rules of one pool by itself and against pools of overlapping networks: family, subnet, ranges,
//! gateway, routes (spec api 3.2, 1-3).

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use serde_json::{Value, json};
use spiderpool_api::ippool::Route;

use super::view::PoolView;
use super::{FieldError, FieldErrorKind, Settings};
use crate::range::{Family, IpRange, parse_list};
use crate::range_set::RangeSet;

/// How many ranges a message lists.
const LISTED: usize = 5;

/// Rule 1: the family is known, legal and enabled.
pub(super) fn family(version: Option<i64>, settings: &Settings) -> Result<Family, FieldError> {
    let field = "spec.ipVersion";
    let Some(version) = version else {
        return Err(FieldError::invalid(
            field,
            Value::Null,
            "cannot be derived: give a valid subnet or address, or set 4 or 6",
        ));
    };
    let Some(family) = Family::from_version(version) else {
        let message = "supported values: \"4\", \"6\"";
        return Err(FieldError::new(
            FieldErrorKind::NotSupported,
            field,
            json!(version),
            message,
        ));
    };
    let enabled = match family {
        Family::V4 => settings.enable_ipv4,
        Family::V6 => settings.enable_ipv6,
    };
    if enabled {
        Ok(family)
    } else {
        Err(FieldError::forbidden(
            field,
            format!("{family} is disabled in this cluster"),
        ))
    }
}

/// The family never changes.
pub(super) fn unchanged_version(new: Option<i64>, old: Option<i64>) -> Result<(), FieldError> {
    if old.is_some() && new != old {
        return Err(FieldError::forbidden("spec.ipVersion", "is immutable"));
    }
    Ok(())
}

/// The subnet, of the family and in canonical form.
pub(super) fn subnet(text: &str, family: Family) -> Result<IpNet, FieldError> {
    let wrong = |message: String| Err(FieldError::invalid("spec.subnet", text, message));
    let Ok(net) = text.parse::<IpNet>() else {
        return wrong("is not a CIDR such as 10.7.0.0/24".to_owned());
    };
    if Family::of_net(net) != family {
        return wrong(format!(
            "is not an {family} CIDR, like ipVersion {}",
            family.version()
        ));
    }
    let canonical = net.trunc().to_string();
    if canonical == text {
        Ok(net)
    } else {
        wrong(format!("is not in canonical form: write {canonical}"))
    }
}

/// Networks may be equal or apart, never partly the same.
pub(super) fn no_other_overlap(net: IpNet, others: &[Arc<PoolView>]) -> Result<(), FieldError> {
    for other in others {
        let Some(known) = other.net else {
            continue;
        };
        if known != net && (known.contains(&net) || net.contains(&known)) {
            let message = format!(
                "overlaps the different subnet {known} of IPPool {}",
                other.name
            );
            return Err(FieldError::invalid("spec.subnet", net.to_string(), message));
        }
    }
    Ok(())
}

/// What rule 3 looks at, of a pool or a subnet.
pub(super) struct Addresses<'a> {
    pub(super) ips: Option<&'a [String]>,
    pub(super) exclude: Option<&'a [String]>,
    pub(super) gateway: Option<&'a str>,
    pub(super) routes: Option<&'a [Route]>,
}

/// Rule 3: the first thing wrong with ranges, gateway and routes.
pub(super) fn addresses(
    pool: &PoolView,
    net: IpNet,
    others: &[Arc<PoolView>],
) -> Result<(), FieldError> {
    let spec = &pool.spec;
    let of = Addresses {
        ips: spec.ips.as_deref(),
        exclude: spec.exclude_ips.as_deref(),
        gateway: spec.gateway.as_deref(),
        routes: spec.routes.as_deref(),
    };
    let free = own_ranges(&of, net)?;
    apart(&free, net, others)?;
    gateway(of.gateway, net, &free)?;
    routes(of.routes.unwrap_or_default(), net)
}

/// The same of a subnet, which shares its addresses with its pools.
pub(super) fn subnet_addresses(of: &Addresses<'_>, net: IpNet) -> Result<(), FieldError> {
    let free = own_ranges(of, net)?;
    gateway(of.gateway, net, &free)?;
    routes(of.routes.unwrap_or_default(), net)
}

/// What may be given out, by legal ranges.
fn own_ranges(of: &Addresses<'_>, net: IpNet) -> Result<RangeSet, FieldError> {
    let ips = ranges("spec.ips", of.ips, net)?;
    let exclude = ranges("spec.excludeIPs", of.exclude, net)?;
    disjoint(&ips)?;
    let exclude = exclude.into_iter().collect();
    Ok(ips.into_iter().collect::<RangeSet>().subtract(&exclude))
}

fn ranges(field: &str, texts: Option<&[String]>, net: IpNet) -> Result<Vec<IpRange>, FieldError> {
    let texts = texts.unwrap_or_default();
    let parsed = parse_list(texts)
        .map_err(|error| FieldError::invalid(field, json!(texts), error.to_string()))?;
    let whole: RangeSet = std::iter::once(IpRange::of_net(net)).collect();
    for (index, range) in parsed.iter().enumerate() {
        if !std::iter::once(*range)
            .collect::<RangeSet>()
            .is_subset(&whole)
        {
            let path = format!("{field}[{index}]");
            return Err(FieldError::invalid(
                &path,
                range.to_string(),
                format!("does not lie in subnet {net}"),
            ));
        }
    }
    Ok(parsed)
}

fn disjoint(ranges: &[IpRange]) -> Result<(), FieldError> {
    let mut sorted = ranges.to_vec();
    sorted.sort_unstable();
    for pair in sorted.windows(2) {
        if let [a, b] = pair
            && a.last() >= b.first()
        {
            let message = format!("overlaps {a}");
            return Err(FieldError::new(
                FieldErrorKind::Duplicate,
                "spec.ips",
                json!(b.to_string()),
                message,
            ));
        }
    }
    Ok(())
}

/// Pools of one subnet share no address.
fn apart(free: &RangeSet, net: IpNet, others: &[Arc<PoolView>]) -> Result<(), FieldError> {
    for other in others {
        if other.net != Some(net) {
            continue;
        }
        let theirs = other.usable.as_ref();
        let shared = theirs.map_or_else(RangeSet::default, |theirs| theirs.intersect(free));
        if !shared.is_empty() {
            let message = format!("overlaps IPPool {} in {}", other.name, list(&shared));
            return Err(FieldError::forbidden("spec.ips", message));
        }
    }
    Ok(())
}

/// The ranges of a set, the first few.
pub(super) fn list(set: &RangeSet) -> String {
    let mut texts: Vec<String> = set
        .ranges()
        .iter()
        .take(LISTED)
        .map(ToString::to_string)
        .collect();
    if let Some(more) = set
        .ranges()
        .len()
        .checked_sub(LISTED)
        .filter(|more| *more > 0)
    {
        texts.push(format!("{more} more"));
    }
    texts.join(", ")
}

fn gateway(gateway: Option<&str>, net: IpNet, free: &RangeSet) -> Result<(), FieldError> {
    let Some(text) = gateway.filter(|text| !text.is_empty()) else {
        return Ok(());
    };
    let wrong = |message: String| Err(FieldError::invalid("spec.gateway", text, message));
    match text.parse::<IpAddr>() {
        Err(_) => wrong("is not an IP address".to_owned()),
        Ok(address) if !net.contains(&address) => wrong(format!("does not lie in subnet {net}")),
        Ok(address) if free.contains(address) => wrong(
            "is one of its own addresses: take it out of spec.ips or put it into spec.excludeIPs"
                .to_owned(),
        ),
        Ok(_) => Ok(()),
    }
}

fn routes(routes: &[Route], net: IpNet) -> Result<(), FieldError> {
    let mut seen = Vec::new();
    for (index, route) in routes.iter().enumerate() {
        let field = |part: &str| format!("spec.routes[{index}].{part}");
        let dst = match route.dst.parse::<IpNet>() {
            Ok(dst) if Family::of_net(dst) == Family::of_net(net) => dst.trunc(),
            _ => {
                let message = format!("is not an {} CIDR", Family::of_net(net));
                return Err(FieldError::invalid(
                    &field("dst"),
                    route.dst.as_str(),
                    message,
                ));
            }
        };
        if dst.prefix_len() == 0 {
            let message = "is the default route, which follows from spec.gateway";
            return Err(FieldError::invalid(
                &field("dst"),
                route.dst.as_str(),
                message,
            ));
        }
        if seen.contains(&dst) {
            let message = "is the destination of an earlier route";
            return Err(FieldError::new(
                FieldErrorKind::Duplicate,
                &field("dst"),
                json!(route.dst),
                message,
            ));
        }
        seen.push(dst);
        if !route.gw.parse::<IpAddr>().is_ok_and(|gw| net.contains(&gw)) {
            let message = format!("is not an address of subnet {net}");
            return Err(FieldError::invalid(
                &field("gw"),
                route.gw.as_str(),
                message,
            ));
        }
    }
    Ok(())
}
