//! The steps of an ADD, in their order, and what a later failure does about each (design section 3).

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
    /// Entry in the frame observer.
    Observer,
}

impl Step {
    /// All steps in the order of a fresh ADD.
    pub const ALL: [Self; 14] = [
        Self::DropEndpoint,
        Self::Claim,
        Self::ClaimHalf,
        Self::Bind,
        Self::Record,
        Self::AttachmentFile,
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
            | Self::Link
            | Self::Sysctl
            | Self::RenameUp
            | Self::Address
            | Self::Route
            | Self::Observer => Undo::Reverse,
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

/// What a failed ADD does about a claim once claims or the provider's answer fail: a claim in a
/// global pool goes at once, others stay under the UID. After that, whatever fails, claims stay.
#[must_use]
pub const fn undo_of_claim(mode: &Mode) -> Undo {
    match mode {
        Mode::Global => Undo::Reverse,
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
