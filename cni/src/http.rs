//! The answer side of HTTP/1.1 (RFC 9112), as far as one call with `Connection: close` needs it:
//! Content-Length, chunked, or up to the end. Pure.

/// Largest body, bytes. A CNI result is a few kilobytes.
pub(crate) const MAX_BODY: usize = 4 << 20;
/// Largest head, bytes.
const MAX_HEAD: usize = 16 << 10;
const HEAD_END: &[u8] = b"\r\n\r\n";
const LINE_END: &[u8] = b"\r\n";

/// A complete answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Response {
    /// Status code; for messages only.
    pub(crate) status: u16,
    /// Body without its framing.
    pub(crate) body: Vec<u8>,
}

/// Bytes that are no answer.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HttpError {
    /// Another protocol.
    #[error("it does not speak HTTP/1: {0:?}")]
    NotHttp(String),
    /// Head without an end.
    #[error("its HTTP head is larger than {MAX_HEAD} bytes")]
    HeadTooBig,
    /// Body above the limit.
    #[error("its answer is larger than {MAX_BODY} bytes")]
    TooBig,
    /// Length or chunk that is no number.
    #[error("its HTTP framing is broken: {0:?}")]
    Framing(String),
    /// The peer closed too early.
    #[error("the answer was cut off")]
    CutOff,
}

/// Reads what has arrived. `None` = more is needed; with `ended` that is [`HttpError::CutOff`].
///
/// # Errors
/// [`HttpError`].
pub(crate) fn decode(seen: &[u8], ended: bool) -> Result<Option<Response>, HttpError> {
    let starts = b"HTTP/1.";
    if !seen.iter().zip(starts).all(|(a, b)| a == b) {
        return Err(HttpError::NotHttp(shown(seen)));
    }
    let missing = || match ended {
        true => Err(HttpError::CutOff),
        false => Ok(None),
    };
    let Some((head, rest)) = split_once(seen, HEAD_END) else {
        if seen.len() > MAX_HEAD {
            return Err(HttpError::HeadTooBig);
        }
        return missing();
    };
    let head = Head::parse(head)?;
    if head.is_interim() {
        return decode(rest, ended);
    }
    let body = match head.framing {
        Framing::Length(length) if length > MAX_BODY => return Err(HttpError::TooBig),
        Framing::Length(length) => rest.get(..length).map(<[u8]>::to_vec),
        Framing::Chunked => dechunk(rest)?,
        Framing::ToTheEnd if rest.len() > MAX_BODY => return Err(HttpError::TooBig),
        Framing::ToTheEnd => ended.then(|| rest.to_vec()),
    };
    let status = head.status;
    match body {
        Some(body) => Ok(Some(Response { status, body })),
        None => missing(),
    }
}

enum Framing {
    Length(usize),
    Chunked,
    ToTheEnd,
}

struct Head {
    status: u16,
    framing: Framing,
}

impl Head {
    fn parse(head: &[u8]) -> Result<Self, HttpError> {
        let text = String::from_utf8_lossy(head);
        let mut lines = text.split("\r\n");
        let first = lines.next().unwrap_or_default();
        let status = first
            .split(' ')
            .nth(1)
            .and_then(|code| code.parse().ok())
            .ok_or_else(|| HttpError::NotHttp(shown(head)))?;
        let mut framing = Framing::ToTheEnd;
        for (name, value) in lines.filter_map(|line| line.split_once(':')) {
            let value = value.trim();
            if name.eq_ignore_ascii_case("transfer-encoding") {
                if !value.eq_ignore_ascii_case("chunked") {
                    return Err(HttpError::Framing(value.to_owned()));
                }
                framing = Framing::Chunked;
            } else if name.eq_ignore_ascii_case("content-length")
                && !matches!(framing, Framing::Chunked)
            {
                let length = value.parse();
                framing = length
                    .map(Framing::Length)
                    .map_err(|_| HttpError::Framing(value.to_owned()))?;
            }
        }
        Ok(Self { status, framing })
    }

    const fn is_interim(&self) -> bool {
        self.status < 200
    }
}

/// Joins chunks; `None` until the last one is there. Trailers are not waited for.
fn dechunk(mut rest: &[u8]) -> Result<Option<Vec<u8>>, HttpError> {
    let mut body = Vec::new();
    loop {
        let Some((line, after)) = split_once(rest, LINE_END) else {
            if rest.len() > MAX_HEAD {
                return Err(HttpError::Framing(shown(rest)));
            }
            return Ok(None);
        };
        let text = String::from_utf8_lossy(line);
        let digits = text.split(';').next().unwrap_or_default().trim();
        let length =
            usize::from_str_radix(digits, 16).map_err(|_| HttpError::Framing(shown(line)))?;
        if length == 0 {
            return Ok(Some(body));
        }
        if length > MAX_BODY - body.len() {
            return Err(HttpError::TooBig);
        }
        let Some((chunk, after)) = after.split_at_checked(length) else {
            return Ok(None);
        };
        body.extend_from_slice(chunk);
        rest = match after.strip_prefix(LINE_END) {
            Some(next) => next,
            None if after.len() < LINE_END.len() => return Ok(None),
            None => return Err(HttpError::Framing(shown(after))),
        };
    }
}

fn split_once<'a>(bytes: &'a [u8], mark: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = bytes.windows(mark.len()).position(|part| part == mark)?;
    let (before, after) = bytes.split_at_checked(at)?;
    Some((before, after.strip_prefix(mark)?))
}

/// The beginning of what came, for a message.
pub(crate) fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";
    const CHUNKED: &[u8] =
        b"HTTP/1.1 503 x\r\nTransfer-Encoding: chunked\r\n\r\n2;x=1\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n";
    const TO_THE_END: &[u8] = b"HTTP/1.0 200 OK\r\nserver: x\r\n\r\nhello";
    const INTERIM: &[u8] =
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";

    #[test]
    fn every_framing_gives_the_body() {
        for (bytes, status) in [
            (LENGTH, 200),
            (CHUNKED, 503),
            (TO_THE_END, 200),
            (INTERIM, 200),
        ] {
            let body = b"hello".to_vec();
            assert_eq!(decode(bytes, true), Ok(Some(Response { status, body })));
        }
    }

    #[test]
    fn a_prefix_waits_and_its_end_is_a_cut() {
        // the answer counts as complete with the last chunk's line, before the trailer
        for (bytes, complete) in [
            (LENGTH, LENGTH.len()),
            (CHUNKED, CHUNKED.len() - 2),
            (INTERIM, INTERIM.len()),
        ] {
            for at in 0..complete {
                assert_eq!(decode(&bytes[..at], false), Ok(None), "{at}");
                assert_eq!(decode(&bytes[..at], true), Err(HttpError::CutOff), "{at}");
            }
            assert!(decode(&bytes[..complete], false).unwrap().is_some());
        }
        assert_eq!(decode(TO_THE_END, false), Ok(None));
    }

    #[test]
    fn nonsense_and_excess_are_refused() {
        let head = |header: &str| format!("HTTP/1.1 200 OK\r\n{header}\r\n\r\n").into_bytes();
        let chunks = |chunks: &str| [head("transfer-encoding: chunked"), chunks.into()].concat();
        for bytes in [
            b"SSH-2.0".to_vec(),
            b"{\"result\":null}".to_vec(),
            b"HTTP/1.1 OK\r\n\r\n".to_vec(),
            head("content-length: five"),
            head("content-length: -1"),
            head("transfer-encoding: gzip"),
            chunks("zz\r\n"),
            chunks("1\r\nabc"),
            chunks(&"1".repeat(MAX_HEAD + 1)),
            format!("HTTP/1.1 200 OK\r\nx: {}", "y".repeat(MAX_HEAD)).into_bytes(),
        ] {
            assert!(decode(&bytes, false).is_err(), "{}", shown(&bytes));
        }
        let big = "a".repeat(MAX_BODY + 1);
        for bytes in [
            head("content-length: 10485760"),
            chunks("a00000\r\n"),
            chunks("ffffffffffffffff\r\n"),
            [head("x: y"), big.into()].concat(),
        ] {
            assert_eq!(decode(&bytes, false), Err(HttpError::TooBig));
        }
    }
}
