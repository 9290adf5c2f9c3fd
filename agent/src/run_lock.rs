//! One agent a run folder: two would take each other's attachment files and VLANs for leftovers.
//!
//! Owns the file `agent.lock`. The kernel drops the lock with the process, however that ends; the
//! file stays, and what is in it counts only while somebody holds the lock.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

/// The run folder is not ours.
#[derive(Debug, thiserror::Error)]
pub enum RunLockError {
    /// Another agent has it.
    #[error(
        "another spiderpool-agent (process {holder}) uses the folder of {}; stop it first, or choose another folder with --run-dir", path.display()
    )]
    Held {
        /// The lock file.
        path: PathBuf,
        /// Process id as the holder knows it: in a container it is another one outside.
        holder: String,
    },
    /// The file.
    #[error("cannot lock {}", path.display())]
    File {
        /// The lock file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// The lock; dropping it lets the next agent in.
#[derive(Debug)]
pub struct RunLock {
    _file: Flock<File>,
}

impl RunLock {
    /// Takes the lock, or says who has it; waits for nobody.
    ///
    /// # Errors
    /// [`RunLockError`].
    pub fn take(path: &Path) -> Result<Self, RunLockError> {
        let failed = |source| RunLockError::File {
            path: path.to_owned(),
            source,
        };
        let mut options = File::options();
        let file = options.read(true).write(true).create(true).truncate(false);
        let file = file.open(path).map_err(failed)?;
        let mut file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(file) => file,
            Err((_, Errno::EWOULDBLOCK)) => return Err(held(path)),
            Err((_, error)) => return Err(failed(error.into())),
        };
        file.set_len(0).map_err(failed)?;
        writeln!(file, "{}", std::process::id()).map_err(failed)?;
        Ok(Self { _file: file })
    }
}

fn held(path: &Path) -> RunLockError {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let pid = text.trim().parse::<u32>();
    RunLockError::Held {
        path: path.to_owned(),
        // It is just starting, and has not written it yet.
        holder: pid.map_or_else(|_| "unknown".to_owned(), |pid| pid.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_is_told_who_was_first_until_that_one_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agent.lock");
        std::fs::write(&path, "12345678 of a dead agent").unwrap();
        let first = RunLock::take(&path).unwrap();
        let error = RunLock::take(&path).unwrap_err().to_string();
        let own = format!("(process {})", std::process::id());
        for part in [own.as_str(), "agent.lock", "--run-dir"] {
            assert!(error.contains(part), "{part}: {error}");
        }
        drop(first);
        RunLock::take(&path).unwrap();
        let error = RunLock::take(&dir.path().join("no/agent.lock")).unwrap_err();
        assert!(matches!(error, RunLockError::File { .. }), "{error}");
    }
}
