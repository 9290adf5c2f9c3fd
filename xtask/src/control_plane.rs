//! What the real control plane is built from: the module `vm-tests/control-plane` and its programs.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::go_build::{self, GoProgram};
use crate::paths;

/// The module that names the version of all Kubernetes programs.
const KUBERNETES: &str = "k8s.io/kubernetes";

/// Folder of the Go module.
pub(crate) fn module_dir() -> PathBuf {
    paths::root().join("vm-tests/control-plane")
}

/// Builds etcd and kube-apiserver, once; the folder they are in.
pub(crate) fn build() -> Result<PathBuf> {
    let path = module_dir().join("go.mod");
    let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let version =
        version(&text).with_context(|| format!("{} in {}", KUBERNETES, path.display()))?;
    let programs = [
        GoProgram::new("etcd", "go.etcd.io/etcd/server/v3"),
        kubernetes("kube-apiserver", &version),
    ];
    go_build::build(&module_dir(), &programs)
}

/// A release build gets its version from the linker; clients read it at `/version`.
fn kubernetes(name: &str, version: &str) -> GoProgram {
    let mut parts = version.trim_start_matches('v').split('.');
    let set =
        |variable: &str, value: &str| format!("k8s.io/component-base/version.{variable}={value}");
    let linker_values = vec![
        set("gitVersion", version),
        set("gitMajor", parts.next().unwrap_or_default()),
        set("gitMinor", parts.next().unwrap_or_default()),
    ];
    GoProgram {
        linker_values,
        ..GoProgram::new(name, &format!("{KUBERNETES}/cmd/{name}"))
    }
}

/// Version of Kubernetes in the text of a `go.mod`.
fn version(go_mod: &str) -> Option<String> {
    go_mod.lines().find_map(|line| {
        // `module version // indirect`, in a block or behind `require`
        let mut words = line
            .split_whitespace()
            .skip_while(|word| *word == "require");
        let version = words.find(|word| *word == KUBERNETES).and(words.next())?;
        version.starts_with('v').then(|| version.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_comes_from_the_module_file() {
        let text = fs::read_to_string(module_dir().join("go.mod")).unwrap();
        let version = version(&text).unwrap();
        let apiserver = kubernetes("kube-apiserver", &version);
        assert_eq!(apiserver.package, "k8s.io/kubernetes/cmd/kube-apiserver");
        let minor = version.split('.').nth(1).unwrap();
        let want = format!("k8s.io/component-base/version.gitMinor={minor}");
        assert_eq!(apiserver.linker_values[2], want);
    }

    /// A staging module of another release than Kubernetes compiles at times and fails later.
    #[test]
    fn staging_modules_are_of_the_same_release() {
        let text = fs::read_to_string(module_dir().join("go.mod")).unwrap();
        let version = version(&text).unwrap();
        let staging = version.replacen("v1.", "v0.", 1);
        let replaced: Vec<_> = text.lines().filter(|line| line.contains(" => ")).collect();
        assert!(replaced.len() > 30, "{replaced:?}");
        for line in replaced {
            assert!(line.ends_with(&staging), "{line}");
        }
    }
}
