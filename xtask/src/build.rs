//! What is built for tests and for the demo, and where it lies afterwards.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::cargo::{self, Artifact, Role};
use crate::paths;

/// Programs of the product that tests and the demo run, by target name.
pub(crate) const PROGRAMS: &[&str] = &[
    AGENT,
    CONTROLLER,
    "provider-sim",
    "spiderpoolctl",
    "spiderpool",
    LAB_RUN,
];
/// The agent: package and program.
const AGENT: &str = "spiderpool-agent";
/// The controller: package and program.
const CONTROLLER: &str = "spiderpool-controller";
/// Starts the processes of a lab inside their namespaces.
const LAB_RUN: &str = "lab-run";
/// The CNI binary acts by its file name; its own target is named `spiderpool`.
const CNI: &str = "spiderpool";
const CNI_NAMES: &[&str] = &["spiderpool", "eni-vlan"];

/// What tests need besides the product: an agent that can be told to die at a step. The demo takes
/// the same, so that a machine builds the agent once; an ordinary `cargo build` has none of it.
pub(crate) const TEST_FEATURES: &str = "--features=spiderpool-agent/failpoints";

/// Builds every test and every binary once, with one set of features, and lists them.
pub(crate) fn tests() -> Result<Vec<Artifact>> {
    cargo::executables(&["build", "--workspace", TEST_FEATURES, "--bins", "--tests"])
}

/// The CNI binary as it ships, built on its own: other crates' features must not leak into it.
pub(crate) fn cni() -> Result<PathBuf> {
    let built = cargo::executables(&["build", "-p", "spiderpool-cni", "--profile", "dist"])?;
    find(&built, CNI).map(Path::to_path_buf)
}

/// The agent as it ships, built on its own for the same reason.
pub(crate) fn agent() -> Result<PathBuf> {
    let built = cargo::executables(&["build", "-p", AGENT, "--profile", "dist"])?;
    find(&built, AGENT).map(Path::to_path_buf)
}

/// The controller as it ships.
pub(crate) fn controller() -> Result<PathBuf> {
    let built = cargo::executables(&["build", "-p", CONTROLLER, "--profile", "dist"])?;
    find(&built, CONTROLLER).map(Path::to_path_buf)
}

/// Folder with the guest runner's two programs.
pub(crate) fn guest_tools() -> Result<PathBuf> {
    let built = cargo::executables(&["build", "-p", "vm-tests", "--bins"])?;
    let init = find(&built, "guest-init")?;
    Ok(init
        .parent()
        .context("guest-init lies in no folder")?
        .to_path_buf())
}

/// Binaries of the product, and this program, under their names in one folder. Debug builds but for
/// the CNI binary: a fresh machine then builds each dependency once, for this program and for them.
pub(crate) fn demo_bin_dir() -> Result<PathBuf> {
    let mut built = cargo::executables(&["build", "--workspace", TEST_FEATURES, "--bins"])?;
    built.retain(|artifact| artifact.name != CNI);
    built.push(Artifact {
        name: CNI.to_owned(),
        role: Role::Program,
        path: cni()?,
    });
    let dir = paths::target_dir().join("demo").join("bin");
    if dir.exists() {
        fs::remove_dir_all(&dir).with_context(|| format!("clear {}", dir.display()))?;
    }
    fs::create_dir_all(&dir).with_context(|| format!("create {}", dir.display()))?;
    for (name, path) in programs(&built)? {
        let target = dir.join(&name);
        fs::copy(&path, &target)
            .with_context(|| format!("copy {} to {}", path.display(), target.display()))?;
    }
    fs::copy(paths::SELF_EXE, dir.join("xtask")).context("copy this program")?;
    Ok(dir)
}

/// (file name, path) of each program of the product among `built`.
pub(crate) fn programs(built: &[Artifact]) -> Result<Vec<(String, PathBuf)>> {
    let mut programs = Vec::new();
    for name in PROGRAMS {
        let path = find(built, name)?.to_path_buf();
        let names: &[&str] = if *name == CNI {
            CNI_NAMES
        } else {
            std::slice::from_ref(name)
        };
        programs.extend(names.iter().map(|name| ((*name).to_owned(), path.clone())));
    }
    Ok(programs)
}

/// The binary with this target name.
pub(crate) fn find<'a>(built: &'a [Artifact], name: &str) -> Result<&'a Path> {
    built
        .iter()
        .find(|artifact| artifact.role == Role::Program && artifact.name == name)
        .map(|artifact| artifact.path.as_path())
        .with_context(|| format!("cargo built no binary named {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn artifact(name: &str, role: Role) -> Artifact {
        Artifact {
            name: name.into(),
            role,
            path: PathBuf::from(format!("/t/{name}")),
        }
    }

    #[test]
    fn the_cni_binary_gets_all_its_names() {
        let mut built: Vec<_> = PROGRAMS
            .iter()
            .map(|name| artifact(name, Role::Program))
            .collect();
        built.push(artifact("spiderpool-agent", Role::UnitTests));
        let programs = programs(&built).unwrap();
        let names: Vec<_> = programs.iter().map(|(name, _)| name.as_str()).collect();
        for name in PROGRAMS.iter().chain(CNI_NAMES) {
            assert!(names.contains(name), "{name} in {names:?}");
        }
        let cni: Vec<_> = programs
            .iter()
            .filter(|(name, _)| CNI_NAMES.contains(&name.as_str()))
            .collect();
        assert!(cni.iter().all(|(_, path)| *path == cni[0].1), "{cni:?}");
    }

    #[test]
    fn a_test_harness_is_not_the_program() {
        let built = [artifact("spiderpool-agent", Role::UnitTests)];
        let error = find(&built, "spiderpool-agent").unwrap_err().to_string();
        assert!(error.contains("spiderpool-agent"), "{error}");
    }
}
