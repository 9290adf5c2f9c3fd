//! Whether this kernel makes VLAN links, found out without making one.

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::InfoKind;
use nix::errno::Errno;
use rtnetlink::{LinkMessageBuilder, LinkUnspec};

use super::{CREATE, Rtnl, RtnlError};

/// Never exists: the request that carries it is refused.
const NAME: &str = "spvlanprobe0";

impl Rtnl {
    /// Asks for a VLAN link without an id. A kernel with 8021q (loaded by this request where it is
    /// a module) refuses that as invalid; `EOPNOTSUPP` is the answer of one without, the same that
    /// [`Rtnl::add_vlan`] would meet.
    ///
    /// # Errors
    /// [`RtnlError`] with `EOPNOTSUPP`, or what kept it from asking, such as `EPERM`.
    pub async fn probe_vlan(&self) -> Result<(), RtnlError> {
        let link = LinkMessageBuilder::<LinkUnspec>::new_with_info_kind(InfoKind::Vlan).name(NAME);
        let message = RouteNetlinkMessage::NewLink(link.build());
        let tried = || "ask whether VLAN links can be made".to_owned();
        match self.acknowledged(message, CREATE, tried).await {
            Err(error) if error.errno() == Some(Errno::EINVAL) => Ok(()),
            answered => answered,
        }
    }
}
