//! A write as a value: what the routes hand to the writer and what comes back.

use bytes::Bytes;
use serde_json::Value;
use tokio::sync::oneshot;

use crate::kinds::Kind;
use crate::patch::Patch;
use crate::status::ApiError;

/// What to do about fields the schema does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    /// Drop them in silence.
    Ignore,
    /// Drop them and warn.
    Warn,
    /// Refuse the request.
    Strict,
}

/// Which part of the object a write may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// Everything but the status, where that has a subresource.
    Main,
    /// The status alone.
    Status,
}

/// Conditions a deletion depends on; empty ones hold.
#[derive(Debug, Clone, Default)]
pub(crate) struct Preconditions {
    pub(crate) uid: Option<String>,
    pub(crate) resource_version: Option<String>,
}

/// What a write wants. Objects and patches are in served form.
#[derive(Debug)]
pub(crate) enum Action {
    Create(Value),
    Replace(Part, Value),
    Patch(Part, Patch),
    Delete(Preconditions),
}

/// One write.
#[derive(Debug)]
pub(crate) struct WriteRequest {
    pub(crate) kind: &'static Kind,
    /// Empty for cluster-scoped kinds.
    pub(crate) namespace: String,
    /// From the path; empty on create.
    pub(crate) name: String,
    pub(crate) action: Action,
    pub(crate) dry_run: bool,
    pub(crate) validation: FieldValidation,
}

/// The answer to a write that was accepted.
#[derive(Debug)]
pub(crate) struct Written {
    /// The object in stored form, or the `Status` of a deletion.
    pub(crate) body: Bytes,
    /// Whether `body` is an object of the kind.
    pub(crate) is_object: bool,
    pub(crate) created: bool,
    pub(crate) warnings: Vec<String>,
}

impl Written {
    /// An answer with an object.
    pub(crate) const fn object(body: Bytes, created: bool, warnings: Vec<String>) -> Self {
        Self {
            body,
            is_object: true,
            created,
            warnings,
        }
    }
}

/// A write with its return address.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) request: WriteRequest,
    pub(crate) reply: oneshot::Sender<Result<Written, ApiError>>,
}
