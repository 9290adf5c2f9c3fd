//! A simulated cloud for tests and demonstrations.
//!
//! Three parts that know of each other what they would in a real one:
//!
//! - the **cloud**'s table ([`cloud`], [`engine`]): sub-ENIs and what they are attached to;
//! - the **provider** ([`contract`], [`allocate`], [`release`], [`prewarm`], [`reclaim`]) with a
//!   [`memory`] of its own, which it may lose, and what it writes into pools ([`publisher`]);
//! - the **fabric** ([`fabric`]): the switch between parent NICs and gateway, which carries a
//!   sub-ENI's frames only if VLAN, MAC and address are bound.
//!
//! [`faults`] on demand, the operator's side is [`console`]. Spec: iaas 15; how to use it:
//! docs/provider-sim.md. Talks to the API server it is given and to whoever calls its listeners.
pub mod admin;
pub mod allocate;
pub mod answer;
pub mod asked;
pub mod audit;
pub mod bucket;
pub mod cloud;
pub mod connection;
pub mod console;
pub mod contract;
pub mod door;
pub mod engine;
pub mod fabric;
pub mod faults;
pub mod finalizers;
pub mod forwarding;
pub mod locks;
pub mod memory;
pub mod pairs;
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
pub mod restart;
pub mod serve;
pub mod service;
pub mod settings;
pub mod state_file;
pub mod tls;
pub mod tls_secret;
pub mod topology;
