//! Rules of pairs: W6-W10 and W12 of spec iaas 3.3. The named pool may not exist yet; the rules
//! then hold when the naming pool is next changed.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;
use spiderpool_api::names;

use super::FieldError;
use super::object::annotation_field;
use super::view::PoolView;
use crate::range::Family;
use crate::range_set::RangeSet;

pub(super) fn check(
    pool: &PoolView,
    family: Family,
    others: &[Arc<PoolView>],
    errors: &mut Vec<FieldError>,
) {
    let field = annotation_field(names::PAIR_POOL);
    let naming = others
        .iter()
        .filter(|other| other.pair() == Some(pool.name.as_str()));
    let Some(named) = pool.pair() else {
        naming.for_each(|other| both_marked(pool, other, &field, errors));
        return;
    };
    if named == pool.name {
        errors.push(FieldError::invalid(
            &field,
            named,
            "a pool cannot reference itself",
        ));
        return;
    }
    let partner = others.iter().find(|other| other.name == named);
    if let Some(other) = partner {
        fits(pool, family, other, &field, errors);
        both_marked(pool, other, &field, errors);
    }
    naming
        .filter(|other| other.name != named)
        .for_each(|other| both_marked(pool, other, &field, errors));
}

/// W7-W9 against a partner that exists.
fn fits(
    pool: &PoolView,
    family: Family,
    other: &PoolView,
    field: &str,
    errors: &mut Vec<FieldError>,
) {
    if other.spec.ip_version == Some(family.version()) {
        let message = format!(
            "IPPool {} must be of the opposite IP version, it is {family} as well",
            other.name
        );
        errors.push(FieldError::invalid(field, other.name.as_str(), message));
        return;
    }
    let count = |view: &PoolView| view.usable.as_ref().map_or(0, RangeSet::count);
    let (own, theirs) = (
        (pool.name.as_str(), count(pool)),
        (other.name.as_str(), count(other)),
    );
    let (v4, v6) = match family {
        Family::V4 => (own, theirs),
        Family::V6 => (theirs, own),
    };
    if v4.1 > v6.1 {
        let message = format!(
            "IPv4 IPPool {} has {} addresses, more than the {} of IPv6 IPPool {}: each needs a partner",
            v4.0, v4.1, v6.1, v6.0
        );
        errors.push(FieldError::forbidden(field, message));
    }
    let nodes = |view: &PoolView| view.nodes().iter().cloned().collect::<BTreeSet<_>>();
    let differ = |what: &str| {
        FieldError::forbidden(
            field,
            format!("{what} differs from that of IPPool {}", other.name),
        )
    };
    if nodes(pool) != nodes(other) {
        errors.push(differ("spec.nodeName"));
    }
    if pool.spec.pod_affinity != other.spec.pod_affinity {
        errors.push(differ("spec.podAffinity"));
    }
}

/// W12: a provider serves both pools or none.
fn both_marked(pool: &PoolView, other: &PoolView, field: &str, errors: &mut Vec<FieldError>) {
    if pool.is_marked() == other.is_marked() {
        return;
    }
    let (with, without) = if pool.is_marked() {
        (pool, other)
    } else {
        (other, pool)
    };
    let message = format!(
        "both pools of a pair carry annotation {} or neither: IPPool {} has it, IPPool {} has not",
        names::IAAS_PROVIDER,
        with.name,
        without.name
    );
    errors.push(FieldError::invalid(
        field,
        pool.pair().map_or(Value::Null, Value::from),
        message,
    ));
}
