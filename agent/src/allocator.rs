//! How the process keeps freed memory. A full pool passes through in pieces of half a megabyte; with
//! glibc's usual settings such pieces stay in the heaps of all threads that ever had one, which
//! makes half of a busy agent's memory. glibc takes other settings from the environment alone, and
//! only as a process starts.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// What glibc is told (mallopt(3)): few heaps; what is large is mapped on its own and unmapped when it
/// is freed; a heap's free end goes back soon.
const SETTINGS: [(&str, &str); 3] = [
    ("MALLOC_ARENA_MAX", "2"),
    ("MALLOC_MMAP_THRESHOLD_", "131072"),
    ("MALLOC_TRIM_THRESHOLD_", "131072"),
];

/// Starts this program again in its own place, with settings for glibc in its environment; the process
/// id stays. Does nothing where any of them is set: by us, or by somebody who knows better.
///
/// # Errors
/// It cannot be started again. The process goes on as it is, with more memory.
pub fn settle() -> io::Result<()> {
    if SETTINGS.iter().any(|(name, _)| env::var_os(name).is_some()) {
        return Ok(());
    }
    let mut words = env::args_os();
    let name = words.next();
    let mut command = Command::new(env::current_exe()?);
    command
        .arg0(name.as_deref().unwrap_or(OsStr::new("spiderpool-agent")))
        .args(words)
        .envs(SETTINGS);
    Err(command.exec())
}
