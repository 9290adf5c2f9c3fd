//! The flows against the store in memory and a kernel in memory: refusals and what they leave,
//! concurrency, and the cases that users reported.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on fails, in its helpers too"
)]

mod add;
mod ahead;
mod batch_del;
mod cases;
mod concurrency;
mod del;
mod error_kinds;
mod events;
mod fake_nic;
mod generation_1;
mod http;
mod identities;
mod log;
mod machines;
mod metrics;
mod observer;
mod provider;
mod provider_failures;
mod provider_release;
mod refusals;
mod reservations;
mod server;
mod trace;
mod verbs;
mod world;
