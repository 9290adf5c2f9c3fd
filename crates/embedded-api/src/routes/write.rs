//! POST, PUT, PATCH and DELETE: bodies are read and parsed here, decided by the writer.

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures::future::join_all;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use serde_json::{Value, json};

use super::{Api, json as json_response, typed};
use crate::clock;
use crate::kinds::Kind;
use crate::mirror;
use crate::object;
use crate::object_key::ObjectKey;
use crate::params::Params;
use crate::patch::{Patch, PatchError};
use crate::path::Target;
use crate::request::{Action, Part, Preconditions, WriteRequest, Written};
use crate::status::ApiError;
use crate::view::View;

/// As kube-apiserver: 3 MiB a request.
const BODY_LIMIT: usize = 3 << 20;

/// Any request that is no GET.
pub(crate) async fn write(
    api: &Api,
    parts: &Parts,
    params: &Params,
    target: Target,
    body: Body,
) -> Result<Response, ApiError> {
    let body = axum::body::to_bytes(body, BODY_LIMIT)
        .await
        .map_err(|_| ApiError::too_large("the request body is larger than 3 MiB or was cut off"))?;
    let view = View::negotiate(&parts.headers, params.text("includeObject"))?;
    let (kind, namespace, name, action, dry_run) = match (&parts.method, target) {
        (&Method::DELETE, Target::Collection { kind, namespace }) => {
            return delete_collection(api, params, kind, namespace.as_deref(), &body).await;
        }
        (&Method::POST, Target::Collection { kind, namespace }) => {
            if kind.namespaced != namespace.is_some() {
                return Err(ApiError::method_not_allowed());
            }
            let action = Action::Create(document(&parts.headers, &body)?);
            (
                kind,
                namespace.unwrap_or_default(),
                String::new(),
                action,
                params.dry_run()?,
            )
        }
        (
            method,
            Target::Object {
                kind,
                namespace,
                name,
                status,
            },
        ) => {
            let part = if status { Part::Status } else { Part::Main };
            let (action, dry_run) = object_action(method, parts, params, kind, part, &body)?;
            (kind, namespace, name, action, dry_run)
        }
        _ => return Err(ApiError::method_not_allowed()),
    };
    let validation = params.field_validation()?;
    let request = WriteRequest {
        kind,
        namespace,
        name,
        action,
        dry_run,
        validation,
    };
    let written = api.writer.write(request).await?;
    Ok(answer(kind, view, written))
}

fn object_action(
    method: &Method,
    parts: &Parts,
    params: &Params,
    kind: &Kind,
    part: Part,
    body: &Bytes,
) -> Result<(Action, bool), ApiError> {
    match (method, part) {
        (&Method::PUT, _) => Ok((
            Action::Replace(part, document(&parts.headers, body)?),
            params.dry_run()?,
        )),
        (&Method::PATCH, _) => {
            let patch = Patch::parse(kind, content_type(&parts.headers), body);
            let patch = patch.map_err(|error| match error {
                PatchError::Media { .. } => ApiError::unsupported_media(error.to_string()),
                _ => ApiError::bad_request(error.to_string()),
            })?;
            Ok((Action::Patch(part, patch), params.dry_run()?))
        }
        (&Method::DELETE, Part::Main) => {
            let (preconditions, dry_run) = params.deletion(body)?;
            Ok((Action::Delete(preconditions), dry_run))
        }
        _ => Err(ApiError::method_not_allowed()),
    }
}

fn content_type(headers: &HeaderMap) -> &str {
    headers
        .get(header::CONTENT_TYPE)
        .and_then(|v| v.to_str().ok())
        .unwrap_or_default()
}

fn document(headers: &HeaderMap, body: &[u8]) -> Result<Value, ApiError> {
    let media = content_type(headers)
        .split(';')
        .next()
        .unwrap_or_default()
        .trim();
    if !matches!(media, "" | "application/json" | "*/*") {
        return Err(ApiError::unsupported_media(format!(
            "the body of the request was in an unknown format ({media}): application/json is accepted"
        )));
    }
    serde_json::from_slice(body)
        .map_err(|error| ApiError::bad_request(format!("the body is no JSON: {error}")))
}

fn answer(kind: &Kind, view: View, written: Written) -> Response {
    let body = if written.is_object {
        view.object(kind, &written.body, clock::now())
    } else {
        written.body
    };
    let mut response = typed(body, "application/json");
    if written.created {
        *response.status_mut() = StatusCode::CREATED;
    }
    for warning in written.warnings {
        if let Some(value) = warning_value(&warning) {
            response.headers_mut().append(header::WARNING, value);
        }
    }
    response
}

/// `299 - "text"` (RFC 7234 5.5, as kubectl prints it).
fn warning_value(text: &str) -> Option<HeaderValue> {
    let printable = |c: char| if c.is_control() { ' ' } else { c };
    let text: String = text.chars().map(printable).collect();
    let quoted = text.replace('\\', "\\\\").replace('"', "\\\"");
    HeaderValue::from_bytes(format!("299 - \"{quoted}\"").as_bytes()).ok()
}

/// Every selected object by itself, each only if it is still the one that was selected.
async fn delete_collection(
    api: &Api,
    params: &Params,
    kind: &'static Kind,
    namespace: Option<&str>,
    body: &[u8],
) -> Result<Response, ApiError> {
    let list = params.list(kind)?;
    let (_, dry_run) = params.deletion(body)?;
    let validation = params.field_validation()?;
    let prefix = ObjectKey::prefix(kind.collection, namespace);
    let selected: Vec<_> = mirror::range(&api.mirror.read().objects, &prefix, None)
        .filter(|(key, stored)| list.selector.matches(key, &stored.facts))
        .map(|(key, stored)| (key.clone(), stored.json.clone()))
        .collect();
    let deletions = selected.into_iter().map(|(key, stored)| {
        let object: Value = serde_json::from_slice(&stored).unwrap_or_default();
        let uid = Some(object::uid(&object)).filter(|uid| !uid.is_empty());
        api.writer.write(WriteRequest {
            kind,
            namespace: key.namespace().to_owned(),
            name: key.name().to_owned(),
            action: Action::Delete(Preconditions {
                uid,
                resource_version: None,
            }),
            dry_run,
            validation,
        })
    });
    for result in join_all(deletions).await {
        match result {
            // gone or replaced meanwhile: not what was selected
            Err(error) if !matches!(error.code(), 404 | 409) => return Err(error),
            _ => {}
        }
    }
    let details = json!({"kind": kind.plural, "group": kind.group});
    Ok(json_response(
        &json!({"kind": "Status", "apiVersion": "v1", "metadata": {},
        "status": "Success", "details": details}),
    ))
}
