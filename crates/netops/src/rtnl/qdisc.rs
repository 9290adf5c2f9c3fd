//! The qdisc that classifiers of both directions hang on: looked up, counted, deleted when empty.

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage};

use super::{CHANGE, DUMP, Rtnl, RtnlError};

/// Handle of `clsact` and `ingress`, of which a link has at most one.
const HANDLE: TcHandle = TcHandle {
    major: 0xffff,
    minor: 0,
};

/// Where a filter hangs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hook {
    /// Received frames.
    Ingress,
    /// Sent frames.
    Egress,
}

/// A filter on a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Filter {
    /// Lower ones come first.
    pub priority: u32,
    /// Tells it from others of the priority.
    pub handle: u32,
}

impl Rtnl {
    /// Kind of the qdisc that has the place of `clsact` on a link: that, or `ingress`.
    ///
    /// # Errors
    /// [`RtnlError`].
    pub async fn ingress_qdisc(&self, ifindex: u32) -> Result<Option<String>, RtnlError> {
        let tried = || format!("list the qdiscs of link {ifindex}");
        let message = RouteNetlinkMessage::GetQueueDiscipline(message(ifindex));
        let answers = self.request(message, DUMP, tried).await?;
        // Older kernels list those of all links.
        Ok(answers.into_iter().find_map(|answer| match answer {
            RouteNetlinkMessage::NewQueueDiscipline(qdisc)
                if u32::try_from(qdisc.header.index) == Ok(ifindex)
                    && qdisc.header.handle == HANDLE =>
            {
                qdisc
                    .attributes
                    .into_iter()
                    .find_map(|attribute| match attribute {
                        TcAttribute::Kind(kind) => Some(kind),
                        _ => None,
                    })
            }
            _ => None,
        }))
    }

    /// Filters on the `clsact` qdisc of a link.
    ///
    /// # Errors
    /// [`RtnlError`], `EINVAL` when there is no qdisc.
    pub async fn filters(&self, ifindex: u32, hook: Hook) -> Result<Vec<Filter>, RtnlError> {
        let mut request = message(ifindex);
        request.header.parent = TcHandle {
            major: HANDLE.major,
            minor: match hook {
                Hook::Ingress => TcHandle::MIN_INGRESS,
                Hook::Egress => TcHandle::MIN_EGRESS,
            },
        };
        let tried = || format!("list the filters of link {ifindex}");
        let message = RouteNetlinkMessage::GetTrafficFilter(request);
        let answers = self.request(message, DUMP, tried).await?;
        let filters = answers.into_iter().filter_map(|answer| match answer {
            RouteNetlinkMessage::NewTrafficFilter(filter) => Some(Filter {
                priority: filter.header.info >> 16,
                handle: filter.header.handle.into(),
            }),
            _ => None,
        });
        // Each priority has an entry of its own, without a handle.
        Ok(filters.filter(|filter| filter.handle != 0).collect())
    }

    /// Deletes the `clsact` qdisc of a link, with every filter on it.
    ///
    /// # Errors
    /// [`RtnlError`], `ENOENT` or `EINVAL` when there is none.
    pub async fn delete_clsact(&self, ifindex: u32) -> Result<(), RtnlError> {
        let mut request = message(ifindex);
        request.header.handle = HANDLE;
        request.header.parent = TcHandle::CLSACT;
        let tried = || format!("delete the clsact qdisc of link {ifindex}");
        let message = RouteNetlinkMessage::DelQueueDiscipline(request);
        self.acknowledged(message, CHANGE, tried).await
    }
}

/// An index the kernel cannot have becomes one it has not.
fn message(ifindex: u32) -> TcMessage {
    TcMessage::with_index(i32::try_from(ifindex).unwrap_or(i32::MAX))
}
