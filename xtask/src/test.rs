//! `cargo xtask test`: the levels in CI's order, a line each, one sum at the end.

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use vm_tests::libtest::Tally;

use crate::cargo::Artifact;
use crate::{api_level, build, checks, crds, demo, deps, ebpf, lines, native, sim, term, vm};

/// What to run.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct TestArgs {
    /// Levels; all of them by default, in CI's order.
    levels: Vec<Level>,
    /// Also what is too slow for CI: the provider at 2 calls a second for 200 Pods (api).
    #[arg(long)]
    full: bool,
    /// Only tests whose name contains this (unit, netns, vm and api).
    #[arg(long)]
    filter: Option<String>,
    /// CI's rules: what is missing is a failure. Also by the environment: CI=true.
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    sim: sim::SimArgs,
}

/// A level, or a group of checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Level {
    /// Formatting, file sizes, dependencies, clippy.
    Checks,
    /// Tests that run anywhere. Runs with netns, in one pass.
    Unit,
    /// Tests in network namespaces of this kernel; needs root.
    Netns,
    /// Seeds of the deterministic simulation.
    Sim,
    /// Tests in a User-Mode Linux guest.
    Vm,
    /// The demo, judged by its JSON.
    Demo,
    /// Tests against a real etcd and kube-apiserver on loopback.
    Api,
}

impl TestArgs {
    /// All levels with CI's rules.
    pub(crate) fn ci() -> Self {
        Self {
            strict: true,
            ..Self::default()
        }
    }

    fn wants(&self, level: Level) -> bool {
        self.levels.is_empty() || self.levels.contains(&level)
    }
}

/// Runs the levels and prints the sum.
pub(crate) fn run(args: &TestArgs) -> Result<ExitCode> {
    let strict = args.strict || std::env::var("CI").is_ok_and(|ci| ci == "true" || ci == "1");
    let mut run = Run {
        started: Instant::now(),
        sum: Tally::default(),
    };
    if let Err(stop) = run.levels(args, strict) {
        term::result(&format!("{stop:#}"));
    }
    Ok(run.end(strict))
}

struct Run {
    started: Instant,
    sum: Tally,
}

impl Run {
    fn levels(&mut self, args: &TestArgs, strict: bool) -> Result<()> {
        if args.wants(Level::Checks) {
            self.check("fmt", checks::fmt);
            self.check("lines", lines::check);
            self.check("deps", deps::check);
            self.tests("ebpf --check", ebpf::judge);
            self.check("crds --check", crds::check);
        }
        let native = args.wants(Level::Unit) || args.wants(Level::Netns);
        let mut built: Vec<Artifact> = Vec::new();
        if native || args.wants(Level::Vm) || args.wants(Level::Api) {
            let build = || build::tests().map(|artifacts| built = artifacts);
            if !self.check("build", build) {
                bail!("the levels behind the build did not run");
            }
        }
        if args.wants(Level::Checks) {
            self.check("clippy", checks::clippy);
        }
        let filter = args.filter.as_deref();
        if native {
            self.tests("unit + netns", || native::run(filter));
        }
        if args.wants(Level::Sim) {
            self.tests("sim", || sim::run(&args.sim));
        }
        if args.wants(Level::Vm) {
            self.tests("vm", || vm::run(&built, filter, strict));
        }
        if args.wants(Level::Demo) {
            self.tests("demo", demo::judge);
        }
        if args.wants(Level::Api) {
            self.tests("api", || api_level::run(&built, filter, args.full, strict));
        }
        Ok(())
    }

    /// A step that either holds or does not.
    fn check(&mut self, name: &str, step: impl FnOnce() -> Result<()>) -> bool {
        let before = self.sum.failed;
        self.tests(name, || {
            step().map(|()| Tally {
                passed: 1,
                ..Tally::default()
            })
        });
        self.sum.failed == before
    }

    /// A step with results of its own.
    fn tests(&mut self, name: &str, step: impl FnOnce() -> Result<Tally>) {
        let begun = Instant::now();
        term::progress(&format!("== {name}"));
        let tally = step().unwrap_or_else(|error| {
            term::progress(&format!("error: {error:#}"));
            Tally {
                failed: 1,
                failures: vec![name.to_owned()],
                ..Tally::default()
            }
        });
        let word = if tally.failed == 0 { "ok" } else { "FAILED" };
        term::progress(&format!(
            "== {name}: {word}, {} passed, {} failed, {} skipped, {:.1} s ({:.1} s in all)",
            tally.passed,
            tally.failed,
            tally.skipped.len(),
            begun.elapsed().as_secs_f64(),
            self.started.elapsed().as_secs_f64()
        ));
        self.sum.add(tally);
    }

    /// Skips with reasons, failures by name, then the sum alone on the last line.
    fn end(self, strict: bool) -> ExitCode {
        for (test, reason) in &self.sum.skipped {
            term::result(&format!("skipped {test}: {reason}"));
        }
        for name in &self.sum.failures {
            term::result(&format!("failed {name}"));
        }
        let skipped = self.sum.skipped.len();
        if strict && skipped > 0 {
            term::result("CI's rules: what is skipped counts as a failure");
        }
        term::result(&sum_line(&self.sum));
        if self.sum.failures.is_empty() && self.sum.failed == 0 && !(strict && skipped > 0) {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }
}

fn sum_line(sum: &Tally) -> String {
    format!(
        "{} passed, {} failed, {} skipped",
        sum.passed,
        sum.failed,
        sum.skipped.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_names_means_all() {
        assert!(TestArgs::default().wants(Level::Vm));
        let some = TestArgs {
            levels: vec![Level::Unit],
            ..TestArgs::default()
        };
        assert!(some.wants(Level::Unit) && !some.wants(Level::Vm));
    }

    #[test]
    fn a_failed_step_is_counted_and_does_not_stop_the_next() {
        let mut run = Run {
            started: Instant::now(),
            sum: Tally::default(),
        };
        assert!(!run.check("a", || bail!("no")));
        assert!(run.check("b", || Ok(())));
        assert_eq!(sum_line(&run.sum), "1 passed, 1 failed, 0 skipped");
        assert_eq!(run.sum.failures, ["a"]);
    }
}
