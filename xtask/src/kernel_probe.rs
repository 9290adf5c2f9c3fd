//! Whether this kernel makes VLAN links, found out by making one in a namespace of its own.
//!
//! Looking for `/proc/net/vlan` is not enough: it appears only after the module is loaded, and the
//! kernel loads it on the first request where it can.

use anyhow::{Context, Result};
use nix::sched::{CloneFlags, unshare};
use spiderpool_api::value::{Mac, VlanId};
use spiderpool_netops::netns::Netns;
use spiderpool_netops::rtnl::{Rtnl, VethSpec, VlanSpec};

/// `Err` says why not: no root, no namespaces, no veth, no 8021q.
pub(crate) fn vlan_links() -> Result<()> {
    std::thread::scope(|scope| {
        let probe = scope.spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).context("make a network namespace")?;
            tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?
                .block_on(make_one())
        });
        probe
            .join()
            .unwrap_or_else(|_| Err(anyhow::anyhow!("the probe died")))
    })
}

async fn make_one() -> Result<()> {
    let here = Netns::current()?;
    let rtnl = Rtnl::open()?;
    let pair = VethSpec {
        name: "probe0",
        peer: "probe1",
        peer_target: None,
        mac: None,
        peer_mac: None,
    };
    rtnl.add_veth(&pair).await?;
    let parent = rtnl
        .link_by_name("probe0")
        .await?
        .context("the veth is not there")?;
    let mac: Mac = "02:00:00:00:00:01".parse()?;
    let spec = VlanSpec {
        name: "probe2",
        parent: parent.ifindex,
        vlan: VlanId::try_from(1)?,
        mac,
        mtu: parent.mtu,
        target: &here,
    };
    rtnl.add_vlan(&spec).await?;
    rtnl.close().await;
    Ok(())
}
