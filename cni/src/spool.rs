//! DELs that found no agent: one file an attachment beside the socket, which the agent replays
//! (spec dataplane 1.5). Owns the `pending-del` folder's writing side.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use spiderpool_api::agent_v1::CniRequest;
use spiderpool_api::names::SPOOL_DIR;

/// The DEL could not be kept; code 11, so that the runtime comes again.
#[derive(Debug, thiserror::Error)]
#[error(
    "the agent is away and this DEL could not be kept in {} either: make the folder writable or start the agent",
    path.display()
)]
pub(crate) struct SpoolError {
    path: PathBuf,
    source: io::Error,
}

/// Keeps the request and returns its file. The same attachment gives the same file.
///
/// # Errors
/// [`SpoolError`] names the folder.
pub(crate) fn store(socket: &Path, request: &CniRequest) -> Result<PathBuf, SpoolError> {
    let dir = socket
        .parent()
        .unwrap_or_else(|| Path::new("/"))
        .join(SPOOL_DIR);
    let path = dir.join(file_name(&request.container_id, &request.ifname));
    match write(&dir, &path, request) {
        Ok(()) => Ok(path),
        Err(source) => Err(SpoolError { path: dir, source }),
    }
}

/// `<containerID>-<ifname>.json`. Only characters that can't leave the folder stay, and the '-'
/// between the two is the last one: else `a` + `b-c` and `a-b` + `c` would share a file.
fn file_name(container_id: &str, ifname: &str) -> String {
    let escaped = |text: &str, kept: &[u8]| -> String {
        let escape = |byte: u8| match byte {
            b if b.is_ascii_alphanumeric() || kept.contains(&b) => char::from(b).to_string(),
            b => format!("%{b:02x}"),
        };
        text.bytes().map(escape).collect()
    };
    let container_id = escaped(container_id, b"_.-");
    format!("{container_id}-{}.json", escaped(ifname, b"_."))
}

/// Temporary file, fsync, rename, fsync of the folder: a reader sees the whole or nothing.
fn write(dir: &Path, path: &Path, request: &CniRequest) -> io::Result<()> {
    if let Some(parent) = dir.parent() {
        fs::create_dir_all(parent)?;
    }
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let nanos = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_nanos());
    let temporary = dir.join(format!(".{}-{nanos}.tmp", std::process::id()));
    let written = write_new(&temporary, request).and_then(|()| fs::rename(&temporary, path));
    if let Err(error) = written {
        // what went wrong first is what the caller needs
        fs::remove_file(&temporary).ok();
        return Err(error);
    }
    File::open(dir)?.sync_all()
}

fn write_new(path: &Path, request: &CniRequest) -> io::Result<()> {
    let text = serde_json::to_vec(request)?;
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(&text)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_in_the_folder_and_differ() {
        assert_eq!(file_name("c-1", "eth0"), "c-1-eth0.json");
        assert_ne!(file_name("a", "b-c"), file_name("a-b", "c"));
        assert_ne!(file_name("a", "b%2dc"), file_name("a", "b-c"));
        for hostile in ["../../x", "/etc/passwd", "a\0b", "a\nb"] {
            let name = file_name(hostile, hostile);
            assert!(!name.contains(['/', '\0', '\n']), "{name}");
        }
    }
}
