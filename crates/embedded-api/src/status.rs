//! Refusals as Kubernetes `Status` objects. kubectl and client libraries match on code and reason,
//! people read the message: texts follow those of kube-apiserver.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use serde_json::{Value, json};

use crate::admission::{Cause, Denial};
use crate::kinds::Kind;

/// Why a request was refused. Displays as the message a user sees.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    code: u16,
    reason: String,
    message: String,
    details: Value,
}

impl ApiError {
    fn new(code: u16, reason: &str, message: impl Into<String>) -> Self {
        let message = message.into();
        Self {
            code,
            reason: reason.to_owned(),
            message,
            details: Value::Null,
        }
    }

    fn of_object(mut self, kind: &Kind, name: &str) -> Self {
        let mut details = json!({"name": name, "kind": kind.plural});
        if let Some(map) = details.as_object_mut().filter(|_| !kind.group.is_empty()) {
            map.insert("group".to_owned(), json!(kind.group));
        }
        self.details = details;
        self
    }

    /// HTTP status code of the answer.
    #[must_use]
    pub const fn code(&self) -> u16 {
        self.code
    }

    pub(crate) fn not_found(kind: &Kind, name: &str) -> Self {
        let message = format!("{} \"{name}\" not found", kind.qualified_plural());
        Self::new(404, "NotFound", message).of_object(kind, name)
    }

    pub(crate) fn no_such_path() -> Self {
        Self::new(
            404,
            "NotFound",
            "the server could not find the requested resource",
        )
    }

    pub(crate) fn already_exists(kind: &Kind, name: &str) -> Self {
        let message = format!("{} \"{name}\" already exists", kind.qualified_plural());
        Self::new(409, "AlreadyExists", message).of_object(kind, name)
    }

    pub(crate) fn conflict(kind: &Kind, name: &str, why: &str) -> Self {
        let what = kind.qualified_plural();
        let message = format!("Operation cannot be fulfilled on {what} \"{name}\": {why}");
        Self::new(409, "Conflict", message).of_object(kind, name)
    }

    pub(crate) fn stale(kind: &Kind, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version \
                   and try again";
        Self::conflict(kind, name, why)
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    pub(crate) fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    pub(crate) fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(405, "MethodNotAllowed", message)
    }

    pub(crate) fn not_acceptable() -> Self {
        let message = "only the following media types are accepted: application/json, also \
                       as=Table and as=PartialObjectMetadata of meta.k8s.io/v1";
        Self::new(406, "NotAcceptable", message)
    }

    pub(crate) fn unsupported_media(message: impl Into<String>) -> Self {
        Self::new(415, "UnsupportedMediaType", message)
    }

    pub(crate) fn too_large(message: impl Into<String>) -> Self {
        Self::new(413, "RequestEntityTooLarge", message)
    }

    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    pub(crate) fn too_new(asked: u64, current: u64) -> Self {
        let message = format!("Too large resource version: {asked}, current: {current}");
        let mut error = Self::new(504, "Timeout", message);
        error.details = json!({"retryAfterSeconds": 1, "causes": [
            {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]});
        error
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(500, "InternalError", message)
    }

    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(503, "ServiceUnavailable", message)
    }

    pub(crate) fn forbidden(kind: &Kind, name: &str, why: &str) -> Self {
        let message = format!("{} \"{name}\" is forbidden: {why}", kind.qualified_plural());
        Self::new(403, "Forbidden", message).of_object(kind, name)
    }

    /// A query parameter of a request that names no object.
    pub(crate) fn invalid_options(causes: &[Cause]) -> Self {
        let list = Cause::list(causes);
        let mut error = Self::new(422, "Invalid", format!("ListOptions is invalid: {list}"));
        error.details = json!({"group": "meta.k8s.io", "kind": "ListOptions", "causes": causes});
        error
    }

    /// Field errors of an object.
    pub(crate) fn invalid(kind: &Kind, name: &str, causes: &[Cause]) -> Self {
        let list = Cause::list(causes);
        let message = format!("{} \"{name}\" is invalid: {list}", kind.qualified_kind());
        let mut error = Self::new(422, "Invalid", message).of_object(kind, name);
        if let Some(details) = error.details.as_object_mut() {
            details.insert("kind".to_owned(), json!(kind.kind));
            details.insert("causes".to_owned(), json!(causes));
        }
        error
    }

    /// What an admission rule said, in the object's name.
    pub(crate) fn denied(kind: &Kind, name: &str, denial: &Denial) -> Self {
        match denial {
            Denial::Invalid(causes) => Self::invalid(kind, name, causes),
            Denial::Forbidden(why) => Self::forbidden(kind, name, why),
            Denial::AlreadyExists => Self::already_exists(kind, name),
        }
    }

    /// The `Status` object.
    #[must_use]
    pub fn body(&self) -> Value {
        let mut body = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code,
        });
        if let Some(map) = body.as_object_mut().filter(|_| !self.details.is_null()) {
            map.insert("details".to_owned(), self.details.clone());
        }
        body
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::from(self.body().to_string()));
        *response.status_mut() =
            StatusCode::from_u16(self.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        if self.code == 401 {
            let scheme = HeaderValue::from_static("Bearer");
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, scheme);
        }
        response
    }
}

/// The answer to a delete that is done.
pub(crate) fn deleted(kind: &Kind, name: &str, uid: &str) -> Value {
    let mut details = json!({"name": name, "kind": kind.plural, "uid": uid});
    if let Some(map) = details.as_object_mut().filter(|_| !kind.group.is_empty()) {
        map.insert("group".to_owned(), json!(kind.group));
    }
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
        "details": details})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds;

    #[test]
    fn bodies_are_those_of_kube_apiserver() {
        let pool = kinds::by_kind("SpiderIPPool").unwrap();
        let stale = ApiError::stale(pool, "p").body();
        assert_eq!(
            stale["message"],
            "Operation cannot be fulfilled on spiderippools.spiderpool.spidernet.io \"p\": the \
             object has been modified; please apply your changes to the latest version and try again"
        );
        let causes = [Cause::required("spec.subnet", "")];
        let invalid = ApiError::invalid(pool, "p", &causes).body();
        assert_eq!(
            invalid["message"],
            "SpiderIPPool.spiderpool.spidernet.io \"p\" is invalid: spec.subnet: Required value"
        );
        assert_eq!(invalid["details"]["kind"], "SpiderIPPool");
        assert_eq!(invalid["details"]["causes"][0]["field"], "spec.subnet");
        let pod = kinds::by_kind("Pod").unwrap();
        let missing = ApiError::not_found(pod, "x").body();
        assert_eq!(missing["details"], json!({"name": "x", "kind": "pods"}));
    }
}
