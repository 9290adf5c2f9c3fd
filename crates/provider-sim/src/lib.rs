//! A simulated cloud for tests and demonstrations.
//!
//! So far its fabric: the switch between the parent NICs of the nodes and the gateway, which
//! carries a sub-ENI's frames only if VLAN, MAC and address are bound and says why it dropped the
//! others. The topology types are public, so that whoever builds the links can write the file.
//! Talks to nothing outside its own network namespace but the loopback listener of [`admin`].
pub mod admin;
pub mod fabric;
pub mod publish;
pub mod topology;
