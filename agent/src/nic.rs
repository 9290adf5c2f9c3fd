//! The NIC of a Pod: what the flows ask for, and what they get back.
//!
//! Owns the seam [`NicOps`] between the flows and the kernel and, below it, the kernel
//! implementation [`KernelNic`]. May touch `netops` only: no store, no provider, no files but
//! namespace files and sysctls. IPAM, records and undo of a claim are the flows' business.

mod check;
mod create;
mod engine;
pub mod error;
mod function;
mod holder;
mod host;
mod layer3;
mod parent;
mod preflight;
mod remove;
mod sandbox;

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::future::BoxFuture;
use ipnet::IpNet;
use spiderpool_api::value::{IfName, Mac, VlanId};
use spiderpool_netops::netns::NetnsId;

pub use engine::KernelNic;
pub use error::NicError;
pub use function::{FunctionError, HostNic};

/// One NIC as it shall be in the Pod.
#[derive(Debug, Clone)]
pub struct NicSpec {
    /// Sandbox the runtime asks for.
    pub container_id: String,
    /// Name in the Pod.
    pub ifname: IfName,
    /// The Pod's namespace (`CNI_NETNS`).
    pub netns: PathBuf,
    /// Parent NIC on the host.
    pub master: IfName,
    /// VLAN id of the sub-ENI on that parent.
    pub vlan: VlanId,
    /// MAC of the sub-ENI.
    pub mac: Mac,
    /// `None` (or 0): the parent's.
    pub mtu: Option<u32>,
    /// MAC the cloud knows the parent by, if the allocation says it.
    pub parent_mac: Option<Mac>,
    /// Addresses with host bits; at most one gateway per family is validated.
    pub addresses: Vec<NicAddress>,
    /// Routes besides the connected ones.
    pub routes: Vec<NicRoute>,
    /// Validation against the fabric; `None`: off.
    pub preflight: Option<Preflight>,
}

/// An address of the NIC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NicAddress {
    /// Address and prefix length; host bits are kept.
    pub address: IpNet,
    /// Gateway of its subnet, if any.
    pub gateway: Option<IpAddr>,
}

/// A route of the NIC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NicRoute {
    /// Destination.
    pub dst: IpNet,
    /// Next hop; `None`: the family's gateway, and without one on-link.
    pub gw: Option<IpAddr>,
}

/// How to validate (IP, MAC, VLAN) against the fabric before the Pod starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preflight {
    /// Requests per family before it fails.
    pub attempts: u32,
    /// Wait for the answer to each.
    pub timeout: Duration,
}

/// The NIC a DEL is about. What is `None` is not compared.
#[derive(Debug, Clone)]
pub struct NicTarget {
    /// Name in the Pod.
    pub ifname: IfName,
    /// The Pod's namespace as ADD had it.
    pub netns: PathBuf,
    /// Identity of that namespace; a path may be reused by another sandbox.
    pub netns_id: Option<NetnsId>,
    /// Parent NIC on the host.
    pub master: Option<IfName>,
    /// VLAN id.
    pub vlan: Option<VlanId>,
    /// MAC.
    pub mac: Option<Mac>,
}

/// What an attach has done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attached {
    /// MTU of the link, for the CNI result.
    pub mtu: u32,
    /// Gateways that answered the pre-flight and by which MAC; baseline of the observer.
    pub gateway_macs: Vec<(IpAddr, Mac)>,
    /// One entry a family the NIC has an address of; empty when the pre-flight is off.
    pub preflight: Vec<PreflightReport>,
    /// Netlink requests sent, in both namespaces.
    pub netlink_requests: u64,
    /// An equal link was there already and was taken over.
    pub reused: bool,
}

/// How the pre-flight of one family ended. A failed one is [`NicError::PreflightFailed`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreflightReport {
    /// Of the address.
    pub family: Family,
    /// How it ended.
    pub result: PreflightResult,
    /// Requests sent.
    pub attempts: u32,
    /// From the first request to the answer.
    pub duration: Duration,
}

/// How the pre-flight of a family ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PreflightResult {
    /// The gateway answered.
    Ok,
    /// The family has no gateway to ask.
    Skipped,
}

impl PreflightResult {
    /// Value of the metric label `result` and of the demo's JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Skipped => "skipped",
        }
    }
}

/// Address family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Of an address.
    #[must_use]
    pub const fn of(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }

    /// Value of the metric label `family` and of the demo's JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V4 => "ipv4",
            Self::V6 => "ipv6",
        }
    }
}

/// The parent NIC as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MasterInfo {
    /// Index in the host namespace.
    pub ifindex: u32,
    /// Current MAC.
    pub mac: Mac,
    /// Burnt-in MAC, where the driver tells it; a bond or an administrator may have changed `mac`.
    pub permanent_mac: Option<Mac>,
    /// The largest MTU a sub-ENI can have.
    pub mtu: u32,
}

/// The Pod's namespace before an attach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenedTarget {
    /// For the attachment file.
    pub netns_id: NetnsId,
    /// A VLAN link with this name is there. The allocation decides whether it is the same
    /// (`attach` takes it over) or another one (`attach` answers 107).
    pub vlan_link_present: bool,
}

/// Frames that a NIC of a Pod dropped since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Drops {
    /// Received ones.
    pub rx: u64,
    /// Ones to be sent.
    pub tx: u64,
}

/// Who has a VLAN that another NIC needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// A path by which its namespace can be opened.
    pub netns: Option<PathBuf>,
    /// Identity of that namespace, to be compared with attachment files.
    pub netns_id: Option<NetnsId>,
    /// Name of the link in there.
    pub ifname: String,
    /// Index of the link in there.
    pub ifindex: u32,
    /// MAC of the link.
    pub mac: Option<Mac>,
}

/// The kernel as the flows see it. Every operation opens its sockets, works and closes them.
///
/// None of them is cancel-safe in the sense that a dropped future undoes its steps: what it left
/// is recognised and taken over by the next `attach` or `detach` of the same NIC.
pub trait NicOps: Send + Sync {
    /// Parent NIC exists, is no VLAN link, carries the MAC, is up (set up when down), `mtu` fits.
    ///
    /// Errors: codes 106 and 7.
    fn check_master<'a>(
        &'a self,
        master: &'a IfName,
        parent_mac: Option<Mac>,
        mtu: Option<u32>,
    ) -> BoxFuture<'a, Result<MasterInfo, NicError>>;

    /// VLAN links can be made here, as far as the kernel goes. Changes nothing, but the kernel may
    /// load its module; a good answer is remembered.
    ///
    /// Errors: [`NicError::NoVlanSupport`], or 999 when the kernel cannot be asked.
    fn probe_vlan(&self) -> BoxFuture<'_, Result<(), NicError>>;

    /// The Pod's namespace opens, and `ifname` is free in it or may be the same NIC.
    ///
    /// Errors: code 4 (no such namespace), 5, or 107 when a link of another kind has the name.
    fn open_target<'a>(
        &'a self,
        netns: &'a Path,
        ifname: &'a IfName,
    ) -> BoxFuture<'a, Result<OpenedTarget, NicError>>;

    /// The host NIC behind a virtual function in the Pod's namespace.
    ///
    /// Errors: the text says what is in the way.
    fn host_nic<'a>(
        &'a self,
        netns: &'a Path,
        ifname: &'a IfName,
    ) -> BoxFuture<'a, Result<HostNic, FunctionError>>;

    /// Makes the NIC: link, sysctls, pre-flight, addresses, routes, announcement. On failure the
    /// link is deleted again. An equal link is taken over.
    ///
    /// Errors: 7, 103, 105, 106, 107, 4, 5, 999; see [`NicError`].
    fn attach(&self, spec: NicSpec) -> BoxFuture<'_, Result<Attached, NicError>>;

    /// Deletes the NIC if it is there and is the one described. `Ok(false)`: nothing was there.
    ///
    /// Errors: 5 or 999 when the kernel refuses.
    fn detach(&self, target: NicTarget) -> BoxFuture<'_, Result<bool, NicError>>;

    /// Deletes the VLAN link of a dead sandbox; gone already is success.
    ///
    /// Errors: 5 or 999 when the kernel refuses.
    fn evict(&self, holder: Holder) -> BoxFuture<'_, Result<(), NicError>>;

    /// Compares the NIC with what it shall be (CNI CHECK).
    ///
    /// Errors: [`NicError::Drift`] with every difference, or what kept it from looking.
    fn check(&self, spec: NicSpec) -> BoxFuture<'_, Result<(), NicError>>;

    /// What the NIC dropped; `None` when it or its sandbox is gone. Looks by name, in the sandbox
    /// the target names.
    ///
    /// Errors: 5 or 999 when the kernel refuses.
    fn drops(&self, target: NicTarget) -> BoxFuture<'_, Result<Option<Drops>, NicError>>;
}
