//! The steps of an ADD, in their order, and what a later failure does about each (design section 3);
//! and those of a DEL.

use crate::pick::Path;
use crate::pool::Mode;

/// One step of an ADD, in the order they run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// Delete the endpoint of an earlier Pod of this name and drop its finalizer.
    DropEndpoint,
    /// Records in pool status.
    Claim,
    /// The IPv6 halves of pairs.
    ClaimHalf,
    /// The provider's call for the NICs that need one.
    Bind,
    /// The endpoint.
    Record,
    /// What DEL needs if the API is gone.
    AttachmentFile,
    /// Entry in the frame observer, before there is a link.
    ObserverEntry,
    /// The VLAN link, straight into the Pod netns under a temporary name.
    Link,
    /// Sysctls of the link.
    Sysctl,
    /// Final name and up, one message.
    RenameUp,
    /// Does the fabric accept address, MAC and VLAN?
    Preflight,
    /// Addresses.
    Address,
    /// Routes.
    Route,
    /// Gratuitous ARP and unsolicited NA.
    Announce,
    /// The observer's entry becomes active.
    Observer,
}

impl Step {
    /// All steps in the order of a fresh ADD.
    pub const ALL: [Self; 15] = [
        Self::DropEndpoint,
        Self::Claim,
        Self::ClaimHalf,
        Self::Bind,
        Self::Record,
        Self::AttachmentFile,
        Self::ObserverEntry,
        Self::Link,
        Self::Sysctl,
        Self::RenameUp,
        Self::Preflight,
        Self::Address,
        Self::Route,
        Self::Announce,
        Self::Observer,
    ];

    /// Stable name, for logs and failpoints.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::DropEndpoint => "drop_endpoint",
            Self::Claim => "claim",
            Self::ClaimHalf => "claim_half",
            Self::Bind => "bind",
            Self::Record => "record",
            Self::AttachmentFile => "attachment_file",
            Self::ObserverEntry => "observer_entry",
            Self::Link => "link",
            Self::Sysctl => "sysctl",
            Self::RenameUp => "rename_up",
            Self::Preflight => "preflight",
            Self::Address => "address",
            Self::Route => "route",
            Self::Announce => "announce",
            Self::Observer => "observer",
        }
    }

    /// What a later failure does about this step.
    #[must_use]
    pub const fn undo(self) -> Undo {
        match self {
            Self::DropEndpoint | Self::Bind | Self::Record => Undo::Keep,
            Self::Claim | Self::ClaimHalf => Undo::ByPoolMode,
            Self::Preflight | Self::Announce => Undo::Nothing,
            Self::AttachmentFile
            | Self::ObserverEntry
            | Self::Link
            | Self::Sysctl
            | Self::RenameUp
            | Self::Address
            | Self::Route
            | Self::Observer => Undo::Reverse,
        }
    }
}

/// One step of a DEL, in the order they run. There is no undo: a DEL that ended early is repeated,
/// and what is gone already is no failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DelStep {
    /// The observer's entry is told that the NIC goes.
    Drain,
    /// The link.
    Unlink,
    /// The observer's entry.
    Unobserve,
    /// The Pod object that standalone mode made for a bare container.
    DeletePod,
    /// The mark on the record of a sub-ENI that goes back to the provider.
    Mark,
    /// The provider's call.
    Unbind,
    /// Records in pool status.
    Free,
    /// The endpoint is marked for deletion.
    DeleteEndpoint,
    /// Its finalizer, and with it the object.
    DropFinalizer,
    /// A release that the provider has not accepted is kept for later.
    KeepForLater,
    /// The attachment file.
    RemoveFile,
}

impl DelStep {
    /// All steps in their order.
    pub const ALL: [Self; 11] = [
        Self::Drain,
        Self::Unlink,
        Self::Unobserve,
        Self::DeletePod,
        Self::Mark,
        Self::Unbind,
        Self::Free,
        Self::DeleteEndpoint,
        Self::DropFinalizer,
        Self::KeepForLater,
        Self::RemoveFile,
    ];

    /// Stable name, for logs and failpoints; no step of an ADD has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Drain => "drain",
            Self::Unlink => "unlink",
            Self::Unobserve => "unobserve",
            Self::DeletePod => "delete_pod",
            Self::Mark => "mark",
            Self::Unbind => "unbind",
            Self::Free => "free",
            Self::DeleteEndpoint => "delete_endpoint",
            Self::DropFinalizer => "drop_finalizer",
            Self::KeepForLater => "keep_for_later",
            Self::RemoveFile => "remove_file",
        }
    }
}

/// Undo class of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Undo {
    /// Stays, so that the retry meets the same.
    Keep,
    /// See [`undo_of_claim`]; only a failure of the claims themselves or of the provider undoes.
    ByPoolMode,
    /// Undone, last step first.
    Reverse,
    /// Leaves nothing to undo.
    Nothing,
}

/// What a failed ADD does about a claim once claims or the provider's answer fail: a claim that the
/// provider has to be called for, and any in a global pool, goes at once, others stay under the UID.
/// After that, whatever fails, claims stay.
#[must_use]
pub const fn undo_of_claim(mode: &Mode, path: Path) -> Undo {
    match mode {
        Mode::Global => Undo::Reverse,
        Mode::Plain if path.is_cold() => Undo::Reverse,
        Mode::Plain | Mode::Prewarm { .. } => Undo::Keep,
    }
}

/// A step of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlannedStep {
    /// What to do.
    pub step: Step,
    /// What to do about it on a later failure.
    pub undo: Undo,
}
