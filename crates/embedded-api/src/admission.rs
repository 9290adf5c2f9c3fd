//! The admission seam: what a cluster does with webhooks happens here in process, inside the
//! writer, so that a rule that looks at other objects cannot race with their change.

use serde::Serialize;
use serde_json::Value;

/// What a request wants to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// A new object.
    Create,
    /// A change outside `/status`, also one that removes a finalizer.
    Update,
    /// A deletion, also of an object that is already terminating.
    Delete,
}

/// One request under review. `/status` writes are never reviewed (spec/api section 3).
#[derive(Debug, Clone, Copy)]
pub struct AdmissionRequest<'a> {
    /// What is wanted.
    pub verb: Verb,
    /// The kind, for example `SpiderIPPool`.
    pub kind: &'static str,
    /// `metadata.namespace`, empty for cluster-scoped kinds.
    pub namespace: &'a str,
    /// `metadata.name`.
    pub name: &'a str,
    /// The stored object; none on create.
    pub old: Option<&'a Value>,
    /// Whether nothing will be stored.
    pub dry_run: bool,
}

/// Gives every stored object of a kind, writes of the same batch included.
pub type Lookup<'a> = dyn Fn(&str) -> Vec<Value> + 'a;

/// Field error in the words of Kubernetes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cause {
    /// `FieldValueInvalid`, `FieldValueRequired`, `FieldValueForbidden`, ...
    pub reason: String,
    /// `Invalid value: ...`, as printed after the field.
    pub message: String,
    /// Path of the field, for example `spec.subnet`.
    pub field: String,
}

impl Cause {
    /// A value that is wrong. `value` is shown as JSON.
    #[must_use]
    pub fn invalid(field: &str, value: &Value, why: &str) -> Self {
        Self::new(
            "FieldValueInvalid",
            field,
            format!("Invalid value: {value}: {why}"),
        )
    }

    /// A value that must be there; `why` may be empty.
    #[must_use]
    pub fn required(field: &str, why: &str) -> Self {
        Self::new(
            "FieldValueRequired",
            field,
            with_reason("Required value", why),
        )
    }

    /// A value that may not be given or changed.
    #[must_use]
    pub fn forbidden(field: &str, why: &str) -> Self {
        Self::new("FieldValueForbidden", field, with_reason("Forbidden", why))
    }

    /// A value outside its list.
    #[must_use]
    pub fn not_supported(field: &str, value: &Value, supported: &[Value]) -> Self {
        let list: Vec<_> = supported.iter().map(quoted).collect();
        let text = format!(
            "Unsupported value: {value}: supported values: {}",
            list.join(", ")
        );
        Self::new("FieldValueNotSupported", field, text)
    }

    /// A value of the wrong JSON type.
    #[must_use]
    pub fn wrong_type(field: &str, value: &Value, expected: &str) -> Self {
        let text = format!(
            "Invalid value: \"{}\": {field} in body must be of type {expected}: \"{}\"",
            type_name(value),
            type_name(value)
        );
        Self::new("FieldValueTypeInvalid", field, text)
    }

    /// Any other reason of Kubernetes.
    #[must_use]
    pub fn new(reason: &str, field: &str, message: String) -> Self {
        Self {
            reason: reason.to_owned(),
            message,
            field: field.to_owned(),
        }
    }

    /// Causes as one line, in brackets if several.
    pub(crate) fn list(causes: &[Self]) -> String {
        let lines: Vec<_> = causes
            .iter()
            .map(|c| format!("{}: {}", c.field, c.message))
            .collect();
        match lines.as_slice() {
            [single] => single.clone(),
            several => format!("[{}]", several.join(", ")),
        }
    }
}

fn with_reason(what: &str, why: &str) -> String {
    if why.is_empty() {
        what.to_owned()
    } else {
        format!("{what}: {why}")
    }
}

/// A value of an enum; schema generators write `4.0` for 4.
fn quoted(value: &Value) -> String {
    match value {
        Value::String(text) => format!("\"{text}\""),
        other => format!("\"{}\"", other.to_string().trim_end_matches(".0")),
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// A refusal by a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Denial {
    /// 422 with field errors; not empty.
    Invalid(Vec<Cause>),
    /// 403 with the reason.
    Forbidden(String),
    /// 409: the name is taken.
    AlreadyExists,
}

/// Rules applied to writes. Runs on the writer thread: it must not block, do I/O or call the API.
pub trait Admission: Send + Sync + 'static {
    /// Changes an object before it is checked against its schema; returns warnings for the client.
    fn mutate(
        &self,
        request: &AdmissionRequest<'_>,
        new: &mut Value,
        lookup: &Lookup<'_>,
    ) -> Vec<String>;

    /// Accepts, with warnings for the client, or refuses. `new` is none on delete.
    ///
    /// # Errors
    /// [`Denial`] refuses the request; nothing is stored.
    fn validate(
        &self,
        request: &AdmissionRequest<'_>,
        new: Option<&Value>,
        lookup: &Lookup<'_>,
    ) -> Result<Vec<String>, Denial>;
}

/// Accepts everything as it is.
#[derive(Debug, Clone, Copy, Default)]
pub struct AcceptAll;

impl Admission for AcceptAll {
    fn mutate(&self, _: &AdmissionRequest<'_>, _: &mut Value, _: &Lookup<'_>) -> Vec<String> {
        Vec::new()
    }

    fn validate(
        &self,
        _: &AdmissionRequest<'_>,
        _: Option<&Value>,
        _: &Lookup<'_>,
    ) -> Result<Vec<String>, Denial> {
        Ok(Vec::new())
    }
}
