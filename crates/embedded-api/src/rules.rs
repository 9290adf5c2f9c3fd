//! What an object goes through before it is stored: schema defaults, mutation, defaults again,
//! schema, validation (spec/api section 3).

use std::sync::Arc;

use serde_json::Value;

use crate::admission::{Admission, AdmissionRequest, Verb};
use crate::batch::Batch;
use crate::kinds::{self, Kind};
use crate::object_key::ObjectKey;
use crate::request::{FieldValidation, WriteRequest};
use crate::schema;
use crate::schemas::Schemas;
use crate::status::ApiError;

/// Schemas and admission.
#[derive(Clone)]
pub(crate) struct Rules {
    pub(crate) schemas: Arc<Schemas>,
    pub(crate) admission: Arc<dyn Admission>,
}

/// A write under review.
pub(crate) struct Review<'a, 'b> {
    pub(crate) request: &'a WriteRequest,
    pub(crate) batch: &'a Batch<'b>,
    pub(crate) name: &'a str,
    pub(crate) old: Option<&'a Value>,
}

impl Rules {
    /// Prunes unknown fields as `fieldValidation` says.
    pub(crate) fn prune(
        &self,
        kind: &Kind,
        validation: FieldValidation,
        object: &mut Value,
    ) -> Result<Vec<String>, ApiError> {
        let Some(schema) = self.schemas.get(kind.kind) else {
            return Ok(Vec::new());
        };
        let unknown = schema::prune(schema, object);
        let named = || {
            unknown
                .iter()
                .map(|path| format!("unknown field \"{path}\""))
        };
        match validation {
            FieldValidation::Ignore => Ok(Vec::new()),
            FieldValidation::Warn => Ok(named().collect()),
            FieldValidation::Strict if unknown.is_empty() => Ok(Vec::new()),
            FieldValidation::Strict => Err(ApiError::bad_request(format!(
                "{} in version \"{}\" cannot be handled as a {}: strict decoding error: {}",
                kind.kind,
                kind.version,
                kind.kind,
                named().collect::<Vec<_>>().join(", ")
            ))),
        }
    }

    /// Defaults, mutation and all checks of a create or update; returns warnings.
    pub(crate) fn admit(
        &self,
        review: &Review<'_, '_>,
        new: &mut Value,
    ) -> Result<Vec<String>, ApiError> {
        let kind = review.request.kind;
        self.default(kind, new);
        let verb = if review.old.is_some() {
            Verb::Update
        } else {
            Verb::Create
        };
        let request = review.request(verb);
        let lookup = |kind: &str| review.list(kind);
        let mut warnings = self.admission.mutate(&request, new, &lookup);
        self.default(kind, new);
        self.check_schema(kind, review.name, new, review.old)?;
        let more = self.admission.validate(&request, Some(new), &lookup);
        warnings.extend(more.map_err(|denial| ApiError::denied(kind, review.name, &denial))?);
        Ok(warnings)
    }

    /// Checks of a deletion; returns warnings.
    pub(crate) fn admit_delete(&self, review: &Review<'_, '_>) -> Result<Vec<String>, ApiError> {
        let lookup = |kind: &str| review.list(kind);
        self.admission
            .validate(&review.request(Verb::Delete), None, &lookup)
            .map_err(|denial| ApiError::denied(review.request.kind, review.name, &denial))
    }

    /// Schema defaults.
    pub(crate) fn default(&self, kind: &Kind, object: &mut Value) {
        if let Some(schema) = self.schemas.get(kind.kind) {
            schema::apply_defaults(schema, object);
        }
    }

    /// Schema violations that the stored object did not have already: an object from before a
    /// schema change must still be able to lose its finalizer.
    pub(crate) fn check_schema(
        &self,
        kind: &Kind,
        name: &str,
        new: &Value,
        old: Option<&Value>,
    ) -> Result<(), ApiError> {
        let Some(schema) = self.schemas.get(kind.kind) else {
            return Ok(());
        };
        let mut causes = schema::validate(schema, new);
        if let Some(old) = old.filter(|_| !causes.is_empty()) {
            let known = schema::validate(schema, old);
            causes.retain(|cause| !known.contains(cause));
        }
        if causes.is_empty() {
            Ok(())
        } else {
            Err(ApiError::invalid(kind, name, &causes))
        }
    }
}

impl<'a> Review<'a, '_> {
    fn request(&self, verb: Verb) -> AdmissionRequest<'a> {
        AdmissionRequest {
            verb,
            kind: self.request.kind.kind,
            namespace: &self.request.namespace,
            name: self.name,
            old: self.old,
            dry_run: self.request.dry_run,
        }
    }

    fn list(&self, kind: &str) -> Vec<Value> {
        kinds::by_kind(kind)
            .map(|kind| self.batch.list(&ObjectKey::prefix(kind.collection, None)))
            .unwrap_or_default()
    }
}
