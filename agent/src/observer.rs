//! The observer on the parent NICs: who sends what, by sub-ENI, and whether it may (spec dataplane
//! section 5).
//!
//! Owns the programs and maps in the kernel, their pins below the BPF folder and the names that
//! join a VLAN to its Pod. The only module that uses aya. Nothing here fails a CNI call: what
//! cannot be observed is logged once and shown in the report.

pub(crate) mod attach;
mod bpffs;
pub mod error;
mod events;
mod kernel;
mod load;
mod maps;
mod raw;
mod report;
mod shared;
mod state;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use futures::FutureExt;
use futures::future::BoxFuture;
use spiderpool_api::observer_v1::{DetachReport, ObserverReport, VerifyReport};
use spiderpool_api::value::{IfName, Mac, VlanId};
use tokio::sync::broadcast;

use crate::attachment::Attachment;

pub use events::Observed;
pub use kernel::KernelObserver;
pub use shared::ObserverSettings;

/// Where a sub-ENI is on this node, and for which sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Place {
    /// Parent NIC.
    pub nic: IfName,
    /// VLAN id on it.
    pub vlan: VlanId,
    /// Sandbox: a DEL of an older one leaves the newer one's entry alone.
    pub container_id: String,
}

/// A sub-ENI as the cloud knows it, with its Pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Where it is.
    pub place: Place,
    /// Its MAC.
    pub mac: Mac,
    /// Its IPv4 address.
    pub ipv4: Option<Ipv4Addr>,
    /// Its IPv6 address.
    pub ipv6: Option<Ipv6Addr>,
    /// Gateways, at most one a family.
    pub gateways: Vec<IpAddr>,
    /// Pools of the addresses.
    pub pools: Vec<String>,
    /// UID of the Pod.
    pub pod_uid: String,
    /// Namespace of the Pod.
    pub pod_namespace: String,
    /// Name of the Pod.
    pub pod_name: String,
    /// Interface in the Pod.
    pub ifname: IfName,
}

impl Place {
    /// The place an attachment file names; `None` for what is no sub-ENI.
    #[must_use]
    pub fn of(file: &Attachment) -> Option<Self> {
        Some(Self {
            nic: file.master.clone()?,
            vlan: file.vlan?,
            container_id: file.container_id.clone(),
        })
    }
}

impl Entry {
    /// The entry an attachment file describes; `None` for what is no sub-ENI.
    #[must_use]
    pub fn of(file: &Attachment) -> Option<Self> {
        let addresses = || file.ips.iter().map(|ip| ip.address.addr());
        Some(Self {
            place: Place::of(file)?,
            mac: file.mac?,
            ipv4: addresses().find_map(|ip| match ip {
                IpAddr::V4(ip) => Some(ip),
                IpAddr::V6(_) => None,
            }),
            ipv6: addresses().find_map(|ip| match ip {
                IpAddr::V6(ip) => Some(ip),
                IpAddr::V4(_) => None,
            }),
            gateways: file.ips.iter().filter_map(|ip| ip.gateway).collect(),
            pools: file.ips.iter().map(|ip| ip.pool.clone()).collect(),
            pod_uid: file.pod_uid.clone(),
            pod_namespace: file.pod_namespace.clone(),
            pod_name: file.pod_name.clone(),
            ifname: file.ifname.clone(),
        })
    }
}

/// Reads the entries there shall be, at the moment it is called.
pub type Wanted = Box<dyn FnOnce() -> Vec<Entry> + Send>;

/// The observer as the flows see it. None of the operations fails its caller.
pub trait ObserverOps: Send + Sync {
    /// The address is allocated and the link not yet made: frames are counted and checked from
    /// here on. Attaches to the parent NIC, which has that index, when it is not observed yet.
    fn prepare(&self, entry: Entry, ifindex: u32) -> BoxFuture<'_, ()>;

    /// The Pod's link is configured.
    fn activate<'a>(&'a self, place: &'a Place, gateways: &'a [(IpAddr, Mac)])
    -> BoxFuture<'a, ()>;

    /// DEL has begun.
    fn draining<'a>(&'a self, place: &'a Place) -> BoxFuture<'a, ()>;

    /// The link is gone. An entry that a newer sandbox has taken over stays.
    fn remove<'a>(&'a self, place: &'a Place) -> BoxFuture<'a, ()>;

    /// Attaches to these NICs, as far as they exist, and makes the entries those of `wanted`.
    fn reconcile(&self, nics: Vec<IfName>, wanted: Wanted) -> BoxFuture<'_, ()>;

    /// Everything counted since the attach.
    fn report(&self) -> BoxFuture<'_, ObserverReport>;

    /// What was wrong since the attach.
    fn verify(&self) -> BoxFuture<'_, VerifyReport>;

    /// What the programs tell from now on, with the Pods. Ends with the observer.
    fn events(&self) -> broadcast::Receiver<Observed>;

    /// Takes programs, pins and an empty qdisc of ours away. Nothing is attached again before the
    /// next start.
    fn detach(&self) -> BoxFuture<'_, DetachReport>;
}

/// No observer: switched off, or a test that has nothing to do with it.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoObserver;

/// Text of reports without an observer.
const OFF: &str = "the observer is switched off (--sub-eni-observer)";

impl ObserverOps for NoObserver {
    fn prepare(&self, _entry: Entry, _ifindex: u32) -> BoxFuture<'_, ()> {
        std::future::ready(()).boxed()
    }

    fn activate<'a>(
        &'a self,
        _place: &'a Place,
        _gateways: &'a [(IpAddr, Mac)],
    ) -> BoxFuture<'a, ()> {
        std::future::ready(()).boxed()
    }

    fn draining<'a>(&'a self, _place: &'a Place) -> BoxFuture<'a, ()> {
        std::future::ready(()).boxed()
    }

    fn remove<'a>(&'a self, _place: &'a Place) -> BoxFuture<'a, ()> {
        std::future::ready(()).boxed()
    }

    fn reconcile(&self, _nics: Vec<IfName>, _wanted: Wanted) -> BoxFuture<'_, ()> {
        std::future::ready(()).boxed()
    }

    fn report(&self) -> BoxFuture<'_, ObserverReport> {
        let report = ObserverReport {
            error: Some(OFF.to_owned()),
            ..ObserverReport::default()
        };
        std::future::ready(report).boxed()
    }

    fn verify(&self) -> BoxFuture<'_, VerifyReport> {
        std::future::ready(report::cannot_tell(OFF)).boxed()
    }

    fn events(&self) -> broadcast::Receiver<Observed> {
        let (_ended, events) = broadcast::channel(1);
        events
    }

    fn detach(&self) -> BoxFuture<'_, DetachReport> {
        let report = DetachReport {
            nics: Vec::new(),
            errors: vec![OFF.to_owned()],
        };
        std::future::ready(report).boxed()
    }
}
