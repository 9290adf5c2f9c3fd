//! One HTTP/1.1 exchange over any stream, blocking: enough for the agent's socket, the fabric's
//! admin socket and the embedded API, and independent of what they are built with.

use std::io::{Read, Write};

use anyhow::{Context, Result, bail};

/// Header lines end with an empty one.
const HEAD_END: &[u8] = b"\r\n\r\n";

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
    let mut head = format!(
        "{} {} HTTP/1.1\r\nHost: lab\r\nConnection: close\r\nContent-Length: {}\r\n",
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
    stream.flush().context("send the body")?;
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Ok(_) => {}
        // A TLS server may close without a notification; the length tells whether all is there.
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {}
        Err(error) => return Err(error).context("read the answer"),
    }
    parse(&answer).with_context(|| format!("answer to {} {}", request.method, request.path))
}

fn parse(answer: &[u8]) -> Result<Response> {
    let end = answer
        .windows(HEAD_END.len())
        .position(|window| window == HEAD_END)
        .with_context(|| format!("no HTTP head in {} bytes", answer.len()))?;
    let head = answer.get(..end).unwrap_or_default();
    let rest = answer.get(end + HEAD_END.len()..).unwrap_or_default();
    let head = std::str::from_utf8(head).context("the head is not UTF-8")?;
    let mut lines = head.split("\r\n");
    let status = lines
        .next()
        .and_then(|line| line.split(' ').nth(1))
        .and_then(|code| code.parse().ok())
        .with_context(|| format!("no status line in {head:?}"))?;
    let mut length = None;
    let mut chunked = false;
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = Some(value.trim().parse().context("content-length")?),
            "transfer-encoding" => chunked = value.trim().eq_ignore_ascii_case("chunked"),
            _ => {}
        }
    }
    let body = if chunked {
        unchunk(rest)?
    } else {
        rest.to_vec()
    };
    match length {
        Some(length) if body.len() < length => {
            bail!("the body ends after {} of {length} bytes", body.len())
        }
        _ => Ok(Response { status, body }),
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
}
