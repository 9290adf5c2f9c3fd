//! Network namespaces: open, name, enter.
//!
//! Owns every `setns` and `unshare` of the product. A thread that entered a namespace is never
//! given back to a runtime: work runs on a thread made for it, and that thread ends afterwards.
//! May touch namespace files and the mount table (for named namespaces), nothing else.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::thread;

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::statfs::{NSFS_MAGIC, fstatfs};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

/// The namespace of the calling thread; `/proc/self` would be the one of the main thread.
const OWN_NETNS_PATH: &str = "/proc/thread-self/ns/net";

/// Why a namespace could not be used. Names its path.
#[derive(Debug, thiserror::Error)]
pub enum NetnsError {
    /// The file is absent, or it is there and no network namespace (any more).
    #[error("network namespace {} is gone: {why}", path.display())]
    Gone {
        /// As the caller named it.
        path: PathBuf,
        /// What was found in its place.
        why: &'static str,
    },
    /// The file exists and cannot be opened.
    #[error("cannot open network namespace {}", path.display())]
    Open {
        /// As the caller named it.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// `setns` was refused; CAP_SYS_ADMIN is needed.
    #[error("cannot enter network namespace {}", path.display())]
    Enter {
        /// As the caller named it.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The thread that was to enter it could not be started or panicked.
    #[error("the thread for network namespace {} failed", path.display())]
    Thread {
        /// As the caller named it.
        path: PathBuf,
        /// Why it could not be started.
        source: io::Error,
    },
    /// A named namespace could not be made.
    #[error("cannot create network namespace {}", path.display())]
    Create {
        /// Where its name was to be.
        path: PathBuf,
        /// What failed: the file, `unshare` or the bind mount.
        source: io::Error,
    },
    /// A named namespace could not be taken away.
    #[error("cannot remove network namespace {}", path.display())]
    Remove {
        /// Where its name is.
        path: PathBuf,
        /// What failed: `umount2` or `unlink`.
        source: io::Error,
    },
}

impl NetnsError {
    /// Whether there is no such namespace: for a DEL that is success.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Gone { .. })
    }
}

/// What tells one namespace from all others of this boot: device and inode of its nsfs file.
/// Text form `device:inode`, as attachment files keep it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NetnsId {
    /// Device number of the nsfs.
    pub dev: u64,
    /// Inode number of the namespace.
    pub inode: u64,
}

impl fmt::Display for NetnsId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.dev, self.inode)
    }
}

/// The text is not `device:inode`.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a namespace identity such as 4:4026531840")]
pub struct NetnsIdError(String);

impl FromStr for NetnsId {
    type Err = NetnsIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parsed = text
            .split_once(':')
            .and_then(|(dev, inode)| Some((dev.parse().ok()?, inode.parse().ok()?)));
        match parsed {
            Some((dev, inode)) => Ok(Self { dev, inode }),
            None => Err(NetnsIdError(text.to_owned())),
        }
    }
}

impl Serialize for NetnsId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for NetnsId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// An open network namespace. It lives at least as long as this value: drop it after the
/// operation, or a dead Pod's links stay.
#[derive(Debug, Clone)]
pub struct Netns {
    file: Arc<File>,
    path: PathBuf,
    id: NetnsId,
}

impl Netns {
    /// Opens the namespace a path names (`/var/run/netns/x`, `/proc/1/ns/net`).
    ///
    /// # Errors
    /// [`NetnsError::Gone`] when the path is absent or no namespace file, else
    /// [`NetnsError::Open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, NetnsError> {
        let path = path.as_ref().to_owned();
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(NetnsError::Gone {
                    path,
                    why: "no such file",
                });
            }
            Err(source) => return Err(NetnsError::Open { path, source }),
        };
        let (kind, meta) = match (fstatfs(&file).map_err(io::Error::from), file.metadata()) {
            (Ok(kind), Ok(meta)) => (kind.filesystem_type(), meta),
            (Err(source), _) | (_, Err(source)) => return Err(NetnsError::Open { path, source }),
        };
        if kind != NSFS_MAGIC {
            // What is left of a named namespace after its unmount or a reboot.
            let why = "the file there is not a namespace";
            return Err(NetnsError::Gone { path, why });
        }
        let id = NetnsId {
            dev: meta.dev(),
            inode: meta.ino(),
        };
        Ok(Self {
            file: Arc::new(file),
            path,
            id,
        })
    }

    /// Opens the namespace of the calling thread.
    ///
    /// # Errors
    /// [`NetnsError::Open`], for example without procfs.
    pub fn current() -> Result<Self, NetnsError> {
        Self::open(OWN_NETNS_PATH)
    }

    /// Makes a new namespace and mounts it at `path`, as `ip netns add` does. Parent folders are
    /// made. Needs CAP_SYS_ADMIN. Blocks for some milliseconds.
    ///
    /// # Errors
    /// [`NetnsError::Create`]; nothing is left then.
    pub fn create(path: impl AsRef<Path>) -> Result<Self, NetnsError> {
        let path = path.as_ref().to_owned();
        let made = prepare_mount_point(&path).and_then(|()| {
            let mounted = on_own_thread(|| mount_new_netns(&path)).and_then(|result| result);
            mounted.inspect_err(|_| drop(fs::remove_file(&path)))
        });
        match made {
            Ok(()) => Self::open(path),
            Err(source) => Err(NetnsError::Create { path, source }),
        }
    }

    /// Takes the name of a namespace away. The namespace ends when nothing else holds it.
    /// Succeeds when there is no such name.
    ///
    /// # Errors
    /// [`NetnsError::Remove`].
    pub fn remove(path: impl AsRef<Path>) -> Result<(), NetnsError> {
        let path = path.as_ref();
        let failed = |source| NetnsError::Remove {
            path: path.to_owned(),
            source,
        };
        match umount2(path, MntFlags::MNT_DETACH) {
            // EINVAL: a plain file, what a failed creation left.
            Ok(()) | Err(Errno::EINVAL | Errno::ENOENT) => {}
            Err(errno) => return Err(failed(errno.into())),
        }
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(error)),
            _ => Ok(()),
        }
    }

    /// Identity, equal for every path that leads to the same namespace.
    #[must_use]
    pub fn id(&self) -> NetnsId {
        self.id
    }

    /// The path it was opened by.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Runs `work` on a new thread inside the namespace and waits. Blocks: use
    /// [`Netns::run_async`] in async code.
    ///
    /// # Errors
    /// [`NetnsError::Gone`], [`NetnsError::Enter`] or [`NetnsError::Thread`].
    pub fn run<R: Send>(&self, work: impl FnOnce() -> R + Send) -> Result<R, NetnsError> {
        on_own_thread(|| self.enter().map(|()| work())).map_err(|e| self.thread_failed(e))?
    }

    /// Runs `work` on a new thread inside the namespace. The thread goes on to its end when the
    /// future is dropped.
    ///
    /// # Errors
    /// [`NetnsError::Gone`], [`NetnsError::Enter`] or [`NetnsError::Thread`].
    pub async fn run_async<R, F>(&self, work: F) -> Result<R, NetnsError>
    where
        R: Send + 'static,
        F: FnOnce() -> R + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let netns = self.clone();
        thread::Builder::new()
            .name("netns".to_owned())
            .spawn(move || {
                let result = netns.enter().map(|()| work());
                // Before the answer: the caller may expect the namespace to be let go.
                drop(netns);
                // The asker is gone when its deadline passed; nobody wants the answer then.
                drop(answer.send(result));
            })
            .map_err(|e| self.thread_failed(e))?;
        answered
            .await
            .map_err(|_| self.thread_failed(io::Error::other("it panicked")))?
    }

    /// Moves the calling thread, for good.
    fn enter(&self) -> Result<(), NetnsError> {
        match setns(self.as_fd(), CloneFlags::CLONE_NEWNET) {
            Ok(()) => Ok(()),
            Err(Errno::EINVAL) => Err(NetnsError::Gone {
                path: self.path.clone(),
                why: "the file there is a namespace of another kind",
            }),
            Err(errno) => Err(NetnsError::Enter {
                path: self.path.clone(),
                source: errno.into(),
            }),
        }
    }

    fn thread_failed(&self, source: io::Error) -> NetnsError {
        NetnsError::Thread {
            path: self.path.clone(),
            source,
        }
    }
}

impl AsFd for Netns {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl AsRawFd for Netns {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

impl fmt::Display for Netns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.display().fmt(f)
    }
}

fn on_own_thread<R: Send>(work: impl FnOnce() -> R + Send) -> io::Result<R> {
    thread::scope(|scope| {
        thread::Builder::new()
            .name("netns".to_owned())
            .spawn_scoped(scope, work)?
            .join()
            .map_err(|_| io::Error::other("it panicked"))
    })
}

/// The file a namespace is mounted on. `create_new`: an existing name is somebody else's.
fn prepare_mount_point(path: &Path) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    File::create_new(path).map(drop)
}

fn mount_new_netns(path: &Path) -> io::Result<()> {
    unshare(CloneFlags::CLONE_NEWNET)?;
    let none: Option<&str> = None;
    mount(Some(OWN_NETNS_PATH), path, none, MsFlags::MS_BIND, none)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TestNetns, root_or_skip};

    #[test]
    fn identity_round_trips_as_text() {
        let id = NetnsId {
            dev: 4,
            inode: 4_026_531_840,
        };
        assert_eq!(id.to_string().parse(), Ok(id));
        for bad in ["", "4", "4:", ":4", "4:x", "4:5:6"] {
            assert!(bad.parse::<NetnsId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn absent_and_stale_names_are_gone() {
        let dir = tempfile::tempdir().unwrap();
        let absent = Netns::open(dir.path().join("absent")).unwrap_err();
        assert!(absent.is_gone(), "{absent}");
        let stale = dir.path().join("stale");
        fs::write(&stale, "").unwrap();
        let error = Netns::open(&stale).unwrap_err();
        assert!(error.is_gone(), "{error}");
        assert!(error.to_string().contains(stale.to_str().unwrap()));
    }

    #[test]
    fn a_namespace_of_another_kind_counts_as_gone() {
        if !root_or_skip("a_namespace_of_another_kind_counts_as_gone") {
            return;
        }
        let mount_ns = Netns::open("/proc/self/ns/mnt").unwrap();
        assert!(mount_ns.run(|| ()).unwrap_err().is_gone());
    }

    #[test]
    fn work_runs_inside_and_the_caller_stays_outside() {
        if !root_or_skip("work_runs_inside_and_the_caller_stays_outside") {
            return;
        }
        let before = Netns::current().unwrap().id();
        let test = TestNetns::new("inside");
        let inside = test.netns.run(|| Netns::current().unwrap().id()).unwrap();
        assert_eq!(inside, test.netns.id());
        assert_ne!(inside, before);
        assert_eq!(Netns::current().unwrap().id(), before);
    }

    #[tokio::test]
    async fn a_panic_inside_is_an_error_outside() {
        if !root_or_skip("a_panic_inside_is_an_error_outside") {
            return;
        }
        let test = TestNetns::new("panics");
        let result = test.netns.run_async(|| panic!("on purpose")).await;
        assert!(matches!(result, Err(NetnsError::Thread { .. })));
    }

    #[test]
    fn creation_refuses_a_taken_name_and_removal_is_idempotent() {
        if !root_or_skip("creation_refuses_a_taken_name_and_removal_is_idempotent") {
            return;
        }
        let test = TestNetns::new("named");
        let path = test.netns.path().to_owned();
        assert!(matches!(
            Netns::create(&path),
            Err(NetnsError::Create { .. })
        ));
        assert!(
            Netns::open(&path).is_ok(),
            "the first owner keeps its namespace"
        );
        Netns::remove(&path).unwrap();
        Netns::remove(&path).unwrap();
        assert!(Netns::open(&path).unwrap_err().is_gone());
    }
}
