//! The vm level: every test target named `vm_*`, in one boot of a User-Mode Linux guest.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use vm_tests::libtest::Tally;
use vm_tests::plan::Marker;
use vm_tests::{CommandOutcome, Guest, GuestCommand, Runner, kernel};

use crate::cargo::{Artifact, Role};
use crate::{build, paths, term};

/// Integration tests with this prefix run in the guest.
const PREFIX: &str = "vm_";
const SUITE_TIMEOUT: Duration = Duration::from_secs(180);
const GUEST_TIMEOUT: Duration = Duration::from_secs(600);
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
    let guest = guest(built, filter)?;
    let outcome = guest.run(&Runner::new(&paths::vm_dir(), bin_dir), &mut show)?;
    for command in &outcome.commands {
        let judged = judge(command, filter.is_some());
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
    for suite in built.iter().filter(|a| is_suite(a)) {
        let guest_path = format!("/tests/{}", suite.name);
        files.push((suite.path.clone(), PathBuf::from(&guest_path)));
        let mut argv = vec![guest_path];
        argv.extend(["--include-ignored", "--test-threads=1", "--show-output"].map(str::to_owned));
        argv.extend(filter.map(str::to_owned));
        commands.push(GuestCommand {
            name: suite.name.clone(),
            argv,
            env: vec![("RUST_BACKTRACE".to_owned(), "1".to_owned())],
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

fn is_suite(artifact: &Artifact) -> bool {
    artifact.role == Role::IntegrationTest && artifact.name.starts_with(PREFIX)
}

/// A result line per test, and which suite is on.
fn show(line: &str) {
    match Marker::parse(line) {
        Some(Marker::Start(name)) => term::progress(&format!("vm: suite {name}")),
        None if line.starts_with("test ") && line.contains(" ... ") => {
            term::progress(&format!("  {line}"))
        }
        _ => {}
    }
}

/// A suite that died, or ran nothing, has failed even if no test of it did.
fn judge(command: &CommandOutcome, filtered: bool) -> Tally {
    let mut tally = Tally::of(&command.output);
    let ran = tally.passed + tally.failed + tally.skipped.len();
    let fault = match command.rc {
        Some(0) if ran == 0 && !filtered => "ran no test".to_owned(),
        Some(0) => return tally,
        Some(_) if tally.failed > 0 => return tally,
        Some(rc) => format!("ended with code {rc}"),
        None => "did not end".to_owned(),
    };
    tally.failed += 1;
    tally.failures.push(format!("{}: {fault}", command.name));
    tally
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(rc: Option<i32>, output: &str) -> CommandOutcome {
        CommandOutcome {
            name: "vm_x".into(),
            rc,
            output: output.into(),
            elapsed: Duration::ZERO,
        }
    }

    #[test]
    fn suites_are_judged_by_tests_and_exit_code() {
        let good = judge(&outcome(Some(0), "test a ... ok\n"), false);
        assert_eq!((good.passed, good.failed), (1, 0));
        let bad = judge(
            &outcome(Some(101), "test a ... ok\ntest b ... FAILED\n"),
            false,
        );
        assert_eq!((bad.passed, bad.failed), (1, 1));
        let late = judge(&outcome(Some(124), "test a ... ok\n"), false);
        assert_eq!(late.failures, ["vm_x: ended with code 124"]);
        let cut = judge(&outcome(None, "test a ... ok\n"), false);
        assert_eq!(cut.failures, ["vm_x: did not end"]);
        assert_eq!(judge(&outcome(Some(0), ""), false).failed, 1);
        assert_eq!(judge(&outcome(Some(0), ""), true).failed, 0);
    }

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
