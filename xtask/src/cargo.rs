//! Runs cargo and reads its messages.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::paths;

/// A cargo command in the workspace's root.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.args(args).current_dir(paths::root());
    command
}

/// Runs cargo with its output on stderr.
pub(crate) fn run(args: &[&str]) -> Result<()> {
    let status = cargo(args)
        .stdout(std::io::stderr())
        .status()
        .context("run cargo")?;
    if !status.success() {
        bail!("cargo {} failed", args.join(" "));
    }
    Ok(())
}

/// Runs cargo for its standard output.
pub(crate) fn stdout(args: &[&str]) -> Result<String> {
    let output = cargo(args)
        .stderr(Stdio::inherit())
        .output()
        .context("run cargo")?;
    if !output.status.success() {
        bail!("cargo {} failed", args.join(" "));
    }
    String::from_utf8(output.stdout).context("cargo printed no UTF-8")
}

/// An executable cargo built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Artifact {
    /// Target name: the binary's or the test's.
    pub(crate) name: String,
    /// What it is.
    pub(crate) role: Role,
    /// Where it is.
    pub(crate) path: PathBuf,
}

/// What an executable is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// A program.
    Program,
    /// The unit tests of a library or a program.
    UnitTests,
    /// A file in a crate's `tests` folder.
    IntegrationTest,
}

/// Runs a `cargo build` command and lists the executables it has up to date.
pub(crate) fn executables(args: &[&str]) -> Result<Vec<Artifact>> {
    let mut all = args.to_vec();
    all.push("--message-format=json-render-diagnostics");
    Ok(artifacts(&stdout(&all)?))
}

#[derive(Deserialize)]
struct Message {
    target: Option<Target>,
    profile: Option<Profile>,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

fn artifacts(messages: &str) -> Vec<Artifact> {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Message>(line).ok())
        .filter_map(artifact)
        .collect()
}

fn artifact(message: Message) -> Option<Artifact> {
    let target = message.target?;
    let is = |wanted: &str| target.kind.iter().any(|kind| kind == wanted);
    let role = if is("test") {
        Role::IntegrationTest
    } else if is("bench") {
        // Without a harness it is a program, though cargo calls it a test.
        Role::Program
    } else if message.profile?.test {
        Role::UnitTests
    } else {
        Role::Program
    };
    Some(Artifact {
        name: target.name,
        role,
        path: message.executable?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executables_among_cargo_messages() {
        let text = r#"
{"reason":"compiler-artifact","target":{"name":"libc","kind":["lib"]},"profile":{"test":false},"executable":null}
{"reason":"compiler-artifact","target":{"name":"vm_tests","kind":["lib"]},"profile":{"test":true},"executable":"/t/vm_tests-1"}
{"reason":"compiler-artifact","target":{"name":"vm_smoke","kind":["test"]},"profile":{"test":true},"executable":"/t/vm_smoke-1"}
{"reason":"compiler-artifact","target":{"name":"spiderpool","kind":["bin"]},"profile":{"test":false},"executable":"/t/spiderpool"}
{"reason":"compiler-artifact","target":{"name":"iaas","kind":["bench"]},"profile":{"test":true},"executable":"/t/iaas-1"}
{"reason":"build-script-executed","package_id":"x"}
{"reason":"build-finished","success":true}
"#;
        let found = artifacts(text);
        let names: Vec<_> = found.iter().map(|a| (a.name.as_str(), a.role)).collect();
        assert_eq!(
            names,
            [
                ("vm_tests", Role::UnitTests),
                ("vm_smoke", Role::IntegrationTest),
                ("spiderpool", Role::Program),
                ("iaas", Role::Program)
            ]
        );
    }
}
