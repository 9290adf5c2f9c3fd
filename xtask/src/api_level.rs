//! The api level: every test target named `api_*`, on this machine, with a real etcd and
//! kube-apiserver that each test starts for itself.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use vm_tests::CommandOutcome;
use vm_tests::control_plane::ENV_PROGRAMS;
use vm_tests::lab::ENV_BIN_DIR;
use vm_tests::libtest::Tally;

use crate::cargo::Artifact;
use crate::{build, control_plane, go_build, paths, suites, term};

/// Integration tests with this prefix belong to the level.
const PREFIX: &str = "api_";
const SUITE_TIMEOUT: Duration = Duration::from_secs(420);
/// Read by suite `api_provider_scale`.
const ENV_FULL: &str = "SPIDERPOOL_SCENARIO_FULL";

/// Builds the control plane, the first time, and runs all suites. `filter` goes to libtest; `full` is for scenarios at the
/// times of the specification that are too long for CI.
///
/// No Go toolchain: one skip, or one failure when `strict`.
pub(crate) fn run(
    built: &[Artifact],
    filter: Option<&str>,
    full: bool,
    strict: bool,
) -> Result<Tally> {
    let mut tally = Tally::default();
    if let Err(error) = go_build::toolchain(&control_plane::module_dir()) {
        let reason = format!("{error:#}");
        if strict {
            tally.failed = 1;
            tally.failures.push(format!("api level: {reason}"));
        } else {
            tally.skipped.push(("api level".to_owned(), reason));
        }
        return Ok(tally);
    }
    let programs_dir = control_plane::build()?;
    let bin_dir = bin_dir(built)?;
    for suite in suites::of(built, PREFIX) {
        term::progress(&format!("api: suite {}", suite.name));
        let mut command = Command::new(&suite.path);
        command
            .args(suites::LIBTEST_ARGS)
            .args(filter)
            .env(ENV_PROGRAMS, &programs_dir)
            .env(ENV_BIN_DIR, &bin_dir)
            .env("RUST_BACKTRACE", "1")
            .envs(full.then_some((ENV_FULL, "1")))
            .current_dir(paths::root());
        let outcome = outcome(&suite.name, command)?;
        let judged = suites::judge(&outcome, filter.is_some());
        if judged.failed > 0 {
            term::progress(&outcome.output);
        }
        term::progress(&format!(
            "api: suite {}: {:.1} s",
            suite.name,
            outcome.elapsed.as_secs_f64()
        ));
        tally.add(judged);
    }
    Ok(tally)
}

/// The product's programs under their names, as links to what cargo built.
fn bin_dir(built: &[Artifact]) -> Result<PathBuf> {
    let dir = paths::target_dir().join("api").join("bin");
    if dir.exists() {
        fs::remove_dir_all(&dir).with_context(|| format!("clear {}", dir.display()))?;
    }
    fs::create_dir_all(&dir).with_context(|| format!("create {}", dir.display()))?;
    for (name, path) in build::programs(built)? {
        let link: &Path = &dir.join(name);
        symlink(&path, link).with_context(|| format!("link {}", link.display()))?;
    }
    Ok(dir)
}

/// Runs a suite to its end or its time limit. What its tests started ends with them: it asks the
/// kernel for that.
fn outcome(name: &str, mut command: Command) -> Result<CommandOutcome> {
    let begun = Instant::now();
    let (reader, writer) = std::io::pipe().context("make a pipe")?;
    command.stdout(writer.try_clone()?).stderr(writer);
    let mut child = command.spawn().with_context(|| format!("run {name}"))?;
    // its writers would keep the pipe open
    drop(command);
    let (lines, inbox) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(reader).split(b'\n').map_while(Result::ok) {
            if lines
                .send(String::from_utf8_lossy(&line).into_owned())
                .is_err()
            {
                return;
            }
        }
    });
    let mut output = String::new();
    let in_time = loop {
        let left = SUITE_TIMEOUT.saturating_sub(begun.elapsed());
        match inbox.recv_timeout(left) {
            Ok(line) => {
                suites::show(&line);
                output.push_str(&line);
                output.push('\n');
            }
            Err(RecvTimeoutError::Disconnected) => break true,
            Err(RecvTimeoutError::Timeout) => break false,
        }
    };
    Ok(CommandOutcome {
        name: name.to_owned(),
        rc: end(&mut child, in_time)?,
        output,
        elapsed: begun.elapsed(),
    })
}

fn end(child: &mut Child, in_time: bool) -> Result<Option<i32>> {
    if !in_time {
        child.kill().context("kill a suite at its time limit")?;
    }
    let status = child.wait().context("wait for a suite")?;
    Ok(status.code().filter(|_| in_time))
}
