//! Why a NIC operation failed, and which CNI code says so. Owns the texts an operator reads.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use spiderpool_api::cni::CniCode;
use spiderpool_api::value::{IfName, Mac, VlanId};
use spiderpool_netops::netns::NetnsError;
use spiderpool_netops::probe::ProbeError;
use spiderpool_netops::rtnl::RtnlError;
use spiderpool_netops::sysctl::SysctlError;

use super::Holder;

/// Why a NIC operation failed. Names the objects; the kernel's answer is in `source`.
#[derive(Debug, thiserror::Error)]
pub enum NicError {
    /// 106: no such NIC in the host namespace.
    #[error(
        "master {master} does not exist on this node; name the node's parent NIC in the network configuration"
    )]
    MasterMissing {
        /// As configured.
        master: IfName,
    },
    /// 106: VLAN on VLAN is no sub-ENI.
    #[error("master {master} is itself a VLAN link; a sub-ENI needs the parent NIC under it")]
    MasterIsVlan {
        /// As configured.
        master: IfName,
    },
    /// 106: the allocation belongs to another parent NIC.
    #[error(
        "master {master} has MAC {mac}{}, but the sub-ENI belongs to the parent NIC with MAC {expected}",
        permanent.map(|p| format!(" (permanent {p})")).unwrap_or_default()
    )]
    ParentMacMismatch {
        /// As configured.
        master: IfName,
        /// What the allocation says.
        expected: Mac,
        /// What the NIC has.
        mac: Mac,
        /// What the NIC was built with, if it tells.
        permanent: Option<Mac>,
    },
    /// 106: whoever published or answered it mixed the NICs up.
    #[error(
        "the sub-ENI shall have MAC {mac}, which master {master} has itself; its provider has to publish the sub-ENI's own"
    )]
    MacOfMaster {
        /// As configured.
        master: IfName,
        /// Of both.
        mac: Mac,
    },
    /// 7: the configured MTU does not fit through the parent NIC.
    #[error(
        "mtu {mtu} is above {limit}, the MTU of master {master}; lower the one or raise the other"
    )]
    MtuAboveMaster {
        /// As configured.
        master: IfName,
        /// Asked for.
        mtu: u32,
        /// What the master has.
        limit: u32,
    },
    /// 4: there is no such namespace.
    #[error("the Pod's network namespace {} does not exist", netns.display())]
    NetnsMissing {
        /// `CNI_NETNS`.
        netns: PathBuf,
        /// What was found in its place.
        source: NetnsError,
    },
    /// 5: it is there and could not be used.
    #[error("the network namespace {} cannot be used", netns.display())]
    NetnsUnusable {
        /// `CNI_NETNS`.
        netns: PathBuf,
        /// What failed.
        source: NetnsError,
    },
    /// 107: another link has the name.
    #[error("interface name {ifname} is taken in {} by {found}", netns.display())]
    NameTaken {
        /// `CNI_IFNAME`.
        ifname: IfName,
        /// `CNI_NETNS`.
        netns: PathBuf,
        /// Kind, VLAN id and MAC of the link that has it.
        found: String,
    },
    /// 105: one VLAN id per master over all namespaces (kernel rule).
    #[error("VLAN {vlan} on master {master} is already used by {} in network namespace {}", holder.ifname,
        holder.netns.as_ref().map_or_else(|| "(unknown)".to_owned(), |p| p.display().to_string()))]
    VlanInUse {
        /// Asked for.
        vlan: VlanId,
        /// On this parent NIC.
        master: IfName,
        /// Who has it: the flow decides whether it is dead.
        holder: Box<Holder>,
    },
    /// 105: the same, but its namespace cannot be found: an open file somewhere keeps it.
    #[error(
        "VLAN {vlan} on master {master} is already used in a network namespace that no process and no name shows; an open file keeps it"
    )]
    VlanHolderUnknown {
        /// Asked for.
        vlan: VlanId,
        /// On this parent NIC.
        master: IfName,
    },
    /// 103: the fabric did not let the triple through.
    #[error(
        "sub-ENI validation failed: gateway {gateway} did not answer for IP {ip} with MAC {mac} in VLAN {vlan} \
         on master {master} after {attempts} attempts of {} ms",
        timeout.as_millis()
    )]
    PreflightFailed {
        /// Asked.
        gateway: IpAddr,
        /// Asked for this address.
        ip: IpAddr,
        /// From this MAC.
        mac: Mac,
        /// In this VLAN.
        vlan: VlanId,
        /// Through this NIC.
        master: IfName,
        /// Requests sent.
        attempts: u32,
        /// Wait for each.
        timeout: Duration,
    },
    /// 103: the probe could not be made; fails closed.
    #[error(
        "sub-ENI validation of IP {ip} with MAC {mac} in VLAN {vlan} on master {master} could not ask gateway {gateway}"
    )]
    PreflightBroken {
        /// To be asked.
        gateway: IpAddr,
        /// For this address.
        ip: IpAddr,
        /// From this MAC.
        mac: Mac,
        /// In this VLAN.
        vlan: VlanId,
        /// Through this NIC.
        master: IfName,
        /// What failed.
        source: Box<ProbeError>,
    },
    /// 100: the NIC is not what it shall be.
    #[error("interface {ifname} in {} is not as attached: {}", netns.display(), differences.join("; "))]
    Drift {
        /// In the Pod.
        ifname: IfName,
        /// The Pod's namespace.
        netns: PathBuf,
        /// Every difference found: what, wanted, found.
        differences: Vec<String>,
    },
    /// 999: the link was made and then not found: somebody deletes or moves links in the Pod.
    #[error("link {link} vanished from {} right after its creation; another program manages links there", netns.display())]
    LinkVanished {
        /// Temporary name.
        link: String,
        /// The Pod's namespace.
        netns: PathBuf,
    },
    /// 999: the kernel has no `8021q`.
    #[error("this kernel makes no VLAN links; load the module on the node: modprobe 8021q")]
    NoVlanSupport {
        /// Request, object, answer.
        source: RtnlError,
    },
    /// 999: the kernel refused a netlink request.
    #[error("the kernel refused while {doing}")]
    Netlink {
        /// The step.
        doing: &'static str,
        /// Request, object, answer.
        source: RtnlError,
    },
    /// 5: a sysctl could not be written.
    #[error("a sysctl of the Pod could not be set while {doing}")]
    Sysctl {
        /// The step.
        doing: &'static str,
        /// Which, and why.
        source: SysctlError,
    },
    /// 105: an administrator's link; never deleted by the agent.
    #[error(
        "VLAN link {ifname} is in the node's own network namespace; take it down by hand if the VLAN is a Pod's"
    )]
    HolderIsHost {
        /// The link in the way.
        ifname: String,
    },
    /// As the first cause: its undo failed too, the link may still be there.
    #[error("link {link} may be left in {}: its deletion failed ({undo}) after another failure", netns.display())]
    UndoFailed {
        /// What went wrong first.
        #[source]
        first: Box<NicError>,
        /// What the deletion answered, with its causes.
        undo: String,
        /// Left behind.
        link: String,
        /// In here.
        netns: PathBuf,
    },
}

impl NicError {
    /// The CNI error code (spec of the data plane, section 0).
    #[must_use]
    pub fn cni_code(&self) -> CniCode {
        match self {
            Self::MasterMissing { .. }
            | Self::MasterIsVlan { .. }
            | Self::ParentMacMismatch { .. }
            | Self::MacOfMaster { .. } => CniCode::Master,
            Self::MtuAboveMaster { .. } => CniCode::Config,
            Self::NetnsMissing { .. } => CniCode::Environment,
            Self::NetnsUnusable { .. } | Self::Sysctl { .. } => CniCode::Io,
            Self::NameTaken { .. } => CniCode::NameTaken,
            Self::VlanInUse { .. } | Self::VlanHolderUnknown { .. } | Self::HolderIsHost { .. } => {
                CniCode::VlanInUse
            }
            Self::PreflightFailed { .. } | Self::PreflightBroken { .. } => {
                CniCode::ValidationFailed
            }
            Self::Drift { .. } => CniCode::Refused,
            Self::NoVlanSupport { .. } | Self::Netlink { .. } | Self::LinkVanished { .. } => {
                CniCode::Internal
            }
            Self::UndoFailed { first, .. } => first.cni_code(),
        }
    }

    /// What using a namespace failed with.
    pub(super) fn netns(source: NetnsError, netns: &Path) -> Self {
        let netns = netns.to_owned();
        if source.is_gone() {
            Self::NetnsMissing { netns, source }
        } else {
            Self::NetnsUnusable { netns, source }
        }
    }

    /// The same as a number.
    #[must_use]
    pub fn code(&self) -> u32 {
        self.cni_code().number()
    }
}
