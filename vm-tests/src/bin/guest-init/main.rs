//! The guest's first process: mounts, modules, loopback, then the commands of the plan, then
//! power-off. Runs as PID 1 in a User-Mode Linux guest and nowhere else.
#![forbid(unsafe_code)]

mod commands;
mod mounts;
mod net;
mod serve;

use std::ffi::CStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::kmod::{ModuleInitFlags, finit_module};
use nix::sys::reboot::{RebootMode, reboot};
use vm_tests::plan::{GuestPlan, Marker, PLAN_PATH};

fn main() {
    if std::process::id() != 1 {
        say("guest-init: runs as PID 1 of a guest only");
        std::process::exit(2);
    }
    if let Err(error) = live() {
        say(&Marker::Killed(format!("init: {error:#}")).to_string());
    }
    nix::unistd::sync();
    // Success does not return. A failure ends PID 1, and panic=-1 ends the kernel.
    reboot(RebootMode::RB_POWER_OFF).ok();
}

fn live() -> Result<()> {
    let path = format!("/{PLAN_PATH}");
    let plan = fs::read(&path).with_context(|| format!("read {path}"))?;
    let plan: GuestPlan = serde_json::from_slice(&plan).with_context(|| format!("parse {path}"))?;
    mounts::mount_all(plan.keep)?;
    fs::write("/proc/sys/kernel/hostname", &plan.hostname).context("set the host name")?;
    for module in &plan.modules {
        insert(module)?;
    }
    net::loopback_up().context("bring the loopback interface up")?;
    say(&Marker::Up.to_string());
    for command in &plan.commands {
        commands::run(command, plan.keep)?;
    }
    if plan.keep {
        say(&Marker::Ready.to_string());
        serve::mailbox()?;
    }
    commands::kill_all();
    say(&Marker::End.to_string());
    Ok(())
}

/// Parameters of modules that make links of their own when they are inserted.
const PARAMETERS: &[(&str, &CStr)] = &[("bonding", c"max_bonds=0"), ("dummy", c"numdummies=0")];

fn insert(path: &str) -> Result<()> {
    let file = File::open(path).with_context(|| format!("open {path}"))?;
    let name = Path::new(path).file_stem().unwrap_or_default();
    let parameters = PARAMETERS.iter().find(|(module, _)| name == *module);
    let parameters = parameters.map_or(c"", |(_, text)| text);
    match finit_module(file, parameters, ModuleInitFlags::empty()) {
        Ok(()) | Err(Errno::EEXIST) => Ok(()),
        Err(error) => Err(error).with_context(|| format!("insert the module {path}")),
    }
}

/// One console line in one write, so that kernel messages do not split it.
fn say(line: &str) {
    // Without a console there is nobody to tell.
    drop(io::stdout().write_all(format!("{line}\n").as_bytes()));
}
