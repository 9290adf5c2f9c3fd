//! Appending to a log file that many short processes share, with rotation by size and removal by
//! age and number. Owns the file and its rotated siblings. Blocking; never waits for a lock.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::log::timestamp;

/// `O_NONBLOCK` of Linux: a path that is a FIFO must not hang the call.
const NONBLOCK: i32 = 0o4000;
const DAY: Duration = Duration::from_secs(86_400);
/// Length of `YYYY-MM-DDTHH-MM-SS.mmm`.
const STAMP: usize = 23;

/// When to rotate and what to keep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Limits {
    max_bytes: u64,
    max_age: Option<Duration>,
    max_count: Option<usize>,
}

impl Limits {
    /// Size in MB; age in days and number of old files, 0 = unlimited.
    pub(crate) fn new(size_mb: u32, age_days: u32, count: u32) -> Self {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        Self {
            max_bytes: u64::from(size_mb) << 20,
            max_age: (age_days > 0).then(|| DAY * age_days),
            max_count: (count > 0).then_some(count),
        }
    }
}

/// Appends one line in one write, so that lines of several processes don't mix. Makes the
/// folder.
///
/// # Errors
/// Of the open or the write; a failed rotation only means that the file grows.
pub(crate) fn append(path: &Path, limits: &Limits, line: &[u8], now: SystemTime) -> io::Result<()> {
    let mut file = match open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            fs::create_dir_all(path.parent().unwrap_or(path))?;
            open(path)?
        }
        opened => opened?,
    };
    let metadata = file.metadata()?;
    let grown = metadata
        .len()
        .saturating_add(u64::try_from(line.len()).unwrap_or(u64::MAX));
    let is_full = metadata.is_file() && metadata.len() > 0 && grown > limits.max_bytes;
    if is_full && let Ok(Some(fresh)) = rotate(&file, path, limits, now) {
        file = fresh;
    }
    file.write_all(line)
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o640)
        .custom_flags(NONBLOCK)
        .open(path)
}

/// The file to go on with, or `None` while another process rotates: the line may then end in
/// the renamed file, which loses nothing. The lock is on the full file itself and goes with it.
fn rotate(full: &File, path: &Path, limits: &Limits, now: SystemTime) -> io::Result<Option<File>> {
    if full.try_lock().is_err() {
        return Ok(None);
    }
    let (held, found) = (full.metadata()?, fs::metadata(path));
    let still_ours =
        found.is_ok_and(|found| (found.dev(), found.ino()) == (held.dev(), held.ino()));
    if still_ours {
        fs::rename(path, rotated_path(path, now))?;
        // old files that stay are tried again at the next rotation
        prune(path, limits, now).ok();
    }
    open(path).map(Some)
}

/// `<stem>-<time>-<pid>.<extension>` beside the file; a process rotates a millisecond once.
fn rotated_path(path: &Path, now: SystemTime) -> PathBuf {
    let time = timestamp(now).replace(':', "-");
    let time = time.trim_end_matches('Z');
    let (prefix, suffix) = affixes(path);
    path.with_file_name(format!("{prefix}{time}-{}{suffix}", std::process::id()))
}

fn affixes(path: &Path) -> (String, String) {
    let text = |part: Option<&OsStr>| part.map(|part| part.to_string_lossy().into_owned());
    let stem = text(path.file_stem()).unwrap_or_default();
    let extension = text(path.extension()).map(|ext| format!(".{ext}"));
    (format!("{stem}-"), extension.unwrap_or_default())
}

/// Removes rotated files beyond the limits; a file is ours only if its whole name says so.
fn prune(path: &Path, limits: &Limits, now: SystemTime) -> io::Result<()> {
    let (prefix, suffix) = affixes(path);
    let mut old = Vec::new();
    for entry in fs::read_dir(path.parent().unwrap_or(path))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let middle = name
            .strip_prefix(&prefix)
            .and_then(|rest| rest.strip_suffix(&suffix));
        if middle.is_some_and(is_stamp) {
            old.push((name, entry));
        }
    }
    old.sort_by(|a, b| b.0.cmp(&a.0));
    for (index, (_, entry)) in old.iter().enumerate() {
        let age = entry
            .metadata()
            .and_then(|metadata| metadata.modified())
            .map(|modified| now.duration_since(modified).unwrap_or_default());
        let too_many = limits.max_count.is_some_and(|count| index >= count);
        let too_old = limits
            .max_age
            .is_some_and(|limit| age.is_ok_and(|age| age > limit));
        if too_many || too_old {
            // one file that stays is no reason to keep the others
            fs::remove_file(entry.path()).ok();
        }
    }
    Ok(())
}

fn is_stamp(text: &str) -> bool {
    let Some((time, pid)) = text.split_at_checked(STAMP) else {
        return false;
    };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let shape: String = time
        .chars()
        .map(|c| if c.is_ascii_digit() { '0' } else { c })
        .collect();
    shape == "0000-00-00T00-00-00.000" && pid.strip_prefix('-').is_some_and(digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn limits(max_bytes: u64, max_age: Option<Duration>, max_count: Option<usize>) -> Limits {
        Limits {
            max_bytes,
            max_age,
            max_count,
        }
    }

    #[test]
    fn a_full_file_is_renamed_and_the_oldest_go() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/p.log");
        let limits = limits(10, None, Some(2));
        for second in 0..6 {
            let now = SystemTime::UNIX_EPOCH + Duration::from_secs(second);
            append(&path, &limits, format!("line {second}\n").as_bytes(), now).unwrap();
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), "line 5\n");
        let parent = path.parent().unwrap();
        let pid = std::process::id();
        assert_eq!(
            names(parent),
            [
                format!("p-1970-01-01T00-00-04.000-{pid}.log"),
                format!("p-1970-01-01T00-00-05.000-{pid}.log"),
                "p.log".to_owned()
            ]
        );
    }

    #[test]
    fn only_old_files_of_this_log_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p.log");
        for name in [
            "p.log",
            "p-notes.log",
            "p-2020-01-01T00-00-00.000-1.txt",
            "q-2020-01-01T00-00-00.000-1.log",
            "p-2020-01-01T00-00-00.000-1.log",
        ] {
            fs::write(dir.path().join(name), "0123456789").unwrap();
        }
        let later = SystemTime::now() + DAY * 3;
        append(&path, &limits(10, Some(DAY), None), b"x\n", later).unwrap();
        let left = names(dir.path());
        assert!(!left.contains(&"p-2020-01-01T00-00-00.000-1.log".to_owned()));
        for kept in [
            "p-notes.log",
            "p-2020-01-01T00-00-00.000-1.txt",
            "q-2020-01-01T00-00-00.000-1.log",
        ] {
            assert!(left.contains(&kept.to_owned()), "{kept}");
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), "x\n");
    }

    #[test]
    fn who_meets_a_rotation_in_progress_still_writes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p.log");
        fs::write(&path, "0123456789").unwrap();
        let other = File::open(&path).unwrap();
        other.lock().unwrap();
        append(&path, &limits(5, None, None), b"x\n", SystemTime::now()).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "0123456789x\n");
        assert_eq!(names(dir.path()), ["p.log"]);
    }

    #[test]
    fn a_file_that_another_process_has_renamed_is_not_rotated_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p.log");
        fs::write(&path, "full").unwrap();
        let full = open(&path).unwrap();
        fs::rename(&path, dir.path().join("renamed.log")).unwrap();
        fs::write(&path, "fresh\n").unwrap();
        let limits = limits(1, None, None);
        let file = rotate(&full, &path, &limits, SystemTime::now()).unwrap();
        file.unwrap().write_all(b"next\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "fresh\nnext\n");
        assert_eq!(names(dir.path()), ["p.log", "renamed.log"]);
    }

    #[test]
    fn devices_and_folders_are_left_alone() {
        let now = SystemTime::now();
        let limits = limits(1, None, None);
        assert!(append(Path::new("/dev/full"), &limits, b"x\n", now).is_err());
        assert!(Path::new("/dev/full").exists());
        assert!(append(Path::new("/"), &limits, b"x\n", now).is_err());
    }
}
