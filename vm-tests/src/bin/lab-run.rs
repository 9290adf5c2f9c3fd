//! `lab-run NETNS lab|kept PROGRAM ARG...`: becomes PROGRAM inside a network namespace; `-` is the
//! one it is started in, `+` a new one without name, which ends with its last process.
//!
//! A process of its own, because entering a namespace and asking for a signal at the parent's
//! death must happen between fork and exec, which a safe program can only do as the child.
#![forbid(unsafe_code)]

use std::env;
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, Result, bail};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::prctl;
use nix::sys::signal::Signal;
use vm_tests::lab::process::{HERE, NEW};

fn main() -> Result<()> {
    let mut args = env::args_os().skip(1);
    let (Some(netns), Some(lifetime), Some(program)) = (args.next(), args.next(), args.next())
    else {
        bail!("usage: lab-run NETNS lab|kept PROGRAM ARG...");
    };
    let shown = netns.display();
    if netns == NEW {
        unshare(CloneFlags::CLONE_NEWNET).context("make a network namespace")?;
    } else if netns != HERE {
        let file = File::open(&netns).with_context(|| format!("open network namespace {shown}"))?;
        setns(file, CloneFlags::CLONE_NEWNET)
            .with_context(|| format!("enter network namespace {shown}"))?;
    }
    match lifetime.to_str() {
        // Sent when the thread that started us ends, whatever ends it.
        Some("lab") => prctl::set_pdeathsig(Signal::SIGKILL).context("ask for a death signal")?,
        Some("kept") => {}
        _ => bail!("{} is neither lab nor kept", lifetime.display()),
    }
    let rest: Vec<OsString> = args.collect();
    let error = Command::new(&program).args(rest).exec();
    Err(error).with_context(|| format!("run {}", program.display()))
}
