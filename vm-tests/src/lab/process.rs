//! Long-running processes of a lab: started inside a namespace, with a log file, ended by pid.
//!
//! May touch the process it started and its log file.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

/// Lines of a log that go into an error.
const TAIL_LINES: usize = 30;

/// Whether processes and namespaces end with the lab that made them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lifetime {
    /// They end with it, also when its process is killed.
    Lab,
    /// They stay; somebody looks at them later.
    Kept,
}

/// Stands for a namespace where a process stays in its starter's; needs no rights. It leads a
/// process group of its own: a terminal's Ctrl-C is for its starter alone.
pub const HERE: &str = "-";
/// Stands for a new namespace, which has no name and ends with the process.
pub const NEW: &str = "+";

/// What to run.
#[derive(Debug)]
pub struct DaemonSpec<'a> {
    /// Name in errors.
    pub name: &'a str,
    /// Folder of the binaries; `lab-run` lies there too.
    pub bin_dir: &'a Path,
    /// Namespace to run in, or [`HERE`].
    pub netns: &'a Path,
    /// Program in `bin_dir` and its arguments.
    pub argv: Vec<OsString>,
    /// Environment besides the caller's own.
    pub env: &'a [(&'a str, &'a str)],
    /// Standard output and error, appended.
    pub log_path: PathBuf,
    /// See [`Lifetime`].
    pub lifetime: Lifetime,
}

/// A running process. With [`Lifetime::Lab`] it also dies with the *thread* that started it.
#[derive(Debug)]
pub struct Daemon {
    name: String,
    child: Child,
    log_path: PathBuf,
    lifetime: Lifetime,
}

impl Daemon {
    /// Starts it.
    ///
    /// # Errors
    /// The program or the log file cannot be opened.
    pub fn start(spec: &DaemonSpec<'_>) -> Result<Self> {
        let log = File::options()
            .create(true)
            .append(true)
            .open(&spec.log_path)
            .with_context(|| format!("open {}", spec.log_path.display()))?;
        let (program, args) = spec.argv.split_first().context("no program")?;
        let runner = spec.bin_dir.join("lab-run");
        let mut command = Command::new(&runner);
        if spec.netns == Path::new(HERE) {
            command.process_group(0);
        }
        let child = command
            .arg(spec.netns)
            .arg(match spec.lifetime {
                Lifetime::Lab => "lab",
                Lifetime::Kept => "kept",
            })
            .arg(spec.bin_dir.join(program))
            .args(args)
            .envs(spec.env.iter().copied())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("run {} for {}", runner.display(), spec.name))?;
        Ok(Self {
            name: spec.name.to_owned(),
            child,
            log_path: spec.log_path.clone(),
            lifetime: spec.lifetime,
        })
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Fails when it has ended, with the log's tail.
    ///
    /// # Errors
    /// How it ended.
    pub fn still_runs(&mut self) -> Result<()> {
        let ended = self.child.try_wait()?;
        match ended {
            None => Ok(()),
            Some(status) => bail!(
                "{} ended with {}{}\n{}",
                self.name,
                status
                    .code()
                    .map_or_else(|| "a signal".to_owned(), |rc| format!("exit code {rc}")),
                status
                    .signal()
                    .map_or_else(String::new, |n| format!(" ({n})")),
                self.log_tail()
            ),
        }
    }

    /// Whether it has ended by itself.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub fn has_ended(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// SIGKILL, and waits for its end.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn kill(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        self.child
            .kill()
            .and_then(|()| self.child.wait().map(drop))
            .with_context(|| format!("kill {}", self.name))
    }

    /// Everything it has printed.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read(&self.log_path)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// The last lines it printed, under a heading.
    #[must_use]
    pub fn log_tail(&self) -> String {
        tail(&self.name, &self.log())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if self.lifetime == Lifetime::Lab {
            // It may have ended by itself; there is nobody left to tell.
            drop(self.end());
        }
    }
}

/// The end of a text under a heading.
fn tail(name: &str, text: &str) -> String {
    let lines: Vec<_> = text.lines().collect();
    let from = lines.len().saturating_sub(TAIL_LINES);
    let last = lines.get(from..).unwrap_or_default().join("\n");
    format!("last lines of {name}:\n{last}")
}

/// Program and arguments.
pub fn argv<const N: usize>(words: [&OsStr; N]) -> Vec<OsString> {
    words.into_iter().map(OsStr::to_os_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_is_the_end_and_names_its_source() {
        let text: String = (0..100).map(|i| format!("line {i}\n")).collect();
        let tail = tail("agent", &text);
        assert!(
            tail.starts_with("last lines of agent:\nline 70\n"),
            "{tail}"
        );
        assert!(tail.ends_with("line 99"), "{tail}");
    }
}
