//! Reading files in folders where others may have put anything: a pipe nobody writes to must not
//! stop a process, a device or a huge file must not fill its memory. Blocking; touches only the
//! file named.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use libc::O_NONBLOCK;

/// The content of a regular file, or of the one a symbolic link leads to, of at most `limit` bytes.
///
/// # Errors
/// What the system says; [`io::ErrorKind::InvalidInput`] for anything but a regular file,
/// [`io::ErrorKind::FileTooLarge`] above the limit.
pub fn read(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    // Without the flag, opening a pipe waits for its writer.
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(O_NONBLOCK).open(path)?;
    if !file.metadata()?.is_file() {
        let kind = io::ErrorKind::InvalidInput;
        return Err(io::Error::new(kind, "it is not a regular file"));
    }
    let mut content = Vec::new();
    // The length of the metadata is not asked: it may grow while it is read.
    file.take(limit.saturating_add(1))
        .read_to_end(&mut content)?;
    if u64::try_from(content.len()).unwrap_or(u64::MAX) > limit {
        let text = format!("it is larger than {limit} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_regular_files_of_bounded_size_are_read_and_nothing_blocks() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("plain"), "12345").unwrap();
        symlink(at("plain"), at("link")).unwrap();
        symlink("/dev/zero", at("zero")).unwrap();
        mkfifo(&at("pipe"), Mode::S_IRWXU).unwrap();
        assert_eq!(read(&at("plain"), 5).unwrap(), b"12345");
        assert_eq!(read(&at("link"), 5).unwrap(), b"12345");
        for (name, limit, kind) in [
            ("plain", 4, io::ErrorKind::FileTooLarge),
            ("zero", 9, io::ErrorKind::InvalidInput),
            ("pipe", 9, io::ErrorKind::InvalidInput),
            (".", 9, io::ErrorKind::InvalidInput),
            ("absent", 9, io::ErrorKind::NotFound),
        ] {
            assert_eq!(read(&at(name), limit).unwrap_err().kind(), kind, "{name}");
        }
    }
}
