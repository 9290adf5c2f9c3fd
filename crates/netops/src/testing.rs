//! What the tests of this crate share: throw-away namespaces and the reason for a skip.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use nix::unistd::Uid;

use crate::netns::Netns;

/// Whether the test may run; prints the line the test runner counts when not.
pub(crate) fn root_or_skip(test: &str) -> bool {
    let root = Uid::effective().is_root();
    if !root {
        eprintln!("SKIPPED {test}: needs root (network namespaces)");
    }
    root
}

/// A namespace that goes away with the value.
pub(crate) struct TestNetns {
    pub(crate) netns: Netns,
    path: PathBuf,
    _dir: tempfile::TempDir,
}

impl TestNetns {
    pub(crate) fn new(name: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let dir = tempfile::tempdir().unwrap();
        let path = dir
            .path()
            .join(format!("{name}-{}", NEXT.fetch_add(1, Ordering::Relaxed)));
        Self {
            netns: Netns::create(&path).unwrap(),
            path,
            _dir: dir,
        }
    }
}

impl Drop for TestNetns {
    fn drop(&mut self) {
        Netns::remove(&self.path).unwrap();
    }
}
