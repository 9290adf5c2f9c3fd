//! Pins: where maps and links stay while no agent runs (spec dataplane 5.1, 5.3).
//!
//! Owns the BPF folder. Layout: `<bpf-dir>/v1/<MAP>`, `<bpf-dir>/v1/link-<ifindex>-<rx|tx>`, and an
//! empty folder `<bpf-dir>/v1/clsact-<ifindex>` for each qdisc that we made: like the qdisc it is
//! gone after a reboot.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use aya::maps::{MapInfo, MapType};
use nix::mount::{MsFlags, mount};
use nix::sys::statfs::{BPF_FS_MAGIC, statfs};
use spiderpool_ebpf_common::kind::Direction;
use spiderpool_ebpf_common::layout::{
    Config, EVENTS_BYTES, MAX_NIC, MAX_RATE, MAX_SUBENI, MAX_UNKNOWN, MacKey, Nic, RateKey, Stats,
    SubEni, SubEniKey, Unknown, UnknownKey,
};

use super::error::ObserverError;

/// Where a system has its BPF file system.
const SYSTEM_BPFFS: &str = "/sys/fs/bpf";
/// Versions that are tried; more were never in use side by side.
const MAX_VERSION: u32 = 9;

/// A map of the object as its pin must be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) name: &'static str,
    map_type: MapType,
    key: usize,
    value: usize,
    max_entries: u32,
}

const fn shape<K, V>(name: &'static str, map_type: MapType, max_entries: u32) -> Shape {
    Shape {
        name,
        map_type,
        key: size_of::<K>(),
        value: size_of::<V>(),
        max_entries,
    }
}

/// All maps.
pub(super) const SHAPES: [Shape; 10] = [
    shape::<SubEniKey, SubEni>("SUBENI", MapType::Hash, MAX_SUBENI),
    shape::<MacKey, u32>("MACS", MapType::Hash, MAX_SUBENI),
    shape::<SubEniKey, Stats>("STATS", MapType::PerCpuHash, MAX_SUBENI),
    shape::<UnknownKey, Unknown>("UNKNOWN", MapType::LruPerCpuHash, MAX_UNKNOWN),
    shape::<u32, Nic>("NIC", MapType::PerCpuArray, MAX_NIC),
    shape::<u32, u32>("NICS", MapType::Hash, MAX_NIC),
    shape::<(), ()>("EVENTS", MapType::RingBuf, EVENTS_BYTES),
    shape::<RateKey, u64>("RATE", MapType::LruHash, MAX_RATE),
    shape::<u32, u64>("LOST", MapType::PerCpuArray, 1),
    shape::<u32, Config>("CFG", MapType::Array, 1),
];

impl Shape {
    /// Whether a map of the kernel is one of this shape.
    pub(super) fn fits(&self, map: &MapInfo) -> bool {
        let size = |bytes: u32| usize::try_from(bytes).ok();
        map.map_type().is_ok_and(|found| found == self.map_type)
            && size(map.key_size()) == Some(self.key)
            && size(map.value_size()) == Some(self.value)
            && map.max_entries() == self.max_entries
    }
}

/// A version folder in a BPF file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pins {
    root: PathBuf,
    version: PathBuf,
}

impl Pins {
    /// Makes sure of the file system and picks the version whose pins fit the object.
    ///
    /// # Errors
    /// [`ObserverError::Pin`] without a BPF file system, [`ObserverError::Pins`] when all
    /// versions are taken by other layouts.
    pub(super) fn open(bpf_dir: &Path) -> Result<Self, ObserverError> {
        let failed = |source: io::Error| ObserverError::Pin {
            path: bpf_dir.to_owned(),
            source: source.into(),
        };
        ensure_mounted(bpf_dir).map_err(failed)?;
        for number in 1..=MAX_VERSION {
            let version = bpf_dir.join(format!("v{number}"));
            if SHAPES.iter().all(|shape| is_usable(&version, shape)) {
                fs::create_dir_all(&version).map_err(failed)?;
                return Ok(Self {
                    root: bpf_dir.to_owned(),
                    version,
                });
            }
            tracing::warn!(pins = %version.display(), "pinned maps have another layout; their counters end here");
        }
        Err(ObserverError::Pins {
            path: bpf_dir.to_owned(),
        })
    }

    /// Pin of a map.
    pub(super) fn map(&self, name: &str) -> PathBuf {
        self.version.join(name)
    }

    /// Pin of a link.
    pub(super) fn link(&self, ifindex: u32, direction: Direction) -> PathBuf {
        self.version
            .join(format!("link-{ifindex}-{}", direction.as_str()))
    }

    /// An existing pin of a link, of whatever version.
    pub(super) fn existing_link(&self, ifindex: u32, direction: Direction) -> Option<PathBuf> {
        let own = self.link(ifindex, direction);
        let name = own.file_name()?.to_owned();
        let others = self.other_versions().into_iter().map(|dir| dir.join(&name));
        std::iter::once(own).chain(others).find(|pin| pin.exists())
    }

    /// Remembers that the qdisc of a NIC is ours.
    pub(super) fn mark_clsact(&self, ifindex: u32) -> io::Result<()> {
        match fs::create_dir(self.clsact(ifindex)) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(()),
        }
    }

    /// Whether the qdisc of a NIC is ours.
    pub(super) fn made_clsact(&self, ifindex: u32) -> bool {
        self.clsact(ifindex).is_dir()
    }

    fn clsact(&self, ifindex: u32) -> PathBuf {
        self.version.join(format!("clsact-{ifindex}"))
    }

    /// NICs with a pinned link or a marked qdisc.
    pub(super) fn nics(&self) -> Vec<u32> {
        let mut found: Vec<u32> = entries(&self.version)
            .filter_map(|path| {
                let name = path.file_name()?.to_str()?;
                let rest = name
                    .strip_prefix("link-")
                    .or_else(|| name.strip_prefix("clsact-"))?;
                rest.split('-').next()?.parse().ok()
            })
            .collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Takes the pins of other versions away: their links have moved, their maps are not used.
    pub(super) fn remove_others(&self) {
        for dir in self.other_versions() {
            let moved = entries(&dir)
                .filter(|path| path.is_dir())
                .filter_map(|path| Some(self.version.join(path.file_name()?)));
            for marker in moved {
                // The qdisc is still ours; at worst an empty one is left behind at a detach.
                fs::create_dir(marker).ok();
            }
            if let Err(error) = remove_tree(&dir) {
                tracing::warn!(pins = %dir.display(), %error, "cannot remove pins of another version");
            }
        }
    }

    /// Takes all pins away; the folder itself too, when it is empty then.
    pub(super) fn remove(&self) -> io::Result<()> {
        remove_tree(&self.version)?;
        match fs::remove_dir(&self.root) {
            // A mount point, or somebody else's files in it: they stay.
            Err(error) if !matches!(error.raw_os_error(), Some(errno) if is_in_use(errno)) => {
                Err(error)
            }
            _ => Ok(()),
        }
    }

    fn other_versions(&self) -> Vec<PathBuf> {
        entries(&self.root)
            .filter(|dir| *dir != self.version && is_version(dir))
            .collect()
    }
}

fn is_in_use(errno: i32) -> bool {
    [
        nix::errno::Errno::EBUSY,
        nix::errno::Errno::ENOTEMPTY,
        nix::errno::Errno::ENOENT,
    ]
    .into_iter()
    .any(|known| nix::errno::Errno::from_raw(errno) == known)
}

fn is_version(dir: &Path) -> bool {
    dir.file_name()
        .and_then(OsStr::to_str)
        .and_then(|name| name.strip_prefix('v'))
        .is_some_and(|number| number.parse::<u32>().is_ok())
}

/// Absent, or of this shape.
fn is_usable(version: &Path, shape: &Shape) -> bool {
    let pin = version.join(shape.name);
    !pin.exists() || MapInfo::from_pin(&pin).is_ok_and(|found| shape.fits(&found))
}

/// Mounts a BPF file system where none is. In the usual place it is the system's own mount
/// point, elsewhere the folder itself.
fn ensure_mounted(bpf_dir: &Path) -> io::Result<()> {
    let system = Path::new(SYSTEM_BPFFS);
    let mount_point = if bpf_dir.starts_with(system) {
        system
    } else {
        bpf_dir
    };
    if !mount_point.is_dir() {
        fs::create_dir_all(mount_point)?;
    }
    if statfs(mount_point)?.filesystem_type() != BPF_FS_MAGIC {
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
        mount(
            Some("bpf"),
            mount_point,
            Some("bpf"),
            flags,
            Some("mode=0700"),
        )?;
        tracing::info!(path = %mount_point.display(), "mounted a BPF file system");
    }
    fs::create_dir_all(bpf_dir)
}

fn entries(dir: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
}

/// Pins are files, markers are folders; there is nothing deeper.
fn remove_tree(dir: &Path) -> io::Result<()> {
    for path in entries(dir) {
        if path.is_dir() {
            fs::remove_dir(&path)?;
        } else {
            fs::remove_file(&path)?;
        }
    }
    match fs::remove_dir(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
