//! Runs one command at a time, passes its lines on, and reaps whatever dies meanwhile: orphans of
//! the whole guest are PID 1's children.

use std::fs::File;
use std::io::{self, BufRead, BufReader, PipeReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use vm_tests::GuestCommand;
use vm_tests::plan::{Marker, OUT_DIR, RC_TIMEOUT};

use crate::say;

/// Exit code for a program that cannot be started, as shells use it.
const RC_NOT_STARTED: i32 = 127;
/// Time for the rest of a dead command's output to arrive.
const DRAIN: Duration = Duration::from_secs(1);

/// Runs `command`, its output on the console and in `/out/<name>.log`. Unless `keep_children`,
/// everything it left running is killed.
pub(crate) fn run(command: &GuestCommand, keep_children: bool) -> Result<()> {
    say(&Marker::Start(command.name.clone()).to_string());
    let started = Instant::now();
    let rc = match capture(command) {
        Ok(rc) => rc,
        Err(error) => {
            say(&format!("{error:#}"));
            RC_NOT_STARTED
        }
    };
    if !keep_children {
        kill_all();
    }
    let ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    say(&Marker::Rc(command.name.clone(), rc, ms).to_string());
    Ok(())
}

fn capture(command: &GuestCommand) -> Result<i32> {
    let (reader, writer) = io::pipe().context("make a pipe")?;
    let path = format!("/{OUT_DIR}/{}.log", command.name);
    let log = File::create(&path).with_context(|| format!("create {path}"))?;
    let mut process = process(&command.argv)?;
    process.envs(command.env.iter().map(|(key, value)| (key, value)));
    process.stdout(writer.try_clone()?).stderr(writer);
    let limit = Duration::from_secs(command.timeout_s);
    let ended = pass_on(reader, log);
    let rc = wait(process, limit)?;
    // A process the command left behind may hold the pipe open.
    if ended.recv_timeout(DRAIN) == Err(RecvTimeoutError::Timeout) {
        say("(output of processes left behind is not awaited)");
    }
    Ok(rc)
}

/// A command with the guest's environment, in a process group of its own.
pub(crate) fn process(argv: &[String]) -> Result<Command> {
    let (program, args) = argv.split_first().context("empty command")?;
    let mut process = Command::new(program);
    process
        .args(args)
        .env_clear()
        .env("PATH", "/bin:/usr/bin:/usr/sbin:/host/bin:/sbin")
        .env("HOME", "/root")
        .env("SPIDERPOOL_BIN_DIR", "/bin")
        .current_dir("/tmp")
        .process_group(0)
        .stdin(Stdio::null());
    Ok(process)
}

/// Starts the process and waits for it, reaping others; kills its group after `limit`.
pub(crate) fn wait(mut process: Command, limit: Duration) -> Result<i32> {
    let child = process
        .spawn()
        .with_context(|| format!("run {}", Path::new(process.get_program()).display()))?;
    // The writers of a pipe in `process` must go, or its reader never sees the end.
    drop(process);
    let pid = Pid::from_raw(i32::try_from(child.id()).context("pid")?);
    let (done, watch) = mpsc::channel::<()>();
    let watchdog = thread::spawn(move || {
        let late = watch.recv_timeout(limit) == Err(RecvTimeoutError::Timeout);
        if late {
            killpg(pid, Signal::SIGKILL).ok();
        }
        late
    });
    let rc = reap_until(pid)?;
    drop(done);
    let late = watchdog.join().unwrap_or(false);
    Ok(if late { RC_TIMEOUT } else { rc })
}

fn reap_until(pid: Pid) -> Result<i32> {
    loop {
        match waitpid(None, None) {
            Ok(WaitStatus::Exited(who, code)) if who == pid => return Ok(code),
            Ok(WaitStatus::Signaled(who, signal, _)) if who == pid => {
                return Ok(128 + signal as i32);
            }
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error).with_context(|| format!("wait for process {pid}")),
        }
    }
}

/// Copies lines to the console and the log; the channel closes at the end of the output.
fn pass_on(reader: PipeReader, mut log: File) -> Receiver<()> {
    let (open, ended) = mpsc::channel::<()>();
    thread::spawn(move || {
        let mut reader = BufReader::new(reader);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
            let text = String::from_utf8_lossy(&line);
            say(text.trim_end_matches('\n'));
            drop(log.write_all(&line));
            line.clear();
        }
        // Closing writes the log back to the host; only then is the output complete.
        drop(log);
        drop(open);
    });
    ended
}

/// Kills every process but init and collects them. Blocks until none is left.
pub(crate) fn kill_all() {
    // -1 from PID 1 means everybody else; ESRCH: nobody is there
    kill(Pid::from_raw(-1), Signal::SIGKILL).ok();
    while !matches!(waitpid(None, None), Err(Errno::ECHILD)) {}
}
