//! Admission of SpiderIPPool and SpiderReservedIP on raw objects (spec api 3.1, 3.2, 3.4, iaas
//! 3.3): what is filled in and what is refused. Serves webhooks and the embedded API alike; never
//! panics, whatever the JSON.

use std::fmt;

use serde_json::Value;

mod iaas;
mod mutation;
mod object;
mod pair;
mod pool;
mod reserved;
mod rules;
mod selector;

pub use mutation::mutate;

/// Kinds with rules here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `SpiderIPPool`.
    IpPool,
    /// `SpiderReservedIP`.
    ReservedIp,
}

impl Kind {
    /// From `kind` of an object.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "SpiderIPPool" => Some(Self::IpPool),
            "SpiderReservedIP" => Some(Self::ReservedIp),
            _ => None,
        }
    }
}

/// What is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// A new object.
    Create,
    /// A change outside `/status`.
    Update,
    /// A deletion.
    Delete,
}

/// Configuration the rules depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// IPv4 is in use.
    pub enable_ipv4: bool,
    /// IPv6 is in use.
    pub enable_ipv6: bool,
    /// Refuse to delete pools with records (`enableValidatingResourcesDeletedWebhook`).
    pub protect_deletion: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            enable_ipv4: true,
            enable_ipv6: true,
            protect_deletion: true,
        }
    }
}

/// Kind of a field error, in Kubernetes' words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldErrorKind {
    /// `FieldValueInvalid`.
    Invalid,
    /// `FieldValueForbidden`.
    Forbidden,
    /// `FieldValueRequired`.
    Required,
    /// `FieldValueNotSupported`.
    NotSupported,
    /// `FieldValueDuplicate`.
    Duplicate,
}

/// One refused field.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldError {
    /// Path such as `spec.subnet`.
    pub field: String,
    /// See [`FieldErrorKind`].
    pub kind: FieldErrorKind,
    /// The value refused; null where the kind shows none.
    pub value: Value,
    /// Why, and what would be accepted.
    pub message: String,
}

impl FieldError {
    pub(crate) fn new(
        kind: FieldErrorKind,
        field: &str,
        value: Value,
        message: impl Into<String>,
    ) -> Self {
        Self {
            field: field.to_owned(),
            kind,
            value,
            message: message.into(),
        }
    }

    pub(crate) fn invalid(
        field: &str,
        value: impl Into<Value>,
        message: impl Into<String>,
    ) -> Self {
        Self::new(FieldErrorKind::Invalid, field, value.into(), message)
    }

    pub(crate) fn forbidden(field: &str, message: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Forbidden, field, Value::Null, message)
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            field,
            kind,
            value,
            message,
        } = self;
        match kind {
            FieldErrorKind::Invalid => write!(f, "{field}: Invalid value: {value}: {message}"),
            FieldErrorKind::Forbidden => write!(f, "{field}: Forbidden: {message}"),
            FieldErrorKind::Required => write!(f, "{field}: Required value: {message}"),
            FieldErrorKind::NotSupported => {
                write!(f, "{field}: Unsupported value: {value}: {message}")
            }
            FieldErrorKind::Duplicate => write!(f, "{field}: Duplicate value: {value}: {message}"),
        }
    }
}

/// A refused request.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// 422, at least one error.
    #[error("{}", join(.0))]
    Invalid(Vec<FieldError>),
    /// 403 for the whole object.
    #[error("{0}")]
    Forbidden(String),
    /// 409, the name is taken.
    #[error("{0}")]
    AlreadyExists(String),
}

impl Refusal {
    /// HTTP status.
    #[must_use]
    pub const fn status(&self) -> u16 {
        match self {
            Self::Invalid(_) => 422,
            Self::Forbidden(_) => 403,
            Self::AlreadyExists(_) => 409,
        }
    }
}

fn join(errors: &[FieldError]) -> String {
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    texts.join("; ")
}

/// Judges a request. `new` is absent on delete, `old` on create; `existing` are all stored objects
/// of the kind, the one under review may be among them.
///
/// # Errors
/// [`Refusal`] with all that is wrong, as far as the order of rules allows.
pub fn validate(
    op: Op,
    kind: Kind,
    new: Option<&Value>,
    old: Option<&Value>,
    existing: &[&Value],
    settings: &Settings,
) -> Result<(), Refusal> {
    match (kind, op, new, old) {
        (Kind::IpPool, Op::Create, Some(new), _) => pool::create(new, existing, settings),
        (Kind::IpPool, Op::Update, Some(new), Some(old)) => {
            pool::update(new, old, existing, settings)
        }
        (Kind::IpPool, Op::Delete, _, Some(old)) => pool::delete(old, settings),
        (Kind::ReservedIp, Op::Create, Some(new), _) => reserved::create(new, settings),
        (Kind::ReservedIp, Op::Update, Some(new), Some(old)) => {
            reserved::update(new, old, settings)
        }
        // Nothing to judge: deletions of reservations, and requests without their object.
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
