//! The file in which the cloud's state outlives the process. One process at a time works on it
//! (P17); the lock is a file beside it.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use spiderpool_iaas::regular_file;
use tracing::{error, info};

use crate::cloud::Saved;
use crate::cloud::saved::SavedError;
use crate::topology::Topology;

/// Longest state file, bytes: 100,000 sub-ENIs.
const MAX_STATE: u64 = 64 << 20;

/// The state file is of no use.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// It can't be read.
    #[error("cannot read the state file {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is not ours.
    #[error("the state file {} is not valid: remove it to begin with an empty cloud", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// It remembers what cannot be.
    #[error("the state file {} does not fit together or to the topology: remove it to begin with an empty cloud", path.display())]
    Unfit {
        /// The file.
        path: PathBuf,
        /// The first contradiction.
        source: SavedError,
    },
    /// Another process works on it.
    #[error("another provider-sim works on the state file {}: end it, or name another file", path.display())]
    Taken {
        /// The file.
        path: PathBuf,
    },
    /// The lock file can't be had.
    #[error("cannot lock {}", path.display())]
    Lock {
        /// The lock file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// The state file is ours until this is dropped.
#[derive(Debug)]
pub struct StateLock {
    _held: Flock<File>,
}

impl StateLock {
    /// Takes the lock of a state file, without waiting. Blocks for a file operation.
    ///
    /// # Errors
    /// [`StateError::Taken`], [`StateError::Lock`].
    pub fn take(path: &Path) -> Result<Self, StateError> {
        let mut lock = path.to_owned().into_os_string();
        lock.push(".lock");
        let lock = PathBuf::from(lock);
        let failed = |source| StateError::Lock {
            path: lock.clone(),
            source,
        };
        let mut options = OpenOptions::new();
        let file = options.create(true).write(true).truncate(false).open(&lock);
        match Flock::lock(file.map_err(failed)?, FlockArg::LockExclusiveNonblock) {
            Ok(held) => Ok(Self { _held: held }),
            Err((_, Errno::EWOULDBLOCK)) => Err(StateError::Taken {
                path: path.to_owned(),
            }),
            Err((_, errno)) => Err(failed(errno.into())),
        }
    }
}

/// What the file remembers of the cloud of a topology; `None`: it is not there. Blocks, but not for
/// a pipe.
///
/// # Errors
/// [`StateError::Read`], [`StateError::Parse`], [`StateError::Unfit`].
pub fn read(path: &Path, topology: &Topology) -> Result<Option<Saved>, StateError> {
    let path_of = || path.to_owned();
    match regular_file::read(path, MAX_STATE) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(StateError::Read {
            path: path_of(),
            source,
        }),
        Ok(text) => {
            let saved: Saved =
                serde_json::from_slice(&text).map_err(|source| StateError::Parse {
                    path: path_of(),
                    source,
                })?;
            saved.check(topology).map_err(|source| StateError::Unfit {
                path: path_of(),
                source,
            })?;
            info!(path = %path.display(), "the cloud is read from the state file");
            Ok(Some(saved))
        }
    }
}

/// Readers see the whole file or none. A failure is loud but stops nothing: the cloud works, it
/// will only not outlive the process.
pub fn write(path: &Path, saved: &Saved) {
    let temporary = path.with_extension("new");
    let text = serde_json::to_vec(saved).map_err(io::Error::from);
    let written = text
        .and_then(|text| fs::write(&temporary, text))
        .and_then(|()| fs::rename(&temporary, path));
    if let Err(cause) = written {
        error!(path = %path.display(), %cause, "cannot write the state file");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_another_topology_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.json");
        let topology = r#"{parents: [], gateway: {ifname: gw0},
            subnets: [{ipv4: 10.72.0.0/24, gatewayMac: "fa:16:3e:ff:ff:fe"}]}"#;
        let topology = serde_saphyr::from_str(topology).unwrap();
        assert_eq!(read(&path, &topology).unwrap(), None);
        let text = r#"{"quarantine":[],"subEnis":[{"mac":"fa:16:3e:00:00:0a","ipv4":"10.72.0.10","pool":"g",
            "state":{"phase":"bound","parent":"fa:16:3e:01:00:01","vlan":7}}]}"#;
        fs::write(&path, text).unwrap();
        let error = read(&path, &topology).unwrap_err();
        let text = spiderpool_api::causes::with_causes(&error);
        for part in [
            "state.json does not fit",
            "remove it",
            "which the topology lacks",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn one_process_at_a_time_has_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.json");
        let held = StateLock::take(&path).unwrap();
        let text = StateLock::take(&path).unwrap_err().to_string();
        assert!(text.contains("state.json: end it"), "{text}");
        drop(held);
        assert!(StateLock::take(&path).is_ok());
        let nowhere = StateLock::take(&dir.path().join("no/state.json"));
        assert!(matches!(nowhere, Err(StateError::Lock { .. })));
    }
}
