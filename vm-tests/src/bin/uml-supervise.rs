//! Stands between a caller and a guest kernel: pins it, logs its console, bounds its life.
//!
//! It leads a session of its own, so a terminal's Ctrl-C does not hit the kernel halfway; instead
//! it watches standard input and kills the kernel's process group when the caller is gone. With
//! `--detach` the guest outlives the caller and only the time limit or a power-off ends it.
//!
//!     uml-supervise --cpu N --timeout SECONDS --log FILE [--detach] -- KERNEL ARG...
#![forbid(unsafe_code)]

use std::fs::{self, File};
use std::io::{self, PipeReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::prctl::set_child_subreaper;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::waitpid;
use nix::unistd::{Pid, setsid};
use vm_tests::mailbox::ALIVE;
use vm_tests::plan::{Marker, RC_TIMEOUT};

#[derive(Debug, Default)]
struct Options {
    cpu: usize,
    timeout: Duration,
    log: PathBuf,
    detach: bool,
    command: Vec<String>,
}

fn main() -> ExitCode {
    match options(std::env::args().skip(1)).and_then(|options| supervise(&options)) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            // The caller reads this stream as the guest's console.
            drop(writeln!(
                io::stdout(),
                "{}",
                Marker::Killed(format!("supervisor: {error:#}"))
            ));
            ExitCode::FAILURE
        }
    }
}

fn options(mut args: impl Iterator<Item = String>) -> Result<Options> {
    let mut options = Options::default();
    while let Some(arg) = args.next() {
        let mut value = || args.next().with_context(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--cpu" => options.cpu = value()?.parse().context("--cpu")?,
            "--timeout" => {
                options.timeout = Duration::from_secs(value()?.parse().context("--timeout")?)
            }
            "--log" => options.log = PathBuf::from(value()?),
            "--detach" => options.detach = true,
            "--" => options.command = args.by_ref().collect(),
            other => bail!("unknown option {other:?}"),
        }
    }
    Ok(options)
}

/// Why the guest has to end.
enum Event {
    CallerGone,
    Exited,
}

fn supervise(options: &Options) -> Result<u8> {
    // Refused only to a process group leader, which a shell may have made us: then we have a
    // group of our own already.
    setsid().ok();
    set_child_subreaper(true).context("become a subreaper")?;
    let mut cpus = CpuSet::new();
    cpus.set(options.cpu)
        .with_context(|| format!("CPU {}", options.cpu))?;
    sched_setaffinity(Pid::from_raw(0), &cpus)
        .with_context(|| format!("pin to CPU {}", options.cpu))?;
    let mut log =
        File::create(&options.log).with_context(|| format!("create {}", options.log.display()))?;
    let alive = options.log.with_file_name(ALIVE);
    fs::write(&alive, std::process::id().to_string())?;
    let result = run(options, &mut log);
    fs::remove_file(&alive).with_context(|| format!("remove {}", alive.display()))?;
    result
}

fn run(options: &Options, log: &mut File) -> Result<u8> {
    let (child, console) = spawn(options)?;
    let group = Pid::from_raw(i32::try_from(child.id()).context("pid")?);
    let (events, inbox) = mpsc::channel();
    if !options.detach {
        watch_caller(events.clone());
    }
    let waiter = thread::spawn(move || wait(child, group, &events));
    let timeout = options.timeout;
    let watchdog = thread::spawn(move || {
        let why = match inbox.recv_timeout(timeout) {
            Ok(Event::Exited) | Err(RecvTimeoutError::Disconnected) => return None,
            Ok(Event::CallerGone) => "the caller is gone".to_owned(),
            Err(RecvTimeoutError::Timeout) => format!("no end after {} s", timeout.as_secs()),
        };
        // Gone in between is as good.
        killpg(group, Signal::SIGKILL).ok();
        Some(why)
    });
    copy(console, log)?;
    let code = waiter
        .join()
        .map_err(|_| anyhow::anyhow!("the waiting thread died"))??;
    let killed = watchdog
        .join()
        .map_err(|_| anyhow::anyhow!("the watchdog thread died"))?;
    let Some(why) = killed else {
        return Ok(code);
    };
    let line = format!("\n{}\n", Marker::Killed(why));
    log.write_all(line.as_bytes())?;
    drop(io::stdout().write_all(line.as_bytes()));
    Ok(u8::try_from(RC_TIMEOUT)?)
}

fn spawn(options: &Options) -> Result<(Child, PipeReader)> {
    let Some((program, args)) = options.command.split_first() else {
        bail!("no command after --");
    };
    let (console, writer) = io::pipe().context("make the console pipe")?;
    let child = Command::new(program)
        .args(args)
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(writer.try_clone()?)
        .stderr(writer)
        .spawn()
        .with_context(|| format!("run {program}"))?;
    Ok((child, console))
}

/// Standard input is a pipe nobody writes to: its end is the caller's end.
fn watch_caller(events: Sender<Event>) {
    thread::spawn(move || {
        drop(io::copy(&mut io::stdin(), &mut io::sink()));
        drop(events.send(Event::CallerGone));
    });
}

/// A guest's processes are traced children of the kernel process; they must not outlive it.
fn wait(mut child: Child, group: Pid, events: &Sender<Event>) -> Result<u8> {
    let status = child.wait().context("wait for the kernel")?;
    killpg(group, Signal::SIGKILL).ok();
    // They are our children now (subreaper): PID 1 of a container often reaps nobody.
    while waitpid(None, None).is_ok() {}
    drop(events.send(Event::Exited));
    Ok(status
        .code()
        .and_then(|code| u8::try_from(code).ok())
        .unwrap_or(1))
}

/// The log gets everything; standard output as long as somebody reads it.
fn copy(mut console: PipeReader, log: &mut File) -> Result<()> {
    let mut stdout = Some(io::stdout());
    let mut buffer = [0; 8192];
    loop {
        let n = console.read(&mut buffer).context("read the console")?;
        let Some(bytes) = buffer.get(..n).filter(|bytes| !bytes.is_empty()) else {
            return Ok(());
        };
        log.write_all(bytes).context("write the console log")?;
        if let Some(out) = &mut stdout
            && out.write_all(bytes).and_then(|()| out.flush()).is_err()
        {
            stdout = None;
        }
    }
}
