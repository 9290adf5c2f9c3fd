//! One write against one object: what replace and patch mean, and the way to `creation` and
//! `deletion`. Decides and stages into the batch; commits nothing.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::admission::Cause;
use crate::batch::Batch;
use crate::creation::create;
use crate::decode;
use crate::deletion::delete;
use crate::events;
use crate::kinds::{Family, Kind};
use crate::object;
use crate::object_key::ObjectKey;
use crate::patch::PatchError;
use crate::request::{Action, Part, WriteRequest, Written};
use crate::rules::{Review, Rules};
use crate::status::ApiError;

/// Decides a write and stages its change.
pub(crate) fn apply(
    rules: &Rules,
    batch: &mut Batch<'_>,
    request: &WriteRequest,
    now: Timestamp,
) -> Result<Written, ApiError> {
    match &request.action {
        Action::Create(object) => create(rules, batch, request, object.clone(), now),
        Action::Replace(part, object) => {
            let (key, old) = current(batch, request)?;
            let mut new = object.clone();
            require_version(request, &mut new, &old)?;
            update(rules, batch, request, *part, (key, old, new))
        }
        Action::Patch(part, patch) => {
            let (key, old) = current(batch, request)?;
            let mut served = old.clone();
            events::to_served(request.kind, &mut served);
            let new = patch
                .apply(&served)
                .map_err(|error| refused(request, &error))?;
            update(rules, batch, request, *part, (key, old, new))
        }
        Action::Delete(preconditions) => delete(rules, batch, request, preconditions, now),
    }
}

fn refused(request: &WriteRequest, error: &PatchError) -> ApiError {
    match error {
        PatchError::Media { .. } => ApiError::unsupported_media(error.to_string()),
        PatchError::Syntax(_) => ApiError::bad_request(error.to_string()),
        PatchError::Apply(why) => {
            let cause = Cause::new("FieldValueInvalid", "patch", why.clone());
            ApiError::invalid(request.kind, &request.name, &[cause])
        }
    }
}

pub(crate) fn current(
    batch: &Batch<'_>,
    request: &WriteRequest,
) -> Result<(ObjectKey, Value), ApiError> {
    let key = ObjectKey::new(request.kind.collection, &request.namespace, &request.name);
    let stored = batch
        .get(&key)
        .ok_or_else(|| ApiError::not_found(request.kind, &request.name))?;
    let object = serde_json::from_slice(&stored.json)
        .map_err(|error| ApiError::internal(format!("the stored object is damaged: {error}")))?;
    Ok((key, object))
}

/// A custom resource is never replaced blindly; core kinds may be.
fn require_version(request: &WriteRequest, new: &mut Value, old: &Value) -> Result<(), ApiError> {
    if !object::text_at(new, "/metadata/resourceVersion").is_empty() {
        return Ok(());
    }
    if request.kind.family == Family::Custom {
        let why = "must be specified for an update";
        let cause = Cause::invalid("metadata.resourceVersion", &json!(0), why);
        return Err(ApiError::invalid(request.kind, &request.name, &[cause]));
    }
    let version = object::text_at(old, "/metadata/resourceVersion");
    object::set_meta(new, "resourceVersion", json!(version));
    Ok(())
}

/// The common end of replace and patch. `new` is in served form, `old` as stored.
fn update(
    rules: &Rules,
    batch: &mut Batch<'_>,
    request: &WriteRequest,
    part: Part,
    (key, old, mut new): (ObjectKey, Value, Value),
) -> Result<Written, ApiError> {
    let kind = request.kind;
    decode::identify(kind, &request.namespace, &mut new)?;
    check_identity(request, &new, &old)?;
    events::to_stored(kind, &mut new);
    object::keep_server_fields(&mut new, &old);
    let mut warnings = rules.prune(kind, request.validation, &mut new)?;
    let new = match part {
        Part::Status => with_status_only(rules, request, &old, &new)?,
        Part::Main => {
            if kind.status {
                object::copy_key(&mut new, &old, "status");
            }
            decode::check_form(kind, &new)?;
            check_finalizers(request, &new, &old)?;
            let review = Review {
                request,
                batch,
                name: &request.name,
                old: Some(&old),
            };
            warnings.extend(rules.admit(&review, &mut new)?);
            count_generation(kind, &mut new, &old);
            new
        }
    };
    let gone = object::terminating(&new) && object::finalizers(&new).is_empty();
    let body = match (request.dry_run || (!gone && new == old), gone) {
        (true, _) => new.to_string().into(),
        (false, true) => batch.remove(key, new),
        (false, false) => batch.put(kind, key, new),
    };
    Ok(Written::object(body, false, warnings))
}

fn check_identity(request: &WriteRequest, new: &Value, old: &Value) -> Result<(), ApiError> {
    let (kind, name) = (request.kind, &request.name);
    let named = object::name(new);
    if named != *name {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({named}) does not match the name on the URL ({name})"
        )));
    }
    let (uid, old_uid) = (object::uid(new), object::uid(old));
    if !uid.is_empty() && uid != old_uid {
        let why = format!(
            "Precondition failed: UID in precondition: {uid}, UID in object meta: {old_uid}"
        );
        return Err(ApiError::conflict(kind, name, &why));
    }
    let version = |object| object::text_at(object, "/metadata/resourceVersion");
    // a patch that removed the field leaves it empty: unconditional
    let asked = version(new);
    if !asked.is_empty() && asked != version(old) {
        return Err(ApiError::stale(kind, name));
    }
    Ok(())
}

fn with_status_only(
    rules: &Rules,
    request: &WriteRequest,
    old: &Value,
    new: &Value,
) -> Result<Value, ApiError> {
    let mut result = old.clone();
    object::copy_key(&mut result, new, "status");
    rules.default(request.kind, &mut result);
    decode::check_form(request.kind, &result)?;
    rules.check_schema(request.kind, &request.name, &result, Some(old))?;
    Ok(result)
}

/// An object that is going away can lose finalizers, not gain them.
fn check_finalizers(request: &WriteRequest, new: &Value, old: &Value) -> Result<(), ApiError> {
    if !object::terminating(old) {
        return Ok(());
    }
    let before = object::finalizers(old);
    let added: Vec<_> = object::finalizers(new)
        .into_iter()
        .filter(|f| !before.contains(f))
        .collect();
    if added.is_empty() {
        return Ok(());
    }
    let why = format!(
        "no new finalizers can be added if the object is being deleted, found new finalizers {added:?}"
    );
    let cause = Cause::forbidden("metadata.finalizers", &why);
    Err(ApiError::invalid(request.kind, &request.name, &[cause]))
}

fn count_generation(kind: &Kind, new: &mut Value, old: &Value) {
    let ignored: &[&str] = if kind.status {
        &["metadata", "status"]
    } else {
        &["metadata"]
    };
    if kind.generation && object::differs_outside(new, old, ignored) {
        raise_generation(new);
    }
}

pub(crate) fn raise_generation(object: &mut Value) {
    let generation = object
        .pointer("/metadata/generation")
        .and_then(Value::as_u64)
        .unwrap_or(0);
    object::set_meta(object, "generation", json!(generation + 1));
}
