//! The vm level: every test target named `vm_*`, in one boot of a User-Mode Linux guest.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use vm_tests::libtest::Tally;
use vm_tests::plan::Marker;
use vm_tests::{Guest, GuestCommand, Runner, kernel};

use crate::cargo::Artifact;
use crate::{build, cnitool, paths, suites, term};

/// Integration tests with this prefix run in the guest.
const PREFIX: &str = "vm_";
const SUITE_TIMEOUT: Duration = Duration::from_secs(300);
const GUEST_TIMEOUT: Duration = Duration::from_secs(900);
/// Variable that tests with random choices take their seed from.
const SEED: &str = "SPIDERPOOL_TEST_SEED";
const MEM_MIB: u32 = 768;

/// Boots the guest once and runs all suites. `filter` goes to libtest.
///
/// No kernel to be had: one skip, or one failure when `strict`.
pub(crate) fn run(built: &[Artifact], filter: Option<&str>, strict: bool) -> Result<Tally> {
    let mut tally = Tally::default();
    if let Err(error) = kernel::fetch(&paths::vm_dir(), &mut |line| term::progress(line)) {
        let reason = format!("no guest kernel: {error:#}");
        if strict {
            tally.failed = 1;
            tally.failures.push(format!("vm level: {reason}"));
        } else {
            tally.skipped.push(("vm level".to_owned(), reason));
        }
        return Ok(tally);
    }
    let init = build::find(built, "guest-init")?;
    let bin_dir = init.parent().context("guest-init lies in no folder")?;
    let mut guest = guest(built, filter)?;
    guest.files.extend(cnitool::guest_files());
    let outcome = guest.run(&Runner::new(&paths::vm_dir(), bin_dir), &mut show)?;
    for command in &outcome.commands {
        let judged = suites::judge(command, filter.is_some());
        if judged.failed > 0 {
            term::progress(&command.output);
        }
        tally.add(judged);
    }
    if let Some(failure) = &outcome.failure {
        term::progress(failure);
        tally.failed += 1;
        tally.failures.push("vm guest".to_owned());
    }
    term::progress(&format!(
        "vm: kernel {}, userland after {:.1} s, suites: {}, {:.1} s in all; console: {}",
        outcome.release,
        outcome.boot.as_secs_f64(),
        outcome.commands.len(),
        outcome.elapsed.as_secs_f64(),
        outcome.console_path.display()
    ));
    Ok(tally)
}

fn guest(built: &[Artifact], filter: Option<&str>) -> Result<Guest> {
    let mut files: Vec<(PathBuf, PathBuf)> = build::programs(built)?
        .into_iter()
        .map(|(name, path)| (path, PathBuf::from(format!("/bin/{name}"))))
        .collect();
    let mut commands = Vec::new();
    for suite in suites::of(built, PREFIX) {
        let guest_path = format!("/tests/{}", suite.name);
        files.push((suite.path.clone(), PathBuf::from(&guest_path)));
        let mut argv = vec![guest_path];
        argv.extend(suites::LIBTEST_ARGS.map(str::to_owned));
        argv.extend(filter.map(str::to_owned));
        commands.push(GuestCommand {
            name: suite.name.clone(),
            argv,
            env: environment(),
            timeout_s: SUITE_TIMEOUT.as_secs(),
        });
    }
    Ok(Guest {
        name: "suites".to_owned(),
        files,
        commands,
        mem_mib: MEM_MIB,
        timeout: GUEST_TIMEOUT,
        cpu: None,
        keep: false,
    })
}

/// A random test that failed is run again with its seed.
fn environment() -> Vec<(String, String)> {
    let seed = std::env::var(SEED).ok();
    let seed = seed.map(|seed| (SEED.to_owned(), seed));
    let backtrace = ("RUST_BACKTRACE".to_owned(), "1".to_owned());
    std::iter::once(backtrace).chain(seed).collect()
}

/// A result line per test, and which suite is on.
fn show(line: &str) {
    match Marker::parse(line) {
        Some(Marker::Start(name)) => term::progress(&format!("vm: suite {name}")),
        Some(_) => {}
        None => drop(suites::show(line)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cargo::Role;

    #[test]
    fn suites_are_found_by_prefix() {
        let mut built: Vec<Artifact> = build::PROGRAMS
            .iter()
            .map(|name| Artifact {
                name: (*name).into(),
                role: Role::Program,
                path: PathBuf::from("/t"),
            })
            .collect();
        for (name, role) in [
            ("vm_attach", Role::IntegrationTest),
            ("wire", Role::IntegrationTest),
            ("vm_tests", Role::UnitTests),
        ] {
            built.push(Artifact {
                name: name.into(),
                role,
                path: PathBuf::from("/t"),
            });
        }
        let guest = guest(&built, Some("dual")).unwrap();
        assert_eq!(guest.commands.len(), 1);
        assert_eq!(guest.commands[0].argv[0], "/tests/vm_attach");
        assert_eq!(guest.commands[0].argv.last().unwrap(), "dual");
        assert!(
            guest
                .files
                .iter()
                .any(|(_, to)| to == std::path::Path::new("/bin/eni-vlan"))
        );
    }
}
