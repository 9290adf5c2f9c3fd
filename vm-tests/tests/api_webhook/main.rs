//! Admission as users meet it: objects created, changed and deleted on a real API server that asks
//! real controllers.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "functions that tests share fail as tests do"
)]

mod balancer;
mod manifests;
mod overlap;
mod rig;
mod rollout;
mod rotation;
mod rules;
