//! Tests that run on this kernel: unit tests everywhere, tests in network namespaces with root.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::process::Command;

use anyhow::{Context, Result};
use vm_tests::libtest::Tally;

use crate::build::TEST_FEATURES;
use crate::{cargo, paths, term};

/// `cargo test` over the workspace, once. `filter` goes to the test binaries.
pub(crate) fn run(filter: Option<&str>) -> Result<Tally> {
    let mut args = vec!["test", "--workspace", TEST_FEATURES, "--no-fail-fast", "--"];
    // the SKIPPED lines of passing tests are shown only then
    args.push("--show-output");
    args.extend(filter);
    judge(cargo::cargo(&args), "native.log")
}

/// Runs a `cargo test`, keeps its output in a log and counts its results.
pub(crate) fn judge(mut command: Command, log: &str) -> Result<Tally> {
    let (reader, writer) = io::pipe().context("make a pipe")?;
    command.stdout(writer.try_clone()?).stderr(writer);
    let mut child = command.spawn().context("run cargo test")?;
    // its writers would keep the pipe open
    drop(command);
    fs::create_dir_all(paths::log_dir())?;
    let path = paths::log_dir().join(log);
    let mut log = File::create(&path).with_context(|| format!("create {}", path.display()))?;
    let mut output = String::new();
    for line in BufReader::new(reader).split(b'\n') {
        let line = line.context("read the output of cargo test")?;
        let line = String::from_utf8_lossy(&line);
        writeln!(log, "{line}")?;
        if is_progress(&line) {
            term::progress(&line);
        }
        output.push_str(&line);
        output.push('\n');
    }
    let status = child.wait().context("wait for cargo test")?;
    let mut tally = Tally::of(&output);
    if !status.success() {
        if tally.failed == 0 {
            tally.failed = 1;
            tally
                .failures
                .push(format!("cargo test ended with {status}"));
            term::progress(&last_lines(&output, 40));
        }
        term::progress(&failure_reports(&output));
        term::progress(&format!("whole output: {}", path.display()));
    }
    Ok(tally)
}

fn is_progress(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("Running ") || line.starts_with("Doc-tests ") || line.starts_with("Compiling ")
}

/// What libtest says about failed tests: from `failures:` to the result line of each binary.
fn failure_reports(output: &str) -> String {
    let mut report = String::new();
    let mut inside = false;
    for line in output.lines() {
        inside |= line == "failures:";
        if inside {
            report.push_str(line);
            report.push('\n');
        }
        inside &= !line.starts_with("test result:");
    }
    report
}

fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(count);
    lines.get(from..).unwrap_or_default().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_hold_failures_only() {
        let text = "running\nsuccesses:\na\ntest result: ok.\nfailures:\n\n---- b stdout ----\nboom\ntest result: FAILED.\nmore\n";
        let report = failure_reports(text);
        assert!(
            report.contains("boom") && !report.contains("more") && !report.contains("successes")
        );
    }

    #[test]
    fn tail() {
        assert_eq!(last_lines("a\nb\nc", 2), "b\nc");
        assert_eq!(last_lines("a", 5), "a");
    }
}
