//! What the tests need of this machine.

use std::env;
use std::path::{Path, PathBuf};

use vm_tests::lab::ENV_BIN_DIR;

/// Programs that are run.
const PROGRAMS: [&str; 4] = ["spiderpool-agent", "provider-sim", "spiderpool", "lab-run"];

/// The folder of the binaries; `None`, and a line that says why, when this machine cannot run `test`.
pub(crate) fn ready(test: &str) -> Option<PathBuf> {
    let skipped = |why: &str| {
        eprintln!("SKIPPED {test}: {why}");
        None
    };
    if !nix::unistd::geteuid().is_root() {
        return skipped("needs root (network namespaces)");
    }
    let beside = Path::new(env!("CARGO_BIN_EXE_lab-run")).parent();
    let dir = match env::var_os(ENV_BIN_DIR) {
        Some(dir) => PathBuf::from(dir),
        None => beside.map(Path::to_owned).unwrap_or_default(),
    };
    let missing = PROGRAMS.iter().find(|name| !dir.join(name).is_file());
    match missing {
        None => Some(dir),
        Some(name) => skipped(&format!(
            "needs {name} in {}: run cargo build --workspace --bins",
            dir.display()
        )),
    }
}
