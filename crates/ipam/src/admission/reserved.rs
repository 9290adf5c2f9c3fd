//! Verdicts on reservations (spec api 3.4).

use serde_json::{Value, json};
use spiderpool_api::reserved_ip::SpiderReservedIPSpec;

use super::object::{finalizers, is_terminating, name, spec};
use super::{FieldError, Refusal, Settings, rules, stop};
use crate::range::parse_list;

pub(super) fn create(new: &Value, settings: &Settings) -> Result<(), Refusal> {
    let spec: SpiderReservedIPSpec = spec(new).map_err(stop)?;
    judge(&spec, settings).map_err(stop)
}

pub(super) fn update(new: &Value, old: &Value, settings: &Settings) -> Result<(), Refusal> {
    if is_terminating(old) {
        // Whoever put a finalizer on it must be able to take it off again.
        return if finalizers(new).is_empty() {
            Ok(())
        } else {
            Err(Refusal::Forbidden(format!(
                "SpiderReservedIP {} is terminating and cannot be changed any more",
                name(old)
            )))
        };
    }
    let after: SpiderReservedIPSpec = spec(new).map_err(stop)?;
    let before: SpiderReservedIPSpec = spec(old).map_err(stop)?;
    rules::unchanged_version(after.ip_version, before.ip_version).map_err(stop)?;
    judge(&after, settings).map_err(stop)
}

fn judge(spec: &SpiderReservedIPSpec, settings: &Settings) -> Result<(), FieldError> {
    let family = rules::family(spec.ip_version, settings)?;
    let ips = spec.ips.as_deref().unwrap_or_default();
    let ranges = parse_list(ips)
        .map_err(|error| FieldError::invalid("spec.ips", json!(ips), error.to_string()))?;
    match ranges.iter().find(|range| range.family() != family) {
        Some(range) => {
            let message = format!("is not {family}, like spec.ipVersion {}", family.version());
            Err(FieldError::invalid("spec.ips", range.to_string(), message))
        }
        None => Ok(()),
    }
}
