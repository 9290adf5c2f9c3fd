//! What was logged on this thread: a test's runtime has no other.

use std::io;
use std::sync::{Arc, Mutex};

use tracing::subscriber::DefaultGuard;
use tracing_subscriber::fmt::MakeWriter;

/// The log from here on.
pub(crate) struct Logged {
    text: Writer,
    _guard: DefaultGuard,
}

#[derive(Clone, Default)]
struct Writer(Arc<Mutex<Vec<u8>>>);

impl io::Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Writer {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl Logged {
    pub(crate) fn begin() -> Self {
        let text = Writer::default();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(text.clone())
            .finish();
        Self {
            text,
            _guard: tracing::subscriber::set_default(subscriber),
        }
    }

    /// Lines so far that hold `text`.
    pub(crate) fn lines(&self, text: &str) -> Vec<String> {
        let all = String::from_utf8(self.text.0.lock().unwrap().clone()).unwrap();
        let all = all.lines().filter(|line| line.contains(text));
        all.map(str::to_owned).collect()
    }
}
