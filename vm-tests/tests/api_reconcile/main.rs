//! The controller's reconcilers on a real kube-apiserver, without admission: what they make of objects
//! as users write them, and what they do about others' changes.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "functions that tests share fail as tests do"
)]

mod coordinator;
mod manifests;
mod multus_config;
mod pools;
mod rig;
mod subnets;
mod unreadable;
