//! `provider verify` as a process against the simulated provider: it passes when the simulator keeps
//! the contract, and each way to break the contract fails its own checks and no other.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test states what must hold by them, in its shared code too"
)]

mod breakage;
mod clauses;
mod cluster;
mod command;
mod rig;
mod topology;
mod trouble;
