//! Names, newtypes, wire bodies and resource types of the product.
//!
//! No I/O, no clock, no randomness, no async. Everything that crosses a process border is typed
//! here once and parsed at the edge: a value that exists is a value that is legal.
//!
//! Feature `crd` adds the Kubernetes derives to the resource types; without it the crate needs
//! serde alone and is small enough for the CNI binary.

pub mod agent_v1;
pub mod allocation;
#[cfg(feature = "crd")]
pub mod attachment_definition;
pub mod causes;
pub mod cni;
pub mod cni_conf;
pub mod coordinator;
#[cfg(feature = "crd")]
pub mod crd;
pub mod endpoint;
pub mod ip_meta;
pub mod ippool;
mod lenient;
pub mod miscased;
pub mod multus_config;
pub mod names;
pub mod observer_v1;
pub mod provider;
pub mod public_url;
pub mod reserved_ip;
pub mod selector;
pub mod subnet;
pub mod trace_v1;
pub mod value;
pub mod workload_v1;
