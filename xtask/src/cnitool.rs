//! The container runtime's side of CNI for the vm level: libcni's `cnitool`, and `cni-gc`, which adds
//! the list of valid attachments. Built from the pinned module `vm-tests/cnitool`.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::go_build::{self, GoProgram};
use crate::{paths, term};

/// File name and package of each program.
const PROGRAMS: [(&str, &str); 2] = [
    ("cnitool", "github.com/containernetworking/cni/cnitool"),
    ("cni-gc", "."),
];

/// (path here, path in the guest) of each program. Without a Go toolchain, or when the build fails,
/// none, and a line that says why: the tests that need them print a skip, which CI counts as a failure.
pub(crate) fn guest_files() -> Vec<(PathBuf, PathBuf)> {
    match build() {
        Ok(dir) => PROGRAMS.map(|(name, _)| in_guest(&dir, name)).into(),
        Err(error) => {
            term::progress(&format!("vm: no cnitool: {error:#}"));
            Vec::new()
        }
    }
}

fn build() -> Result<PathBuf> {
    let module = paths::root().join("vm-tests").join("cnitool");
    let programs = PROGRAMS.map(|(name, package)| GoProgram::new(name, package));
    go_build::build(&module, &programs)
}

fn in_guest(dir: &Path, name: &str) -> (PathBuf, PathBuf) {
    (dir.join(name), Path::new("/bin").join(name))
}
