//! The guest kernel: fetched as a Debian package by name, unpacked under `<target>/vm/<version>/`.
//!
//! Nothing is installed. apt runs with the machine's own sources and, when its lists do not know
//! the package, with private lists under `<target>/vm/apt`, so no system state changes and no root
//! is needed. Blocking; the download is about 40 MB, once.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, bail};

use crate::pin::{self, Pin};

/// A kernel ready to boot.
#[derive(Debug, Clone)]
pub struct Kernel {
    /// Package version.
    pub version: String,
    /// Kernel release as `uname -r` prints it in the guest.
    pub release: String,
    /// The kernel program.
    pub binary_path: PathBuf,
    /// Folder with the modules.
    pub modules_dir: PathBuf,
}

/// The committed pin.
const PIN: &str = include_str!("../kernel.pin");
/// The kernel program in the package.
const PROGRAM: &str = "usr/bin/linux.uml";

/// Returns the pinned kernel, from the cache when it is there. `notice` gets lines for the person
/// who waits: the download, and a warning when the archive no longer has the pinned version.
///
/// # Errors
/// No apt, no network, package unknown, digest mismatch, a glibc older than the kernel program
/// needs: each says so and what to do.
pub fn fetch(vm_dir: &Path, notice: &mut dyn FnMut(&str)) -> Result<Kernel> {
    let pin = Pin::parse(PIN)?;
    if let Some(kernel) = cached(vm_dir, &pin.version)? {
        return Ok(kernel);
    }
    fs::create_dir_all(vm_dir).with_context(|| format!("create {}", vm_dir.display()))?;
    let apt = Apt::new(vm_dir)?;
    let version = apt.download(&pin, notice)?;
    if let Some(deb) = apt.deb()? {
        unpack(vm_dir, &version, &deb)?;
    }
    cached(vm_dir, &version)?
        .with_context(|| format!("{} {version} holds no kernel program", pin.package))
}

/// A kernel unpacked earlier.
fn cached(vm_dir: &Path, version: &str) -> Result<Option<Kernel>> {
    let dir = vm_dir.join(version);
    let binary_path = dir.join(PROGRAM);
    if !binary_path.is_file() {
        return Ok(None);
    }
    let release = release(&binary_path)?;
    let modules_dir = dir.join("usr/lib/uml/modules").join(&release);
    Ok(Some(Kernel {
        version: version.to_owned(),
        release,
        binary_path,
        modules_dir,
    }))
}

/// Runs the kernel program for its release; the quickest proof that this host can run it.
fn release(binary_path: &Path) -> Result<String> {
    let output = Command::new(binary_path)
        .arg("--version")
        .output()
        .with_context(|| format!("run {}", binary_path.display()))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        if let Some(glibc) = pin::missing_glibc(&stderr) {
            bail!(
                "{} needs glibc {glibc} and this host has an older one: pin the 6.1 package of Debian 12 \
                 in vm-tests/kernel.pin, or use a newer host",
                binary_path.display()
            );
        }
        bail!(
            "{} does not run here: {}",
            binary_path.display(),
            stderr.trim()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn unpack(vm_dir: &Path, version: &str, deb: &Path) -> Result<()> {
    let partial = vm_dir.join(format!("unpack.{}", std::process::id()));
    run(
        Command::new("dpkg-deb").arg("-x").arg(deb).arg(&partial),
        "dpkg-deb",
    )?;
    let dir = vm_dir.join(version);
    // A folder without the program is a broken cache; a good one came from a parallel run.
    if dir.join(PROGRAM).is_file() {
        fs::remove_dir_all(&partial)?;
    } else {
        if dir.exists() {
            fs::remove_dir_all(&dir)?;
        }
        fs::rename(&partial, &dir)
            .with_context(|| format!("move the kernel to {}", dir.display()))?;
    }
    Ok(())
}

/// apt, with a folder to download into, gone with this value, and private lists to fall back on.
struct Apt {
    vm_dir: PathBuf,
    download_dir: PathBuf,
    private: Vec<String>,
}

impl Apt {
    fn new(vm_dir: &Path) -> Result<Self> {
        let private_dir = vm_dir.join("apt");
        let download_dir = vm_dir.join(format!("download.{}", std::process::id()));
        for dir in [
            private_dir.join("state/lists/partial"),
            private_dir.join("cache/archives/partial"),
            download_dir.clone(),
        ] {
            fs::create_dir_all(&dir).with_context(|| format!("create {}", dir.display()))?;
        }
        let private = vec![
            "-o".to_owned(),
            format!("Dir::State={}/state", private_dir.display()),
            "-o".to_owned(),
            format!("Dir::State::Lists={}/state/lists", private_dir.display()),
            "-o".to_owned(),
            "Dir::State::status=/var/lib/dpkg/status".to_owned(),
            "-o".to_owned(),
            format!("Dir::Cache={}/cache", private_dir.display()),
        ];
        Ok(Self {
            vm_dir: vm_dir.to_path_buf(),
            download_dir,
            private,
        })
    }

    /// Downloads the pinned version, or the candidate when the pin is gone and the candidate is
    /// not unpacked yet; returns its version.
    fn download(&self, pin: &Pin, notice: &mut dyn FnMut(&str)) -> Result<String> {
        notice(&format!(
            "fetching {} {} with apt",
            pin.package, pin.version
        ));
        if self.get(&[], pin, &pin.version).is_err() {
            notice("apt's lists do not offer it: updating private lists");
            run(
                self.command("apt-get", &self.private).arg("update"),
                "apt-get update",
            )?;
            if let Err(error) = self.get(&self.private, pin, &pin.version) {
                return self.candidate(pin, &error, notice);
            }
        }
        let deb = self
            .deb()?
            .context("apt-get download reported success and left no .deb")?;
        let digest = sha256(&deb)?;
        if digest != pin.sha256 {
            bail!(
                "{} {}: sha256 is {digest}, pinned is {}: do not use it",
                pin.package,
                pin.version,
                pin.sha256
            );
        }
        Ok(pin.version.clone())
    }

    fn candidate(
        &self,
        pin: &Pin,
        error: &anyhow::Error,
        notice: &mut dyn FnMut(&str),
    ) -> Result<String> {
        let policy = run(
            self.command("apt-cache", &self.private)
                .args(["policy", &pin.package]),
            "apt-cache policy",
        )?;
        let Some(version) = pin::candidate(&String::from_utf8_lossy(&policy.stdout)) else {
            bail!(
                "no apt source offers {}: the sources need Debian's main component and the network \
                 must reach them ({error:#})",
                pin.package
            );
        };
        if version == pin.version {
            bail!("cannot download {} {version}: {error:#}", pin.package);
        }
        notice(&format!(
            "warning: {} {} is gone from the archive; using {version}, unchecked; update vm-tests/kernel.pin",
            pin.package, pin.version
        ));
        if !self.vm_dir.join(&version).join(PROGRAM).is_file() {
            self.get(&self.private, pin, &version)?;
        }
        Ok(version)
    }

    fn get(&self, options: &[String], pin: &Pin, version: &str) -> Result<()> {
        let what = format!("{}={version}", pin.package);
        run(
            self.command("apt-get", options).args(["download", &what]),
            "apt-get download",
        )
        .map(drop)
    }

    fn command(&self, program: &str, options: &[String]) -> Command {
        let mut command = Command::new(program);
        // As root apt would drop to a user that cannot write here, and warn about it.
        command
            .args(["-q", "-o", "APT::Sandbox::User=root"])
            .args(options);
        command.env("LC_ALL", "C").current_dir(&self.download_dir);
        command
    }

    /// The file that was downloaded, if any.
    fn deb(&self) -> Result<Option<PathBuf>> {
        let dir = &self.download_dir;
        let entries = fs::read_dir(dir).with_context(|| format!("list {}", dir.display()))?;
        let mut paths = entries.filter_map(Result::ok).map(|entry| entry.path());
        Ok(paths.find(|path| path.extension().is_some_and(|e| e == "deb")))
    }
}

impl Drop for Apt {
    fn drop(&mut self) {
        // What stays is 40 MB in a folder that `cargo clean` removes.
        drop(fs::remove_dir_all(&self.download_dir));
    }
}

fn sha256(path: &Path) -> Result<String> {
    let output = run(Command::new("sha256sum").arg(path), "sha256sum")?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.split_whitespace()
        .next()
        .map(|digest| digest.trim_start_matches('\\').to_owned())
        .context("sha256sum printed nothing")
}

/// Runs to the end; a failure carries the last lines of stderr.
fn run(command: &mut Command, what: &str) -> Result<Output> {
    let output = match command.output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => bail!(
            "{what}: no such program; the guest kernel comes from a Debian package, so this needs \
             Debian or Ubuntu with apt and dpkg"
        ),
        other => other.with_context(|| format!("run {what}"))?,
    };
    if output.status.success() {
        return Ok(output);
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = stderr.trim().lines().rev().take(3).collect();
    let tail: Vec<&str> = lines.into_iter().rev().collect();
    bail!("{what} failed ({}): {}", output.status, tail.join(" / "))
}
