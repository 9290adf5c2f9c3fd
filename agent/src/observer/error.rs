//! Why something is not observed. Names the object; the cause is the source.

use std::io;
use std::path::PathBuf;

use aya::EbpfError;
use aya::maps::MapError;
use aya::programs::ProgramError;
use aya::programs::tc::TcError;
use spiderpool_api::value::IfName;
use spiderpool_netops::netns::NetnsError;
use spiderpool_netops::rtnl::RtnlError;

/// Why something is not observed.
#[derive(Debug, thiserror::Error)]
pub enum ObserverError {
    /// The object could not be loaded.
    #[error("cannot load the observer's programs; they need Linux 5.8 and CAP_BPF")]
    Load(#[source] Box<EbpfError>),
    /// The verifier refused a program, or it is not there.
    #[error("cannot load program {name}")]
    Program {
        /// Its name.
        name: &'static str,
        /// What the kernel said.
        source: Box<ProgramError>,
    },
    /// The object has no such map or program.
    #[error("the observer's object has no {0}; rebuild it with `cargo xtask ebpf`")]
    Lacks(&'static str),
    /// A map could not be read or written.
    #[error("cannot use map {name}")]
    Map {
        /// Its name.
        name: &'static str,
        /// What the kernel said.
        source: Box<MapError>,
    },
    /// The observer has no room for another NIC.
    #[error("more than {0} parent NICs; the observer counts no further one")]
    TooManyNics(u32),
    /// Pins of all versions have other layouts.
    #[error("every pin version below {} has another layout; remove the folder", path.display())]
    Pins {
        /// The BPF folder.
        path: PathBuf,
    },
    /// The number of CPUs cannot be read.
    #[error("cannot read the number of CPUs from {path}")]
    Cpus {
        /// From where.
        path: &'static str,
        /// What failed.
        source: io::Error,
    },
    /// A program could not be attached.
    #[error("cannot attach {program} to NIC {nic} by {how}")]
    Attach {
        /// Its name.
        program: &'static str,
        /// The NIC.
        nic: IfName,
        /// tcx or clsact.
        how: &'static str,
        /// What the kernel said.
        source: Box<ProgramError>,
    },
    /// The qdisc could not be made.
    #[error("cannot make a clsact qdisc on NIC {nic}")]
    Clsact {
        /// The NIC.
        nic: IfName,
        /// What the kernel said.
        source: Box<TcError>,
    },
    /// A qdisc of kind `ingress` has the place of clsact.
    #[error(
        "NIC {nic} has a qdisc of kind {kind} where clsact belongs, and this kernel has no TCX; replace it by clsact"
    )]
    Qdisc {
        /// The NIC.
        nic: IfName,
        /// What is there.
        kind: String,
    },
    /// A link could not be pinned.
    #[error("cannot pin {}", path.display())]
    Pin {
        /// Where.
        path: PathBuf,
        /// What failed.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The host's namespace.
    #[error("cannot work in the host's network namespace")]
    Netns(#[source] NetnsError),
    /// Netlink.
    #[error("cannot look at NIC {nic}")]
    Netlink {
        /// The NIC.
        nic: IfName,
        /// What the kernel said.
        source: Box<RtnlError>,
    },
}
