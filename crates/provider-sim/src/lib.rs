//! A simulated cloud for tests and demonstrations.
//!
//! So far its fabric: the switch between the parent NICs of the nodes and the gateway, which
//! carries a sub-ENI's frames only if VLAN, MAC and address are bound and says why it dropped the
//! others. The topology types are public, so that whoever builds the links can write the file.
//! Talks to nothing outside its own network namespace but the loopback listener of [`admin`].
pub mod admin;
pub mod allocate;
pub mod answer;
pub mod audit;
pub mod bucket;
pub mod cloud;
pub mod console;
pub mod contract;
pub mod door;
pub mod engine;
pub mod fabric;
pub mod faults;
pub mod locks;
pub mod memory;
pub mod pool;
pub mod pool_watch;
pub mod prewarm;
pub mod publish;
pub mod publisher;
pub mod ranges;
pub mod reclaim;
pub mod records;
pub mod refusal;
pub mod release;
pub mod serve;
pub mod service;
pub mod settings;
pub mod tls;
pub mod topology;
