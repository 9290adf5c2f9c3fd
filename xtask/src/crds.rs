//! `cargo xtask crds`: the chart's `CustomResourceDefinition` files, made from the types that all
//! processes share. They are committed, so that a chart can be read and installed without a build.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use crate::{cargo, paths, term};

/// What to do with the files.
#[derive(Debug, Args)]
pub(crate) struct CrdsArgs {
    /// Compare with the committed files; change nothing.
    #[arg(long)]
    check: bool,
}

/// Writes or compares.
pub(crate) fn run(args: &CrdsArgs) -> Result<()> {
    if args.check {
        check()?;
        term::result("charts/spiderpool/crds is what the types say");
        return Ok(());
    }
    generate(&chart_dir())?;
    for name in files(&chart_dir())?.keys() {
        term::result(&format!("charts/spiderpool/crds/{name}"));
    }
    Ok(())
}

/// Compares the committed files with what the types say.
///
/// # Errors
/// The names of the files that differ.
pub(crate) fn check() -> Result<()> {
    let fresh_dir = paths::target_dir().join("crds");
    if fresh_dir.exists() {
        fs::remove_dir_all(&fresh_dir).with_context(|| format!("clear {}", fresh_dir.display()))?;
    }
    generate(&fresh_dir)?;
    let (fresh, committed) = (files(&fresh_dir)?, files(&chart_dir())?);
    let differing: Vec<&str> = fresh
        .iter()
        .filter(|(name, text)| committed.get(*name) != Some(text))
        .map(|(name, _)| name.as_str())
        .collect();
    if !differing.is_empty() {
        bail!(
            "charts/spiderpool/crds: {} not what the types say; run `cargo xtask crds` and commit it",
            differing.join(", ")
        );
    }
    Ok(())
}

fn chart_dir() -> PathBuf {
    paths::root().join("charts/spiderpool/crds")
}

/// Built with the whole workspace's features, as the tests are: nothing is compiled twice.
fn generate(dir: &Path) -> Result<()> {
    let built = cargo::executables(&["build", "--workspace", "--example", "crds"])?;
    let program = built
        .iter()
        .find(|artifact| artifact.name == "crds")
        .context("cargo built no example named crds")?;
    let status = std::process::Command::new(&program.path)
        .arg(dir)
        .status()
        .with_context(|| format!("run {}", program.path.display()))?;
    ensure!(status.success(), "writing the definitions failed");
    Ok(())
}

/// Text by file name.
fn files(dir: &Path) -> Result<BTreeMap<String, String>> {
    let shown = dir.display();
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).with_context(|| format!("list {shown}"))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.ends_with(".yaml") {
            let text =
                fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
            found.insert(name.into_owned(), text);
        }
    }
    Ok(found)
}
