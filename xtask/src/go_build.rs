//! Programs written in Go that tests run against: built from a pinned module of this repository,
//! once, and kept under `target/tools/<module>/<key>`.
//!
//! The key is made of the module's files and the toolchain, so that a changed pin is built anew and
//! an old one is still there. Nothing built here ships.

use std::ffi::OsStr;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::{paths, term};

/// One program of a module.
#[derive(Debug, Clone)]
pub(crate) struct GoProgram {
    /// File name it gets.
    pub(crate) name: String,
    /// Package of its `main`.
    pub(crate) package: String,
    /// `-X` settings for the linker, `importpath.name=value`.
    pub(crate) linker_values: Vec<String>,
}

impl GoProgram {
    /// A program without linker settings.
    pub(crate) fn new(name: &str, package: &str) -> Self {
        Self {
            name: name.to_owned(),
            package: package.to_owned(),
            linker_values: Vec::new(),
        }
    }
}

/// The Go toolchain a module asks for, as `go version` says it.
///
/// # Errors
/// There is none; the text says what to install.
pub(crate) fn toolchain(module_dir: &Path) -> Result<String> {
    let output = go(module_dir)
        .arg("version")
        .output()
        .with_context(|| format!("no Go toolchain: {} needs one, 1.21 or newer (it fetches the version its go.mod names); \
            install the official archive, or the distribution's golang package where it is new enough (Debian 12's is not), and put `go` on PATH", shown(module_dir)))?;
    if !output.status.success() {
        bail!(
            "`go version` in {} failed: {}",
            shown(module_dir),
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Builds what is not there yet of `programs`, a progress line each, and returns their folder.
/// The first time it needs the network, for the module's dependencies.
///
/// # Errors
/// No toolchain, or a build that fails; Go's own words are on stderr then.
pub(crate) fn build(module_dir: &Path, programs: &[GoProgram]) -> Result<PathBuf> {
    let toolchain = toolchain(module_dir)?;
    let module = module_dir.file_name().context("a module in no folder")?;
    let dir = paths::tools_dir()
        .join(module)
        .join(key(module_dir, &toolchain)?);
    fs::create_dir_all(&dir).with_context(|| format!("create {}", dir.display()))?;
    for program in programs {
        let target = dir.join(&program.name);
        if target.is_file() {
            continue;
        }
        term::progress(&format!("building {} ({toolchain})", program.name));
        let begun = Instant::now();
        build_one(module_dir, program, &target)?;
        term::progress(&format!(
            "built {} in {:.0} s",
            program.name,
            begun.elapsed().as_secs_f64()
        ));
    }
    Ok(dir)
}

/// Static, stripped and without this machine's paths; complete or not there.
fn build_one(module_dir: &Path, program: &GoProgram, target: &Path) -> Result<()> {
    let unfinished = target.with_extension(format!("new-{}", std::process::id()));
    let mut linker = "-s -w".to_owned();
    for value in &program.linker_values {
        linker.push_str(" -X ");
        linker.push_str(value);
    }
    let status = go(module_dir)
        .args(["build", "-mod=readonly", "-trimpath", "-ldflags", &linker])
        .arg("-o")
        .arg(&unfinished)
        .arg(&program.package)
        .stdout(std::io::stderr())
        .status()
        .context("run go build")?;
    if !status.success() {
        // What a failed build leaves is no use; there may be nothing.
        fs::remove_file(&unfinished).ok();
        bail!("go build of {} failed", program.package);
    }
    fs::rename(&unfinished, target).with_context(|| format!("move to {}", target.display()))
}

/// Go, in the module's folder, with nothing of the caller's that changes what is built.
fn go(module_dir: &Path) -> Command {
    let mut command = Command::new("go");
    command
        .current_dir(module_dir)
        .env("CGO_ENABLED", "0")
        .env("GOWORK", "off");
    for name in ["GOOS", "GOARCH", "GOEXPERIMENT"] {
        command.env_remove(name);
    }
    command
}

/// Changes with the module's files and the toolchain. A key, no proof: `go.sum` is the proof.
fn key(module_dir: &Path, toolchain: &str) -> Result<String> {
    let mut files: Vec<PathBuf> = fs::read_dir(module_dir)
        .with_context(|| format!("list {}", module_dir.display()))?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<std::io::Result<_>>()?;
    files.retain(|path| {
        let extension = path.extension().and_then(OsStr::to_str);
        extension.is_some_and(|extension| ["go", "mod", "sum"].contains(&extension))
    });
    files.sort();
    let mut hasher = DefaultHasher::new();
    toolchain.hash(&mut hasher);
    for path in files {
        path.file_name().hash(&mut hasher);
        fs::read(&path)
            .with_context(|| format!("read {}", path.display()))?
            .hash(&mut hasher);
    }
    Ok(format!("{:016x}", hasher.finish()))
}

fn shown(module_dir: &Path) -> String {
    let inside = module_dir.strip_prefix(paths::root()).unwrap_or(module_dir);
    inside.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_follows_pins_sources_and_toolchain_and_nothing_else() {
        let root = paths::target_dir().join(format!("go-key-{}", std::process::id()));
        fs::create_dir_all(&root).unwrap();
        let write = |name: &str, text: &str| fs::write(root.join(name), text).unwrap();
        write("go.mod", "module m");
        let first = key(&root, "go1").unwrap();
        write("README.md", "words");
        assert_eq!(key(&root, "go1").unwrap(), first);
        assert_ne!(key(&root, "go2").unwrap(), first);
        write("go.sum", "x h1:y");
        let second = key(&root, "go1").unwrap();
        assert_ne!(second, first);
        write("go.sum", "x h1:z");
        assert_ne!(key(&root, "go1").unwrap(), second);
        fs::remove_dir_all(&root).unwrap();
    }
}
