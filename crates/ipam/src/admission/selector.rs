//! Rule 4: `spec.podAffinity` asks for something and can be evaluated.

use serde_json::{Value, json};
use spiderpool_api::names;
use spiderpool_api::selector::{LabelSelector, Requirement};

use super::view::PoolView;
use super::{FieldError, FieldErrorKind};

/// Suffixes of the five keys an automatic pool's selector may hold.
const APP_PARTS: [&str; 5] = ["api-group", "api-version", "kind", "namespace", "name"];

pub(super) fn pod_affinity(pool: &PoolView) -> Result<(), FieldError> {
    let field = "spec.podAffinity";
    let Some(selector) = &pool.spec.pod_affinity else {
        return Ok(());
    };
    if selector.is_empty() {
        return Err(FieldError::invalid(
            field,
            shown(selector),
            "must not be empty: it would match no Pod on purpose and all by accident",
        ));
    }
    for requirement in &selector.match_expressions {
        operator(requirement)?;
    }
    if !pool.is_automatic() {
        return Ok(());
    }
    let app_key = |key: &String| {
        key.strip_prefix(names::APP_KEY_PREFIX)
            .is_some_and(|part| APP_PARTS.contains(&part))
    };
    if selector.match_expressions.is_empty() && selector.match_labels.keys().all(app_key) {
        Ok(())
    } else {
        Err(FieldError::forbidden(
            field,
            "an automatic pool selects by its application's five keys alone",
        ))
    }
}

fn operator(requirement: &Requirement) -> Result<(), FieldError> {
    let field = "spec.podAffinity.matchExpressions";
    let wrong = |message: &str| Err(FieldError::invalid(field, json!(requirement), message));
    match requirement.operator.as_str() {
        _ if requirement.key.is_empty() => wrong("has no key"),
        "In" | "NotIn" if requirement.values.is_empty() => wrong("needs values for In and NotIn"),
        "Exists" | "DoesNotExist" if !requirement.values.is_empty() => {
            wrong("must have no values for Exists and DoesNotExist")
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => Ok(()),
        other => Err(FieldError::new(
            FieldErrorKind::NotSupported,
            field,
            json!(other),
            "supported values: \"In\", \"NotIn\", \"Exists\", \"DoesNotExist\"",
        )),
    }
}

fn shown(selector: &LabelSelector) -> Value {
    serde_json::to_value(selector).unwrap_or_default()
}
