//! Error answers of the contract: status, code, message, details (iaas-provider.openapi.yaml).

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::cloud::CloudError;

/// A refused call.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct Refusal {
    /// HTTP status.
    pub status: u16,
    /// Stable identifier.
    pub code: &'static str,
    /// For people.
    pub message: String,
    /// For programs, may be null.
    pub details: Value,
}

impl Refusal {
    /// Without details.
    pub fn new(status: u16, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            code,
            message: message.into(),
            details: Value::Null,
        }
    }

    /// 400: the request itself is wrong.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(400, "InvalidRequest", message)
    }

    /// 503: nothing is known of the cloud yet (P17).
    #[must_use]
    pub fn unready() -> Self {
        Self::new(503, "NotReady", "rebuilding state from the cloud")
    }

    /// With details.
    #[must_use]
    pub fn with(self, details: Value) -> Self {
        Self { details, ..self }
    }
}

impl From<CloudError> for Refusal {
    fn from(error: CloudError) -> Self {
        let message = error.to_string();
        match error {
            CloudError::Capacity {
                limit, attached, ..
            } => Self::new(409, "CapacityExceeded", message)
                .with(json!({ "limit": limit, "attached": attached })),
            CloudError::AddressInUse { .. } => Self::new(409, "AddressInUse", message),
            CloudError::NoVlan(_) | CloudError::NoMac => Self::new(409, "QuotaExceeded", message),
            CloudError::NoSubnet(_) => Self::new(404, "SubnetNotFound", message),
            CloudError::NoAddress => Self::invalid(message),
            CloudError::UnknownParent(_) => Self::new(400, "ParentNicNotOnNode", message),
            CloudError::UnknownSubEni(_) | CloudError::State { .. } => {
                Self::new(500, "Internal", message)
            }
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let (code, message, details) = (self.code, self.message, self.details);
        let body = if details.is_null() {
            json!({ "code": code, "message": message })
        } else {
            json!({ "code": code, "message": message, "details": details })
        };
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (status, Json(body)).into_response()
    }
}
