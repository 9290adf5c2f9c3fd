//! The rules of `spiderpool_ipam::admission` behind the admission seam.

use serde_json::Value;
use spiderpool_ipam::admission::{
    self as rules, FieldError, FieldErrorKind, Kind, Op, Refusal, Settings,
};

use crate::admission::{Admission, AdmissionRequest, Cause, Denial, Lookup, Verb};

/// What the webhooks of a cluster do, for pools and reserved addresses; other kinds pass.
#[derive(Debug, Clone, Copy, Default)]
pub struct IpamAdmission {
    settings: Settings,
}

impl IpamAdmission {
    /// Rules under this configuration.
    #[must_use]
    pub const fn new(settings: Settings) -> Self {
        Self { settings }
    }
}

impl Admission for IpamAdmission {
    fn mutate(
        &self,
        request: &AdmissionRequest<'_>,
        new: &mut Value,
        _lookup: &Lookup<'_>,
    ) -> Vec<String> {
        if let Some(kind) = Kind::from_name(request.kind) {
            rules::mutate(kind, new);
        }
        Vec::new()
    }

    fn validate(
        &self,
        request: &AdmissionRequest<'_>,
        new: Option<&Value>,
        lookup: &Lookup<'_>,
    ) -> Result<Vec<String>, Denial> {
        let Some(kind) = Kind::from_name(request.kind) else {
            return Ok(Vec::new());
        };
        let (op, existing) = match request.verb {
            Verb::Create => (Op::Create, lookup(request.kind)),
            Verb::Update => (Op::Update, lookup(request.kind)),
            Verb::Delete => (Op::Delete, Vec::new()),
        };
        let existing: Vec<_> = existing.iter().collect();
        rules::validate(op, kind, new, request.old, &existing, &self.settings)
            .map(|()| Vec::new())
            .map_err(denial)
    }
}

fn denial(refusal: Refusal) -> Denial {
    match refusal {
        Refusal::Invalid(errors) => Denial::Invalid(errors.iter().map(cause).collect()),
        Refusal::Forbidden(why) => Denial::Forbidden(why),
        Refusal::AlreadyExists(_) => Denial::AlreadyExists,
    }
}

fn cause(error: &FieldError) -> Cause {
    let reason = match error.kind {
        FieldErrorKind::Invalid => "FieldValueInvalid",
        FieldErrorKind::Forbidden => "FieldValueForbidden",
        FieldErrorKind::Required => "FieldValueRequired",
        FieldErrorKind::NotSupported => "FieldValueNotSupported",
        FieldErrorKind::Duplicate => "FieldValueDuplicate",
    };
    // its text begins with the field, which a Status shows by itself
    let text = error.to_string();
    let message = text
        .strip_prefix(&format!("{}: ", error.field))
        .unwrap_or(&text);
    Cause::new(reason, &error.field, message.to_owned())
}
