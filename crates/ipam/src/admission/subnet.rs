//! Verdicts on subnets, in the order of spec api 3.3.

use ipnet::IpNet;
use serde_json::Value;

use super::object::{allocated_count, is_terminating, may_still_change, name};
use super::rules::{self, Addresses};
use super::view::{SubnetView, World};
use super::{FieldError, Refusal, Settings, stop};

pub(super) fn create(new: &Value, world: &World, settings: &Settings) -> Result<(), Refusal> {
    let named = name(new);
    if !named.is_empty() && world.subnets.iter().any(|known| known.name == named) {
        return Err(Refusal::AlreadyExists(format!(
            "Subnet {named} exists already"
        )));
    }
    let subnet = SubnetView::read(new).map_err(stop)?;
    let family = rules::family(subnet.spec.ip_version, settings).map_err(stop)?;
    let net = rules::subnet(&subnet.spec.subnet, family).map_err(stop)?;
    apart(&subnet, net, world).map_err(stop)?;
    addresses(&subnet, net).map_err(stop)?;
    holds_its_pools(&subnet, net, world).map_err(stop)
}

pub(super) fn update(new: &Value, old: &Value, settings: &Settings) -> Result<(), Refusal> {
    if is_terminating(old) {
        return if may_still_change(new, old) {
            Ok(())
        } else {
            Err(Refusal::Forbidden(format!(
                "Subnet {} is terminating and cannot be changed any more; it goes when its last pool is gone",
                name(old)
            )))
        };
    }
    let subnet = SubnetView::read(new).map_err(stop)?;
    let before = SubnetView::read(old).map_err(stop)?;
    rules::unchanged_version(subnet.spec.ip_version, before.spec.ip_version).map_err(stop)?;
    if subnet.spec.subnet != before.spec.subnet {
        return Err(stop(FieldError::forbidden("spec.subnet", "is immutable")));
    }
    let family = rules::family(subnet.spec.ip_version, settings).map_err(stop)?;
    let net = rules::subnet(&subnet.spec.subnet, family).map_err(stop)?;
    addresses(&subnet, net).map_err(stop)?;
    keeps_carved(&subnet, &before).map_err(stop)
}

pub(super) fn delete(old: &Value, settings: &Settings) -> Result<(), Refusal> {
    let count = allocated_count(old);
    // What goes already is deleted once more so that its pools go first.
    if count <= 0 || !settings.protect_deletion || is_terminating(old) {
        return Ok(());
    }
    let pools: Vec<String> = SubnetView::read(old)
        .map(|subnet| subnet.controlled.into_keys().take(3).collect())
        .unwrap_or_default();
    let of = match pools.as_slice() {
        [] => String::new(),
        named => format!(" in pools such as {}", named.join(", ")),
    };
    Err(Refusal::Forbidden(format!(
        "Subnet {} has {count} allocated IPs{of} and cannot be deleted; delete the pools first, or set enableValidatingResourcesDeletedWebhook to false",
        name(old)
    )))
}

/// No two subnets share an address, not even the same network.
fn apart(subnet: &SubnetView, net: IpNet, world: &World) -> Result<(), FieldError> {
    for other in world.other_subnets(&subnet.name) {
        let Some(known) = other.net else {
            continue;
        };
        if known.contains(&net) || net.contains(&known) {
            let message = format!("overlaps {known} of Subnet {}", other.name);
            return Err(FieldError::invalid("spec.subnet", net.to_string(), message));
        }
    }
    Ok(())
}

fn addresses(subnet: &SubnetView, net: IpNet) -> Result<(), FieldError> {
    let spec = &subnet.spec;
    let of = Addresses {
        ips: spec.ips.as_deref(),
        exclude: spec.exclude_ips.as_deref(),
        gateway: spec.gateway.as_deref(),
        routes: spec.routes.as_deref(),
    };
    rules::subnet_addresses(&of, net)
}

/// Pools of the network lie in the subnet, others apart from it.
fn holds_its_pools(subnet: &SubnetView, net: IpNet, world: &World) -> Result<(), FieldError> {
    rules::no_other_overlap(net, &world.pools)?;
    let Some(usable) = &subnet.usable else {
        return Ok(());
    };
    for pool in world.pools.iter().filter(|pool| pool.net == Some(net)) {
        let outside = pool.usable.as_ref().map(|own| own.subtract(usable));
        if let Some(outside) = outside.filter(|outside| !outside.is_empty()) {
            let message = format!(
                "does not have {} of IPPool {}",
                rules::list(&outside),
                pool.name
            );
            return Err(FieldError::forbidden("spec.ips", message));
        }
    }
    Ok(())
}

/// What pools hold stays.
fn keeps_carved(subnet: &SubnetView, before: &SubnetView) -> Result<(), FieldError> {
    let Some(usable) = &subnet.usable else {
        return Ok(());
    };
    for (pool, carved) in &before.controlled {
        let lost = carved.subtract(usable);
        if !lost.is_empty() {
            let message = format!(
                "cannot take away {}: held by IPPool {pool}",
                rules::list(&lost)
            );
            return Err(FieldError::forbidden("spec.ips", message));
        }
    }
    Ok(())
}
