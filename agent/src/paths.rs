//! Where the agent keeps its files. The only module that names a path; everything else asks here.
//! Touches nothing but the folders it makes.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use spiderpool_api::names;

/// Default of `--state`.
pub const DEFAULT_STATE: &str = "/var/lib/spiderpool/state.redb";
/// Default of `--dir` in standalone mode.
pub const DEFAULT_DIR: &str = "/etc/spiderpool";

/// Default of `--bpf-dir`.
pub const DEFAULT_BPF_DIR: &str = "/sys/fs/bpf/spiderpool";

/// Where the kernel tells the host's name.
const HOSTNAME: &str = "/proc/sys/kernel/hostname";

/// The host's name as the kernel has it, without its domain part cut.
///
/// # Errors
/// Without procfs.
pub fn hostname() -> io::Result<String> {
    std::fs::read_to_string(HOSTNAME).map(|name| name.trim().to_ascii_lowercase())
}

/// Files of standalone mode below `--dir`.
#[derive(Debug, Clone)]
pub struct StandalonePaths {
    dir: PathBuf,
}

impl StandalonePaths {
    /// Below `dir`.
    #[must_use]
    pub fn new(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
        }
    }

    /// Objects to apply, `*.yaml`.
    #[must_use]
    pub fn manifests_dir(&self) -> PathBuf {
        self.dir.join("manifests")
    }

    /// Settings besides the command line.
    #[must_use]
    pub fn conf_path(&self) -> PathBuf {
        self.dir.join("conf.yml")
    }

    /// CA of the API listener.
    #[must_use]
    pub fn cert_dir(&self) -> PathBuf {
        self.dir.join("pki")
    }

    /// Bearer token of the API listener.
    #[must_use]
    pub fn token_path(&self) -> PathBuf {
        self.dir.join("token")
    }

    /// Default of `--kubeconfig-out`.
    #[must_use]
    pub fn kubeconfig_path(&self) -> PathBuf {
        self.dir.join("kubeconfig")
    }
}

/// Files and folders of one agent.
#[derive(Debug, Clone)]
pub struct Paths {
    run_dir: PathBuf,
    socket: PathBuf,
}

/// A folder could not be made.
#[derive(Debug, thiserror::Error)]
#[error("cannot prepare {}; the agent needs to write there, choose another place with --run-dir", path.display())]
pub struct PathsError {
    path: PathBuf,
    source: io::Error,
}

impl Paths {
    /// Everything below `run_dir`, the socket under its usual name in there.
    #[must_use]
    pub fn new(run_dir: &Path) -> Self {
        let socket = Path::new(names::DEFAULT_SOCKET)
            .file_name()
            .unwrap_or_default();
        Self {
            run_dir: run_dir.to_owned(),
            socket: run_dir.join(socket),
        }
    }

    /// The same with the socket elsewhere.
    #[must_use]
    pub fn with_socket(mut self, socket: PathBuf) -> Self {
        self.socket = socket;
        self
    }

    /// The agent socket.
    #[must_use]
    pub fn socket_path(&self) -> &Path {
        &self.socket
    }

    /// DELs that found no agent, left by the CNI binary beside the socket it knows.
    #[must_use]
    pub fn spool_dir(&self) -> PathBuf {
        self.socket_dir().join(names::SPOOL_DIR)
    }

    fn socket_dir(&self) -> &Path {
        self.socket.parent().unwrap_or(&self.run_dir)
    }

    /// Attachment files.
    #[must_use]
    pub fn attachments_dir(&self) -> PathBuf {
        self.run_dir.join(names::ATTACHMENTS_DIR)
    }

    /// Lock of the one agent that uses the run folder.
    #[must_use]
    pub fn lock_path(&self) -> PathBuf {
        self.run_dir.join("agent.lock")
    }

    /// Makes the folders: 0755 for the run folder and the socket's, 0700 for what is inside.
    ///
    /// # Errors
    /// [`PathsError`] names the folder.
    pub fn prepare(&self) -> Result<(), PathsError> {
        for (path, mode) in [
            (self.run_dir.clone(), 0o755),
            (self.socket_dir().to_owned(), 0o755),
            (self.spool_dir(), 0o700),
            (self.attachments_dir(), 0o700),
        ] {
            make_dir(&path, mode).map_err(|source| PathsError { path, source })?;
        }
        Ok(())
    }
}

/// An existing folder keeps the mode its owner gave it.
fn make_dir(path: &Path, mode: u32) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    std::fs::create_dir_all(path)?;
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_made_with_their_modes() {
        let dir = tempfile::tempdir().unwrap();
        let paths = Paths::new(&dir.path().join("run"));
        paths.prepare().unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&dir.path().join("run")), 0o755);
        assert_eq!(mode(&paths.attachments_dir()), 0o700);
        assert!(paths.socket_path().ends_with("run/spiderpool.sock"));
        paths.prepare().unwrap();
    }

    #[test]
    fn a_file_in_the_way_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("run");
        std::fs::write(&file, "").unwrap();
        let error = Paths::new(&file).prepare().unwrap_err();
        assert!(error.to_string().contains("run"), "{error}");
    }
}
