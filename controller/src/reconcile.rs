//! Reconcilers.

mod agenda;
pub mod coordinator;
pub mod finalizer;
pub mod ippool;
pub mod multus_config;
pub mod subnet;
