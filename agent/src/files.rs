//! Work on small files, off the runtime's threads. A runtime of one thread, as tests and the
//! simulation have it, does it in place: a thread of its own would finish in an order that no seed
//! repeats.
//!
//! Touches only what its callers name.

use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use tokio::runtime::{Handle, RuntimeFlavor};

/// Runs blocking work where it may block.
pub(crate) async fn run<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    if Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread {
        tokio::task::yield_now().await;
        return work();
    }
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(io::Error::from).flatten()
}

/// Whether a file has to outlive the machine's power.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durable {
    /// It does, once this returns.
    Yes,
    /// The kernel brings it to the disk in its own time.
    No,
}

/// Gives a file its content, whole or not at all: under an unfinished name first, so that nobody reads half
/// of it. A failure leaves nothing behind: on a full disk each would take what the next one needs.
pub(crate) async fn replace(
    path: &Path,
    unfinished: &Path,
    text: Vec<u8>,
    durable: Durable,
) -> io::Result<()> {
    let written = async {
        write(unfinished, text).await?;
        if durable == Durable::Yes {
            sync(unfinished).await?;
        }
        rename(unfinished, path).await
    };
    let written = written.await;
    if written.is_err() {
        // What cannot be removed either is no file of ours by its name: nobody reads it.
        remove(unfinished).await.ok();
    }
    written
}

async fn write(path: &Path, text: Vec<u8>) -> io::Result<()> {
    let path = path.to_owned();
    run(move || std::fs::write(path, text)).await
}

/// Brings what was written to the disk.
async fn sync(path: &Path) -> io::Result<()> {
    let path = path.to_owned();
    run(move || std::fs::File::open(path)?.sync_all()).await
}

/// Gives a file its name, atomically.
pub(crate) async fn rename(from: &Path, to: &Path) -> io::Result<()> {
    let (from, to) = (from.to_owned(), to.to_owned());
    run(move || std::fs::rename(from, to)).await
}

/// Takes a file away.
pub(crate) async fn remove(path: &Path) -> io::Result<()> {
    let path = path.to_owned();
    run(move || std::fs::remove_file(path)).await
}

/// Whether something has this name.
pub(crate) async fn exists(path: &Path) -> io::Result<bool> {
    let path = path.to_owned();
    run(move || path.try_exists()).await
}

/// Whether it is a folder; what is not there is none.
pub(crate) async fn is_folder(path: &Path) -> io::Result<bool> {
    let path = path.to_owned();
    run(move || match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        looked => Ok(looked?.is_dir()),
    })
    .await
}

/// What a folder holds, in no order; nothing when it is not there.
pub(crate) async fn list(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let dir = dir.to_owned();
    run(move || match std::fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
        Ok(entries) => entries.map(|entry| Ok(entry?.path())).collect(),
    })
    .await
}

/// Makes a folder that only its owner enters, with those above it.
pub(crate) async fn make_dir(dir: &Path) -> io::Result<()> {
    let dir = dir.to_owned();
    run(move || {
        let mut builder = std::fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(dir)
    })
    .await
}
