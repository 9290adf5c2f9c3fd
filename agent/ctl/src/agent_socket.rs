//! One HTTP/1.1 exchange with the agent of this node, over its Unix socket. Blocks, for ten
//! seconds at most.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;

/// A report is read from maps in the kernel: milliseconds.
const PATIENCE: Duration = Duration::from_secs(10);
/// A report of 4096 sub-ENIs has some megabytes.
const MOST: usize = 64 << 20;
/// Read at once.
const PIECE: usize = 64 << 10;
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
    let answer = exchange(&mut stream, method, route, PATIENCE);
    let answer = answer.map_err(|source| SocketError::Exchange {
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

fn exchange(
    stream: &mut UnixStream,
    method: &str,
    route: &str,
    patience: Duration,
) -> io::Result<Vec<u8>> {
    let deadline = Instant::now() + patience;
    stream.set_write_timeout(Some(patience))?;
    let request = format!(
        "{method} {route} HTTP/1.1\r\nHost: agent\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    );
    stream.write_all(request.as_bytes())?;
    let (mut answer, mut piece) = (Vec::new(), vec![0; PIECE]);
    loop {
        // One deadline for all of it: a peer that says a little at a time must not hold us.
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(late(patience));
        }
        stream.set_read_timeout(Some(left))?;
        let read = match stream.read(&mut piece) {
            Ok(0) => return Ok(answer),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(late(patience)),
            Err(error) => return Err(error),
        };
        answer.extend(piece.iter().take(read));
        if answer.len() > MOST {
            let text = format!("its answer has more than {} MiB", MOST >> 20);
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
    }
}

fn late(patience: Duration) -> io::Error {
    let text = format!("no whole answer within {patience:?}");
    io::Error::new(io::ErrorKind::TimedOut, text)
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
    fn a_peer_that_goes_on_and_on_is_left() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let talk = std::thread::spawn(move || {
            let mut theirs = theirs;
            // Ends when the other end is closed.
            while theirs.write_all(b"HTTP/1.1 200 OK\r\n").is_ok() {}
        });
        let patience = Duration::from_millis(50);
        let error = exchange(&mut ours, "GET", "/v1/x", patience).unwrap_err();
        let kinds = [io::ErrorKind::TimedOut, io::ErrorKind::InvalidData];
        assert!(kinds.contains(&error.kind()), "{error}");
        drop(ours);
        talk.join().unwrap();
        let (mut ours, _silent) = UnixStream::pair().unwrap();
        let error = exchange(&mut ours, "GET", "/v1/x", patience).unwrap_err();
        assert_eq!(error.to_string(), "no whole answer within 50ms");
    }

    #[test]
    fn a_missing_agent_is_named_with_the_way_out() {
        let path = Path::new("/nonexistent/spiderpool.sock");
        let error = ask::<serde_json::Value>(path, "GET", "/v1/x").unwrap_err();
        let text = error.to_string();
        assert!(text.contains("/nonexistent/spiderpool.sock") && text.contains("--socket"));
    }
}
