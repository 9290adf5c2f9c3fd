//! Reconcilers.

pub mod coordinator;
mod finalizer;
pub mod ippool;
pub mod multus_config;
pub mod subnet;
