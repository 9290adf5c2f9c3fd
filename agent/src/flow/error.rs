//! Why a call failed, with the code and the text that the runtime shows. The chain of causes goes
//! into `details`.

use std::path::PathBuf;

use spiderpool_api::causes::one_line;
use spiderpool_api::cni::{CniCode, CniError, CniVersion};
use spiderpool_api::value::{IfName, VlanId};
pub use spiderpool_controller::chain::{chain, full};

use super::allocation::AllocationError;
use super::call::{CallError, Ended};
use crate::attachment::AttachmentError;
use crate::nic::NicError;
use crate::spool::SpoolError;
use crate::store::{ObjectKey, StoreError};
use crate::writer::WriteError;

/// Why a flow failed.
#[derive(Debug, thiserror::Error)]
pub enum FlowError {
    /// The call itself.
    #[error(transparent)]
    Call(CallError),
    /// Nobody said which Pod.
    #[error(
        "CNI_ARGS has no K8S_POD_NAMESPACE and K8S_POD_NAME; bare containers are served in standalone mode only"
    )]
    NoPod,
    /// There is no such Pod.
    #[error("failed to get Pod {0}: it does not exist")]
    PodMissing(ObjectKey),
    /// The name belongs to another Pod by now.
    #[error("Pod {pod} has UID {found}, not {wanted} as the runtime says; it was replaced")]
    PodReplaced {
        /// The Pod.
        pod: ObjectKey,
        /// By the runtime.
        wanted: String,
        /// By the API.
        found: String,
    },
    /// It has ended.
    #[error("dead Pod {0}: it is being deleted or has ended, and gets no address")]
    PodDead(ObjectKey),
    /// No address.
    #[error("spiderpool IP allocation error: Pod {pod}, NIC {ifname}")]
    Allocation {
        /// The Pod.
        pod: ObjectKey,
        /// The NIC.
        ifname: IfName,
        /// Why.
        source: Box<AllocationError>,
    },
    /// An address could not be freed.
    #[error("spiderpool IP release error: Pod {pod}")]
    Release {
        /// The Pod.
        pod: ObjectKey,
        /// Why.
        source: Box<WriteError>,
    },
    /// The runtime names a namespace that is not there.
    #[error("the Pod's network namespace {} does not exist", .0.display())]
    NetnsMissing(PathBuf),
    /// 104.
    #[error("no VLAN and MAC are assigned to NIC {ifname} of Pod {pod}: {why}")]
    NoSubEni {
        /// The Pod.
        pod: ObjectKey,
        /// The NIC.
        ifname: IfName,
        /// What the allocation has instead.
        why: String,
    },
    /// 105 by a live Pod.
    #[error(
        "VLAN {vlan} on master {master} is in use by the running Pod {holder} (interface {link})"
    )]
    VlanOfLivePod {
        /// Wanted.
        vlan: VlanId,
        /// On this NIC.
        master: IfName,
        /// Who has it.
        holder: ObjectKey,
        /// Its link.
        link: String,
    },
    /// The kernel.
    #[error(transparent)]
    Nic(Box<NicError>),
    /// The API.
    #[error("cannot {doing}")]
    Store {
        /// What for.
        doing: &'static str,
        /// What it said.
        source: StoreError,
    },
    /// The attachment file.
    #[error("the attachment of this sandbox cannot be recorded")]
    Attachment(#[source] AttachmentError),
    /// A release that has to wait could not be kept.
    #[error("the release is not finished and cannot be kept for later")]
    Spool(#[source] SpoolError),
    /// Its older DEL still has to run.
    #[error(
        "an older DEL of container {container}, interface {ifname}, is not finished: its addresses are not given back yet; try again later"
    )]
    OlderDel {
        /// Sandbox.
        container: String,
        /// The NIC.
        ifname: String,
    },
    /// CHECK: the result is not what the agent has.
    #[error("NIC {ifname} of Pod {pod} is not as in prevResult: {why}")]
    Mismatch {
        /// The Pod.
        pod: ObjectKey,
        /// The NIC.
        ifname: IfName,
        /// The difference.
        why: String,
    },
    /// A wait came to nothing.
    #[error(transparent)]
    Ended(Ended),
    /// STATUS.
    #[error("ADD cannot be served: {0}")]
    NotReady(String),
    /// STATUS: what runs is affected too.
    #[error("ADD cannot be served and running Pods may be cut off")]
    Degraded(#[source] Box<NicError>),
    /// GC: everything that went wrong.
    #[error("{} of the attachments could not be cleaned up", .0.len())]
    Gc(Vec<String>),
}

impl FlowError {
    /// The CNI code.
    #[must_use]
    pub fn cni_code(&self) -> CniCode {
        match self {
            Self::Call(error) => error.cni_code(),
            Self::NoPod | Self::NetnsMissing(_) => CniCode::Environment,
            Self::PodMissing(_)
            | Self::PodReplaced { .. }
            | Self::PodDead(_)
            | Self::Mismatch { .. } => CniCode::Refused,
            Self::Allocation { source, .. } => source.cni_code(),
            Self::Release { source, .. } => source.cni_code(),
            Self::NoSubEni { .. } => CniCode::NoSubEni,
            Self::VlanOfLivePod { .. } => CniCode::VlanInUse,
            Self::Nic(error) => error.cni_code(),
            Self::Store { source, .. } => source.cni_code(),
            Self::Attachment(_) | Self::Spool(_) => CniCode::Io,
            Self::Ended(_) | Self::Gc(_) | Self::OlderDel { .. } => CniCode::TryAgain,
            Self::NotReady(_) => CniCode::NotReady,
            Self::Degraded(_) => CniCode::NotReadyDegraded,
        }
    }
}

impl FlowError {
    /// Of the kernel.
    pub(crate) fn nic(error: NicError) -> Self {
        Self::Nic(Box::new(error))
    }

    /// Names what was being done when the API failed.
    pub(crate) fn store(doing: &'static str) -> impl Fn(StoreError) -> Self {
        move |source| Self::Store { doing, source }
    }
}

/// A failure as the runtime sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The code.
    pub code: CniCode,
    /// One line.
    pub msg: String,
    /// The chain of causes.
    pub details: String,
}

impl Failure {
    /// Of a flow.
    #[must_use]
    pub fn of(error: &FlowError) -> Self {
        let details = match error {
            FlowError::Gc(failures) => failures.join("; "),
            error => chain(error),
        };
        Self {
            code: error.cni_code(),
            msg: one_line(&error.to_string()),
            details: one_line(&details),
        }
    }

    /// The object to print.
    #[must_use]
    pub fn into_error(self, version: CniVersion) -> CniError {
        CniError::new(version, self.code, self.msg).with_details(self.details)
    }
}
