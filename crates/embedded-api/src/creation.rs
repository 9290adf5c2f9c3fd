//! What create means: name, namespace, server-owned metadata, first status. Stages into the batch.

use jiff::Timestamp;
use serde_json::{Value, json};
use spiderpool_api::names;
use uuid::Uuid;

use crate::batch::Batch;
use crate::clock;
use crate::decode;
use crate::events;
use crate::kinds::{self, Kind};
use crate::object;
use crate::object_key::ObjectKey;
use crate::request::{WriteRequest, Written};
use crate::rules::{Review, Rules};
use crate::status::ApiError;

/// Events beyond this are dropped, oldest first; a cluster drops them by age.
const EVENTS_KEPT: usize = 1000;
/// Letters of a generated suffix: no vowels, nothing that reads like another (as Kubernetes).
const SUFFIX_LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// Decides a creation.
pub(crate) fn create(
    rules: &Rules,
    batch: &mut Batch<'_>,
    request: &WriteRequest,
    mut object: Value,
    now: Timestamp,
) -> Result<Written, ApiError> {
    let kind = request.kind;
    decode::identify(kind, &request.namespace, &mut object)?;
    if !object::text_at(&object, "/metadata/resourceVersion").is_empty() {
        let why = "resourceVersion should not be set on objects to be created";
        return Err(ApiError::bad_request(why));
    }
    events::to_stored(kind, &mut object);
    let uid = new_uid(kind, &object);
    object::strip_server_fields(&mut object);
    decode::check_form(kind, &object)?;
    let mut warnings = rules.prune(kind, request.validation, &mut object)?;
    let (name, key) = choose_name(batch, request, &mut object)?;
    check_namespace(batch, request)?;
    initial_fields(kind, &name, &mut object);
    let review = Review {
        request,
        batch,
        name: &name,
        old: None,
    };
    warnings.extend(rules.admit(&review, &mut object)?);
    object::set_meta(&mut object, "uid", json!(uid));
    object::set_meta(&mut object, "creationTimestamp", json!(clock::stamp(now)));
    if kind.generation {
        object::set_meta(&mut object, "generation", json!(1));
    }
    if request.dry_run {
        return Ok(Written::object(object.to_string().into(), true, warnings));
    }
    let body = batch.put(kind, key, object);
    if kind.collection == "events" {
        drop_old_events(batch);
    }
    Ok(Written::object(body, true, warnings))
}

/// A Pod that stands for a bare container keeps the UID its agent derives from the container id:
/// a repeated ADD must find the records of the first. Everything else gets a random one.
fn new_uid(kind: &Kind, object: &Value) -> String {
    let owned_by = object
        .pointer("/metadata/labels")
        .and_then(|labels| labels.get(names::LABEL_OWNED_BY))
        .and_then(Value::as_str);
    let asked = object::uid(object);
    if kind.kind == "Pod"
        && owned_by == Some(names::OWNED_BY_STANDALONE)
        && Uuid::parse_str(&asked).is_ok()
    {
        return asked;
    }
    Uuid::new_v4().to_string()
}

/// The name given, or one made from `generateName`; refuses a name that is taken.
fn choose_name(
    batch: &Batch<'_>,
    request: &WriteRequest,
    object: &mut Value,
) -> Result<(String, ObjectKey), ApiError> {
    let kind = request.kind;
    let key = |name: &str| ObjectKey::new(kind.collection, &request.namespace, name);
    let given = object::name(object);
    let prefix = object::text_at(object, "/metadata/generateName");
    if !given.is_empty() || prefix.is_empty() {
        decode::check_name(kind, &given)?;
        let key = key(&given);
        return match batch.get(&key) {
            Some(_) => Err(ApiError::already_exists(kind, &given)),
            None => Ok((given, key)),
        };
    }
    loop {
        let name = format!("{prefix}{}", suffix());
        decode::check_name(kind, &name)?;
        let key = key(&name);
        if batch.get(&key).is_none() {
            object::set_meta(object, "name", json!(name));
            return Ok((name, key));
        }
    }
}

fn suffix() -> String {
    let letter = |byte: &u8| {
        let index = usize::from(*byte) % SUFFIX_LETTERS.len();
        SUFFIX_LETTERS.get(index).copied().map(char::from)
    };
    Uuid::new_v4()
        .as_bytes()
        .iter()
        .filter_map(letter)
        .take(5)
        .collect()
}

fn check_namespace(batch: &Batch<'_>, request: &WriteRequest) -> Result<(), ApiError> {
    if !request.kind.namespaced {
        return Ok(());
    }
    let key = ObjectKey::new("namespaces", "", &request.namespace);
    match (batch.get(&key), kinds::by_kind("Namespace")) {
        (None, Some(kind)) => Err(ApiError::not_found(kind, &request.namespace)),
        _ => Ok(()),
    }
}

/// A new object has no status of its own where that is a subresource. Kubelets register Nodes with
/// theirs, so that one stays.
fn initial_fields(kind: &Kind, name: &str, object: &mut Value) {
    match kind.kind {
        "Node" => {}
        "Pod" => object::set(object, "status", json!({"phase": "Pending"})),
        "Namespace" => {
            object::set(object, "status", json!({"phase": "Active"}));
            // what namespace selectors go by
            let mut labels = object::string_map(object, "/metadata/labels");
            labels.insert("kubernetes.io/metadata.name".to_owned(), name.to_owned());
            object::set_meta(object, "labels", json!(labels));
        }
        _ if kind.status => object::copy_key(object, &Value::Null, "status"),
        _ => {}
    }
}

fn drop_old_events(batch: &mut Batch<'_>) {
    let prefix = ObjectKey::prefix("events", None);
    let mut all: Vec<_> = batch
        .entries(&prefix)
        .map(|(key, stored)| (stored.version, key.clone()))
        .collect();
    all.sort_unstable();
    let excess = all.len().saturating_sub(EVENTS_KEPT);
    for (_, key) in all.into_iter().take(excess) {
        let last = batch
            .get(&key)
            .and_then(|stored| serde_json::from_slice(&stored.json).ok());
        batch.remove(key, last.unwrap_or(Value::Null));
    }
}
