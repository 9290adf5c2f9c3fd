//! A kept guest's mailbox: runs requests the host drops into the folder, until asked to stop.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use vm_tests::mailbox::{POLL, Request, STOP, publish};
use vm_tests::plan::MAILBOX_DIR;

use crate::commands;

pub(crate) fn mailbox() -> Result<()> {
    let dir = PathBuf::from(format!("/{MAILBOX_DIR}"));
    while !dir.join(STOP).exists() {
        for path in requests(&dir)? {
            answer(&dir, &path)?;
        }
        reap();
        thread::sleep(POLL);
    }
    Ok(())
}

fn requests(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(dir).context("list the mailbox")? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "req") {
            paths.push(path);
        }
    }
    Ok(paths)
}

fn answer(dir: &Path, request: &Path) -> Result<()> {
    let rc = match run(request) {
        Ok(rc) => rc,
        Err(error) => {
            fs::write(request.with_extension("out"), "")?;
            fs::write(request.with_extension("err"), format!("{error:#}\n"))?;
            127
        }
    };
    fs::remove_file(request)?;
    let stem = request.file_stem().unwrap_or_default().to_string_lossy();
    publish(dir, &format!("{stem}.rc"), rc.to_string().as_bytes())
}

fn run(path: &Path) -> Result<i32> {
    let request: Request = serde_json::from_slice(&fs::read(path)?).context("parse the request")?;
    let mut process = commands::process(&request.argv)?;
    process.stdout(File::create(path.with_extension("out"))?);
    process.stderr(File::create(path.with_extension("err"))?);
    commands::wait(process, Duration::from_secs(request.timeout_s))
}

/// Orphans of earlier commands that died while nobody waited.
fn reap() {
    while let Ok(status) = waitpid(None, Some(WaitPidFlag::WNOHANG)) {
        if status == WaitStatus::StillAlive {
            break;
        }
    }
}
