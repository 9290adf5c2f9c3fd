//! The packet log: the last frames of all wires with what became of them, if the topology asks for
//! it (`packetLog`). Memory only; costs nothing while it is off.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use spiderpool_api::value::Mac;
use spiderpool_netops::packet::vnet::VlanTag;

use super::counters::{Absorbed, Reason};
use super::frame::{Content, FrameView};

/// A frame as it came in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Seen {
    /// Where it came from: `gateway` or the parent's MAC.
    pub port: String,
    /// Its VLAN, if tagged.
    pub vlan: Option<u16>,
    /// Ethernet source; none if the frame is too short for it.
    pub src_mac: Option<Mac>,
    /// Ethernet destination.
    pub dst_mac: Option<Mac>,
    /// Address of the sender, as far as it was read.
    pub src_ip: Option<IpAddr>,
    /// Address of the receiver or target.
    pub dst_ip: Option<IpAddr>,
}

impl Seen {
    /// Describes what a wire brought.
    #[must_use]
    pub fn new(port: String, tag: Option<VlanTag>, view: Option<&FrameView>) -> Self {
        let (src_ip, dst_ip) = match view.map(|view| view.content) {
            Some(Content::Arp(packet)) => (Some(packet.spa.into()), Some(packet.tpa.into())),
            Some(Content::Ndp(packet)) => (Some(packet.source.into()), Some(packet.target.into())),
            Some(Content::Ipv4 {
                source,
                destination,
            }) => (Some(source.into()), Some(destination.into())),
            Some(Content::Ipv6 {
                source,
                destination,
            }) => (Some(source.into()), Some(destination.into())),
            _ => (None, None),
        };
        Self {
            port,
            vlan: tag.map(VlanTag::id),
            src_mac: view.map(|view| view.source),
            dst_mac: view.map(|view| view.destination),
            src_ip,
            dst_ip,
        }
    }
}

/// What became of a frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "fate", content = "detail")]
pub enum Fate {
    /// It went out on that wire.
    Forwarded(String),
    /// The fabric answers it, perhaps later.
    Answered,
    /// Taken in: nobody was to receive it.
    Absorbed(Absorbed),
    /// Against the rules.
    Dropped(Reason),
    /// The receiving wire took no more.
    Lost,
}

/// One entry of the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Packet {
    /// Milliseconds since the start of the fabric.
    pub time_ms: u64,
    /// The frame.
    #[serde(flatten)]
    pub frame: Seen,
    /// What became of it.
    #[serde(flatten)]
    pub fate: Fate,
}

/// The last entries.
#[derive(Debug)]
pub struct PacketLog {
    limit: usize,
    kept: Mutex<VecDeque<Packet>>,
}

impl PacketLog {
    /// Keeps `limit` frames; 0: none.
    #[must_use]
    pub const fn new(limit: usize) -> Self {
        Self {
            limit,
            kept: Mutex::new(VecDeque::new()),
        }
    }

    /// Whether frames are kept at all.
    #[must_use]
    pub const fn is_on(&self) -> bool {
        self.limit > 0
    }

    /// Keeps a frame; the oldest one gives way.
    pub fn note(&self, at: Duration, frame: Seen, fate: Fate) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        while kept.len() >= self.limit.max(1) {
            kept.pop_front();
        }
        kept.push_back(Packet {
            time_ms: u64::try_from(at.as_millis()).unwrap_or(u64::MAX),
            frame,
            fate,
        });
    }

    /// All that are kept, oldest first.
    #[must_use]
    pub fn all(&self) -> Vec<Packet> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_frames_are_kept_and_shown_flat() {
        let log = PacketLog::new(2);
        for at in 0..3 {
            let fate = match at {
                0 => Fate::Answered,
                1 => Fate::Dropped(Reason::SrcMac),
                _ => Fate::Forwarded("gateway".to_owned()),
            };
            let seen = Seen::new("p".to_owned(), Some(VlanTag::customer(7)), None);
            log.note(Duration::from_millis(at), seen, fate);
        }
        let shown = serde_json::to_value(log.all()).unwrap();
        assert_eq!(shown.as_array().unwrap().len(), 2);
        assert_eq!(
            (&shown[0]["fate"], &shown[0]["detail"], &shown[0]["vlan"]),
            (&"dropped".into(), &"src_mac".into(), &7.into())
        );
        assert_eq!(shown[1]["timeMs"], 2);
        assert!(log.is_on() && !PacketLog::new(0).is_on());
    }
}
