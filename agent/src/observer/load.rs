//! The object in the kernel: maps adopted from their pins or made, programs loaded.

use aya::maps::{MapData, RingBuf};
use aya::programs::{ProgramError, SchedClassifier};
use aya::{Ebpf, EbpfLoader};
use nix::sys::resource::{RLIM_INFINITY, Resource, setrlimit};
use spiderpool_ebpf_common::kind::Direction;

use super::bpffs::{Pins, SHAPES};
use super::error::ObserverError;
use super::maps::Maps;

/// As `cargo xtask ebpf` builds it.
const OBJECT: &[u8] =
    aya::include_bytes_aligned!(concat!(env!("CARGO_MANIFEST_DIR"), "/../ebpf/observer.o"));

/// What is loaded. The programs stay attached when it goes; without pins, TCX links do not.
pub(super) struct Loaded {
    pub(super) ebpf: Ebpf,
    pub(super) maps: Maps,
    pub(super) pins: Option<Pins>,
}

/// Name of the program of a direction.
pub(super) const fn program_name(direction: Direction) -> &'static str {
    match direction {
        Direction::Rx => "subeni_rx",
        Direction::Tx => "subeni_tx",
    }
}

/// Loads maps and programs; the ring buffer is the caller's to read. Blocks for some ten
/// milliseconds: the verifier walks the programs.
///
/// # Errors
/// [`ObserverError`], on kernels below 5.8 and without CAP_BPF for example.
pub(super) fn load(pins: Option<Pins>) -> Result<(Loaded, RingBuf<MapData>), ObserverError> {
    raise_memlock();
    let mut loader = EbpfLoader::new();
    if let Some(pins) = &pins {
        for shape in SHAPES {
            loader.map_pin_path(shape.name, pins.map(shape.name));
        }
    }
    let mut ebpf = loader
        .load(OBJECT)
        .map_err(|error| ObserverError::Load(Box::new(error)))?;
    for direction in [Direction::Rx, Direction::Tx] {
        let name = program_name(direction);
        let loaded = classifier(&mut ebpf, direction)?.load();
        loaded.map_err(|source| ObserverError::Program {
            name,
            source: Box::new(source),
        })?;
    }
    let ring = ebpf
        .take_map("EVENTS")
        .ok_or(ObserverError::Lacks("EVENTS"))?;
    let ring = RingBuf::try_from(ring).map_err(|source| ObserverError::Map {
        name: "EVENTS",
        source: Box::new(source),
    })?;
    let maps = Maps::take(&mut ebpf)?;
    Ok((Loaded { ebpf, maps, pins }, ring))
}

/// The program of a direction.
pub(super) fn classifier(
    ebpf: &mut Ebpf,
    direction: Direction,
) -> Result<&mut SchedClassifier, ObserverError> {
    let name = program_name(direction);
    let program = ebpf.program_mut(name).ok_or(ObserverError::Lacks(name))?;
    program
        .try_into()
        .map_err(|source: ProgramError| ObserverError::Program {
            name,
            source: Box::new(source),
        })
}

/// Kernels below 5.11 count maps against the limit of locked memory. Where it cannot be raised,
/// loading says so.
fn raise_memlock() {
    if let Err(error) = setrlimit(Resource::RLIMIT_MEMLOCK, RLIM_INFINITY, RLIM_INFINITY) {
        tracing::debug!(%error, "the limit of locked memory stays");
    }
}
