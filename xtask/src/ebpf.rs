//! `cargo xtask ebpf`: the observer's programs as the committed object `ebpf/observer.o`, and the
//! proof that it is what the sources say.
//!
//! The object is committed so that a plain `cargo build` needs no BPF toolchain. That toolchain is
//! the distribution's compiler with its prebuilt `core` for BPF and `bpf-linker`; both are
//! installed when they are missing. Owns the object, its sidecar `ebpf/observer.json` and
//! `target/ebpf`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde::{Deserialize, Serialize};
use vm_tests::libtest::Tally;

use crate::{paths, term};

/// Debian packages, with the versions the committed object is made by. The archive may replace
/// them: then the pins and the object are renewed together.
const RUSTC_VERSION: &str = "1.96.0+dfsg1-1~deb12u2";
const COMPILER: &str = "/usr/bin/rustc";
const CORE_PACKAGE: &str = "libstd-rust-web-dev-bpf";
const RUSTC_PACKAGE: &str = "rustc-web";
const LLVM_PACKAGE: &str = "llvm-22-dev";
const LLVM_DIR: &str = "/usr/lib/llvm-22";
const LINKER: &str = "bpf-linker";
const LINKER_VERSION: &str = "0.13.0";
const TARGET: &str = "bpfel-unknown-none";
/// The one crate that needs an unstable feature, of inline assembly.
const UNLOCKED_CRATE: &str = "aya_ebpf";
const OBJECT: &str = "observer.o";
const SIDECAR: &str = "observer.json";

/// What to do with the object.
#[derive(Debug, Args)]
pub(crate) struct EbpfArgs {
    /// Rebuild and compare with the committed object; change nothing.
    #[arg(long)]
    check: bool,
}

/// What the object was made from and by.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Sidecar {
    sha256: String,
    bytes: u64,
    rustc: String,
    linker: String,
}

/// How a check ended.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Checked {
    /// The same bytes.
    Same,
    /// No toolchain, and why.
    NoToolchain(String),
}

/// Builds and writes the object, or compares. Without the toolchain a check is a printed skip;
/// with CI's rules (`CI=true`) it is a failure.
pub(crate) fn run(args: &EbpfArgs) -> Result<()> {
    if !args.check {
        return write();
    }
    match check()? {
        Checked::Same => term::result(&format!("ebpf/{OBJECT} is what the sources say")),
        Checked::NoToolchain(why) => {
            ensure!(!is_ci(), "no BPF toolchain: {why}");
            term::result(&format!("SKIPPED ebpf --check: {why}"));
        }
    }
    Ok(())
}

/// The check as a test level: without the toolchain a skip, which CI's rules count as a failure.
pub(crate) fn judge() -> Result<Tally> {
    let mut tally = Tally::default();
    match check()? {
        Checked::Same => tally.passed = 1,
        Checked::NoToolchain(why) => tally.skipped.push(("ebpf --check".to_owned(), why)),
    }
    Ok(tally)
}

fn is_ci() -> bool {
    std::env::var("CI").is_ok_and(|ci| ci == "true" || ci == "1")
}

fn write() -> Result<()> {
    let toolchain = Toolchain::ready()?;
    let built = toolchain.build()?;
    let sidecar = toolchain.describe(&built)?;
    let (object, text) = (
        ebpf_dir().join(OBJECT),
        serde_json::to_string_pretty(&sidecar)?,
    );
    fs::copy(&built, &object).with_context(|| format!("write {}", object.display()))?;
    fs::write(ebpf_dir().join(SIDECAR), text + "\n").context("write the sidecar")?;
    term::result(&format!(
        "ebpf/{OBJECT}: {} bytes, sha256 {}",
        sidecar.bytes, sidecar.sha256
    ));
    Ok(())
}

/// Rebuilds and compares object and sidecar.
///
/// # Errors
/// They differ, or the build fails.
fn check() -> Result<Checked> {
    let toolchain = match Toolchain::ready() {
        Ok(toolchain) => toolchain,
        Err(error) => return Ok(Checked::NoToolchain(format!("{error:#}"))),
    };
    let built = toolchain.build()?;
    let committed = ebpf_dir().join(OBJECT);
    let bytes = |path: &Path| fs::read(path).with_context(|| format!("read {}", path.display()));
    ensure!(
        bytes(&built)? == bytes(&committed)?,
        "ebpf/{OBJECT} is not what the sources make; run `cargo xtask ebpf` and commit it"
    );
    let text = fs::read_to_string(ebpf_dir().join(SIDECAR)).context("read the sidecar")?;
    let sidecar: Sidecar = serde_json::from_str(&text).context("parse the sidecar")?;
    ensure!(
        sidecar == toolchain.describe(&built)?,
        "ebpf/{SIDECAR} is not about this object; run `cargo xtask ebpf` and commit it"
    );
    Ok(Checked::Same)
}

fn ebpf_dir() -> PathBuf {
    paths::root().join("ebpf")
}

/// The compiler and the linker, there and of the right version.
struct Toolchain {
    linker: PathBuf,
}

impl Toolchain {
    fn ready() -> Result<Self> {
        install_packages()?;
        Ok(Self {
            linker: install_linker()?,
        })
    }

    /// The stripped object; debug information would tell paths of this machine.
    fn build(&self) -> Result<PathBuf> {
        let target_dir = paths::target_dir().join("ebpf");
        let cargo_home = cargo_home()?;
        let dir = ebpf_dir();
        let flags = format!(
            "-C linker={} -C debuginfo=2 -C link-arg=--btf -C link-arg=--disable-expand-memcpy-in-order --remap-path-prefix={}=. --remap-path-prefix={}=/cargo",
            self.linker.display(),
            dir.display(),
            cargo_home.display()
        );
        let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut cargo = Command::new(program);
        cargo
            .args(["build", "--release", "--locked", "--target", TARGET])
            .current_dir(&dir)
            .env("RUSTC", COMPILER)
            .env("RUSTC_BOOTSTRAP", UNLOCKED_CRATE)
            .env("RUSTFLAGS", flags)
            .env("CARGO_TARGET_DIR", &target_dir)
            .env_remove("CARGO_ENCODED_RUSTFLAGS")
            .env_remove("RUSTC_WRAPPER");
        done(&mut cargo, "build the programs")?;
        let built = target_dir.join(TARGET).join("release").join("observer");
        let stripped = target_dir.join(OBJECT);
        let strip = Path::new(LLVM_DIR).join("bin").join("llvm-strip");
        // Keeps BTF, which names the maps' types.
        let mut strip = Command::new(strip);
        strip.arg("-g").arg("-o").arg(&stripped).arg(&built);
        done(&mut strip, "strip the object")?;
        Ok(stripped)
    }

    fn describe(&self, object: &Path) -> Result<Sidecar> {
        let sum = stdout(Command::new("sha256sum").arg(object))?;
        Ok(Sidecar {
            sha256: sum.split_whitespace().next().unwrap_or_default().to_owned(),
            bytes: fs::metadata(object)?.len(),
            rustc: stdout(Command::new(COMPILER).arg("--version"))?,
            linker: stdout(Command::new(&self.linker).arg("--version"))?,
        })
    }
}

fn cargo_home() -> Result<PathBuf> {
    let named = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| Path::new(&home).join(".cargo"));
    named
        .or_else(home)
        .context("neither CARGO_HOME nor HOME is set")
}

fn install_packages() -> Result<()> {
    let wanted = [
        (RUSTC_PACKAGE, Some(RUSTC_VERSION)),
        (CORE_PACKAGE, Some(RUSTC_VERSION)),
        (LLVM_PACKAGE, None),
    ];
    let missing: Vec<String> = wanted
        .into_iter()
        .filter(|(name, version)| !is_installed(name, *version))
        .map(|(name, version)| match version {
            Some(version) => format!("{name}={version}"),
            None => name.to_owned(),
        })
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    term::progress(&format!("installing {}", missing.join(" ")));
    done(
        Command::new("apt-get").arg("update"),
        "update the package lists",
    )?;
    let mut install = Command::new("apt-get");
    install
        .args(["install", "-y", "--no-install-recommends"])
        .args(&missing)
        .env("DEBIAN_FRONTEND", "noninteractive");
    done(
        &mut install,
        "install the compiler for BPF; a pin that is gone is renewed in xtask/src/ebpf.rs",
    )
}

fn is_installed(name: &str, version: Option<&str>) -> bool {
    let found = stdout(Command::new("dpkg-query").args(["-W", "-f=${Status} ${Version}", name]));
    let Ok(found) = found else { return false };
    match found.strip_prefix("install ok installed ") {
        Some(installed) => version.is_none_or(|version| version == installed),
        None => false,
    }
}

/// The linker on PATH if it is the right one, else one of our own.
fn install_linker() -> Result<PathBuf> {
    let own_root = paths::target_dir().join("tools");
    let own = own_root.join("bin").join(LINKER);
    let wanted = format!("{LINKER} {LINKER_VERSION}");
    for candidate in [PathBuf::from(LINKER), own.clone()] {
        let version = stdout(Command::new(&candidate).arg("--version"));
        if version.is_ok_and(|version| version == wanted) {
            return Ok(candidate);
        }
    }
    term::progress(&format!("installing {wanted}"));
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut cargo = Command::new(program);
    cargo
        .args(["install", LINKER, "--version", LINKER_VERSION, "--locked"])
        .args(["--no-default-features", "--features", "llvm-22", "--root"])
        .arg(&own_root)
        // Outside of the workspace, whose configuration links statically.
        .current_dir(std::env::temp_dir())
        .env("LLVM_PREFIX", LLVM_DIR)
        .env("RUSTFLAGS", format!("-L {LLVM_DIR}/lib"))
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("CARGO_TARGET_DIR");
    done(&mut cargo, "install the BPF linker")?;
    Ok(own)
}

/// Runs a command with its output on stderr.
fn done(command: &mut Command, what: &str) -> Result<()> {
    let status = command
        .stdout(std::io::stderr())
        .status()
        .with_context(|| format!("cannot {what}: run {}", command.get_program().display()))?;
    ensure!(status.success(), "cannot {what}: {status}");
    Ok(())
}

/// First line of what a command prints.
fn stdout(command: &mut Command) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("run {}", command.get_program().display()))?;
    if !output.status.success() {
        bail!(
            "{} ended with {}",
            command.get_program().display(),
            output.status
        );
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().next().unwrap_or_default().trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sidecar_is_about_the_committed_object() {
        let text = fs::read_to_string(ebpf_dir().join(SIDECAR)).unwrap();
        let sidecar: Sidecar = serde_json::from_str(&text).unwrap();
        let object = ebpf_dir().join(OBJECT);
        let sum = stdout(Command::new("sha256sum").arg(&object)).unwrap();
        assert!(sum.starts_with(&sidecar.sha256), "{sum}");
        assert_eq!(fs::metadata(&object).unwrap().len(), sidecar.bytes);
    }

    #[test]
    fn packages_are_compared_by_version() {
        assert!(!is_installed("no-such-package-here", None));
        assert!(is_installed("dpkg", None));
        assert!(!is_installed("dpkg", Some("0")));
    }
}
