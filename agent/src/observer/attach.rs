//! Programs on a NIC: TCX links where the kernel has them, else filters of a clsact qdisc (spec
//! dataplane 5.1). Exactly one program of ours a direction; what others have there stays.
//!
//! Everything here runs in the namespace of the calling thread, which must be the host's.

use std::fs;
use std::io;
use std::path::Path;

use aya::programs::links::{FdLink, LinkError, PinnedLink};
use aya::programs::tc::{
    self, NlOptions, SchedClassifierLink, SchedClassifierLinkId, TcAttachOptions, TcHandle,
};
use aya::programs::{Link, LinkOrder, ProgramError, SchedClassifier, TcAttachType, TcError};
use nix::errno::Errno;
use spiderpool_api::observer_v1::Attach;
use spiderpool_api::value::IfName;
use spiderpool_ebpf_common::kind::Direction;

use super::bpffs::Pins;
use super::error::ObserverError;
use super::load::{Loaded, classifier, program_name};

/// First among the filters of the qdisc.
const PRIORITY: u16 = 1;
/// Marks our filter at that priority: "SP" in ASCII.
const HANDLE: TcHandle = TcHandle::new(0, 0x5350);
/// Kind of the qdisc that has both directions.
pub(crate) const CLSACT: &str = "clsact";

/// A NIC to attach to.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub(super) nic: IfName,
    pub(super) ifindex: u32,
    /// Kind of the qdisc that has the place of clsact, if any.
    pub(super) qdisc: Option<String>,
}

/// Attaches both programs, or puts them in the place of those of an earlier start.
///
/// # Errors
/// [`ObserverError`]; a direction may then be attached already.
pub(super) fn attach(loaded: &mut Loaded, target: &Target) -> Result<Attach, ObserverError> {
    let pins = loaded.pins.clone();
    for direction in [Direction::Rx, Direction::Tx] {
        let program = classifier(&mut loaded.ebpf, direction)?;
        match by_tcx(program, pins.as_ref(), target, direction) {
            Ok(()) => {}
            Err(error) if lacks_tcx(&error) => {
                prepare_qdisc(pins.as_ref(), target)?;
                for direction in [Direction::Rx, Direction::Tx] {
                    by_clsact(classifier(&mut loaded.ebpf, direction)?, target, direction)?;
                }
                return Ok(Attach::Clsact);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(Attach::Tcx)
}

const fn hook(direction: Direction) -> TcAttachType {
    match direction {
        Direction::Rx => TcAttachType::Ingress,
        Direction::Tx => TcAttachType::Egress,
    }
}

fn failed(
    target: &Target,
    direction: Direction,
    how: &'static str,
) -> impl Fn(ProgramError) -> ObserverError {
    move |source| ObserverError::Attach {
        program: program_name(direction),
        nic: target.nic.clone(),
        how,
        source: Box::new(source),
    }
}

/// Kernels below 6.6 answer EINVAL; the version alone says nothing, as distributions port back.
fn lacks_tcx(error: &ObserverError) -> bool {
    match error {
        ObserverError::Attach { source, .. } => is(source, Errno::EINVAL),
        _ => false,
    }
}

fn is(error: &ProgramError, errno: Errno) -> bool {
    let code = match error {
        ProgramError::SyscallError(error) => error.io_error.raw_os_error(),
        ProgramError::TcError(error) => raw_code(error),
        ProgramError::NetlinkError(error) => error.raw_os_error(),
        _ => None,
    };
    code.map(Errno::from_raw) == Some(errno)
}

fn raw_code(error: &TcError) -> Option<i32> {
    match error {
        TcError::NetlinkError(error) => error.raw_os_error(),
        TcError::IoError(error) => error.raw_os_error(),
        _ => None,
    }
}

fn by_tcx(
    program: &mut SchedClassifier,
    pins: Option<&Pins>,
    target: &Target,
    direction: Direction,
) -> Result<(), ObserverError> {
    if let Some(pins) = pins
        && let Some(pin) = pins.existing_link(target.ifindex, direction)
    {
        match adopt(program, &pin) {
            Ok(id) => {
                let own = pins.link(target.ifindex, direction);
                if pin == own {
                    return Ok(());
                }
                pin_link(program, id, &own)?;
                return remove(&pin);
            }
            // The NIC it was on is gone, and its index is another NIC's now.
            Err(error) if is(&error, Errno::ENOLINK) => remove(&pin)?,
            Err(error) => return Err(failed(target, direction, "tcx")(error)),
        }
    }
    // Counted before others may drop, and after others may have changed the frame.
    let order = match direction {
        Direction::Rx => LinkOrder::first(),
        Direction::Tx => LinkOrder::last(),
    };
    let attached = program.attach_with_options(
        target.nic.as_str(),
        hook(direction),
        TcAttachOptions::TcxOrder(order),
    );
    let id = attached.map_err(failed(target, direction, "tcx"))?;
    match pins {
        Some(pins) => pin_link(program, id, &pins.link(target.ifindex, direction)),
        // The program keeps the link, and the link ends with this process.
        None => Ok(()),
    }
}

/// Puts the program in the place of the one the pinned link has; no frame misses both.
fn adopt(program: &mut SchedClassifier, pin: &Path) -> Result<SchedClassifierLinkId, ProgramError> {
    let link = PinnedLink::from_pin(pin).map_err(program_error)?;
    let link = SchedClassifierLink::try_from(FdLink::from(link)).map_err(program_error)?;
    program.attach_to_link(link)
}

fn program_error(error: LinkError) -> ProgramError {
    match error {
        LinkError::SyscallError(error) => ProgramError::SyscallError(error),
        _ => ProgramError::UnexpectedProgramType,
    }
}

fn pin_link(
    program: &mut SchedClassifier,
    id: SchedClassifierLinkId,
    path: &Path,
) -> Result<(), ObserverError> {
    let pin_failed = |source: Box<dyn std::error::Error + Send + Sync>| ObserverError::Pin {
        path: path.to_owned(),
        source,
    };
    let link = program
        .take_link(id)
        .map_err(|error| pin_failed(error.into()))?;
    let link = FdLink::try_from(link).map_err(|error| pin_failed(error.into()))?;
    link.pin(path)
        .map(drop)
        .map_err(|error| pin_failed(error.into()))
}

fn remove(path: &Path) -> Result<(), ObserverError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(ObserverError::Pin {
            path: path.to_owned(),
            source: error.into(),
        }),
        _ => Ok(()),
    }
}

fn prepare_qdisc(pins: Option<&Pins>, target: &Target) -> Result<(), ObserverError> {
    match &target.qdisc {
        Some(kind) if kind == CLSACT => return Ok(()),
        Some(kind) => {
            // It has no egress: a filter for it would be run on ingress, and count all twice.
            return Err(ObserverError::Qdisc {
                nic: target.nic.clone(),
                kind: kind.clone(),
            });
        }
        None => {}
    }
    match tc::qdisc_add_clsact(target.nic.as_str()) {
        Ok(()) => {
            if let Some(pins) = pins
                && let Err(error) = pins.mark_clsact(target.ifindex)
            {
                tracing::warn!(nic = %target.nic, %error, "a later detach will leave the clsact qdisc");
            }
            Ok(())
        }
        Err(error) if raw_code(&error).map(Errno::from_raw) == Some(Errno::EEXIST) => Ok(()),
        Err(source) => Err(ObserverError::Clsact {
            nic: target.nic.clone(),
            source: Box::new(source),
        }),
    }
}

fn by_clsact(
    program: &mut SchedClassifier,
    target: &Target,
    direction: Direction,
) -> Result<(), ObserverError> {
    let nic = target.nic.as_str();
    let options = TcAttachOptions::Netlink(NlOptions {
        priority: PRIORITY,
        handle: HANDLE,
        classid: None,
    });
    let id = match program.attach_with_options(nic, hook(direction), options) {
        // Ours, of an earlier start: one request replaces the program.
        Err(error) if is(&error, Errno::EEXIST) => {
            let old = SchedClassifierLink::attached(nic, hook(direction), PRIORITY, HANDLE, None);
            old.map_err(|error| ProgramError::TcError(TcError::IoError(error)))
                .and_then(|old| program.attach_to_link(old))
        }
        attached => attached,
    };
    let link = id.and_then(|id| program.take_link(id));
    let link = link.map_err(failed(target, direction, CLSACT))?;
    // Dropped, it would take the filter away.
    std::mem::forget(link);
    Ok(())
}

/// Takes both programs away; gone already is success. The qdisc is the caller's.
///
/// # Errors
/// [`ObserverError`], after both have been tried.
pub(super) fn detach(pins: Option<&Pins>, nic: &IfName, ifindex: u32) -> Result<(), ObserverError> {
    let mut first = Ok(());
    for direction in [Direction::Rx, Direction::Tx] {
        let pin = pins.map(|pins| pins.link(ifindex, direction));
        let removed = pin.map_or(Ok(()), |pin| remove(&pin));
        let filter = match remove_filter(nic, direction) {
            Err(error) if !is_absent(&error) => Err(ObserverError::Attach {
                program: program_name(direction),
                nic: nic.clone(),
                how: CLSACT,
                source: Box::new(error),
            }),
            _ => Ok(()),
        };
        first = first.and(removed).and(filter);
    }
    first
}

/// By priority and handle: another's filter may have our program's name.
fn remove_filter(nic: &IfName, direction: Direction) -> Result<(), ProgramError> {
    let filter =
        SchedClassifierLink::attached(nic.as_str(), hook(direction), PRIORITY, HANDLE, None);
    let filter = filter.map_err(|error| ProgramError::TcError(TcError::IoError(error)))?;
    Link::detach(filter)
}

/// No such filter, no qdisc (EINVAL), or no NIC.
fn is_absent(error: &ProgramError) -> bool {
    [Errno::EINVAL, Errno::ENOENT, Errno::ENODEV, Errno::ENXIO]
        .into_iter()
        .any(|errno| is(error, errno))
}
