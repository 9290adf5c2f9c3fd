//! Admission of our kinds and of Pods on raw objects (spec api 3, iaas 3.3): what is filled in and
//! what is refused. Serves webhooks and the embedded API alike; never panics, whatever the JSON.

use std::fmt;

use serde_json::Value;

mod coordinator;
mod iaas;
mod miscased;
mod multus_config;
mod mutation;
mod network;
mod object;
mod pair;
pub mod pod;
mod pool;
mod reserved;
mod rules;
mod section;
mod selector;
mod subnet;
pub mod view;

pub use mutation::mutate;
pub use network::{attachment_name, is_dns_label, is_dns_name};
pub use view::World;

/// Kinds with rules here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `SpiderIPPool`.
    IpPool,
    /// `SpiderSubnet`.
    Subnet,
    /// `SpiderReservedIP`.
    ReservedIp,
    /// `SpiderCoordinator`.
    Coordinator,
    /// `SpiderMultusConfig`.
    MultusConfig,
}

impl Kind {
    /// All.
    pub const ALL: [Self; 5] = [
        Self::IpPool,
        Self::Subnet,
        Self::ReservedIp,
        Self::Coordinator,
        Self::MultusConfig,
    ];

    /// From `kind` of an object.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// `kind` of the objects.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::IpPool => "SpiderIPPool",
            Self::Subnet => "SpiderSubnet",
            Self::ReservedIp => "SpiderReservedIP",
            Self::Coordinator => "SpiderCoordinator",
            Self::MultusConfig => "SpiderMultusConfig",
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
    /// Refuse to delete pools and subnets in use (`enableValidatingResourcesDeletedWebhook`).
    pub protect_deletion: bool,
    /// Pools belong to the subnet of their network (`enableSpiderSubnet`).
    pub spider_subnet: bool,
    /// The provider is one of contract version 1 (`iaasNetworkProvider.serverUrl`).
    pub generation_1: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            enable_ipv4: true,
            enable_ipv6: true,
            protect_deletion: true,
            spider_subnet: true,
            generation_1: false,
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

impl FieldErrorKind {
    /// `reason` of a cause in a `Status`.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Invalid => "FieldValueInvalid",
            Self::Forbidden => "FieldValueForbidden",
            Self::Required => "FieldValueRequired",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Duplicate => "FieldValueDuplicate",
        }
    }
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

    /// The text without the field, which a `Status` shows by itself.
    #[must_use]
    pub fn detail(&self) -> String {
        let text = self.to_string();
        let detail = text.strip_prefix(&format!("{}: ", self.field));
        detail.map_or_else(|| text.clone(), str::to_owned)
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

/// One error ends the verdict.
fn stop(error: FieldError) -> Refusal {
    Refusal::Invalid(vec![error])
}

/// Errors of several rules.
fn collected(errors: Vec<FieldError>) -> Result<(), Refusal> {
    if errors.is_empty() {
        Ok(())
    } else {
        Err(Refusal::Invalid(errors))
    }
}

/// Judges a request. `new` is absent on delete, `old` on create.
///
/// # Errors
/// [`Refusal`] with all that is wrong, as far as the order of rules allows.
pub fn validate(
    op: Op,
    kind: Kind,
    new: Option<&Value>,
    old: Option<&Value>,
    world: &World,
    settings: &Settings,
) -> Result<(), Refusal> {
    match (kind, op, new, old) {
        (Kind::IpPool, Op::Create, Some(new), _) => pool::create(new, world, settings),
        (Kind::IpPool, Op::Update, Some(new), Some(old)) => pool::update(new, old, world, settings),
        (Kind::IpPool, Op::Delete, _, Some(old)) => pool::delete(old, settings),
        (Kind::Subnet, Op::Create, Some(new), _) => subnet::create(new, world, settings),
        (Kind::Subnet, Op::Update, Some(new), Some(old)) => subnet::update(new, old, settings),
        (Kind::Subnet, Op::Delete, _, Some(old)) => subnet::delete(old, settings),
        (Kind::ReservedIp, Op::Create, Some(new), _) => reserved::create(new, settings),
        (Kind::ReservedIp, Op::Update, Some(new), Some(old)) => {
            reserved::update(new, old, settings)
        }
        (Kind::Coordinator, Op::Create, Some(new), _) => coordinator::create(new),
        (Kind::Coordinator, Op::Update, Some(new), Some(old)) => coordinator::update(new, old),
        (Kind::MultusConfig, Op::Create, Some(new), _) => network::create(new, world, settings),
        (Kind::MultusConfig, Op::Update, Some(new), Some(old)) => {
            network::update(new, old, world, settings)
        }
        // Nothing to judge: other deletions, and requests without their object.
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
