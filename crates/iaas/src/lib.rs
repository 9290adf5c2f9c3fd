//! The contract with an IaaS network provider, as its client sees it (spec iaas sections 2, 6, 10).
//!
//! [`config`] reads and judges the settings, [`budget`] says how long a call may take, [`check`]
//! judges an answer (all pure); [`provider`] is the seam, [`client`] calls over HTTP,
//! [`regular_file`] reads what the settings name, `any_certificate` is a verifier that believes. The bodies
//! themselves are in `spiderpool_api::provider`, those of version 1 in [`wire_v1`]. Claims, pools and
//! retries belong to the callers.
#![forbid(unsafe_code)]

#[cfg(feature = "client")]
pub mod any_certificate;
pub mod budget;
pub mod ca;
pub mod check;
#[cfg(feature = "client")]
pub mod client;
pub mod config;
pub mod duration;
pub mod error;
#[cfg(any(test, feature = "fake"))]
pub mod fake;
pub mod provider;
pub mod regular_file;
pub mod wire_v1;
