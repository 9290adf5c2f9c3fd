//! What a person sees while a run goes on: one line that changes on a terminal, a line a check
//! elsewhere. On standard error.

use std::cell::Cell;
use std::io::{self, IsTerminal, Write};

use super::report::Line;
use crate::output;

pub(crate) struct Progress {
    all: usize,
    ended: Cell<usize>,
    is_terminal: bool,
}

impl Progress {
    pub(crate) fn new(all: usize) -> Self {
        Self {
            all,
            ended: Cell::new(0),
            is_terminal: io::stderr().is_terminal(),
        }
    }

    pub(crate) fn begins(&self, check: &str) {
        if self.is_terminal {
            write(&format!(
                "\r\u{1b}[K[{}/{}] {check}",
                self.ended.get() + 1,
                self.all
            ));
        }
    }

    pub(crate) fn ended(&self, line: &Line) {
        self.ended.set(self.ended.get() + 1);
        if !self.is_terminal {
            let (word, at, all) = (line.verdict.word(), self.ended.get(), self.all);
            write(&output::harmless(&format!(
                "[{at}/{all}] {} {word}\n",
                line.check
            )));
        }
    }

    pub(crate) fn done(&self) {
        if self.is_terminal {
            write("\r\u{1b}[K");
        }
    }
}

fn write(text: &str) {
    let mut out = io::stderr().lock();
    // nobody reads it then
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .ok();
}
