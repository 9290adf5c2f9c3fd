//! Why a provider call failed: the kinds, texts and metric labels of spec iaas sections 6 and 10.
//! A text never repeats its source; printed as a chain joined by `: ` it is the text of the spec.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::budget::WORST_CASE;
use crate::ca::CaError;
use crate::check::ResponseError;
use crate::duration::GoDuration;

/// Which call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Op {
    /// `allocate-ips`.
    Allocate,
    /// `release-ip`.
    Release,
}

impl Op {
    /// Label `op` of the call metrics, and the word in the error texts.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allocate => "allocate",
            Self::Release => "release",
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A call did not succeed. What the cloud did meanwhile is unknown unless it never got the call.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// No answer for reasons of name, network, TLS or HTTP.
    #[error("iaas {op} API call failed")]
    Transport {
        /// Which call.
        op: Op,
        /// What broke.
        source: TransportError,
    },
    /// The configured timeout ran out.
    #[error(
        "provider-interaction timeout: IaaS {op} API call exceeded configured timeout {timeout}"
    )]
    TooSlow {
        /// Which call.
        op: Op,
        /// `httpRequestTimeout`.
        timeout: GoDuration,
    },
    /// The calling operation's time ran out.
    #[error("parent budget exhausted: IaaS {op} API call cancelled by parent context deadline")]
    ParentExpired {
        /// Which call.
        op: Op,
        /// Whether the request had left by then.
        sent: bool,
    },
    /// Too little of the calling operation's time is left for a provider of the first generation; it
    /// was not called.
    #[error(
        "parent budget insufficient: {}s remaining is less than provider worst-case {}s",
        .remaining.as_secs(),
        WORST_CASE.as_secs()
    )]
    Insufficient {
        /// What is left.
        remaining: Duration,
    },
    /// An answer other than 2xx.
    #[error("iaas {op} API returned status {status}: {body}")]
    Status {
        /// Which call.
        op: Op,
        /// HTTP status.
        status: u16,
        /// At most the first KiB of the body.
        body: String,
    },
    /// A 2xx answer that is not the JSON of the contract.
    #[error("failed to unmarshal {op} response")]
    Unreadable {
        /// Which call.
        op: Op,
        /// What is wrong with it.
        source: BodyError,
    },
    /// A 2xx answer that does not fit the request.
    #[error(transparent)]
    Answer(#[from] ResponseError),
}

impl CallError {
    /// Label `reason` of the call metric; `None` for a call that was never sent.
    #[must_use]
    pub const fn rpc_reason(&self) -> Option<&'static str> {
        match self {
            Self::Transport { .. } => Some("network_error"),
            Self::ParentExpired { sent: false, .. } | Self::Insufficient { .. } => None,
            Self::TooSlow { .. } | Self::ParentExpired { .. } => Some("timeout"),
            Self::Status { .. } => Some("http_status"),
            Self::Unreadable { .. } | Self::Answer(_) => Some("bad_response"),
        }
    }

    /// Whether nobody said no: there was no time left.
    #[must_use]
    pub const fn is_out_of_time(&self) -> bool {
        matches!(self, Self::ParentExpired { .. } | Self::Insufficient { .. })
    }

    /// Whether the provider, or somebody on the way to it, may still be at work on the call.
    #[must_use]
    pub const fn is_unsettled(&self) -> bool {
        match self {
            Self::Transport { source, .. } => source.is_after_sending(),
            Self::ParentExpired { sent, .. } => *sent,
            Self::TooSlow { .. } => true,
            // Those two are a gateway's own words.
            Self::Status { status, .. } => matches!(status, 502 | 504),
            Self::Insufficient { .. } | Self::Unreadable { .. } | Self::Answer(_) => false,
        }
    }

    /// Label `reason` of the allocation metric: one for all kinds.
    #[must_use]
    pub const fn allocation_reason(&self) -> &'static str {
        "rpc_error"
    }
}

/// The 2xx body is not what it should be.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// Not the JSON of the contract.
    #[error("the body is not a valid answer")]
    Json(#[from] serde_json::Error),
    /// More than the client reads.
    #[error("the body is longer than {0} bytes")]
    TooLong(usize),
}

/// The provider could not be talked to. Names where it was looked for.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// Name not known, nobody listens, no route.
    #[error("cannot connect to provider {provider}")]
    Connect {
        /// Its URL.
        provider: String,
        /// What the system said.
        source: io::Error,
    },
    /// The CA file can't be read now.
    #[error("cannot read CA file {}", path.display())]
    CaFile {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The CA file has no usable certificate.
    #[error("cannot use CA file {}", path.display())]
    Ca {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: CaError,
    },
    /// Certificate not accepted, no common version, connection cut.
    #[error(
        "cannot set up TLS with provider {provider} as {server_name}, verified by {verified_by}"
    )]
    Tls {
        /// Its URL.
        provider: String,
        /// The name its certificate has to carry.
        server_name: String,
        /// What its certificate has to be issued by.
        verified_by: String,
        /// What the TLS library said.
        source: io::Error,
    },
    /// Connection cut, or not HTTP.
    #[cfg(feature = "client")]
    #[error("no complete answer from provider {provider}")]
    Http {
        /// Its URL.
        provider: String,
        /// What the HTTP library said.
        source: hyper::Error,
    },
    /// The request can't be written, in practice a mistake in the URL.
    #[error("cannot build a request for provider {provider}: {reason}")]
    Request {
        /// Its URL.
        provider: String,
        /// What is wrong.
        reason: String,
    },
}

impl TransportError {
    /// Whether the request may have arrived.
    const fn is_after_sending(&self) -> bool {
        match self {
            #[cfg(feature = "client")]
            Self::Http { .. } => true,
            Self::Connect { .. }
            | Self::CaFile { .. }
            | Self::Ca { .. }
            | Self::Tls { .. }
            | Self::Request { .. } => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spiderpool_api::causes::with_causes;

    #[test]
    fn a_call_without_an_answer_may_still_be_at_work() {
        let op = Op::Release;
        let status = |status| CallError::Status {
            op,
            status,
            body: String::new(),
        };
        let timeout = GoDuration::from_secs(50);
        let refused = TransportError::Connect {
            provider: "p".into(),
            source: io::Error::from(io::ErrorKind::ConnectionRefused),
        };
        let settled = [
            status(503),
            status(409),
            CallError::ParentExpired { op, sent: false },
            CallError::Insufficient {
                remaining: Duration::ZERO,
            },
            CallError::Transport {
                op,
                source: refused,
            },
        ];
        assert!(settled.iter().all(|error| !error.is_unsettled()));
        let unsettled = [
            status(504),
            CallError::ParentExpired { op, sent: true },
            CallError::TooSlow { op, timeout },
        ];
        assert!(unsettled.iter().all(CallError::is_unsettled));
    }

    /// Each kind's text and label, for both calls, as spec iaas sections 6 and 10 print them.
    #[test]
    #[rustfmt::skip] // a case a line
    fn texts_and_labels_are_those_operators_search_for() {
        let op = Op::Allocate;
        let refused = || TransportError::Connect {
            provider: "http://127.0.0.1:1".into(),
            source: io::Error::from(io::ErrorKind::ConnectionRefused),
        };
        let json = || serde_json::from_str::<serde_json::Value>("{").unwrap_err();
        let timeout = GoDuration::from_secs(50);
        let (status, body) = (503, r#"{"code":"NotReady"}"#.to_owned());
        let unknown = ResponseError::Unknown { address: "10.72.0.99".into() };
        for (error, text, reason) in [
            (CallError::Transport { op, source: refused() }, "iaas allocate API call failed: cannot connect to provider http://127.0.0.1:1: connection refused", Some("network_error")),
            (CallError::TooSlow { op, timeout }, "provider-interaction timeout: IaaS allocate API call exceeded configured timeout 50s", Some("timeout")),
            (CallError::TooSlow { op: Op::Release, timeout }, "provider-interaction timeout: IaaS release API call exceeded configured timeout 50s", Some("timeout")),
            (CallError::ParentExpired { op, sent: true }, "parent budget exhausted: IaaS allocate API call cancelled by parent context deadline", Some("timeout")),
            (CallError::ParentExpired { op: Op::Release, sent: false }, "parent budget exhausted: IaaS release API call cancelled by parent context deadline", None),
            (CallError::Insufficient { remaining: Duration::from_millis(47_999) }, "parent budget insufficient: 47s remaining is less than provider worst-case 48s", None),
            (CallError::Status { op, status, body }, r#"iaas allocate API returned status 503: {"code":"NotReady"}"#, Some("http_status")),
            (CallError::Unreadable { op, source: json().into() }, "failed to unmarshal allocate response: the body is not a valid answer: EOF while parsing an object at line 1 column 1", Some("bad_response")),
            (CallError::Answer(unknown), "iaas response contains unknown sub-ENI with address 10.72.0.99", Some("bad_response")),
        ] {
            assert_eq!(with_causes(&error), text);
            assert_eq!(error.rpc_reason(), reason, "{text}");
            assert_eq!(error.allocation_reason(), "rpc_error");
        }
    }
}
