//! Which link a DEL or an eviction deletes. What is not proven to be the one meant stays.

use spiderpool_netops::rtnl::{Link, LinkKind};

use super::sandbox::{Identity, Sandbox};
use super::{Holder, NicError, NicTarget};

/// Deletes the NIC of a DEL, finished or not, if it is the one described. Its name may have been
/// changed in the Pod: a link that stayed would keep the VLAN from the next Pod.
pub(super) async fn detach(sandbox: &Sandbox<'_>, target: &NicTarget) -> Result<bool, NicError> {
    let identity = Identity {
        master: target.master.as_ref(),
        vlan: target.vlan,
        mac: target.mac,
    };
    let named = sandbox.link(target.ifname.as_str()).await?;
    if let Some(link) = &named
        && sandbox.is(link, identity).await?
    {
        return sandbox.delete(link).await;
    }
    // Without a VLAN and MAC to compare, nothing proves that a link of another name is this NIC.
    if target.vlan.is_some()
        && target.mac.is_some()
        && let Some(link) = sandbox.by_identity(identity).await?
    {
        return sandbox.delete(&link).await;
    }
    if let Some(link) = named {
        tracing::warn!(ifname = %link.name, netns = %sandbox.netns, "link left alone: it is not the NIC to detach");
    }
    Ok(false)
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
