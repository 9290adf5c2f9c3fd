//! The creation of the VLAN link, and what is done when its id is in use.

use std::time::Duration;

use nix::errno::Errno;
use spiderpool_netops::rtnl::{Link, VlanSpec};
use tokio::time::{Instant, sleep};

use super::sandbox::{Identity, Sandbox, temporary_name};
use super::{MasterInfo, NicError, NicSpec, holder};
use crate::failpoint::add_step;

/// A namespace that just ended is taken down by a kernel worker some time after its last name and
/// process are gone; until then its links hold their VLAN ids and nothing shows who does.
const UNSEEN_HOLDER_GRACE: Duration = Duration::from_secs(3);
/// Pause between two tries meanwhile.
const UNSEEN_HOLDER_POLL: Duration = Duration::from_millis(20);

/// Makes the link and reads it back for its index. A link that an interrupted attach of the same
/// NIC left is deleted first; any other holder of the VLAN is the caller's decision.
pub(super) async fn create(
    sandbox: &Sandbox<'_>,
    spec: &NicSpec,
    master: &MasterInfo,
    mtu: u32,
) -> Result<Link, NicError> {
    let name = temporary_name(&spec.container_id, &spec.ifname);
    let vlan = VlanSpec {
        name: &name,
        parent: master.ifindex,
        vlan: spec.vlan,
        mac: spec.mac,
        mtu,
        target: &sandbox.netns,
    };
    let failed = |source| NicError::Netlink {
        doing: "creating the VLAN link in the Pod",
        source,
    };
    let give_up = Instant::now() + UNSEEN_HOLDER_GRACE;
    loop {
        match add_step!(Link, sandbox.host.add_vlan(&vlan)) {
            Ok(()) => break,
            Err(error) if error.is_exists() => {}
            Err(error) if error.errno() == Some(Errno::EOPNOTSUPP) => {
                return Err(NicError::NoVlanSupport { source: error });
            }
            Err(error) => return Err(failed(error)),
        }
        match clear_the_way(sandbox, spec, master, &name).await {
            Err(NicError::VlanHolderUnknown { .. }) if Instant::now() < give_up => {
                sleep(UNSEEN_HOLDER_POLL).await;
            }
            cleared => cleared?,
        }
    }
    match sandbox.link(&name).await? {
        Some(link) => Ok(link),
        None => Err(NicError::LinkVanished {
            link: name,
            netns: spec.netns.clone(),
        }),
    }
}

/// After EEXIST: removes what an interrupted attach of this NIC left, else names the holder.
async fn clear_the_way(
    sandbox: &Sandbox<'_>,
    spec: &NicSpec,
    master: &MasterInfo,
    name: &str,
) -> Result<(), NicError> {
    let mine = Identity {
        master: None,
        vlan: Some(spec.vlan),
        mac: Some(spec.mac),
    };
    let left = match sandbox.link(name).await? {
        // Of an attach before its VLAN changed.
        Some(link) => Some(link),
        None => sandbox.unfinished(mine).await?,
    };
    if let Some(link) = left {
        tracing::info!(link = %link.name, netns = %sandbox.netns, "link of an interrupted attach deleted");
        return sandbox.delete(&link).await.map(drop);
    }
    let wanted = holder::Wanted {
        host: sandbox.host_netns,
        master: master.ifindex,
        vlan: spec.vlan,
    };
    let (vlan, master) = (spec.vlan, spec.master.clone());
    match holder::find(wanted, &sandbox.netns).await {
        Some(holder) => Err(NicError::VlanInUse {
            vlan,
            master,
            holder: Box::new(holder),
        }),
        None => Err(NicError::VlanHolderUnknown { vlan, master }),
    }
}
