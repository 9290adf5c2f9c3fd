//! Reconcilers: what keeps the API's objects true over time. One of them must run per cluster; a
//! standalone node runs them in the agent's process.
//!
//! Owns the status fields the specification gives to the controller and our finalizers. Decides
//! with `spiderpool-ipam`; never touches a record.
#![forbid(unsafe_code)]

pub mod client;
pub mod reconcile;
