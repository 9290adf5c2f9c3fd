//! Rules of pools with a provider: W1-W5 and W11 of spec iaas 3.3.

use spiderpool_api::names;

use super::object::{annotation_field, is_label_value};
use super::view::PoolView;
use super::{FieldError, FieldErrorKind};

const NODE_NAME: &str = "spec.nodeName";

/// W2-W4 and the mark's value: the shape of one pool.
pub(super) fn shape(pool: &PoolView, errors: &mut Vec<FieldError>) {
    parent_nic(pool, errors);
    let Some(vendor) = pool.annotation(names::IAAS_PROVIDER) else {
        return;
    };
    if !is_label_value(vendor) {
        let message = "is mirrored to a label and is no legal label value: at most 63 letters, digits, '-', '_', '.'";
        errors.push(FieldError::invalid(
            &annotation_field(names::IAAS_PROVIDER),
            vendor,
            message,
        ));
    }
    if pool.nodes().len() > 1 {
        let message = format!(
            "an IaaS pool is pinned to exactly one node or to none, not to {}",
            pool.nodes().len()
        );
        errors.push(FieldError::forbidden(NODE_NAME, message));
    }
}

fn parent_nic(pool: &PoolView, errors: &mut Vec<FieldError>) {
    let field = annotation_field(names::PARENT_NIC);
    match pool.annotation(names::PARENT_NIC) {
        Some(text) => {
            let nic = text.trim();
            if nic.is_empty() || nic.contains(|found: char| found == ',' || found.is_whitespace()) {
                errors.push(FieldError::invalid(
                    &field,
                    text,
                    "must be a single NIC name",
                ));
            }
        }
        None if pool.is_marked() && !pool.nodes().is_empty() => {
            let message = format!(
                "an IaaS pool with spec.nodeName requires annotation {}",
                names::PARENT_NIC
            );
            errors.push(FieldError::new(
                FieldErrorKind::Required,
                &field,
                serde_json::Value::Null,
                message,
            ));
        }
        None => {}
    }
}

/// W1 and W11: the mode is fixed, and a pool in use stays on its node.
pub(super) fn node_change(
    new: &PoolView,
    old: &PoolView,
    allocated: i64,
    errors: &mut Vec<FieldError>,
) {
    if !old.is_marked() {
        return;
    }
    let (before, after) = (old.nodes(), new.nodes());
    if before.is_empty() != after.is_empty() {
        errors.push(FieldError::forbidden(
            NODE_NAME,
            "cannot add or remove 'spec.nodeName' on an IaaS pool",
        ));
    } else if before != after && allocated > 0 {
        let message = format!(
            "cannot move IPPool {} from node {} to {}: it has allocated IPs",
            new.name,
            before.join(", "),
            after.join(", ")
        );
        errors.push(FieldError::forbidden(NODE_NAME, message));
    }
}

/// W5: marks of a pool in use are neither removed nor changed; adding is fine.
pub(super) fn marks_in_use(
    new: &PoolView,
    old: &PoolView,
    allocated: i64,
    errors: &mut Vec<FieldError>,
) {
    if allocated <= 0 {
        return;
    }
    for key in [names::IAAS_PROVIDER, names::PARENT_NIC] {
        let verb = match (old.annotation(key), new.annotation(key)) {
            (Some(_), None) => "remove",
            (Some(before), Some(after)) if before != after => "modify",
            _ => continue,
        };
        let message = format!("cannot {verb} annotation {key} while the IPPool has allocated IPs");
        errors.push(FieldError::forbidden(&annotation_field(key), message));
    }
}
