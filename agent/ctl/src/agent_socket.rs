//! One HTTP/1.1 exchange with the agent of this node, over its Unix socket. Blocks, for ten
//! seconds at most.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::DeserializeOwned;

/// A report is read from maps in the kernel: milliseconds.
const PATIENCE: Duration = Duration::from_secs(10);
/// Header lines end with an empty one.
const HEAD_END: &[u8] = b"\r\n\r\n";

/// Why the agent gave no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SocketError {
    /// Nobody listens, or root is needed.
    #[error(
        "cannot reach the agent of this node on {}: is spiderpool-agent running, are you root? Another socket is named with --socket",
        path.display()
    )]
    Connect {
        /// The socket.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The exchange broke off.
    #[error("the agent on {} did not answer", path.display())]
    Exchange {
        /// The socket.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// An answer of another kind.
    #[error("the agent on {} answers {status} to {route}; is it of another release?", path.display())]
    Status {
        /// The socket.
        path: PathBuf,
        /// What was asked.
        route: String,
        /// Its status.
        status: String,
    },
    /// An answer that cannot be read.
    #[error("the answer of the agent to {route} cannot be read; is it of another release?")]
    Body {
        /// What was asked.
        route: String,
        /// Where it goes wrong.
        source: serde_json::Error,
    },
}

/// Asks for a report, or orders something that answers with one.
///
/// # Errors
/// [`SocketError`].
pub(crate) fn ask<T: DeserializeOwned>(
    path: &Path,
    method: &str,
    route: &str,
) -> Result<T, SocketError> {
    let mut stream = UnixStream::connect(path).map_err(|source| SocketError::Connect {
        path: path.to_owned(),
        source,
    })?;
    let answer = exchange(&mut stream, method, route).map_err(|source| SocketError::Exchange {
        path: path.to_owned(),
        source,
    })?;
    let (status, body) = parse(&answer);
    if status != "200" {
        return Err(SocketError::Status {
            path: path.to_owned(),
            route: route.to_owned(),
            status: status.to_owned(),
        });
    }
    serde_json::from_slice(body).map_err(|source| SocketError::Body {
        route: route.to_owned(),
        source,
    })
}

fn exchange(stream: &mut UnixStream, method: &str, route: &str) -> io::Result<Vec<u8>> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let request = format!(
        "{method} {route} HTTP/1.1\r\nHost: agent\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    );
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(answer)
}

/// Status and body; the agent sends its JSON whole, never in chunks. An answer cut short is no JSON.
fn parse(answer: &[u8]) -> (&str, &[u8]) {
    let end = answer
        .windows(HEAD_END.len())
        .position(|window| window == HEAD_END);
    let Some((head, body)) = end.and_then(|end| answer.split_at_checked(end + HEAD_END.len()))
    else {
        return ("nothing", &[]);
    };
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let status = std::str::from_utf8(line)
        .ok()
        .and_then(|line| line.split(' ').nth(1));
    (status.unwrap_or("nothing"), body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_split_at_the_empty_line() {
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
        assert_eq!(parse(answer), ("200", &b"{}"[..]));
        assert_eq!(parse(b"HTTP/1.1 404 Not Found\r\n\r\n"), ("404", &b""[..]));
        for odd in [
            &b""[..],
            b"HTTP/1.1 200 OK\r\n",
            b"\r\n\r\n",
            b"\xff\r\n\r\n",
        ] {
            assert_eq!(parse(odd).0, "nothing");
        }
    }

    #[test]
    fn a_missing_agent_is_named_with_the_way_out() {
        let path = Path::new("/nonexistent/spiderpool.sock");
        let error = ask::<serde_json::Value>(path, "GET", "/v1/x").unwrap_err();
        let text = error.to_string();
        assert!(text.contains("/nonexistent/spiderpool.sock") && text.contains("--socket"));
    }
}
