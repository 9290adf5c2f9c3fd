//! A link's own counters.

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::LinkAttribute;
use rtnetlink::{LinkMessageBuilder, LinkUnspec};

use super::{GET, Rtnl, RtnlError};

/// What a link has counted since it was made (`IFLA_STATS64`). A VLAN link counts frames as the
/// stack hands them over, with GRO or GSO one for many packets, and received bytes without the
/// Ethernet header.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Frames received.
    pub rx_frames: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Frames sent.
    pub tx_frames: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Received frames dropped: no protocol took them, or there was no room.
    pub rx_dropped: u64,
    /// Frames dropped instead of sent.
    pub tx_dropped: u64,
}

impl Rtnl {
    /// Counters of the link with this name; `None` when there is none.
    ///
    /// # Errors
    /// [`RtnlError`], [`RtnlError::Incomplete`] when the kernel tells no counters.
    pub async fn link_counters(&self, name: &str) -> Result<Option<LinkCounters>, RtnlError> {
        let message = LinkMessageBuilder::<LinkUnspec>::default()
            .name(name)
            .build();
        let tried = || format!("read the counters of link {name}");
        let answers = match self
            .request(RouteNetlinkMessage::GetLink(message), GET, tried)
            .await
        {
            Err(error) if error.is_no_device() => return Ok(None),
            answers => answers?,
        };
        let attributes = answers.into_iter().flat_map(|answer| match answer {
            RouteNetlinkMessage::NewLink(link) => link.attributes,
            _ => Vec::new(),
        });
        let counters = attributes
            .into_iter()
            .find_map(|attribute| match attribute {
                LinkAttribute::Stats64(stats) => Some(LinkCounters {
                    rx_frames: stats.rx_packets,
                    rx_bytes: stats.rx_bytes,
                    tx_frames: stats.tx_packets,
                    tx_bytes: stats.tx_bytes,
                    rx_dropped: stats.rx_dropped,
                    tx_dropped: stats.tx_dropped,
                }),
                _ => None,
            });
        match counters {
            Some(counters) => Ok(Some(counters)),
            None => Err(RtnlError::Incomplete {
                tried: tried(),
                lacks: "the counters",
            }),
        }
    }
}
