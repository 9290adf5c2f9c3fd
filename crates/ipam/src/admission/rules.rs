//! Rules of one pool by itself and against pools of overlapping networks: family, subnet, ranges,
//! gateway, routes (spec api 3.2, 1-3).

use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::{Value, json};
use spiderpool_api::ippool::{Route, SpiderIPPoolSpec};

use super::object::PoolView;
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

/// The subnet, of the family and in canonical form.
pub(super) fn subnet(spec: &SpiderIPPoolSpec, family: Family) -> Result<IpNet, FieldError> {
    let text = spec.subnet.as_str();
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
pub(super) fn no_other_overlap(net: IpNet, others: &[PoolView<'_>]) -> Result<(), FieldError> {
    for other in others {
        let Ok(known) = other.spec.subnet.parse::<IpNet>() else {
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

/// `ips` less `excludeIPs`; `None` when a list cannot be read.
pub(super) fn usable(spec: &SpiderIPPoolSpec) -> Option<RangeSet> {
    let ips = RangeSet::from_texts(spec.ips.as_deref().unwrap_or_default()).ok()?;
    let exclude = RangeSet::from_texts(spec.exclude_ips.as_deref().unwrap_or_default()).ok()?;
    Some(ips.subtract(&exclude))
}

/// Rule 3: the first thing wrong with ranges, gateway and routes.
pub(super) fn addresses(
    pool: &PoolView<'_>,
    net: IpNet,
    others: &[PoolView<'_>],
) -> Result<(), FieldError> {
    let spec = &pool.spec;
    let ips = ranges("spec.ips", spec.ips.as_deref(), net)?;
    let exclude = ranges("spec.excludeIPs", spec.exclude_ips.as_deref(), net)?;
    disjoint(&ips)?;
    let free = ips
        .into_iter()
        .collect::<RangeSet>()
        .subtract(&exclude.into_iter().collect());
    apart(&free, net, others)?;
    gateway(spec, net, &free)?;
    routes(spec.routes.as_deref().unwrap_or_default(), net)
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
fn apart(free: &RangeSet, net: IpNet, others: &[PoolView<'_>]) -> Result<(), FieldError> {
    for other in others {
        if other.spec.subnet.parse() != Ok(net) {
            continue;
        }
        let shared = usable(&other.spec)
            .map(|theirs| theirs.intersect(free))
            .unwrap_or_default();
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

fn gateway(spec: &SpiderIPPoolSpec, net: IpNet, free: &RangeSet) -> Result<(), FieldError> {
    let Some(text) = spec.gateway.as_deref().filter(|text| !text.is_empty()) else {
        return Ok(());
    };
    let wrong = |message: String| Err(FieldError::invalid("spec.gateway", text, message));
    match text.parse::<IpAddr>() {
        Err(_) => wrong("is not an IP address".to_owned()),
        Ok(address) if !net.contains(&address) => wrong(format!("does not lie in subnet {net}")),
        Ok(address) if free.contains(address) => {
            wrong("is one of the pool's own addresses: take it out of spec.ips or put it into spec.excludeIPs".to_owned())
        }
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
