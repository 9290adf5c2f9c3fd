//! The node agent: one brain per node. CNI calls come in over a Unix socket (`api`), `flow` decides
//! with `spiderpool-ipam` and writes through `store`, `nic` touches the kernel.
//!
//! `api` calls `flow`; only `flow` holds store and NIC; only `nic` and `observer` reach
//! the kernel, and only `observer` has unsafe code, in one module.

pub mod agent;
pub mod allocator;
pub mod api;
pub mod attachment;
pub mod clock;
pub mod config;
mod events;
pub mod failpoint;
mod files;
pub mod flow;
pub mod http;
pub mod locks;
pub mod manifests;
pub mod metrics;
pub mod nic;
pub mod observer;
pub mod parent_nic;
pub mod paths;
pub mod run_lock;
pub mod service;
pub mod spool;
pub mod standalone;
pub mod store;
pub mod writer;
