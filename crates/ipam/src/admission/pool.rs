//! Verdicts on pools, in the order of spec api 3.2.

use serde_json::Value;
use spiderpool_api::allocation::Records;
use spiderpool_api::names;

use super::object::{PoolView, finalizers, is_terminating, name};
use super::{FieldError, Refusal, Settings, iaas, pair, rules, selector};
use crate::range_set::RangeSet;

fn stop(error: FieldError) -> Refusal {
    Refusal::Invalid(vec![error])
}

fn all(errors: Vec<FieldError>) -> Result<(), Refusal> {
    if errors.is_empty() {
        Ok(())
    } else {
        Err(Refusal::Invalid(errors))
    }
}

pub(super) fn create(new: &Value, existing: &[&Value], settings: &Settings) -> Result<(), Refusal> {
    if !name(new).is_empty() && existing.iter().any(|known| name(known) == name(new)) {
        return Err(Refusal::AlreadyExists(format!(
            "IPPool {} exists already",
            name(new)
        )));
    }
    let pool = PoolView::read(new).map_err(stop)?;
    let others = PoolView::others(existing, pool.name);
    let family = rules::family(pool.spec.ip_version, settings).map_err(stop)?;
    let net = rules::subnet(&pool.spec, family).map_err(stop)?;
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
    all(errors)
}

pub(super) fn update(
    new: &Value,
    old: &Value,
    existing: &[&Value],
    settings: &Settings,
) -> Result<(), Refusal> {
    if is_terminating(old) {
        return if finalizers(new).contains(&names::FINALIZER) {
            Err(Refusal::Forbidden(format!(
                "IPPool {} is terminating and cannot be changed any more; it goes when its last address is released",
                name(old)
            )))
        } else {
            Ok(())
        };
    }
    let pool = PoolView::read(new).map_err(stop)?;
    let before = PoolView::read(old).map_err(stop)?;
    let others = PoolView::others(existing, pool.name);
    if pool.spec.ip_version != before.spec.ip_version && before.spec.ip_version.is_some() {
        return Err(stop(FieldError::forbidden(
            "spec.ipVersion",
            "is immutable",
        )));
    }
    if pool.spec.subnet != before.spec.subnet {
        return Err(stop(FieldError::forbidden("spec.subnet", "is immutable")));
    }
    let family = rules::family(pool.spec.ip_version, settings).map_err(stop)?;
    let net = rules::subnet(&pool.spec, family).map_err(stop)?;
    rules::addresses(&pool, net, &others).map_err(stop)?;
    selector::pod_affinity(&pool).map_err(stop)?;
    let mut errors = Vec::new();
    keeps_records(&pool, &before, &mut errors);
    pair::check(&pool, family, &others, &mut errors);
    iaas::node_change(&pool, &before, &mut errors);
    iaas::shape(&pool, &mut errors);
    iaas::marks_in_use(&pool, &before, &mut errors);
    all(errors)
}

pub(super) fn delete(old: &Value, settings: &Settings) -> Result<(), Refusal> {
    let Ok(pool) = PoolView::read(old) else {
        return Ok(());
    };
    match pool.allocated() {
        count if count > 0 && settings.protect_deletion => Err(Refusal::Forbidden(format!(
            "IPPool {} has {count} allocated IPs and cannot be deleted; release them first, or set enableValidatingResourcesDeletedWebhook to false",
            pool.name
        ))),
        _ => Ok(()),
    }
}

/// No address with a record leaves the pool.
fn keeps_records(new: &PoolView<'_>, old: &PoolView<'_>, errors: &mut Vec<FieldError>) {
    let (Some(before), Some(after)) = (rules::usable(&old.spec), rules::usable(&new.spec)) else {
        return;
    };
    let removed = before.subtract(&after);
    if removed.is_empty() {
        return;
    }
    let Ok(records) = Records::decode(old.status().allocated_ips.as_deref()) else {
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
