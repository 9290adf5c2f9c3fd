//! The controller of a cluster: what keeps the API's objects true over time (`reconcile`), as `tasks`
//! that one process of a cluster runs at a time or that every replica runs. A standalone node runs
//! them in the agent's process. And what agent and controller share: settings, clients, clocks.
//!
//! Owns the status fields the specification gives to the controller and our finalizers. Decides
//! with `spiderpool-ipam`.
#![forbid(unsafe_code)]

pub mod certificates;
pub mod chain;
pub mod client;
pub mod clock;
pub mod complaints;
pub mod conf_file;
pub mod config;
pub mod connect;
pub mod effectless;
pub mod election;
pub mod events;
pub mod followed;
pub mod gc;
pub mod health;
pub mod http;
pub mod identities;
pub mod listeners;
pub mod metrics;
pub mod objects;
mod pool_metrics;
pub mod process;
pub mod reconcile;
pub mod run;
pub mod tasks;
pub mod watched;
pub mod webhook;

pub use spiderpool_iaas::regular_file;
