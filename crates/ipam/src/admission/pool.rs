//! Verdicts on pools, in the order of spec api 3.2.

use std::collections::BTreeSet;

use serde_json::Value;
use spiderpool_api::allocation::Records;

use super::object::{allocated, is_terminating, may_still_change, name, records_text};
use super::view::{PoolView, World};
use super::{FieldError, Refusal, Settings, collected, iaas, pair, rules, selector, stop};
use crate::range_set::RangeSet;

/// How many Pods a message names.
const NAMED: usize = 3;

pub(super) fn create(new: &Value, world: &World, settings: &Settings) -> Result<(), Refusal> {
    let named = name(new);
    if !named.is_empty() && world.pools.iter().any(|known| known.name == named) {
        return Err(Refusal::AlreadyExists(format!(
            "IPPool {named} exists already"
        )));
    }
    let pool = PoolView::read(new).map_err(stop)?;
    let others = world.other_pools(&pool.name);
    let family = rules::family(pool.spec.ip_version, settings).map_err(stop)?;
    let net = rules::subnet(&pool.spec.subnet, family).map_err(stop)?;
    rules::no_other_overlap(net, &others).map_err(stop)?;
    let mut errors: Vec<FieldError> = [
        rules::addresses(&pool, net, &others),
        selector::pod_affinity(&pool),
    ]
    .into_iter()
    .filter_map(Result::err)
    .collect();
    pair::check(&pool, family, &others, &mut errors);
    iaas::shape(&pool, &mut errors);
    collected(errors)?;
    in_its_subnet(&pool, world, settings).map_err(stop)
}

pub(super) fn update(
    new: &Value,
    old: &Value,
    world: &World,
    settings: &Settings,
) -> Result<(), Refusal> {
    if is_terminating(old) {
        return if may_still_change(new, old) {
            Ok(())
        } else {
            Err(Refusal::Forbidden(format!(
                "IPPool {} is terminating and cannot be changed any more; it goes when its last address is released",
                name(old)
            )))
        };
    }
    let pool = PoolView::read(new).map_err(stop)?;
    let before = PoolView::read(old).map_err(stop)?;
    let others = world.other_pools(&pool.name);
    rules::unchanged_version(pool.spec.ip_version, before.spec.ip_version).map_err(stop)?;
    if pool.spec.subnet != before.spec.subnet {
        return Err(stop(FieldError::forbidden("spec.subnet", "is immutable")));
    }
    let family = rules::family(pool.spec.ip_version, settings).map_err(stop)?;
    let net = rules::subnet(&pool.spec.subnet, family).map_err(stop)?;
    rules::addresses(&pool, net, &others).map_err(stop)?;
    selector::pod_affinity(&pool).map_err(stop)?;
    let mut errors = Vec::new();
    let in_use = allocated(old);
    keeps_records(&pool, &before, records_text(old), &mut errors);
    pair::check(&pool, family, &others, &mut errors);
    iaas::node_change(&pool, &before, in_use, &mut errors);
    iaas::shape(&pool, &mut errors);
    iaas::marks_in_use(&pool, &before, in_use, &mut errors);
    collected(errors)?;
    in_its_subnet(&pool, world, settings).map_err(stop)
}

pub(super) fn delete(old: &Value, settings: &Settings) -> Result<(), Refusal> {
    match allocated(old) {
        count if count > 0 && settings.protect_deletion => Err(Refusal::Forbidden(format!(
            "IPPool {} has {count} allocated IPs{} and cannot be deleted; release them first, or set enableValidatingResourcesDeletedWebhook to false",
            name(old),
            users(old)
        ))),
        _ => Ok(()),
    }
}

/// Who has them, the first few.
fn users(pool: &Value) -> String {
    let Ok(records) = Records::decode(records_text(pool)) else {
        return String::new();
    };
    let pods: BTreeSet<&str> = records
        .iter()
        .map(|(_, record)| record.pod.as_str())
        .filter(|pod| !pod.is_empty())
        .collect();
    let mut named: Vec<String> = pods
        .iter()
        .take(NAMED)
        .map(|pod| (*pod).to_owned())
        .collect();
    if let Some(more) = pods.len().checked_sub(NAMED).filter(|more| *more > 0) {
        named.push(format!("{more} more"));
    }
    if named.is_empty() {
        String::new()
    } else {
        format!(" of Pods {}", named.join(", "))
    }
}

/// No address with a record leaves the pool.
fn keeps_records(
    new: &PoolView,
    old: &PoolView,
    records: Option<&str>,
    errors: &mut Vec<FieldError>,
) {
    let (Some(before), Some(after)) = (&old.usable, &new.usable) else {
        return;
    };
    let removed = before.subtract(after);
    if removed.is_empty() {
        return;
    }
    let Ok(records) = Records::decode(records) else {
        let message = "status.allocatedIPs cannot be read, so no address can be taken away";
        errors.push(FieldError::forbidden("spec.ips", message));
        return;
    };
    let used: RangeSet = records.iter().map(|(address, _)| address).collect();
    let lost = used.intersect(&removed);
    if !lost.is_empty() {
        let message = format!("cannot take away {}: allocated to Pods", rules::list(&lost));
        errors.push(FieldError::forbidden("spec.ips", message));
    }
}

/// Rule 8: a pool holds what its subnet has, an automatic one what was carved for it.
fn in_its_subnet(pool: &PoolView, world: &World, settings: &Settings) -> Result<(), FieldError> {
    let owner = pool.owner().filter(|_| settings.spider_subnet);
    let subnet = owner.and_then(|owner| world.subnets.iter().find(|known| known.name == owner));
    let (Some(subnet), Some(own)) = (subnet, &pool.usable) else {
        return Ok(());
    };
    if let Some(theirs) = &subnet.usable {
        let foreign = own.subtract(theirs);
        if !foreign.is_empty() {
            let message = format!(
                "{} is not an address of SpiderSubnet {}",
                rules::list(&foreign),
                subnet.name
            );
            return Err(FieldError::forbidden("spec.ips", message));
        }
    }
    match subnet.controlled.get(&pool.name) {
        Some(carved) if pool.is_automatic() && carved != own => {
            let message = format!(
                "is not what SpiderSubnet {} carved for this automatic pool: {}",
                subnet.name,
                rules::list(carved)
            );
            Err(FieldError::forbidden("spec.ips", message))
        }
        _ => Ok(()),
    }
}
