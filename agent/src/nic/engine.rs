//! [`KernelNic`]: the NIC operations over netlink, in the order the data plane's spec gives.
//!
//! Owns the order of steps and their undo. One RTM_NEWLINK makes the VLAN link, with its MAC,
//! straight in the Pod; it is down and has a temporary name until sysctls are set, then one
//! RTM_SETLINK renames it and sets it up. Every failure after the creation deletes it again.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::FutureExt;
use futures::future::BoxFuture;
use nix::errno::Errno;
use spiderpool_api::causes::with_causes;
use spiderpool_api::value::{IfName, Mac};
use spiderpool_netops::netns::{Netns, NetnsError};
use spiderpool_netops::rtnl::{Link, LinkCounters, LinkKind, Rtnl};
use spiderpool_netops::sysctl::Sysctls;

use super::sandbox::{Identity, Sandbox};
use super::{
    Attached, Drops, FunctionError, Holder, HostNic, MasterInfo, NicError, NicOps, NicSpec,
    NicTarget, OpenedTarget, check, create, function, layer3, parent, preflight, remove,
};
use crate::failpoint::add_step;

/// NIC operations in the kernel. Needs CAP_NET_ADMIN, CAP_NET_RAW and CAP_SYS_ADMIN.
#[derive(Debug, Clone)]
pub struct KernelNic {
    pub(super) host: Netns,
    sysctls: Sysctls,
    /// VLAN links could be made once; a module in use does not go away.
    vlan_links: Arc<AtomicBool>,
}

impl KernelNic {
    /// With the parent NICs in the calling thread's namespace and sysctls in `/proc/sys`.
    ///
    /// # Errors
    /// [`NetnsError`] without procfs.
    pub fn new() -> Result<Self, NetnsError> {
        Ok(Self::over(Netns::current()?, Sysctls::default()))
    }

    /// With the parent NICs in `host`.
    #[must_use]
    pub fn over(host: Netns, sysctls: Sysctls) -> Self {
        Self {
            host,
            sysctls,
            vlan_links: Arc::default(),
        }
    }

    async fn check_master_now(
        &self,
        master: &IfName,
        parent_mac: Option<Mac>,
        mtu: Option<u32>,
    ) -> Result<MasterInfo, NicError> {
        let host = self.open_host().await?;
        let found = parent::find(&host, master).await;
        host.close().await;
        let found = found?;
        parent::require_mac(master, &found, parent_mac)?;
        parent::effective_mtu(master, &found, mtu)?;
        Ok(found)
    }

    /// One netlink request, until it has succeeded once: `modprobe` then helps at once.
    async fn probe_vlan_now(&self) -> Result<(), NicError> {
        if self.vlan_links.load(Ordering::Relaxed) {
            return Ok(());
        }
        let host = self.open_host().await?;
        let probed = host.probe_vlan().await;
        host.close().await;
        probed.map_err(|source| match source.errno() {
            Some(Errno::EOPNOTSUPP) => NicError::NoVlanSupport { source },
            _ => NicError::Netlink {
                doing: "asking for VLAN links",
                source,
            },
        })?;
        self.vlan_links.store(true, Ordering::Relaxed);
        Ok(())
    }

    pub(super) async fn open_host(&self) -> Result<Rtnl, NicError> {
        let failed = |source| NicError::Netlink {
            doing: "opening a netlink socket on the host",
            source,
        };
        Rtnl::open_in(&self.host).await.map_err(failed)
    }

    async fn open_target_now(
        &self,
        netns: &Path,
        ifname: &IfName,
    ) -> Result<OpenedTarget, NicError> {
        let sandbox = Sandbox::open(&self.host, netns).await?;
        let found = sandbox.link(ifname.as_str()).await;
        let netns_id = sandbox.netns.id();
        sandbox.close().await;
        match found? {
            Some(link) if link.kind != LinkKind::Vlan => Err(name_taken(ifname, netns, &link)),
            link => Ok(OpenedTarget {
                netns_id,
                vlan_link_present: link.is_some(),
            }),
        }
    }

    async fn attach_now(&self, spec: &NicSpec) -> Result<Attached, NicError> {
        let sandbox = Sandbox::open(&self.host, &spec.netns).await?;
        let attached = self.attach_in(&sandbox, spec).await;
        let netlink_requests = sandbox.requests();
        sandbox.close().await;
        Ok(Attached {
            netlink_requests,
            ..attached?
        })
    }

    async fn attach_in(&self, sandbox: &Sandbox<'_>, spec: &NicSpec) -> Result<Attached, NicError> {
        let master = parent::find(&sandbox.host, &spec.master).await?;
        parent::require_mac(&spec.master, &master, spec.parent_mac)?;
        parent::require_own_mac(&spec.master, &master, spec.mac)?;
        let mtu = parent::effective_mtu(&spec.master, &master, spec.mtu)?;
        let present = sandbox.link(spec.ifname.as_str()).await?;
        let reused = present.is_some();
        let link = match present {
            Some(link) if is_the_nic(sandbox, spec, &link, &master).await? => link,
            Some(link) => return Err(name_taken(&spec.ifname, &spec.netns, &link)),
            None => create::create(sandbox, spec, &master, mtu).await?,
        };
        match self.finish(sandbox, spec, link.clone(), mtu).await {
            Ok(attached) => Ok(Attached { reused, ..attached }),
            Err(first) => Err(undo(sandbox, &link, first).await),
        }
    }

    /// Everything after the link is there.
    async fn finish(
        &self,
        sandbox: &Sandbox<'_>,
        spec: &NicSpec,
        mut link: Link,
        mtu: u32,
    ) -> Result<Attached, NicError> {
        let failed = |doing| move |source| NicError::Netlink { doing, source };
        add_step!(
            Sysctl,
            layer3::harden(&self.sysctls, &sandbox.netns, &link.name)
        )?;
        if link.mtu != mtu {
            sandbox
                .pod
                .set_mtu(link.ifindex, mtu)
                .await
                .map_err(failed("setting the MTU"))?;
        }
        if link.name != spec.ifname.as_str() {
            let name = spec.ifname.as_str();
            let renamed = add_step!(RenameUp, sandbox.pod.rename_and_up(link.ifindex, name));
            renamed.map_err(failed("giving the link its name"))?;
            name.clone_into(&mut link.name);
        } else if !link.up {
            sandbox
                .pod
                .set_up(link.ifindex)
                .await
                .map_err(failed("setting the link up"))?;
        }
        let passed = match spec.preflight {
            Some(settings) => add_step!(
                Preflight,
                preflight::validate(&sandbox.netns, link.ifindex, spec, settings)
            )?,
            None => Vec::new(),
        };
        layer3::configure(&self.sysctls, &sandbox.netns, &sandbox.pod, &link, spec).await?;
        add_step!(Announce, layer3::announce(&sandbox.netns, &link, spec));
        Ok(Attached {
            mtu,
            gateway_macs: passed.iter().filter_map(|family| family.gateway).collect(),
            preflight: passed.into_iter().map(|family| family.report).collect(),
            netlink_requests: 0,
            reused: false,
        })
    }

    async fn detach_now(&self, target: &NicTarget) -> Result<bool, NicError> {
        let sandbox = match Sandbox::open(&self.host, &target.netns).await {
            Ok(sandbox) => sandbox,
            Err(NicError::NetnsMissing { .. }) => return Ok(false),
            Err(error) => return Err(error),
        };
        let another_sandbox = target.netns_id.is_some_and(|id| id != sandbox.netns.id());
        let deleted = if another_sandbox {
            Ok(false)
        } else {
            remove::detach(&sandbox, target).await
        };
        sandbox.close().await;
        deleted
    }

    async fn evict_now(&self, holder: &Holder) -> Result<(), NicError> {
        let path = holder
            .netns
            .clone()
            .unwrap_or_else(|| PathBuf::from("(unknown)"));
        let sandbox = match Sandbox::open(&self.host, &path).await {
            Ok(sandbox) => sandbox,
            Err(NicError::NetnsMissing { .. }) if holder.netns.is_some() => return Ok(()),
            Err(error) => return Err(error),
        };
        let same = holder.netns_id.is_none_or(|id| id == sandbox.netns.id());
        let evicted = if !same {
            Ok(())
        } else if sandbox.netns.id() == self.host.id() {
            Err(NicError::HolderIsHost {
                ifname: holder.ifname.clone(),
            })
        } else {
            remove::evict(&sandbox, holder).await
        };
        sandbox.close().await;
        evicted
    }

    async fn drops_now(&self, target: &NicTarget) -> Result<Option<Drops>, NicError> {
        let netns = match Netns::open(&target.netns) {
            Err(error) if error.is_gone() => return Ok(None),
            opened => opened.map_err(|error| NicError::netns(error, &target.netns))?,
        };
        if target.netns_id.is_some_and(|id| id != netns.id()) {
            return Ok(None);
        }
        let failed = |source| NicError::Netlink {
            doing: "reading the counters of the NIC",
            source,
        };
        let pod = Rtnl::open_in(&netns).await.map_err(failed)?;
        let counters = pod.link_counters(target.ifname.as_str()).await;
        pod.close().await;
        let drops = |counters: LinkCounters| Drops {
            rx: counters.rx_dropped,
            tx: counters.tx_dropped,
        };
        Ok(counters.map_err(failed)?.map(drops))
    }

    async fn check_now(&self, spec: &NicSpec) -> Result<(), NicError> {
        let sandbox = Sandbox::open(&self.host, &spec.netns).await?;
        let checked = check::compare(&sandbox, spec).await;
        sandbox.close().await;
        checked
    }
}

impl NicOps for KernelNic {
    fn check_master<'a>(
        &'a self,
        master: &'a IfName,
        parent_mac: Option<Mac>,
        mtu: Option<u32>,
    ) -> BoxFuture<'a, Result<MasterInfo, NicError>> {
        self.check_master_now(master, parent_mac, mtu).boxed()
    }

    fn probe_vlan(&self) -> BoxFuture<'_, Result<(), NicError>> {
        self.probe_vlan_now().boxed()
    }

    fn open_target<'a>(
        &'a self,
        netns: &'a Path,
        ifname: &'a IfName,
    ) -> BoxFuture<'a, Result<OpenedTarget, NicError>> {
        self.open_target_now(netns, ifname).boxed()
    }

    fn host_nic<'a>(
        &'a self,
        netns: &'a Path,
        ifname: &'a IfName,
    ) -> BoxFuture<'a, Result<HostNic, FunctionError>> {
        function::find(&self.host, Path::new(function::PCI_DEVICES), netns, ifname).boxed()
    }

    fn attach(&self, spec: NicSpec) -> BoxFuture<'_, Result<Attached, NicError>> {
        async move { self.attach_now(&spec).await }.boxed()
    }

    fn detach(&self, target: NicTarget) -> BoxFuture<'_, Result<bool, NicError>> {
        async move { self.detach_now(&target).await }.boxed()
    }

    fn evict(&self, holder: Holder) -> BoxFuture<'_, Result<(), NicError>> {
        async move { self.evict_now(&holder).await }.boxed()
    }

    fn check(&self, spec: NicSpec) -> BoxFuture<'_, Result<(), NicError>> {
        async move { self.check_now(&spec).await }.boxed()
    }

    fn drops(&self, target: NicTarget) -> BoxFuture<'_, Result<Option<Drops>, NicError>> {
        async move { self.drops_now(&target).await }.boxed()
    }
}

/// Whether a link that has the name already is this NIC.
async fn is_the_nic(
    sandbox: &Sandbox<'_>,
    spec: &NicSpec,
    link: &Link,
    master: &MasterInfo,
) -> Result<bool, NicError> {
    let identity = Identity {
        master: None,
        vlan: Some(spec.vlan),
        mac: Some(spec.mac),
    };
    Ok(sandbox.is(link, identity).await? && sandbox.is_under(link, master.ifindex).await?)
}

/// Deletes the link after a failure; keeps both errors when that fails too.
async fn undo(sandbox: &Sandbox<'_>, link: &Link, first: NicError) -> NicError {
    match sandbox.delete(link).await {
        Ok(_gone_or_deleted) => first,
        Err(undo) => NicError::UndoFailed {
            first: Box::new(first),
            undo: with_causes(&undo),
            link: link.name.clone(),
            netns: sandbox.netns.path().to_owned(),
        },
    }
}

fn name_taken(ifname: &IfName, netns: &Path, link: &Link) -> NicError {
    let kind = match &link.kind {
        LinkKind::Device => "a device",
        LinkKind::Vlan => "a VLAN link",
        LinkKind::Other(kind) => kind.as_str(),
    };
    let vlan = link
        .vlan
        .map(|vlan| format!(" with id {vlan}"))
        .unwrap_or_default();
    let mac = link
        .mac
        .map(|mac| format!(" and MAC {mac}"))
        .unwrap_or_default();
    NicError::NameTaken {
        ifname: ifname.clone(),
        netns: netns.to_owned(),
        found: format!("{kind}{vlan}{mac}"),
    }
}
