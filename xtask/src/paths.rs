//! Where things lie: the workspace, the target folder, this program.

use std::path::{Path, PathBuf};

/// The workspace's root.
pub(crate) fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here)
}

/// cargo's target folder; absolute.
pub(crate) fn target_dir() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root().join(dir),
        None => root().join("target"),
    }
}

/// Kernel cache and run folders of guests.
pub(crate) fn vm_dir() -> PathBuf {
    target_dir().join("vm")
}

/// Programs of others, built or fetched once.
pub(crate) fn tools_dir() -> PathBuf {
    target_dir().join("tools")
}

/// Folder for logs of test steps.
pub(crate) fn log_dir() -> PathBuf {
    target_dir().join("xtask")
}

/// This program's image. The path cargo built it at may hold a newer one by now.
pub(crate) const SELF_EXE: &str = "/proc/self/exe";
