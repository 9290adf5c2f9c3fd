//! Scenarios of IaaS pools on a real API server: settings of agents and controller, what admission
//! lets through, and what is published (spec iaas 16, 1-4, 7-13 and 16-19). The name of a test begins
//! with the number of its scenario.
#![expect(
    clippy::unwrap_used,
    reason = "functions that tests share fail as tests do"
)]

mod admission;
mod config;
mod metadata;
mod published;
