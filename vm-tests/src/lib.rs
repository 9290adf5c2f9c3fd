//! Runs commands in a User-Mode Linux guest: a kernel of our own as a plain process, with 8021q,
//! ipvlan, bonding and clsact, on hosts whose kernel has none of them.
//!
//! Owns the kernel package ([`kernel`]), the root folder ([`root`]), the boot and its outcome
//! ([`guest`]), and the parser of libtest output ([`libtest`]) that both sides of a test run need.
//! [`lab`] builds clouds in network namespaces, [`control_plane`] runs etcd and kube-apiserver,
//! [`cluster`] puts agents, controller and a provider around them.
//! Products are seen as binaries, sockets and files; only the wire types and netlink are linked.
#![forbid(unsafe_code)]

pub mod cluster;
pub mod console;
pub mod control_plane;
pub mod guest;
pub mod kernel;
pub mod lab;
pub mod libtest;
pub mod mailbox;
pub mod modules;
pub mod pin;
pub mod plan;
pub mod root;

pub use guest::{CommandOutcome, Guest, Outcome, Runner};
pub use plan::GuestCommand;
