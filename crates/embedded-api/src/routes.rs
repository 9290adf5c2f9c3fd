//! The HTTP surface: finds what a request means and hands it to reads, watches or the writer.
//! Holds no state of its own.

pub(crate) mod read;
pub(crate) mod write;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Method, header};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::discovery;
use crate::mirror::Mirror;
use crate::openapi;
use crate::params::Params;
use crate::path::{self, Target};
use crate::schemas::Schemas;
use crate::status::ApiError;
use crate::writer::Writer;

/// What requests work on.
#[derive(Clone)]
pub(crate) struct Api {
    pub(crate) mirror: Arc<Mirror>,
    pub(crate) writer: Writer,
    pub(crate) schemas: Arc<Schemas>,
    /// Ends watches at shutdown.
    pub(crate) stop: CancellationToken,
}

/// Everything that is served, without authentication.
pub(crate) fn router(api: Api) -> Router {
    Router::new().fallback(dispatch).with_state(api)
}

/// Whether a path needs no token: probes have none.
pub(crate) fn is_probe(path: &str) -> bool {
    matches!(path, "/healthz" | "/livez" | "/readyz")
}

async fn dispatch(State(api): State<Api>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let answer = route(&api, &parts, body).await;
    answer.unwrap_or_else(|error| {
        tracing::debug!(method = %parts.method, path = parts.uri.path(), %error, "refused");
        error.into_response()
    })
}

async fn route(api: &Api, parts: &Parts, body: Body) -> Result<Response, ApiError> {
    let path = parts.uri.path();
    if is_probe(path) {
        return Ok("ok".into_response());
    }
    if let Some(Target::Collection { .. } | Target::Object { .. }) = path::parse(path) {
        return resource(api, parts, body).await;
    }
    let document = document(api, parts).ok_or_else(ApiError::no_such_path)?;
    if parts.method == Method::GET {
        Ok(document)
    } else {
        Err(ApiError::method_not_allowed())
    }
}

fn document(api: &Api, parts: &Parts) -> Option<Response> {
    let accept = parts
        .headers
        .get(header::ACCEPT)
        .and_then(|v| v.to_str().ok());
    let aggregated = discovery::wants_aggregated(accept.unwrap_or_default());
    let path = parts.uri.path();
    let value = match path::parse(path) {
        Some(Target::CoreVersions | Target::Groups) if aggregated => {
            let core = matches!(path::parse(path), Some(Target::CoreVersions));
            let body = discovery::aggregated(core).to_string();
            return Some(typed(body.into(), discovery::AGGREGATED));
        }
        Some(Target::CoreVersions) => discovery::core_versions(),
        Some(Target::Groups) => discovery::groups(),
        Some(Target::Group(group)) => discovery::group(&group)?,
        Some(Target::Resources { group, version }) => discovery::resources(&group, &version)?,
        _ => match path {
            "/version" | "/version/" => discovery::version(),
            "/openapi/v3" | "/openapi/v3/" => openapi::index(),
            _ => openapi::document(path.strip_prefix("/openapi/v3/")?, &api.schemas)?,
        },
    };
    Some(json(&value))
}

async fn resource(api: &Api, parts: &Parts, body: Body) -> Result<Response, ApiError> {
    let params = Params::parse(&parts.uri)?;
    let Some(target) = path::parse(parts.uri.path()) else {
        return Err(ApiError::no_such_path());
    };
    match (parts.method.clone(), target) {
        (Method::GET, Target::Collection { kind, namespace }) => {
            read::list_or_watch(api, parts, &params, kind, namespace.as_deref())
        }
        (
            Method::GET,
            Target::Object {
                kind,
                namespace,
                name,
                ..
            },
        ) => read::get(api, parts, &params, kind, &namespace, &name),
        (_, target) => write::write(api, parts, &params, target, body).await,
    }
}

pub(crate) fn json(value: &Value) -> Response {
    typed(value.to_string().into(), "application/json")
}

pub(crate) fn typed(body: Bytes, content_type: &'static str) -> Response {
    let mut response = Response::new(Body::from(body));
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
