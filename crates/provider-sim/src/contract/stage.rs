//! Plays the faults of a call (spec iaas 15.4): what comes instead of its work, and what becomes of
//! its answer.

use std::future::pending;
use std::io;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use axum::http::header::CONTENT_LENGTH;
use axum::response::{IntoResponse, Response};
use futures::stream;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::answer;
use crate::faults::{Fault, Kind};

/// Faults that come instead of the work, or before it.
pub(super) async fn before_work(fault: Option<&Fault>) -> Option<Response> {
    let fault = fault?;
    match fault.kind {
        Kind::Delay => {
            sleep(Duration::from_millis(fault.delay_ms)).await;
            None
        }
        Kind::Hang => pending().await,
        Kind::Status => {
            let status = fault
                .status
                .and_then(|code| StatusCode::from_u16(code).ok());
            let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            let body = fault.body.clone().unwrap_or_else(|| {
                json!({ "code": "Internal", "message": "a fault on demand" }).to_string()
            });
            Some((status, body).into_response())
        }
        _ => None,
    }
}

/// Faults of the answer to allocate.
pub(super) async fn allocated(fault: Option<Fault>, answer: Value) -> Response {
    late(fault.as_ref()).await;
    match fault {
        Some(Fault {
            kind: Kind::BadJson,
            body,
            ..
        }) => body
            .unwrap_or_else(|| "{\"subEniResponses\":[".to_owned())
            .into_response(),
        Some(Fault {
            kind: Kind::Reset, ..
        }) => cut_off(&answer.to_string()),
        Some(fault) => axum::Json(answer::spoil(answer, fault.kind)).into_response(),
        None => axum::Json(answer).into_response(),
    }
}

/// Faults of the answer to release.
pub(super) async fn released(fault: Option<Fault>, status: u16) -> Response {
    late(fault.as_ref()).await;
    if fault.is_some_and(|fault| fault.kind == Kind::Reset) {
        return cut_off("{}");
    }
    let status = StatusCode::from_u16(status);
    status.unwrap_or(StatusCode::NO_CONTENT).into_response()
}

/// A good answer of which the first half comes; then the connection ends.
fn cut_off(text: &str) -> Response {
    let half = text.get(..text.len() / 2).unwrap_or_default().to_owned();
    let end = io::Error::from(io::ErrorKind::ConnectionReset);
    let pieces = stream::iter([Ok(Bytes::from(half)), Err(end)]);
    let length = [(CONTENT_LENGTH, text.len().to_string())];
    (length, Body::from_stream(pieces)).into_response()
}

async fn late(fault: Option<&Fault>) {
    match fault {
        Some(fault) if fault.kind == Kind::LateSuccess && fault.delay_ms == 0 => pending().await,
        Some(fault) if fault.kind == Kind::LateSuccess => {
            sleep(Duration::from_millis(fault.delay_ms)).await;
        }
        _ => {}
    }
}
