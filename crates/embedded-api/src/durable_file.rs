//! Small files that are whole or absent: keys, tokens, kubeconfigs. Blocking.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Mode of what holds a secret.
pub(crate) const PRIVATE: u32 = 0o600;
/// Mode of what anybody may read.
pub(crate) const PUBLIC: u32 = 0o644;

/// Replaces a file in one step; it never exists with another mode or half its text. Makes the
/// folder if need be.
pub(crate) fn replace(path: &Path, text: &[u8], mode: u32) -> io::Result<()> {
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    fs::create_dir_all(folder)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let unfinished = folder.join(format!(".{name}.new-{}", std::process::id()));
    let result = write_new(&unfinished, text, mode).and_then(|()| fs::rename(&unfinished, path));
    if result.is_err() {
        // the first error is the one to tell
        drop(fs::remove_file(&unfinished));
    }
    result?;
    File::open(folder)?.sync_all()
}

fn write_new(path: &Path, text: &[u8], mode: u32) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)?;
    // the umask may have taken bits away
    file.set_permissions(Permissions::from_mode(mode))?;
    file.write_all(text)?;
    file.sync_all()
}

/// The text of a file, none if it does not exist.
pub(crate) fn read(path: &Path) -> io::Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
