//! The fabric: a switch that lets a frame pass only if the cloud bound what it claims to be.
//!
//! [`frame`] reads headers, [`table`] decides (both pure), [`counters`] and [`packets`] remember
//! what was decided, [`ports`] owns the sockets, [`run`] moves the frames. Spec: iaas 15.3. In short:
//!
//! - From a parent NIC: VLAN bound there, source MAC that of the sub-ENI, source address bound.
//! - ARP and Neighbor Solicitations for the gateway are answered here, after the configured delay.
//! - Those *from* the gateway for a bound address are answered here too, from the table and at
//!   once: a cloud router knows its bindings, and a Pod need not be asked.
//! - Questions of one Pod for another are forwarded to the one it asks for, never flooded.
//! - Announcements (gratuitous ARP, unsolicited advertisements) go to the gateway alone, which
//!   updates what it knew of a re-used address.
//! - Other multicast, and the node's own untagged traffic, is taken in and counted, not dropped.

pub mod counters;
pub mod frame;
pub mod packets;
pub mod ports;
pub mod run;
pub mod table;
