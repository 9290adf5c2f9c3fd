//! The listening socket. A newer agent may take the path over while an older one still runs:
//! binding goes to a temporary name that is renamed into place, and the path is only removed
//! while it is still ours (spec dataplane, trap 41).

use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tokio::net::{UnixListener, UnixStream};

/// The socket could not be made.
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
}

/// A bound socket under its final name, mode 0600.
#[derive(Debug)]
pub struct Socket {
    listener: UnixListener,
    claim: Claim,
}

/// Which file at the path is ours.
#[derive(Debug)]
pub(super) struct Claim {
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

    pub(super) async fn accept(&self) -> io::Result<UnixStream> {
        self.listener.accept().await.map(|(stream, _)| stream)
    }

    /// The socket again at its path if somebody removed the file, or the folder with it: no caller
    /// can find it any more. A newer agent's socket there stays.
    pub(super) fn restored(self) -> Self {
        let path = self.claim.path.clone();
        match inode_of(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            _ => return self,
        }
        let folder = path.parent().map_or(Ok(()), std::fs::create_dir_all);
        match folder.and_then(|()| bind(&path)) {
            Ok(again) => {
                tracing::warn!(path = %path.display(), "the agent socket was removed and is there again");
                again
            }
            Err(error) => {
                tracing::error!(path = %path.display(), %error, "the agent socket was removed and cannot be made again");
                self
            }
        }
    }

    /// Stops listening.
    pub(super) fn close(self) -> Claim {
        self.claim
    }
}

fn bind(path: &Path) -> io::Result<Socket> {
    if std::fs::symlink_metadata(path).is_ok_and(|found| !found.file_type().is_socket()) {
        let text = "there is something that is no socket; it stays";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
    }
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
    pub(super) fn release(self) {
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
    async fn what_is_no_socket_is_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("conf.yml");
        std::fs::write(&path, "mtu: 1500").unwrap();
        assert!(bind(&path).is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "mtu: 1500");
    }

    #[tokio::test]
    async fn a_newer_agent_keeps_its_socket_when_the_older_one_stops() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("spiderpool.sock");
        let older = Socket::bind(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let newer = Socket::bind(&path).unwrap();
        older.restored().close().release();
        UnixStream::connect(&path).unwrap();
        newer.close().release();
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
