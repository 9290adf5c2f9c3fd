//! The API from outside: a real kube client in process, the requests of kubectl, kills.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test states what must hold by them, in its shared code too"
)]

mod admission;
mod collections;
mod crash;
mod listener;
mod objects;
mod requests;
mod rig;
mod streams;
mod watches;
