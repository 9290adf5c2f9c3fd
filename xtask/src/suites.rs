//! Test targets of a level that are run one by one: which they are, and what their end means.

use vm_tests::CommandOutcome;
use vm_tests::libtest::Tally;

use crate::cargo::{Artifact, Role};
use crate::term;

/// How a suite is run, so that its ignored tests run and its output can be counted.
pub(crate) const LIBTEST_ARGS: [&str; 3] =
    ["--include-ignored", "--test-threads=1", "--show-output"];

/// Integration tests whose target name starts with `prefix`.
pub(crate) fn of<'a>(
    built: &'a [Artifact],
    prefix: &'a str,
) -> impl Iterator<Item = &'a Artifact> + 'a {
    built.iter().filter(move |artifact| {
        artifact.role == Role::IntegrationTest && artifact.name.starts_with(prefix)
    })
}

/// Shows a line if it is a test's result; tells whether it was one.
pub(crate) fn show(line: &str) -> bool {
    let is_result = line.starts_with("test ") && line.contains(" ... ");
    if is_result {
        term::progress(&format!("  {line}"));
    }
    is_result
}

/// A suite that died, or ran nothing, has failed even if no test of it did.
pub(crate) fn judge(command: &CommandOutcome, filtered: bool) -> Tally {
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
    use std::time::Duration;

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
}
