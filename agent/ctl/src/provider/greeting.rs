//! The first request of a run: whether anybody answers there, in the scheme that was named, and by
//! what the certificate is verified.

use std::io;
use std::path::Path;
use std::time::Duration;

use http::{Method, StatusCode};
use rustls::Error as TlsError;
use serde_json::Value;
use spiderpool_api::causes::with_causes;
use spiderpool_iaas::client::raw::{self, RawReply};
use spiderpool_iaas::error::TransportError;
use tokio::time::timeout;

use super::kit::{Kit, Verified};
use super::wire::{Call, excerpt};

/// Longest wait for the first answer.
const FIRST: Duration = Duration::from_secs(10);
/// Longest part of an answer in a message, characters.
const SHOWN: usize = 72;

/// There is nobody to talk to.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GreetingError {
    /// Connected, or not, and no answer.
    #[error("{0} does not answer within {FIRST:?}")]
    Silent(String),
    /// The URL has the wrong scheme; the last part is what came instead.
    #[error(
        "{asked} is not the way to whoever listens there, try {}: {came}",
        other_scheme(asked)
    )]
    Scheme {
        /// As asked.
        asked: String,
        /// What told it.
        came: String,
    },
    /// The request itself.
    #[error("cannot ask the provider")]
    Request(#[from] http::Error),
    /// No answer; with all causes, which are others' words.
    #[error("{0}")]
    Transport(String),
}

/// Greets.
pub(crate) async fn greet(kit: &Kit, ca: Option<&Path>) -> Result<Verified, GreetingError> {
    let mut call = Call::post("/", &Value::Null, String::new());
    call.method = Method::GET;
    let asked = kit.endpoint.to_string();
    let answered = timeout(FIRST, raw::send(&kit.endpoint, call.request(Vec::new())?)).await;
    let Ok(answered) = answered else {
        return Err(GreetingError::Silent(asked));
    };
    let wrong_scheme = match &answered {
        Ok(reply) => (!kit.endpoint.is_tls() && wants_tls(reply)).then(|| came(reply)),
        Err(error) => is_other_scheme(error).then(|| with_causes(error)),
    };
    if let Some(came) = wrong_scheme {
        return Err(GreetingError::Scheme { asked, came });
    }
    let ca = ca.filter(|_| kit.endpoint.is_tls());
    match (answered, ca) {
        (Err(error @ TransportError::Tls { .. }), Some(_)) => {
            Ok(Verified::Refused(with_causes(&error)))
        }
        (Err(error), _) => Err(GreetingError::Transport(with_causes(&error))),
        (Ok(_), Some(ca)) => Ok(Verified::By(format!("verified by {}", ca.display()))),
        (Ok(_), None) if kit.endpoint.is_tls() => {
            Ok(Verified::Not("asked not to verify; Spiderpool does"))
        }
        (Ok(_), None) => Ok(Verified::Not("plain HTTP; Spiderpool speaks TLS")),
    }
}

/// What no TLS server sends is no TLS; what no HTTP server sends may be a TLS server's alert.
fn is_other_scheme(error: &TransportError) -> bool {
    match error {
        TransportError::Tls { source, .. } => is_no_tls(source),
        TransportError::Http { source, .. } => source.is_parse(),
        _ => false,
    }
}

fn is_no_tls(source: &io::Error) -> bool {
    let inner = source.get_ref().and_then(|error| error.downcast_ref());
    matches!(inner, Some(TlsError::InvalidMessage(_)))
}

/// The answer of servers that know plain HTTP when it comes to a port with TLS.
fn wants_tls(reply: &RawReply) -> bool {
    let text = String::from_utf8_lossy(&reply.body);
    reply.status == StatusCode::BAD_REQUEST && text.contains("HTTPS")
}

fn came(reply: &RawReply) -> String {
    let status = reply.status.as_u16();
    format!("{status} {}", excerpt(&reply.body, SHOWN))
}

fn other_scheme(url: &str) -> String {
    match url.strip_prefix("https://") {
        Some(rest) => format!("http://{rest}"),
        None => url.replacen("http://", "https://", 1),
    }
}
