//! One HTTP/1.1 exchange over any stream, blocking: enough for the agent's socket, the fabric's
//! admin socket and the embedded API, and independent of what they are built with.

use std::io::{Read, Write};

use anyhow::{Context, Result, bail};

/// Header lines end with an empty one.
const HEAD_END: &[u8] = b"\r\n\r\n";
/// What a chunked body ends with.
const LAST_CHUNK: &[u8] = b"0\r\n\r\n";
/// Bytes read at once.
const PART: usize = 16 << 10;

/// What is asked.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// `GET`, `POST`, ...
    pub method: &'a str,
    /// Path and query.
    pub path: &'a str,
    /// Further header lines, without line ends.
    pub headers: &'a [String],
    /// Empty for none.
    pub body: &'a [u8],
}

/// What was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// Status code.
    pub status: u16,
    /// Body, without transfer encoding.
    pub body: Vec<u8>,
}

/// Sends the request and reads the answer to the end of the stream.
///
/// # Errors
/// The stream breaks, or what comes is not HTTP.
pub fn exchange(stream: &mut (impl Read + Write), request: &Request<'_>) -> Result<Response> {
    send(stream, request, "close")?;
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Ok(_) => {}
        // A TLS server may close without a notification; the length tells whether all is there.
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {}
        Err(error) => return Err(error).context("read the answer"),
    }
    parse(&answer).with_context(|| format!("answer to {} {}", request.method, request.path))
}

/// Sends the request and reads the answer to its own end; the stream serves the next one.
///
/// # Errors
/// As [`exchange`]; the stream is then of no more use.
pub fn exchange_kept(stream: &mut (impl Read + Write), request: &Request<'_>) -> Result<Response> {
    send(stream, request, "keep-alive")?;
    let (mut answer, mut part) = (Vec::new(), [0; PART]);
    loop {
        let read = stream.read(&mut part).context("read the answer")?;
        answer.extend_from_slice(part.get(..read).unwrap_or_default());
        let head = Head::read(&answer)?;
        let whole = head.is_some_and(|head| head.is_whole(&answer));
        if whole || read == 0 {
            return parse(&answer)
                .with_context(|| format!("answer to {} {}", request.method, request.path));
        }
    }
}

fn send(stream: &mut impl Write, request: &Request<'_>, connection: &str) -> Result<()> {
    let mut head = format!(
        "{} {} HTTP/1.1\r\nHost: lab\r\nConnection: {connection}\r\nContent-Length: {}\r\n",
        request.method,
        request.path,
        request.body.len()
    );
    for header in request.headers {
        head.push_str(header);
        head.push_str("\r\n");
    }
    head.push_str("\r\n");
    stream
        .write_all(head.as_bytes())
        .context("send the request")?;
    stream.write_all(request.body).context("send the body")?;
    stream.flush().context("send the body")
}

fn parse(answer: &[u8]) -> Result<Response> {
    let head =
        Head::read(answer)?.with_context(|| format!("no HTTP head in {} bytes", answer.len()))?;
    let rest = head.rest(answer);
    let body = if head.chunked {
        unchunk(rest)?
    } else {
        rest.to_vec()
    };
    match head.length {
        Some(length) if body.len() < length => {
            bail!("the body ends after {} of {length} bytes", body.len())
        }
        _ => Ok(Response {
            status: head.status,
            body,
        }),
    }
}

/// Status line and header lines.
struct Head {
    status: u16,
    length: Option<usize>,
    chunked: bool,
    /// Where the body begins.
    end: usize,
}

impl Head {
    /// `None` while its end has not come.
    fn read(answer: &[u8]) -> Result<Option<Self>> {
        let mut windows = answer.windows(HEAD_END.len());
        let Some(end) = windows.position(|window| window == HEAD_END) else {
            return Ok(None);
        };
        let text = answer.get(..end).unwrap_or_default();
        let text = std::str::from_utf8(text).context("the head is not UTF-8")?;
        let mut lines = text.split("\r\n");
        let status = lines
            .next()
            .and_then(|line| line.split(' ').nth(1))
            .and_then(|code| code.parse().ok())
            .with_context(|| format!("no status line in {text:?}"))?;
        let mut head = Self {
            status,
            length: None,
            chunked: false,
            end: end + HEAD_END.len(),
        };
        for (name, value) in lines.filter_map(|line| line.split_once(':')) {
            let value = value.trim();
            match name.to_ascii_lowercase().as_str() {
                "content-length" => head.length = Some(value.parse().context("content-length")?),
                "transfer-encoding" => head.chunked = value.eq_ignore_ascii_case("chunked"),
                _ => {}
            }
        }
        Ok(Some(head))
    }

    fn rest<'a>(&self, answer: &'a [u8]) -> &'a [u8] {
        answer.get(self.end..).unwrap_or_default()
    }

    /// Whether the body is all there; for bodies of text, which no line end alone is part of.
    fn is_whole(&self, answer: &[u8]) -> bool {
        let rest = self.rest(answer);
        if self.chunked {
            return rest == LAST_CHUNK || rest.ends_with(&[b"\r\n", LAST_CHUNK].concat());
        }
        rest.len() >= self.length.unwrap_or_default()
    }
}

/// RFC 9112 section 7.1, without extensions and trailers.
fn unchunk(mut rest: &[u8]) -> Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end = rest
            .windows(2)
            .position(|window| window == b"\r\n")
            .context("a chunk without a size")?;
        let size = std::str::from_utf8(rest.get(..end).unwrap_or_default())?;
        let size = usize::from_str_radix(size.trim(), 16).context("the size of a chunk")?;
        let start = end + 2;
        if size == 0 {
            return Ok(body);
        }
        let chunk = rest
            .get(start..start + size)
            .context("a chunk is cut short")?;
        body.extend_from_slice(chunk);
        rest = rest.get(start + size + 2..).context("no end of a chunk")?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_with_a_length_chunks_and_neither() {
        let plain = parse(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi").unwrap();
        assert_eq!(
            plain,
            Response {
                status: 200,
                body: b"hi".to_vec()
            }
        );
        let chunked = b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
        assert_eq!(parse(chunked).unwrap().body, b"abcde");
        assert_eq!(
            parse(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap().status,
            204
        );
    }

    #[test]
    fn what_is_cut_short_is_an_error() {
        for bad in [
            &b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi"[..],
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nab",
            b"HTTP/1.1 200 OK\r\n",
            b"",
        ] {
            assert!(parse(bad).is_err(), "{}", String::from_utf8_lossy(bad));
        }
    }

    /// A stream that hands out what it was given in pieces of one byte and swallows what is sent.
    struct Trickle(std::collections::VecDeque<u8>);

    impl Read for Trickle {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let (Some(place), Some(byte)) = (buffer.first_mut(), self.0.pop_front()) else {
                return Ok(0);
            };
            *place = byte;
            Ok(1)
        }
    }

    impl Write for Trickle {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_kept_stream_gives_one_answer_after_the_other() {
        let bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi\
            HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n\
            HTTP/1.1 204 No Content\r\n\r\n\
            HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\ncut";
        let mut stream = Trickle(bytes.iter().copied().collect());
        let request = Request {
            method: "GET",
            path: "/",
            headers: &[],
            body: b"",
        };
        let mut next = || exchange_kept(&mut stream, &request);
        assert_eq!(next().unwrap().body, b"hi");
        assert_eq!(next().unwrap().body, b"abc");
        assert_eq!(next().unwrap().status, 204);
        assert!(next().is_err());
        assert!(next().is_err());
    }
}
