//! A kernel in memory: namespaces, masters and VLAN links with the kernel's rules (one VLAN id a
//! master over all namespaces), and a fabric that can hold an address back.

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use nix::errno::Errno;
use spiderpool_agent::nic::{
    Attached, Drops, Family, FunctionError, Holder, HostNic, MasterInfo, NicError, NicOps, NicSpec,
    NicTarget, OpenedTarget, PreflightReport, PreflightResult,
};
use spiderpool_api::value::{IfName, Mac, VlanId};
use spiderpool_netops::netns::{NetnsError, NetnsId};
use spiderpool_netops::rtnl::{Refusal, RtnlError};

#[derive(Default)]
pub(crate) struct FakeNic(Mutex<Kernel>);

#[derive(Default)]
struct Kernel {
    masters: BTreeMap<String, MasterInfo>,
    namespaces: BTreeMap<PathBuf, NetnsId>,
    links: BTreeMap<(NetnsId, String), Link>,
    held_back: HashSet<IpAddr>,
    attaches: usize,
    busy: HashSet<(PathBuf, String)>,
    overlaps: usize,
    delay: Duration,
    panics: bool,
    no_vlan_links: bool,
    drops: Drops,
    functions: BTreeMap<(PathBuf, String), HostNic>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Link {
    pub(crate) master: IfName,
    pub(crate) vlan: VlanId,
    pub(crate) mac: Mac,
    pub(crate) addresses: Vec<String>,
}

impl FakeNic {
    pub(crate) fn add_master(&self, name: &str, mac: &str) {
        let info = MasterInfo {
            ifindex: 2,
            mac: mac.parse().unwrap(),
            permanent_mac: None,
            mtu: 1500,
        };
        self.kernel().masters.insert(name.into(), info);
    }

    pub(crate) fn remove_master(&self, name: &str) {
        let mut kernel = self.kernel();
        kernel.masters.remove(name);
        kernel.links.retain(|_, link| link.master.as_str() != name);
    }

    /// A namespace; the same path again is another namespace, with the identity given.
    pub(crate) fn add_netns(&self, path: &str, inode: u64) {
        let id = NetnsId { dev: 4, inode };
        self.kernel().namespaces.insert(path.into(), id);
    }

    /// The name goes, and with it the namespace and its links.
    pub(crate) fn remove_netns(&self, path: &str) {
        let mut kernel = self.kernel();
        if let Some(id) = kernel.namespaces.remove(Path::new(path)) {
            kernel.links.retain(|(netns, _), _| *netns != id);
        }
    }

    /// The name goes, something keeps the namespace and its links.
    pub(crate) fn leak_netns(&self, path: &str) {
        self.kernel().namespaces.remove(Path::new(path));
    }

    pub(crate) fn delete_link(&self, path: &str, ifname: &str) {
        let mut kernel = self.kernel();
        let id = kernel.namespaces[Path::new(path)];
        kernel.links.remove(&(id, ifname.into()));
    }

    pub(crate) fn rename_link(&self, path: &str, from: &str, to: &str) {
        let mut kernel = self.kernel();
        let id = kernel.namespaces[Path::new(path)];
        let link = kernel.links.remove(&(id, from.into())).unwrap();
        kernel.links.insert((id, to.into()), link);
    }

    pub(crate) fn add_foreign_link(&self, inode: u64, ifname: &str, link: Link) {
        let id = NetnsId { dev: 4, inode };
        self.kernel().links.insert((id, ifname.into()), link);
    }

    pub(crate) fn hold_back(&self, ip: &str) {
        self.kernel().held_back.insert(ip.parse().unwrap());
    }

    pub(crate) fn let_through(&self, ip: &str) {
        self.kernel().held_back.remove(&ip.parse().unwrap());
    }

    pub(crate) fn set_delay(&self, delay: Duration) {
        self.kernel().delay = delay;
    }

    pub(crate) fn panic_on_attach(&self, panics: bool) {
        self.kernel().panics = panics;
    }

    /// The kernel has no 8021q.
    pub(crate) fn refuse_vlan_links(&self, refused: bool) {
        self.kernel().no_vlan_links = refused;
    }

    /// What every NIC has dropped.
    pub(crate) fn set_drops(&self, drops: Drops) {
        self.kernel().drops = drops;
    }

    /// The interface is a virtual function of this NIC.
    pub(crate) fn add_function(&self, path: &str, ifname: &str, host: HostNic) {
        let key = (PathBuf::from(path), ifname.to_owned());
        self.kernel().functions.insert(key, host);
    }

    pub(crate) fn link(&self, path: &str, ifname: &str) -> Option<Link> {
        let kernel = self.kernel();
        let id = kernel.namespaces.get(Path::new(path))?;
        kernel.links.get(&(*id, ifname.into())).cloned()
    }

    pub(crate) fn link_count(&self) -> usize {
        self.kernel().links.len()
    }

    /// Links made, reused ones not counted.
    pub(crate) fn attaches(&self) -> usize {
        self.kernel().attaches
    }

    /// Calls that met another one for the same interface under way.
    pub(crate) fn overlaps(&self) -> usize {
        self.kernel().overlaps
    }

    fn kernel(&self) -> MutexGuard<'_, Kernel> {
        self.0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    async fn take_time(&self) {
        let delay = self.kernel().delay;
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
    }
}

impl Kernel {
    fn netns(&self, path: &Path) -> Result<NetnsId, NicError> {
        self.namespaces.get(path).copied().ok_or_else(|| {
            let source = NetnsError::Gone {
                path: path.to_owned(),
                why: "no such file",
            };
            NicError::NetnsMissing {
                netns: path.to_owned(),
                source,
            }
        })
    }

    fn attach(&mut self, spec: &NicSpec) -> Result<Attached, NicError> {
        assert!(!self.panics, "a bug in the engine");
        let id = self.netns(&spec.netns)?;
        let key = (id, spec.ifname.to_string());
        let wanted = Link {
            master: spec.master.clone(),
            vlan: spec.vlan,
            mac: spec.mac,
            addresses: spec
                .addresses
                .iter()
                .map(|a| a.address.to_string())
                .collect(),
        };
        let same = |link: &Link| link.master == wanted.master && link.vlan == wanted.vlan;
        let reused = match self.links.get(&key) {
            Some(link) if same(link) && link.mac == wanted.mac => true,
            Some(link) => {
                return Err(NicError::NameTaken {
                    ifname: spec.ifname.clone(),
                    netns: spec.netns.clone(),
                    found: format!("VLAN {}", link.vlan),
                });
            }
            None => false,
        };
        if !reused && let Some(((netns, ifname), link)) = self.links.iter().find(|(_, l)| same(l)) {
            let path = self.namespaces.iter().find(|(_, known)| *known == netns);
            let holder = Holder {
                netns: path.map(|(path, _)| path.clone()),
                netns_id: Some(*netns),
                ifname: ifname.clone(),
                ifindex: 9,
                mac: Some(link.mac),
            };
            return Err(NicError::VlanInUse {
                vlan: spec.vlan,
                master: spec.master.clone(),
                holder: Box::new(holder),
            });
        }
        let preflight = self.preflight(spec)?;
        self.attaches += usize::from(!reused);
        self.links.insert(key, wanted);
        Ok(Attached {
            mtu: spec.mtu.unwrap_or(1500),
            gateway_macs: vec![],
            preflight,
            netlink_requests: 9,
            reused,
        })
    }

    fn preflight(&self, spec: &NicSpec) -> Result<Vec<PreflightReport>, NicError> {
        let Some(settings) = spec.preflight else {
            return Ok(vec![]);
        };
        let mut reports = vec![];
        for address in &spec.addresses {
            let ip = address.address.addr();
            let Some(gateway) = address.gateway else {
                continue;
            };
            if self.held_back.contains(&ip) {
                return Err(NicError::PreflightFailed {
                    gateway,
                    ip,
                    mac: spec.mac,
                    vlan: spec.vlan,
                    master: spec.master.clone(),
                    attempts: settings.attempts,
                    timeout: settings.timeout,
                });
            }
            reports.push(PreflightReport {
                family: Family::of(ip),
                result: PreflightResult::Ok,
                attempts: 1,
                duration: Duration::ZERO,
            });
        }
        Ok(reports)
    }

    fn detach(&mut self, target: &NicTarget) -> bool {
        let Some(id) = self.namespaces.get(&target.netns).copied() else {
            return false;
        };
        if target.netns_id.is_some_and(|wanted| wanted != id) {
            return false;
        }
        let key = (id, target.ifname.to_string());
        let is_it = |link: &Link| {
            target.vlan.is_none_or(|vlan| vlan == link.vlan)
                && target.mac.is_none_or(|mac| mac == link.mac)
                && target
                    .master
                    .as_ref()
                    .is_none_or(|master| *master == link.master)
        };
        if self.links.get(&key).is_some_and(is_it) {
            self.links.remove(&key);
            return true;
        }
        false
    }
}

impl NicOps for FakeNic {
    fn check_master<'a>(
        &'a self,
        master: &'a IfName,
        parent_mac: Option<Mac>,
        mtu: Option<u32>,
    ) -> BoxFuture<'a, Result<MasterInfo, NicError>> {
        async move {
            let Some(info) = self.kernel().masters.get(master.as_str()).copied() else {
                return Err(NicError::MasterMissing {
                    master: master.clone(),
                });
            };
            if let Some(expected) = parent_mac.filter(|mac| *mac != info.mac) {
                return Err(NicError::ParentMacMismatch {
                    master: master.clone(),
                    expected,
                    mac: info.mac,
                    permanent: None,
                });
            }
            if let Some(mtu) = mtu.filter(|mtu| *mtu > info.mtu) {
                return Err(NicError::MtuAboveMaster {
                    master: master.clone(),
                    mtu,
                    limit: info.mtu,
                });
            }
            Ok(info)
        }
        .boxed()
    }

    fn probe_vlan(&self) -> BoxFuture<'_, Result<(), NicError>> {
        async move {
            if !self.kernel().no_vlan_links {
                return Ok(());
            }
            let source = RtnlError::Refused {
                tried: "ask whether VLAN links can be made".into(),
                source: Refusal {
                    errno: Errno::EOPNOTSUPP,
                    text: Some("Unknown device type".into()),
                },
            };
            Err(NicError::NoVlanSupport { source })
        }
        .boxed()
    }

    fn open_target<'a>(
        &'a self,
        netns: &'a Path,
        ifname: &'a IfName,
    ) -> BoxFuture<'a, Result<OpenedTarget, NicError>> {
        async move {
            let kernel = self.kernel();
            let netns_id = kernel.netns(netns)?;
            let key = (netns_id, ifname.to_string());
            Ok(OpenedTarget {
                netns_id,
                vlan_link_present: kernel.links.contains_key(&key),
            })
        }
        .boxed()
    }

    fn host_nic<'a>(
        &'a self,
        netns: &'a Path,
        ifname: &'a IfName,
    ) -> BoxFuture<'a, Result<HostNic, FunctionError>> {
        async move {
            let kernel = self.kernel();
            let found = kernel
                .functions
                .get(&(netns.to_owned(), ifname.to_string()));
            found
                .cloned()
                .ok_or_else(|| FunctionError::NoDevice(ifname.clone()))
        }
        .boxed()
    }

    fn attach(&self, spec: NicSpec) -> BoxFuture<'_, Result<Attached, NicError>> {
        async move {
            let key = (spec.netns.clone(), spec.ifname.to_string());
            let alone = self.kernel().busy.insert(key.clone());
            self.kernel().overlaps += usize::from(!alone);
            self.take_time().await;
            self.kernel().busy.remove(&key);
            self.kernel().attach(&spec)
        }
        .boxed()
    }

    fn detach(&self, target: NicTarget) -> BoxFuture<'_, Result<bool, NicError>> {
        async move {
            self.take_time().await;
            Ok(self.kernel().detach(&target))
        }
        .boxed()
    }

    fn evict(&self, holder: Holder) -> BoxFuture<'_, Result<(), NicError>> {
        async move {
            let mut kernel = self.kernel();
            if let Some(id) = holder.netns_id {
                kernel.links.remove(&(id, holder.ifname));
            }
            Ok(())
        }
        .boxed()
    }

    fn check(&self, spec: NicSpec) -> BoxFuture<'_, Result<(), NicError>> {
        async move {
            let kernel = self.kernel();
            let id = kernel.netns(&spec.netns)?;
            let link = kernel.links.get(&(id, spec.ifname.to_string()));
            if link.is_some_and(|link| link.vlan == spec.vlan && link.mac == spec.mac) {
                return Ok(());
            }
            Err(NicError::Drift {
                ifname: spec.ifname.clone(),
                netns: spec.netns.clone(),
                differences: vec!["link: wanted, missing".into()],
            })
        }
        .boxed()
    }

    fn drops(&self, target: NicTarget) -> BoxFuture<'_, Result<Option<Drops>, NicError>> {
        async move {
            let kernel = self.kernel();
            let Ok(id) = kernel.netns(&target.netns) else {
                return Ok(None);
            };
            let there = kernel.links.contains_key(&(id, target.ifname.to_string()));
            Ok(there.then_some(kernel.drops))
        }
        .boxed()
    }
}
