//! The listening socket. A newer agent may take the path over while an older one still runs:
//! binding goes to a temporary name that is renamed into place, and the path is only removed
//! while it is still ours (spec dataplane, trap 41).

use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tokio::net::UnixListener;

/// The socket could not be made or served.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// Binding, its mode or the rename failed.
    #[error("cannot listen on {}: another --run-dir, or the rights of root, may help", path.display())]
    Bind {
        /// The socket's path.
        path: PathBuf,
        /// What failed.
        source: io::Error,
    },
    /// Accepting failed.
    #[error("the agent socket cannot be served any more")]
    Serve {
        /// What failed.
        source: io::Error,
    },
}

/// A bound socket under its final name, mode 0600.
#[derive(Debug)]
pub struct Socket {
    listener: UnixListener,
    claim: Claim,
}

/// Which file at the path is ours.
#[derive(Debug)]
pub(crate) struct Claim {
    path: PathBuf,
    inode: (u64, u64),
}

impl Socket {
    /// Binds `path`, replacing whatever socket is there. Needs a runtime.
    ///
    /// # Errors
    /// [`SocketError::Bind`]; the path is then as it was.
    pub fn bind(path: &Path) -> Result<Self, SocketError> {
        bind(path).map_err(|source| SocketError::Bind {
            path: path.to_owned(),
            source,
        })
    }

    pub(crate) fn into_parts(self) -> (UnixListener, Claim) {
        (self.listener, self.claim)
    }
}

fn bind(path: &Path) -> io::Result<Socket> {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}", std::process::id()));
    let unfinished = path.with_file_name(name);
    remove(&unfinished)?;
    let listener = UnixListener::bind(&unfinished)?;
    std::fs::set_permissions(&unfinished, PermissionsExt::from_mode(0o600))?;
    let inode = inode_of(&unfinished)?;
    std::fs::rename(&unfinished, path)?;
    let path = path.to_owned();
    Ok(Socket {
        listener,
        claim: Claim { path, inode },
    })
}

impl Claim {
    /// Removes the path if it is still our socket.
    pub(crate) fn release(self) {
        if inode_of(&self.path).ok() != Some(self.inode) {
            tracing::info!(path = %self.path.display(), "another agent has taken the socket over; it stays");
            return;
        }
        if let Err(error) = remove(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove the agent socket");
        }
    }
}

fn inode_of(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|meta| (meta.dev(), meta.ino()))
}

fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[tokio::test]
    async fn a_newer_agent_keeps_its_socket_when_the_older_one_stops() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("spiderpool.sock");
        let older = Socket::bind(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let newer = Socket::bind(&path).unwrap();
        let (older, claim) = older.into_parts();
        drop(older);
        claim.release();
        UnixStream::connect(&path).unwrap();
        let (newer, claim) = newer.into_parts();
        drop(newer);
        claim.release();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        Claim {
            path,
            inode: (0, 0),
        }
        .release();
    }

    #[tokio::test]
    async fn a_missing_folder_is_named() {
        let error = Socket::bind(Path::new("/nonexistent/a.sock")).unwrap_err();
        assert!(error.to_string().contains("/nonexistent/a.sock"), "{error}");
    }
}
