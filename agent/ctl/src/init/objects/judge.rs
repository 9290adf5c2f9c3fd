//! Whether an object could ever be: admission's own rules, told by the variable's name. Pure.

use serde_json::json;
use spiderpool_api::names;
use spiderpool_ipam::admission::{self, FieldError, Kind, Op, Refusal, Settings, World};
use spiderpool_ipam::environment::Environment;

use super::{InitError, Object};

/// Judges it as if nothing else existed and everything were switched on: what is refused then is
/// refused for ever. `variable` names the variable of a field of the spec.
///
/// # Errors
/// [`InitError`] for the first thing refused.
pub(super) fn judge<F>(
    read: &Environment<F>,
    object: &Object,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<(), InitError>
where
    F: Fn(&str) -> Option<String>,
{
    let Some(kind) = Kind::from_name(object.kind) else {
        return Ok(());
    };
    let mut whole = json!({"apiVersion": format!("{}/{}", names::GROUP, names::VERSION),
        "kind": object.kind, "metadata": {"name": object.name}, "spec": object.spec});
    let (world, settings) = (World::default(), Settings::default());
    admission::mutate(kind, &mut whole, None, &world, &settings);
    let judged = admission::validate(Op::Create, kind, Some(&whole), None, &world, &settings);
    let Err(refusal) = judged else {
        return Ok(());
    };
    let of_field = |error: &FieldError| {
        let path = error.field.strip_prefix("spec.")?;
        let name = variable(path.split(['.', '[']).next()?)?;
        Some((read.text(&name).unwrap_or_default(), name, error.detail()))
    };
    let named = match &refusal {
        Refusal::Invalid(errors) => errors.iter().find_map(of_field),
        Refusal::Forbidden(_) | Refusal::AlreadyExists(_) => None,
    };
    Err(match named {
        Some((value, name, why)) => InitError::Refused { name, value, why },
        None => InitError::Object {
            kind: object.kind,
            name: object.name.clone(),
            why: refusal.to_string(),
        },
    })
}
