//! The verdict on one frame. Pure; see the rules in [`crate::fabric`].

use std::net::{IpAddr, Ipv6Addr};

use spiderpool_api::value::{Mac, VlanId};
use spiderpool_netops::arp::{self, ArpPacket, Operation};
use spiderpool_netops::ndp::{self, NdpMessage, NdpPacket};
use spiderpool_netops::packet::vnet::{TPID_8021Q, VlanTag};

use super::{Entry, Port, Table};
use crate::fabric::counters::{Absorbed, Reason};
use crate::fabric::frame::{self, Content, FrameView};
use crate::topology::BindingState;

/// What happens to a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It goes out of `to` as it is, with that tag.
    Forward {
        /// The other wire (or the same: two Pods of one node).
        to: Port,
        /// VLAN of the receiver on its parent; none towards the gateway.
        vlan: Option<VlanId>,
    },
    /// This frame goes back where the question came from, with its tag.
    Answer(Vec<u8>),
    /// Legitimate, but for nobody.
    Absorb(Absorbed),
    /// Refused.
    Drop(Reason),
}

type Judged = Result<Verdict, Reason>;

impl Table {
    /// Decides on a frame that came in on `from` with `tag` as its outermost tag.
    #[must_use]
    pub fn judge(&self, from: Port, tag: Option<VlanTag>, frame: &FrameView) -> Verdict {
        let judged = match from {
            Port::Gateway => self.judge_gateway(tag, frame),
            Port::Parent(parent) => self.judge_parent(parent, tag, frame),
        };
        judged.unwrap_or_else(Verdict::Drop)
    }

    fn judge_parent(&self, parent: usize, tag: Option<VlanTag>, frame: &FrameView) -> Judged {
        let Some(tag) = tag else {
            return if self.parents.get(parent) == Some(&frame.source) {
                Ok(Verdict::Absorb(Absorbed::UntaggedOwn))
            } else {
                Err(Reason::UntaggedForeignMac)
            };
        };
        let sender = self
            .by_vlan
            .get(&(parent, tag.id()))
            .filter(|_| tag.tpid == TPID_8021Q);
        let sender = sender
            .and_then(|at| self.entries.get(*at))
            .ok_or(Reason::UnknownVlan)?;
        match sender.state {
            BindingState::Bound => {}
            BindingState::Unbound => return Err(Reason::Unbound),
            BindingState::Detaching => return Err(Reason::Detaching),
        }
        if frame.source != sender.mac {
            return Err(Reason::SrcMac);
        }
        match frame.content {
            Content::Arp(packet) => self.judge_arp(sender, frame, &packet),
            Content::Ndp(packet) => self.judge_ndp(sender, frame, &packet),
            Content::Ipv4 {
                source,
                destination,
            } => {
                sender.owns(source.into())?;
                self.not_held([source.into(), destination.into()])?;
                self.deliver(Some(sender), frame.destination)
            }
            Content::Ipv6 {
                source,
                destination,
            } => {
                if speaks_locally(source) && destination.is_multicast() {
                    return Ok(Verdict::Absorb(Absorbed::Multicast));
                }
                sender.owns(source.into())?;
                self.not_held([source.into(), destination.into()])?;
                self.deliver(Some(sender), frame.destination)
            }
            Content::DoubleTag => Err(Reason::DoubleTag),
            Content::OtherProtocol => Err(Reason::Protocol),
            Content::Malformed => Err(Reason::Malformed),
        }
    }

    fn judge_arp(&self, sender: &Entry, frame: &FrameView, packet: &ArpPacket) -> Judged {
        if packet.sha != sender.mac {
            return Err(Reason::SrcMac);
        }
        if packet.spa.is_unspecified() {
            return Err(Reason::ArpUnspecified);
        }
        sender.owns(packet.spa.into())?;
        self.not_held([packet.spa.into(), packet.tpa.into()])?;
        if packet.is_announcement() {
            return Ok(TO_GATEWAY);
        }
        match (
            packet.operation,
            self.gateway_for(sender, packet.tpa.into()),
        ) {
            (Operation::Reply, _) => self.deliver(Some(sender), frame.destination),
            (Operation::Request, Some(mac)) => Ok(answer_arp(packet, mac)),
            (Operation::Request, None) => self.deliver_to_ip(sender, packet.tpa.into()),
        }
    }

    fn judge_ndp(&self, sender: &Entry, frame: &FrameView, packet: &NdpPacket) -> Judged {
        let (claimed_link, asks) = match packet.message {
            NdpMessage::Solicitation { source_link } => (source_link, true),
            NdpMessage::Advertisement { target_link, .. } => (target_link, false),
        };
        if claimed_link.is_some_and(|link| link != sender.mac) {
            return Err(Reason::SrcMac);
        }
        let local_question = asks && self.allow_link_local && speaks_locally(packet.source);
        if !local_question {
            sender.owns(packet.source.into())?;
        }
        self.not_held([packet.source.into(), packet.target.into()])?;
        if asks {
            return self.judge_solicitation(sender, frame, packet);
        }
        // An advertisement binds its target to the sender, whatever its source says.
        sender.owns(packet.target.into())?;
        if packet.destination.is_multicast() {
            return Ok(TO_GATEWAY);
        }
        self.deliver(Some(sender), frame.destination)
    }

    fn judge_solicitation(&self, sender: &Entry, frame: &FrameView, packet: &NdpPacket) -> Judged {
        let target = packet.target.into();
        if let Some(mac) = self.gateway_for(sender, target) {
            return Ok(answer_ndp(frame, packet, mac, Answerer::Router));
        }
        self.deliver_to_ip(sender, target)
            .or_else(|reason| self.unanswered(packet, reason))
    }

    /// A question that finds nobody, and may be meant to.
    fn unanswered(&self, packet: &NdpPacket, reason: Reason) -> Judged {
        if packet.source.is_unspecified() {
            return Ok(Verdict::Absorb(Absorbed::AddressProbe));
        }
        if self.allow_link_local && packet.target.is_unicast_link_local() {
            return Ok(Verdict::Absorb(Absorbed::LinkLocal));
        }
        Err(reason)
    }

    /// The gateway's wire belongs to the cloud: its sources are not doubted.
    fn judge_gateway(&self, tag: Option<VlanTag>, frame: &FrameView) -> Judged {
        if tag.is_some() {
            return Err(Reason::UnknownVlan);
        }
        match frame.content {
            Content::Arp(packet) => {
                self.not_held([packet.spa.into(), packet.tpa.into()])?;
                if packet.is_announcement() {
                    return Ok(Verdict::Absorb(Absorbed::Announcement));
                }
                match packet.operation {
                    Operation::Reply => self.deliver(None, frame.destination),
                    Operation::Request => {
                        Ok(answer_arp(&packet, self.bound(packet.tpa.into())?.mac))
                    }
                }
            }
            Content::Ndp(packet) => self.judge_gateway_ndp(frame, &packet),
            Content::Ipv4 {
                source,
                destination,
            } => {
                self.not_held([source.into(), destination.into()])?;
                self.deliver(None, frame.destination)
            }
            Content::Ipv6 {
                source,
                destination,
            } => {
                self.not_held([source.into(), destination.into()])?;
                self.deliver(None, frame.destination)
            }
            Content::DoubleTag => Err(Reason::DoubleTag),
            Content::OtherProtocol => Err(Reason::Protocol),
            Content::Malformed => Err(Reason::Malformed),
        }
    }

    fn judge_gateway_ndp(&self, frame: &FrameView, packet: &NdpPacket) -> Judged {
        self.not_held([packet.source.into(), packet.target.into()])?;
        match packet.message {
            NdpMessage::Solicitation { .. } => match self.bound(packet.target.into()) {
                Ok(target) => Ok(answer_ndp(frame, packet, target.mac, Answerer::Host)),
                Err(reason) => self.unanswered(packet, reason),
            },
            NdpMessage::Advertisement { .. } if packet.destination.is_multicast() => {
                Ok(Verdict::Absorb(Absorbed::Announcement))
            }
            NdpMessage::Advertisement { .. } => self.deliver(None, frame.destination),
        }
    }

    /// Sends on by Ethernet destination. `sender` is none for the gateway, which reaches every
    /// subnet; a Pod reaches its own and the gateway.
    fn deliver(&self, sender: Option<&Entry>, destination: Mac) -> Judged {
        if !destination.is_unicast() {
            return Ok(Verdict::Absorb(Absorbed::Multicast));
        }
        if let Some(sender) = sender {
            let subnet = self.subnets.get(sender.subnet);
            if subnet.is_some_and(|subnet| subnet.gateway_mac == destination) {
                return Ok(TO_GATEWAY);
            }
        }
        let receiver = self
            .by_mac
            .get(&destination)
            .and_then(|at| self.entries.get(*at));
        forward(sender, receiver)
    }

    /// Sends a question on to whom it asks for.
    fn deliver_to_ip(&self, sender: &Entry, target: IpAddr) -> Judged {
        let receiver = self.by_ip.get(&target).and_then(|at| self.entries.get(*at));
        forward(Some(sender), receiver)
    }

    /// MAC of the gateway, if `target` is the gateway of the sender's subnet.
    fn gateway_for(&self, sender: &Entry, target: IpAddr) -> Option<Mac> {
        let subnet = self.subnets.get(sender.subnet)?;
        subnet.is_gateway(target).then_some(subnet.gateway_mac)
    }

    fn bound(&self, ip: IpAddr) -> Result<&Entry, Reason> {
        let entry = self.by_ip.get(&ip).and_then(|at| self.entries.get(*at));
        let bound = entry.filter(|entry| entry.state == BindingState::Bound);
        bound.ok_or(Reason::DstUnbound)
    }

    fn not_held(&self, addresses: [IpAddr; 2]) -> Result<(), Reason> {
        if addresses.iter().any(|ip| self.held.contains(ip)) {
            Err(Reason::Held)
        } else {
            Ok(())
        }
    }
}

impl Entry {
    fn owns(&self, ip: IpAddr) -> Result<(), Reason> {
        let own = match ip {
            IpAddr::V4(ip) => self.ipv4 == Some(ip),
            IpAddr::V6(ip) => self.ipv6 == Some(ip),
        };
        if own { Ok(()) } else { Err(Reason::SrcIp) }
    }
}

const TO_GATEWAY: Verdict = Verdict::Forward {
    to: Port::Gateway,
    vlan: None,
};

fn forward(sender: Option<&Entry>, receiver: Option<&Entry>) -> Judged {
    let receiver = receiver.ok_or(Reason::DstUnbound)?;
    let reachable = match sender {
        // Two sub-ENIs never share a VLAN of a parent: the same one is the sender itself.
        Some(sender) => sender.subnet == receiver.subnet && sender.mac != receiver.mac,
        None => true,
    };
    if !reachable || receiver.state != BindingState::Bound {
        return Err(Reason::DstUnbound);
    }
    Ok(Verdict::Forward {
        to: Port::Parent(receiver.parent),
        vlan: Some(receiver.vlan),
    })
}

/// Sources that no binding has and Linux uses for its own housekeeping.
const fn speaks_locally(source: Ipv6Addr) -> bool {
    source.is_unspecified() || source.is_unicast_link_local()
}

/// In whose name a solicitation is answered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answerer {
    Router,
    Host,
}

fn answer_arp(question: &ArpPacket, mac: Mac) -> Verdict {
    let payload = question.answer(mac).encode();
    Verdict::Answer(frame::build(question.sha, mac, arp::ETHERTYPE, &payload))
}

/// Answers to the link address of the frame that asked: the packet itself may not name one.
fn answer_ndp(asked: &FrameView, question: &NdpPacket, mac: Mac, kind: Answerer) -> Verdict {
    let answer = question.answer(mac, kind == Answerer::Router);
    let to = if answer.destination.is_multicast() {
        ndp::multicast_mac(answer.destination)
    } else {
        asked.source
    };
    Verdict::Answer(frame::build(to, mac, ndp::ETHERTYPE, &answer.encode()))
}
