//! Pre-flight and announcement: does the fabric carry this address from this link?
//!
//! [`Probe`] decides when to ask again and when to give up; it is pure and takes the time as a
//! parameter. [`run_arp`] and [`run_ndp`] drive it over a packet socket on one link of one network
//! namespace (spec: dataplane 4.3). The link needs no address: with one the kernel would answer
//! for it before the fabric has been asked. The socket is closed before they return.

mod drive;

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use spiderpool_api::value::Mac;

use crate::arp::{self, ArpPacket, Operation};
use crate::ndp::{self, NdpMessage, NdpPacket};

pub use self::drive::{ProbeError, ProbeReply, announce_arp, announce_ndp, run_arp, run_ndp};

/// Whom to ask for what, in the name of which address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    /// An ARP request for the gateway.
    Arp {
        /// Address of the link.
        link_mac: Mac,
        /// The address under test, sender of the request.
        ip: Ipv4Addr,
        /// Who shall answer.
        gateway: Ipv4Addr,
    },
    /// A Neighbor Solicitation for the gateway.
    Ndp {
        /// Address of the link.
        link_mac: Mac,
        /// The address under test, source of the solicitation.
        ip: Ipv6Addr,
        /// Who shall answer.
        gateway: Ipv6Addr,
    },
}

impl Question {
    /// EtherType of question and answer.
    #[must_use]
    pub const fn ethertype(&self) -> u16 {
        match self {
            Self::Arp { .. } => arp::ETHERTYPE,
            Self::Ndp { .. } => ndp::ETHERTYPE,
        }
    }

    /// The link address the question goes to.
    #[must_use]
    pub const fn destination(&self) -> Mac {
        match self {
            Self::Arp { .. } => Mac::BROADCAST,
            Self::Ndp { gateway, .. } => ndp::multicast_mac(ndp::solicited_node(*gateway)),
        }
    }

    /// The question as it goes behind the Ethernet header.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match *self {
            Self::Arp {
                link_mac,
                ip,
                gateway,
            } => ArpPacket::request(link_mac, ip, gateway).encode(),
            Self::Ndp {
                link_mac,
                ip,
                gateway,
            } => NdpPacket::solicitation(ip, link_mac, gateway).encode(),
        }
    }

    /// The gateway's link address if `payload`, received from `sender`, answers the question.
    ///
    /// ARP: a reply whose sender is the gateway and whose target is our link or our address.
    /// NDP: an advertisement of the gateway to our address; the target link-layer address option
    /// may be missing, then the sender of the frame is the gateway. An announcement to all nodes
    /// answers nobody: it would arrive at a link whose own frames are all dropped.
    #[must_use]
    pub fn answered_by(&self, payload: &[u8], sender: Mac) -> Option<Mac> {
        let link = match *self {
            Self::Arp {
                link_mac,
                ip,
                gateway,
            } => {
                let packet = ArpPacket::decode(payload).ok()?;
                let to_us = packet.tha == link_mac || packet.tpa == ip;
                let answers = packet.operation == Operation::Reply && packet.spa == gateway;
                (answers && to_us).then_some(packet.sha)?
            }
            Self::Ndp { ip, gateway, .. } => {
                let packet = NdpPacket::decode(payload).ok()?;
                let NdpMessage::Advertisement { target_link, .. } = packet.message else {
                    return None;
                };
                let answers = packet.target == gateway && packet.destination == ip;
                answers.then_some(target_link.unwrap_or(sender))?
            }
        };
        link.is_unicast().then_some(link)
    }
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Send the question now.
    Send,
    /// Read frames until then (time since the start).
    WaitUntil(Duration),
    /// All attempts stayed without an answer.
    Exhausted,
}

/// Attempts with a deadline each. Time is what passed since the caller's start.
#[derive(Debug, Clone)]
pub struct Probe {
    attempts: u32,
    timeout: Duration,
    sent: u32,
    deadline: Duration,
}

impl Probe {
    /// `attempts` questions, each with `timeout` for its answer. Zero attempts are exhausted at once.
    #[must_use]
    pub const fn new(attempts: u32, timeout: Duration) -> Self {
        Self {
            attempts,
            timeout,
            sent: 0,
            deadline: Duration::ZERO,
        }
    }

    /// What to do at `now`. A question that could not be sent counts as an attempt: its time
    /// passes as if the answer were missing, so a full queue gets time to drain.
    pub fn step(&mut self, now: Duration) -> Step {
        if now < self.deadline {
            return Step::WaitUntil(self.deadline);
        }
        if self.sent >= self.attempts {
            return Step::Exhausted;
        }
        self.sent += 1;
        self.deadline = now.saturating_add(self.timeout);
        Step::Send
    }

    /// Questions asked so far.
    #[must_use]
    pub const fn sent(&self) -> u32 {
        self.sent
    }
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Arp {
                link_mac,
                ip,
                gateway,
            } => write!(
                f,
                "ARP request for gateway {gateway} from {ip} ({link_mac})"
            ),
            Self::Ndp {
                link_mac,
                ip,
                gateway,
            } => write!(
                f,
                "neighbour solicitation for gateway {gateway} from {ip} ({link_mac})"
            ),
        }
    }
}

#[cfg(test)]
#[path = "probe_tests.rs"]
mod tests;
