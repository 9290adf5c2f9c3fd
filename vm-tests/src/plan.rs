//! What the host tells the guest's init, and the marker lines init prints on the console.
//!
//! Both sides link this module, so the file and the markers cannot drift apart.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Path, inside the root folder, of the plan that init reads.
pub const PLAN_PATH: &str = "etc/guest-plan.json";
/// Folder for result files. It lies on hostfs: what a guest process writes and closes there is on
/// the host's disk at that moment (hostfs writes back on the last close).
pub const OUT_DIR: &str = "out";
/// Folder for requests to a kept guest.
pub const MAILBOX_DIR: &str = "mailbox";
/// Exit code reported for a command, or a guest, that ran out of time, as coreutils' `timeout`.
pub const RC_TIMEOUT: i32 = 124;

/// Everything init does, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestPlan {
    /// Name of the machine.
    pub hostname: String,
    /// Module files to insert, dependencies first; paths inside the guest.
    pub modules: Vec<String>,
    /// Commands, run one after the other.
    pub commands: Vec<GuestCommand>,
    /// Serve the mailbox after the last command instead of powering off.
    pub keep: bool,
}

/// One command in the guest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestCommand {
    /// Unique name, without blanks; it names the result.
    pub name: String,
    /// Program (path in the guest) and arguments.
    pub argv: Vec<String>,
    /// Added to init's own environment (PATH, HOME).
    #[serde(default)]
    pub env: Vec<(String, String)>,
    /// Killed, with its process group, after this many seconds.
    pub timeout_s: u64,
}

/// A line init or the supervisor prints for the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Marker {
    /// Init runs and has its mounts, modules and loopback.
    Up,
    /// A command starts.
    Start(String),
    /// A command ended: name, exit code (128 + signal, 124 on timeout), milliseconds.
    Rc(String, i32, u64),
    /// All commands ran and the mailbox is served.
    Ready,
    /// All commands ran, power off follows.
    End,
    /// The supervisor killed the guest: why.
    Killed(String),
}

impl fmt::Display for Marker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Up => write!(f, "@@UP"),
            Self::Start(name) => write!(f, "@@START {name}"),
            Self::Rc(name, rc, ms) => write!(f, "@@RC {name} {rc} {ms}"),
            Self::Ready => write!(f, "@@READY"),
            Self::End => write!(f, "@@END"),
            Self::Killed(why) => write!(f, "@@KILLED {why}"),
        }
    }
}

impl Marker {
    /// Reads a console line; `None` for anything that is not a whole marker.
    pub fn parse(line: &str) -> Option<Self> {
        let rest = line.trim_end().strip_prefix("@@")?;
        let (word, args) = rest.split_once(' ').unwrap_or((rest, ""));
        match word {
            "UP" => Some(Self::Up),
            "READY" => Some(Self::Ready),
            "END" => Some(Self::End),
            "START" if !args.is_empty() => Some(Self::Start(args.to_owned())),
            "KILLED" => Some(Self::Killed(args.to_owned())),
            "RC" => {
                let mut words = args.split(' ');
                let name = words.next()?.to_owned();
                let rc = words.next()?.parse().ok()?;
                let ms = words.next()?.parse().ok()?;
                Some(Self::Rc(name, rc, ms))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_survive_the_console() {
        let all = [
            Marker::Up,
            Marker::Start("vm_smoke".into()),
            Marker::Rc("vm_smoke".into(), 101, 1234),
            Marker::Rc("x".into(), -1, 0),
            Marker::Ready,
            Marker::End,
            Marker::Killed("no end after 60 s".into()),
        ];
        for marker in all {
            // the guest's terminal turns \n into \r\n
            assert_eq!(Marker::parse(&format!("{marker}\r")), Some(marker));
        }
    }

    #[test]
    fn other_lines_are_not_markers() {
        for line in [
            "",
            "@@",
            "@@RC x",
            "@@RC x y 1",
            "@@START",
            "x @@UP",
            "@@NEW",
        ] {
            assert_eq!(Marker::parse(line), None, "{line}");
        }
    }
}
