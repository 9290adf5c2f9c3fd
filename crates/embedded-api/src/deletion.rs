//! What delete means: preconditions, finalizers, namespaces. Stages into the batch.

use jiff::Timestamp;
use serde_json::json;

use crate::apply::{current, raise_generation};
use crate::batch::Batch;
use crate::clock;
use crate::kinds;
use crate::object;
use crate::object_key::ObjectKey;
use crate::request::{Preconditions, WriteRequest, Written};
use crate::rules::{Review, Rules};
use crate::status::{self, ApiError};

/// Namespaces that are always there.
pub(crate) const BUILT_IN_NAMESPACES: &[&str] = &["default", "kube-system"];
/// Decides a deletion.
pub(crate) fn delete(
    rules: &Rules,
    batch: &mut Batch<'_>,
    request: &WriteRequest,
    preconditions: &Preconditions,
    now: Timestamp,
) -> Result<Written, ApiError> {
    let (key, mut old) = current(batch, request)?;
    check_preconditions(request, preconditions, &old)?;
    if request.kind.kind == "Namespace" {
        check_namespace_empty(batch, request)?;
    }
    let review = Review {
        request,
        batch,
        name: &request.name,
        old: Some(&old),
    };
    let warnings = rules.admit_delete(&review)?;
    if !object::finalizers(&old).is_empty() {
        if object::terminating(&old) {
            return Ok(Written::object(old.to_string().into(), false, warnings));
        }
        object::set_meta(&mut old, "deletionTimestamp", json!(clock::stamp(now)));
        object::set_meta(&mut old, "deletionGracePeriodSeconds", json!(0));
        if request.kind.generation {
            // kube-apiserver counts the wish to delete as a change of the desired state
            raise_generation(&mut old);
        }
        let body = if request.dry_run {
            old.to_string().into()
        } else {
            batch.put(request.kind, key, old)
        };
        return Ok(Written::object(body, false, warnings));
    }
    let uid = object::uid(&old);
    if !request.dry_run {
        batch.remove(key, old);
    }
    let body = status::deleted(request.kind, &request.name, &uid)
        .to_string()
        .into();
    Ok(Written {
        body,
        is_object: false,
        created: false,
        warnings,
    })
}

fn check_preconditions(
    request: &WriteRequest,
    preconditions: &Preconditions,
    old: &serde_json::Value,
) -> Result<(), ApiError> {
    let (kind, name) = (request.kind, &request.name);
    let uid = object::uid(old);
    if let Some(asked) = preconditions.uid.as_ref().filter(|asked| **asked != uid) {
        let why =
            format!("Precondition failed: UID in precondition: {asked}, UID in object meta: {uid}");
        return Err(ApiError::conflict(kind, name, &why));
    }
    let version = object::text_at(old, "/metadata/resourceVersion");
    if let Some(asked) = preconditions
        .resource_version
        .as_ref()
        .filter(|a| **a != version)
    {
        let why = format!(
            "Precondition failed: ResourceVersion in precondition: {asked}, ResourceVersion in \
             object meta: {version}"
        );
        return Err(ApiError::conflict(kind, name, &why));
    }
    Ok(())
}

/// There is no namespace controller here that would empty it.
fn check_namespace_empty(batch: &Batch<'_>, request: &WriteRequest) -> Result<(), ApiError> {
    let (kind, name) = (request.kind, &request.name);
    if BUILT_IN_NAMESPACES.contains(&name.as_str()) {
        return Err(ApiError::forbidden(
            kind,
            name,
            "this namespace may not be deleted",
        ));
    }
    let held = kinds::all()
        .iter()
        .filter(|k| k.namespaced && !k.converts())
        .map(|k| {
            batch
                .entries(&ObjectKey::prefix(k.collection, Some(name)))
                .count()
        })
        .sum::<usize>();
    if held == 0 {
        return Ok(());
    }
    let why = format!("it still holds {held} objects; delete them first");
    Err(ApiError::conflict(kind, name, &why))
}
