//! The guest's console, line by line, turned into results.

use std::collections::VecDeque;

use crate::plan::Marker;

/// Lines of the log kept for an error message.
const TAIL: usize = 30;

/// Kernel lines after which no result of this guest can be trusted.
const FATAL: &[&str] = &[
    "Kernel panic",
    "BUG: ",
    "Oops: ",
    "general protection fault",
];

/// One command as seen on the console.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ran {
    /// Its name in the plan.
    pub name: String,
    /// Exit code; `None` when it was still running at the end.
    pub rc: Option<i32>,
    /// Run time, milliseconds.
    pub ms: u64,
    /// Its lines on the console, kernel messages between them included.
    pub lines: Vec<String>,
}

/// State after the lines fed so far.
#[derive(Debug, Default)]
pub struct Console {
    /// Init has come up.
    pub up: bool,
    /// The mailbox is served.
    pub ready: bool,
    /// All commands ran and init said so.
    pub ended: bool,
    /// Commands started so far.
    pub commands: Vec<Ran>,
    /// The first sign of a dead guest: a kernel panic, an oops, a kill by the supervisor.
    pub fatal: Option<String>,
    tail: VecDeque<String>,
}

impl Console {
    /// Takes one line without its line end.
    pub fn feed(&mut self, line: &str) -> Option<Marker> {
        let line = line.trim_end();
        if self.tail.len() == TAIL {
            self.tail.pop_front();
        }
        self.tail.push_back(line.to_owned());
        let marker = Marker::parse(line);
        match &marker {
            Some(Marker::Up) => self.up = true,
            Some(Marker::Ready) => self.ready = true,
            Some(Marker::End) => self.ended = true,
            Some(Marker::Start(name)) => {
                self.commands.push(Ran {
                    name: name.clone(),
                    ..Ran::default()
                });
            }
            Some(Marker::Rc(name, rc, ms)) => {
                if let Some(ran) = self.commands.iter_mut().find(|ran| ran.name == *name) {
                    ran.rc = Some(*rc);
                    ran.ms = *ms;
                }
            }
            Some(Marker::Killed(why)) => self.note_fatal(why),
            None => self.text(line),
        }
        marker
    }

    fn text(&mut self, line: &str) {
        if FATAL.iter().any(|word| line.contains(word)) {
            self.note_fatal(line);
        }
        if let Some(ran) = self.commands.last_mut()
            && ran.rc.is_none()
        {
            ran.lines.push(line.to_owned());
        }
    }

    fn note_fatal(&mut self, line: &str) {
        self.fatal.get_or_insert_with(|| line.trim().to_owned());
    }

    /// The last lines, for an error message.
    pub fn tail(&self) -> String {
        self.tail
            .iter()
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fed(text: &str) -> Console {
        let mut console = Console::default();
        for line in text.lines() {
            console.feed(line);
        }
        console
    }

    #[test]
    fn a_run_to_the_end() {
        let console = fed(
            "Core dump limits :\r\n@@UP\r\n@@START a\r\nhello\r\n@@RC a 0 12\r\n@@START b\r\n@@RC b 101 5\r\n@@END\r\n",
        );
        assert!(console.up && console.ended && !console.ready);
        assert_eq!(console.fatal, None);
        let [a, b] = console.commands.as_slice() else {
            panic!("{:?}", console.commands)
        };
        assert_eq!((a.name.as_str(), a.rc, a.ms), ("a", Some(0), 12));
        assert_eq!(a.lines, ["hello"]);
        assert_eq!((b.name.as_str(), b.rc), ("b", Some(101)));
    }

    #[test]
    fn a_panic_is_fatal_and_leaves_the_command_open() {
        let console =
            fed("@@UP\n@@START a\nworking\nKernel panic - not syncing: Attempted to kill init!\n");
        assert_eq!(
            console.fatal.as_deref(),
            Some("Kernel panic - not syncing: Attempted to kill init!")
        );
        assert_eq!(console.commands[0].rc, None);
        assert!(console.tail().contains("working"));
    }

    #[test]
    fn a_killed_guest_says_why() {
        let console = fed("@@UP\n@@KILLED no end after 60 s\n");
        assert_eq!(console.fatal.as_deref(), Some("no end after 60 s"));
    }
}
