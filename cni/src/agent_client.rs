//! `POST /v1/cni` over the agent's Unix socket: one connection, one request, one answer, all
//! within one deadline. Touches that socket alone. Blocking.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::value::RawValue;
use spiderpool_api::agent_v1::{BUDGET_MS, CniRequest};
use spiderpool_api::cni::{CniCode, CniCommand, CniError};
use spiderpool_api::names::ROUTE_CNI;

use crate::http::{self, HttpError, Response};
use crate::retry::{self, Patience};

/// STATUS asks "now?": an agent that takes longer is not ready.
const STATUS_BUDGET_MS: u64 = 10_000;
const READ_SIZE: usize = 64 << 10;

/// What the agent said.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// Success and the result's JSON text.
    Result(String),
    /// Success without one.
    Nothing,
    /// Its error object.
    Refused {
        /// JSON text as it came.
        body: String,
        /// The same, read.
        error: CniError,
    },
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    /// Socket absent or refused.
    #[error(
        "no agent listens at {}, waited {} s: is spiderpool-agent running on this node?",
        socket.display(), waited.as_secs()
    )]
    Unreachable {
        /// Socket.
        socket: PathBuf,
        /// Since the first try.
        waited: Duration,
        /// Of the last try.
        source: io::Error,
    },
    /// Socket there, but not for us.
    #[error("cannot connect to the agent at {}: the plugin must run as root in the host's mount namespace", socket.display())]
    Connect {
        /// Socket.
        socket: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// Closed before the end of the answer.
    #[error("the agent at {} closed the connection before its answer was complete ({received} bytes came); it may have been restarted, try again", socket.display())]
    CutOff {
        /// Socket.
        socket: PathBuf,
        /// Bytes of the answer.
        received: usize,
    },
    /// Deadline over.
    #[error("the agent at {} did not answer within {budget_ms} ms: look at its log and load", socket.display())]
    Timeout {
        /// Socket.
        socket: PathBuf,
        /// The whole wait.
        budget_ms: u64,
    },
    /// Read or write failed.
    #[error("talking to the agent at {} failed", socket.display())]
    Io {
        /// Socket.
        socket: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// Somebody else, or another release.
    #[error("what listens at {} gave no answer of spiderpool-agent: {reason}", socket.display())]
    NotAnAnswer {
        /// Socket.
        socket: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

impl CallError {
    /// Code of the answer to `command`.
    pub(crate) const fn code(&self, command: CniCommand) -> CniCode {
        match (command, self) {
            (CniCommand::Status, _) => CniCode::NotReady,
            (_, Self::Unreachable { .. } | Self::CutOff { .. } | Self::Timeout { .. }) => {
                CniCode::TryAgain
            }
            (_, Self::Connect { .. } | Self::Io { .. } | Self::NotAnAnswer { .. }) => CniCode::Io,
        }
    }

    /// Whether the agent is away, so that a DEL is kept for it.
    pub(crate) const fn is_absence(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::CutOff { .. })
    }
}

/// Sends the request and waits for the answer, as patiently as its verb allows.
///
/// # Errors
/// [`CallError`].
pub(crate) fn call(socket: &Path, request: &CniRequest) -> Result<Reply, CallError> {
    let total_ms = match request.command {
        CniCommand::Status => STATUS_BUDGET_MS,
        _ => BUDGET_MS,
    };
    let mut request = request.clone();
    let reply = retry::until_answered(Patience::of(request.command), |waited| {
        let waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
        request.budget_ms = total_ms.saturating_sub(waited_ms);
        let exchange = Exchange {
            socket,
            budget_ms: total_ms,
            deadline: Instant::now() + Duration::from_millis(request.budget_ms),
        };
        exchange.run(&request)
    })?;
    if request.command == CniCommand::Add && reply == Reply::Nothing {
        return Err(CallError::NotAnAnswer {
            socket: socket.to_owned(),
            reason: "ADD was answered without a result".into(),
        });
    }
    Ok(reply)
}

/// One connection.
struct Exchange<'a> {
    socket: &'a Path,
    budget_ms: u64,
    deadline: Instant,
}

impl Exchange<'_> {
    fn run(&self, request: &CniRequest) -> Result<Reply, CallError> {
        let mut stream = self.connect()?;
        let body = serde_json::to_vec(request).map_err(|error| self.io(error.into()))?;
        let head = format!(
            "POST {ROUTE_CNI} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        let message = [head.into_bytes(), body].concat();
        let sent = stream
            .set_write_timeout(Some(self.remaining()?))
            .and_then(|()| stream.write_all(&message));
        if let Err(error) = sent {
            return Err(self.io(error));
        }
        let response = self.receive(&mut stream)?;
        read_reply(&response).map_err(|reason| self.not_an_answer(reason))
    }

    /// connect(2) on a Unix socket waits without limit while the listener's backlog is full, and
    /// std can't bound it: so it has a thread, which process exit ends.
    fn connect(&self) -> Result<UnixStream, CallError> {
        let (sender, receiver) = mpsc::sync_channel(1);
        let path = self.socket.to_owned();
        let connecting = thread::Builder::new().spawn(move || {
            // the receiver is gone after the deadline: nobody wants the stream then
            sender.send(UnixStream::connect(path)).ok();
        });
        connecting.map_err(|error| self.io(error))?;
        let stream = receiver
            .recv_timeout(self.remaining()?)
            .map_err(|_| self.timeout())?;
        stream.map_err(|source| {
            let socket = self.socket.to_owned();
            match source.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                    CallError::Unreachable {
                        socket,
                        waited: Duration::ZERO,
                        source,
                    }
                }
                _ => CallError::Connect { socket, source },
            }
        })
    }

    fn receive(&self, stream: &mut UnixStream) -> Result<Response, CallError> {
        let mut seen = Vec::new();
        let mut buffer = vec![0; READ_SIZE];
        loop {
            let read = stream
                .set_read_timeout(Some(self.remaining()?))
                .and_then(|()| stream.read(&mut buffer));
            let count = match read {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(self.io(error)),
            };
            seen.extend_from_slice(buffer.get(..count).unwrap_or_default());
            match http::decode(&seen, count == 0) {
                Ok(None) => {}
                Ok(Some(response)) => return Ok(response),
                Err(HttpError::CutOff) => return Err(self.cut_off(seen.len())),
                Err(error) => return Err(self.not_an_answer(error.to_string())),
            }
        }
    }

    /// Never zero: the kernel takes a zero timeout for "wait for ever".
    fn remaining(&self) -> Result<Duration, CallError> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(self.timeout());
        }
        Ok(left)
    }

    fn timeout(&self) -> CallError {
        CallError::Timeout {
            socket: self.socket.to_owned(),
            budget_ms: self.budget_ms,
        }
    }

    fn cut_off(&self, received: usize) -> CallError {
        CallError::CutOff {
            socket: self.socket.to_owned(),
            received,
        }
    }

    fn not_an_answer(&self, reason: String) -> CallError {
        CallError::NotAnAnswer {
            socket: self.socket.to_owned(),
            reason,
        }
    }

    fn io(&self, source: io::Error) -> CallError {
        match source.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => self.timeout(),
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => self.cut_off(0),
            _ => CallError::Io {
                socket: self.socket.to_owned(),
                source,
            },
        }
    }
}

/// Only the body counts: `{"result":...}`, or the CNI error object.
fn read_reply(response: &Response) -> Result<Reply, String> {
    let status = response.status;
    let text = String::from_utf8_lossy(&response.body);
    let unknown = |what: &str| {
        let shown = http::shown(&response.body);
        format!("{what} (HTTP {status}, body {shown:?})")
    };
    let keys: BTreeMap<String, &RawValue> =
        serde_json::from_str(&text).map_err(|_| unknown("not a JSON object"))?;
    if keys.contains_key("code") {
        let error: CniError = serde_json::from_str(&text)
            .map_err(|error| unknown(&format!("a broken error object: {error}")))?;
        let body = text.into_owned();
        return Ok(Reply::Refused { body, error });
    }
    match keys.get("result").map(|result| result.get()) {
        None => Err(unknown("neither result nor error code")),
        Some("null") => Ok(Reply::Nothing),
        Some(json) => Ok(Reply::Result(json.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    fn reply(body: &str) -> Result<Reply, String> {
        read_reply(&Response {
            status: 500,
            body: body.into(),
        })
    }

    #[test]
    fn the_body_alone_decides() {
        assert_eq!(reply(r#"{"result":null}"#), Ok(Reply::Nothing));
        // key order and spelling of numbers survive
        let result = r#"{ "z": 1.0, "a": 18446744073709551616 }"#;
        let body = format!(r#"{{"result":{result},"later":1}}"#);
        assert_eq!(reply(&body), Ok(Reply::Result(result.into())));
        let error = r#"{"cniVersion":"1.0.0","code":105,"msg":"in use","details":"by a/b"}"#;
        assert!(matches!(
            reply(error).unwrap(),
            Reply::Refused { body, error: CniError { code: 105, .. } } if body == error
        ));
    }

    #[test]
    fn other_bodies_are_shown() {
        for body in [
            "",
            "Not Found",
            r#""unknown route""#,
            "{}",
            "[1]",
            r#"{"code":"x"}"#,
            r#"{"code":7}"#,
        ] {
            let reason = reply(body).unwrap_err();
            assert!(reason.contains("HTTP 500"), "{body}: {reason}");
        }
    }

    #[test]
    fn a_full_backlog_ends_at_the_deadline() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("s");
        let _listener = UnixListener::bind(&socket).unwrap();
        let mut queued = Vec::new();
        for _ in 0..10_000 {
            let exchange = Exchange {
                socket: &socket,
                budget_ms: 200,
                deadline: Instant::now() + Duration::from_millis(200),
            };
            match exchange.connect() {
                Ok(stream) => queued.push(stream),
                Err(error) => {
                    assert!(matches!(error, CallError::Timeout { .. }), "{error}");
                    return;
                }
            }
        }
        panic!("the backlog never filled");
    }
}
