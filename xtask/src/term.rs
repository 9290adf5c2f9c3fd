//! What a person sees. A closed pipe is no error: the reader has seen enough.

use std::io::{self, IsTerminal, Write};

/// One line on stderr.
pub(crate) fn progress(line: &str) {
    drop(writeln!(io::stderr().lock(), "{line}"));
}

/// One line of result on stdout.
pub(crate) fn result(line: &str) {
    drop(writeln!(io::stdout().lock(), "{line}"));
}

/// Bytes as they are, to stdout and stderr.
pub(crate) fn raw(out: &[u8], err: &[u8]) {
    drop(io::stdout().lock().write_all(out));
    drop(io::stderr().lock().write_all(err));
}

/// Whether stdout is for a person's eyes; then tables get colours.
pub(crate) fn colours() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none()
}
