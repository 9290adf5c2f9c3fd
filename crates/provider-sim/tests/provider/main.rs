//! The provider over HTTP: the real client against the real server, and an API server to publish
//! to.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test states what must hold by them, in its shared code too"
)]

mod clock;
mod cluster;
mod console;
mod contract;
mod faults;
mod pools;
mod process;
mod publication;
mod random;
mod reclaim;
mod restart;
mod rig;
mod room;
mod tls;
mod version1;
