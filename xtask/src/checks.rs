//! Formatting and lints.

use anyhow::Result;

use crate::build::TEST_FEATURES;
use crate::cargo;

/// `cargo fmt --check`.
pub(crate) fn fmt() -> Result<()> {
    cargo::run(&["fmt", "--all", "--check"])
}

/// clippy with the workspace's table, warnings denied.
pub(crate) fn clippy() -> Result<()> {
    cargo::run(&[
        "clippy",
        "--quiet",
        "--workspace",
        "--all-targets",
        TEST_FEATURES,
        "--",
        "-D",
        "warnings",
    ])
}
