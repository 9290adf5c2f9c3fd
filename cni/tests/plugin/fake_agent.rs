//! An agent that answers a given number of calls with given bytes and tells what it was asked.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use serde_json::Value;

/// Longer than any call of a test takes.
const DEADLINE: Duration = Duration::from_secs(20);

/// One request as it came.
pub(crate) struct Asked {
    /// Request line and headers.
    pub(crate) head: Vec<String>,
    /// Body.
    pub(crate) body: Value,
}

/// Listens until dropped or out of answers.
pub(crate) struct FakeAgent {
    asked: Receiver<Asked>,
}

impl FakeAgent {
    /// Answers one connection with each of `answers`, in order, and closes it.
    pub(crate) fn answering(socket: &Path, answers: Vec<Vec<u8>>) -> Self {
        let listener = UnixListener::bind(socket).unwrap();
        let (sender, asked) = mpsc::channel();
        thread::spawn(move || {
            for answer in answers {
                let (stream, _) = listener.accept().unwrap();
                serve(stream, &answer, &sender);
            }
        });
        Self { asked }
    }

    /// The next request.
    pub(crate) fn asked(&self) -> Asked {
        self.asked.recv_timeout(DEADLINE).unwrap()
    }

    /// Whether nobody has called since.
    pub(crate) fn is_idle(&self) -> bool {
        self.asked.try_recv().is_err()
    }
}

fn serve(stream: UnixStream, answer: &[u8], sender: &Sender<Asked>) {
    let mut reader = BufReader::new(stream);
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        match line.trim_end() {
            "" => break,
            text => head.push(text.to_owned()),
        }
    }
    let length = head
        .iter()
        .find_map(|line| line.strip_prefix("Content-Length: "))
        .unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    reader.read_exact(&mut body).unwrap();
    // the test may be over, and a peer that refuses a big answer hangs up
    sender
        .send(Asked {
            head,
            body: serde_json::from_slice(&body).unwrap(),
        })
        .ok();
    reader.into_inner().write_all(answer).ok();
}

/// An answer with Content-Length.
pub(crate) fn http(status: u16, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status} x\r\ncontent-length: {length}\r\n\r\n{body}").into_bytes()
}

/// An answer in chunks of `size`, without Content-Length.
pub(crate) fn chunked(body: &str, size: usize) -> Vec<u8> {
    let mut text = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    for chunk in body.as_bytes().chunks(size) {
        text.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        text.extend_from_slice(chunk);
        text.extend_from_slice(b"\r\n");
    }
    text.extend_from_slice(b"0\r\n\r\n");
    text
}
