//! The Kubernetes store against the embedded API, through the same client code a cluster gets.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking, its helpers too"
)]

mod endpoints;
mod identities;
mod node_nics;
mod pods;
mod pools;
mod rig;
mod unreadable;
