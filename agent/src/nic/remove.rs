//! Which link a DEL or an eviction deletes. What is not proven to be the one meant stays.

use spiderpool_netops::rtnl::{Link, LinkKind};

use super::sandbox::{Identity, Sandbox};
use super::{Holder, NicError, NicTarget};

/// Deletes the NIC of a DEL, finished or not, if it is the one described.
pub(super) async fn detach(sandbox: &Sandbox<'_>, target: &NicTarget) -> Result<bool, NicError> {
    let identity = Identity {
        master: target.master.as_ref(),
        vlan: target.vlan,
        mac: target.mac,
    };
    let named = sandbox.link(target.ifname.as_str()).await?;
    let link = match named {
        Some(link) => Some(link),
        // Without a VLAN and MAC to compare, nothing proves that a temporary link is this NIC's.
        None if target.vlan.is_some() && target.mac.is_some() => {
            sandbox.unfinished(identity).await?
        }
        None => None,
    };
    match link {
        Some(link) if sandbox.is(&link, identity).await? => sandbox.delete(&link).await,
        Some(link) => {
            tracing::warn!(ifname = %link.name, netns = %sandbox.netns, "link left alone: it is not the NIC to detach");
            Ok(false)
        }
        None => Ok(false),
    }
}

/// Deletes the link that holds a VLAN, if it is still the one found.
pub(super) async fn evict(sandbox: &Sandbox<'_>, holder: &Holder) -> Result<(), NicError> {
    let failed = |source| NicError::Netlink {
        doing: "looking at the link that holds the VLAN",
        source,
    };
    let found = sandbox
        .pod
        .link_by_index(holder.ifindex)
        .await
        .map_err(failed)?;
    let same = |link: &Link| {
        link.kind == LinkKind::Vlan && link.name == holder.ifname && link.mac == holder.mac
    };
    match found.filter(same) {
        Some(link) => sandbox.delete(&link).await.map(drop),
        None => Ok(()),
    }
}
