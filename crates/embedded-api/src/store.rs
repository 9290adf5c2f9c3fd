//! The redb file: the only state that survives a restart. One table of objects and one of
//! numbers; a commit is one transaction and is on disk when it returns.
//!
//! Blocking; used at start and by the writer thread alone.

use std::fs::{self, File};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use redb::{Builder, Database, Durability, ReadableDatabase, ReadableTable, TableDefinition};

use crate::object_key::ObjectKey;

const OBJECTS: TableDefinition<&str, &[u8]> = TableDefinition::new("objects");
const NUMBERS: TableDefinition<&str, u64> = TableDefinition::new("numbers");
const FORMAT: &str = "format";
const VERSION: &str = "resourceVersion";
/// Layout of the tables and keys; raised when an older program could not read them.
const CURRENT_FORMAT: u64 = 1;
/// Reads are served from memory, so redb's page cache (1 GiB by default) has little to do.
const CACHE_BYTES: usize = 2 << 20;

/// Why the state file could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The folder or the file cannot be made or put in place.
    #[error(
        "cannot create the state file {path}: check that the folder exists, is writable and has space"
    )]
    Create {
        /// The state file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Another process has the file open.
    #[error(
        "the state file {path} is in use: another agent runs on it, stop that one or give --state another path"
    )]
    InUse {
        /// The state file.
        path: PathBuf,
    },
    /// The file is no database, or damaged.
    #[error("cannot open the state file {path}: move it away to start empty, or restore a copy")]
    Open {
        /// The state file.
        path: PathBuf,
        /// What redb said.
        source: Box<redb::Error>,
    },
    /// Written by a newer program.
    #[error(
        "the state file {path} has format {found}, this program reads {CURRENT_FORMAT}: use the newer program"
    )]
    Format {
        /// The state file.
        path: PathBuf,
        /// Format number in the file.
        found: u64,
    },
    /// An object in the file is no JSON object.
    #[error("the state file {path} holds an unreadable object {key}: restore a copy")]
    Object {
        /// The state file.
        path: PathBuf,
        /// Its key, parts separated by '/'.
        key: String,
        /// Where the text is wrong.
        source: serde_json::Error,
    },
    /// The writer thread cannot be started.
    #[error("cannot start the writer thread of the embedded API")]
    Thread(#[source] io::Error),
}

/// A commit did not happen, or nobody knows.
#[derive(Debug, thiserror::Error)]
#[error("cannot commit to the state file {path}")]
pub(crate) struct CommitError {
    path: PathBuf,
    source: Box<redb::Error>,
}

/// All that was on disk.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) version: u64,
    pub(crate) objects: Vec<(ObjectKey, Bytes)>,
}

/// The open file.
pub(crate) struct Store {
    path: PathBuf,
    database: Database,
}

impl Store {
    /// Opens the file, making it and its folder if need be.
    pub(crate) fn open(path: &Path) -> Result<Self, OpenError> {
        create_if_absent(path)?;
        let database = unless_panicked(|| {
            let opened = Builder::new().set_cache_size(CACHE_BYTES).open(path);
            opened.map_err(redb::Error::from)
        });
        let database = database.map_err(|source| match source {
            redb::Error::DatabaseAlreadyOpen => OpenError::InUse {
                path: path.to_owned(),
            },
            other => open_error(path, other),
        })?;
        Ok(Self {
            path: path.to_owned(),
            database,
        })
    }

    /// Reads everything.
    pub(crate) fn load(&self) -> Result<Snapshot, OpenError> {
        let path = &self.path;
        let snapshot =
            unless_panicked(|| self.read()).map_err(|source| open_error(path, source))?;
        match snapshot {
            (CURRENT_FORMAT, snapshot) => Ok(snapshot),
            (found, _) => Err(OpenError::Format {
                path: path.clone(),
                found,
            }),
        }
    }

    fn read(&self) -> Result<(u64, Snapshot), redb::Error> {
        let transaction = self.database.begin_read()?;
        let numbers = transaction.open_table(NUMBERS)?;
        let format = numbers.get(FORMAT)?.map_or(0, |n| n.value());
        let version = numbers.get(VERSION)?.map_or(0, |n| n.value());
        let mut objects = Vec::new();
        if format == CURRENT_FORMAT {
            for entry in transaction.open_table(OBJECTS)?.iter()? {
                let (key, value) = entry?;
                objects.push((
                    ObjectKey::stored(key.value()),
                    Bytes::copy_from_slice(value.value()),
                ));
            }
        }
        Ok((format, Snapshot { version, objects }))
    }

    /// Writes changes (none = delete) and the version they end at. On disk when it returns Ok.
    pub(crate) fn commit<'a>(
        &mut self,
        version: u64,
        changes: impl Iterator<Item = (&'a ObjectKey, Option<&'a [u8]>)>,
    ) -> Result<(), CommitError> {
        let committed = unless_panicked(|| commit(&self.database, version, changes));
        committed.map_err(|source| CommitError {
            path: self.path.clone(),
            source: Box::new(source),
        })
    }

    /// A commit error while the API is being opened.
    pub(crate) fn unwritable(&self, error: CommitError) -> OpenError {
        OpenError::Open {
            path: self.path.clone(),
            source: error.source,
        }
    }

    /// Path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// Some damages of its file redb finds only by a panic: to us they are an error like the others.
/// What the panic has left half done goes with the database, which nobody uses after an error.
fn unless_panicked<T>(work: impl FnOnce() -> Result<T, redb::Error>) -> Result<T, redb::Error> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(redb::Error::Corrupted(text.unwrap_or_default()))
    })
}

fn commit<'a>(
    database: &Database,
    version: u64,
    changes: impl Iterator<Item = (&'a ObjectKey, Option<&'a [u8]>)>,
) -> Result<(), redb::Error> {
    let mut transaction = database.begin_write()?;
    transaction.set_durability(Durability::Immediate)?;
    {
        let mut objects = transaction.open_table(OBJECTS)?;
        for (key, value) in changes {
            match value {
                Some(json) => drop(objects.insert(key.as_str(), json)?),
                None => drop(objects.remove(key.as_str())?),
            }
        }
        transaction.open_table(NUMBERS)?.insert(VERSION, version)?;
    }
    transaction.commit()?;
    Ok(())
}

fn open_error(path: &Path, source: impl Into<redb::Error>) -> OpenError {
    OpenError::Open {
        path: path.to_owned(),
        source: Box::new(source.into()),
    }
}

/// A new file gets its tables under another name and is renamed when it is whole: a kill at any
/// moment leaves either no state file or one that opens.
fn create_if_absent(path: &Path) -> Result<(), OpenError> {
    let failed = |source| OpenError::Create {
        path: path.to_owned(),
        source,
    };
    if path.try_exists().map_err(failed)? {
        return Ok(());
    }
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    fs::create_dir_all(folder).map_err(failed)?;
    let unfinished = path.with_extension(format!("new-{}", std::process::id()));
    match fs::remove_file(&unfinished) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    initialise(&unfinished).map_err(|source| open_error(&unfinished, source))?;
    // hard_link, not rename: it fails if another process was quicker
    let linked = fs::hard_link(&unfinished, path);
    fs::remove_file(&unfinished).map_err(failed)?;
    match linked {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
        _ => {}
    }
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(failed)
}

fn initialise(path: &Path) -> Result<(), redb::Error> {
    let database = Builder::new().set_cache_size(CACHE_BYTES).create(path)?;
    let transaction = database.begin_write()?;
    transaction.open_table(OBJECTS)?;
    transaction
        .open_table(NUMBERS)?
        .insert(FORMAT, CURRENT_FORMAT)?;
    transaction.commit()?;
    Ok(())
}

/// A disk in memory whose syncs fail once it is broken.
#[cfg(test)]
#[derive(Debug)]
pub(crate) struct FailingDisk {
    memory: redb::backends::InMemoryBackend,
    broken: std::sync::Arc<std::sync::atomic::AtomicBool>,
}

#[cfg(test)]
impl FailingDisk {
    pub(crate) fn new(broken: std::sync::Arc<std::sync::atomic::AtomicBool>) -> Self {
        Self {
            memory: redb::backends::InMemoryBackend::new(),
            broken,
        }
    }
}

#[cfg(test)]
impl redb::StorageBackend for FailingDisk {
    fn len(&self) -> io::Result<u64> {
        self.memory.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.memory.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.memory.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        if self.broken.load(std::sync::atomic::Ordering::SeqCst) {
            return Err(io::Error::other("no space left"));
        }
        self.memory.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.memory.write(offset, data)
    }
}

#[cfg(test)]
impl Store {
    /// A store that works until its disk breaks; `path` is what will be opened then.
    pub(crate) fn on_failing_disk(path: &Path, disk: FailingDisk) -> Self {
        let database = Builder::new().create_with_backend(disk).unwrap();
        Self {
            path: path.to_owned(),
            database,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = 4096;

    fn written(path: &Path) {
        let mut store = Store::open(path).unwrap();
        let value = vec![b'7'; 600];
        for version in 0..40_u64 {
            let key = ObjectKey::new("pods", "default", &format!("p-{version}"));
            let changes = [(&key, Some(value.as_slice()))];
            store.commit(version, changes.into_iter()).unwrap();
        }
    }

    #[test]
    fn a_damaged_page_is_an_error_that_names_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.redb");
        written(&path);
        let good = std::fs::read(&path).unwrap();
        let mut refused = 0;
        for page in 1..good.len() / PAGE {
            let mut bad = good.clone();
            bad[page * PAGE..page * PAGE + 64].fill(0xa5);
            std::fs::write(&path, bad).unwrap();
            if let Err(error) = Store::open(&path).and_then(|store| store.load()) {
                assert!(error.to_string().contains("state.redb"), "{error}");
                refused += 1;
            }
        }
        assert!(refused > 0, "no page mattered");
    }
}
