//! Reads the output of libtest and of `cargo test`: counts, failed tests, skips with reasons.
//!
//! A test that lacks what it needs prints `SKIPPED <test>: <reason>` and returns; libtest calls
//! that a success, so such a test is moved from passed to skipped here. The lines are visible only
//! with `--show-output`.

use std::collections::BTreeSet;

/// Reasons of `#[ignore]` on the tests of levels that are run on their own; not a skip.
pub const LEVELS: [&str; 2] = ["vm level", "api level"];

/// One test's result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It ran and passed.
    Passed,
    /// It ran and failed.
    Failed,
    /// It did not run: why.
    Skipped(String),
}

/// Counts of one or more runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// Tests that passed.
    pub passed: usize,
    /// Tests that failed.
    pub failed: usize,
    /// Names of failed tests.
    pub failures: Vec<String>,
    /// (test, reason) of each skip.
    pub skipped: Vec<(String, String)>,
}

impl Tally {
    /// Adds another run's counts.
    pub fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.failures.extend(other.failures);
        self.skipped.extend(other.skipped);
    }

    /// Counts the output of any number of libtest binaries.
    pub fn of(output: &str) -> Self {
        let skips = skips(output);
        let mut tally = Self::default();
        for (name, verdict) in verdicts(output) {
            match verdict {
                Verdict::Passed => tally.passed += 1,
                Verdict::Failed => {
                    tally.failed += 1;
                    tally.failures.push(name);
                }
                Verdict::Skipped(reason) if LEVELS.contains(&reason.as_str()) => {}
                Verdict::Skipped(reason) => tally.skipped.push((name, reason)),
            }
        }
        tally.passed = tally.passed.saturating_sub(skips.len());
        tally.skipped.extend(skips);
        tally
    }
}

/// Each `test NAME ... RESULT` line, in order.
pub fn verdicts(output: &str) -> Vec<(String, Verdict)> {
    output
        .lines()
        .filter_map(|line| verdict(line.trim_end()))
        .collect()
}

fn verdict(line: &str) -> Option<(String, Verdict)> {
    let (name, result) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
    // `should_panic` and `compile fail` are notes of libtest behind the name
    let name = name.split(" - should panic").next().unwrap_or(name);
    let verdict = if result == "ok" || result.starts_with("ok <") {
        Verdict::Passed
    } else if result == "FAILED" || result.starts_with("FAILED <") {
        Verdict::Failed
    } else {
        let reason = result
            .strip_prefix("ignored")?
            .trim_start_matches([',', ' ']);
        let reason = if reason.is_empty() { "ignored" } else { reason };
        Verdict::Skipped(reason.to_owned())
    };
    Some((name.to_owned(), verdict))
}

/// Each `SKIPPED NAME: REASON` line, once: a test may print it and libtest show it again.
fn skips(output: &str) -> BTreeSet<(String, String)> {
    output
        .lines()
        .filter_map(|line| line.trim().strip_prefix("SKIPPED "))
        .filter_map(|rest| rest.split_once(": "))
        .map(|(name, reason)| (name.to_owned(), reason.to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = "\
     Running unittests src/lib.rs (target/debug/deps/a-1)

running 6 tests
test ring::wraps ... ok
test ring::holds - should panic ... ok
test ring::slow ... ignored, needs a day
test vm::attach ... ignored, vm level
test api::claim ... ignored, api level
test ring::breaks ... FAILED

successes:

---- netns::enters stdout ----
SKIPPED netns::enters: needs root (setns)

test netns::enters ... ok
test result: FAILED. 2 passed; 1 failed; 3 ignored; 0 measured; 0 filtered out; finished in 0.01s
";

    #[test]
    fn counts_of_a_mixed_run() {
        let tally = Tally::of(RUN);
        assert_eq!((tally.passed, tally.failed), (2, 1));
        assert_eq!(tally.failures, ["ring::breaks"]);
        assert_eq!(
            tally.skipped,
            [
                ("ring::slow".to_owned(), "needs a day".to_owned()),
                ("netns::enters".to_owned(), "needs root (setns)".to_owned()),
            ]
        );
    }

    #[test]
    fn a_skip_printed_twice_counts_once() {
        let text = "test a ... ok\nSKIPPED a: no kernel\nSKIPPED a: no kernel\n";
        let tally = Tally::of(text);
        assert_eq!((tally.passed, tally.skipped.len()), (0, 1));
    }

    #[test]
    fn doc_tests_and_noise() {
        let text =
            "test crates/api/src/value.rs - value::Mac (line 12) ... ok\ntest x\ntesting ... ok\n";
        let all = verdicts(text);
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].0, "crates/api/src/value.rs - value::Mac (line 12)");
    }

    #[test]
    fn tallies_add_up() {
        let mut sum = Tally::of("test a ... ok\n");
        sum.add(Tally::of("test b ... FAILED\n"));
        assert_eq!((sum.passed, sum.failed, sum.failures.len()), (1, 1, 1));
    }
}
