//! What kind of failure a flow met, for metrics and events (spec ipam 3.6, 8). Pure.

use spiderpool_api::cni::CniCode;
use spiderpool_ipam::pick::PickError;

use super::allocation::{AllocationError, FamilyFailure};
use super::call::Ended;
use super::error::FlowError;
use crate::writer::WriteError;

/// The kinds. The words of the events are stable: scripts select by them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Category {
    /// Call, configuration or annotation say something impossible.
    WrongInput,
    /// No pool may serve the NIC.
    NoAvailablePool,
    /// The pools that may have no address left.
    UsedOut,
    /// The deadline came while others kept changing the pool.
    RetriesExhausted,
    /// The provider has not published what its pool needs.
    MetadataNotReady,
    /// The provider did not bind.
    Provider,
    /// The address is there; the NIC could not be made.
    Nic,
    /// Everything else: the API, disks, time.
    Internal,
}

impl Category {
    /// Of a failed ADD or DEL.
    pub(crate) fn of(error: &FlowError) -> Self {
        match error {
            FlowError::Call(_) | FlowError::NoPod | FlowError::NetnsMissing(_) => Self::WrongInput,
            FlowError::Allocation { source, .. } => of_allocation(source),
            FlowError::Release { source, .. } => of_write(source),
            FlowError::NoSubEni { .. } | FlowError::VlanOfLivePod { .. } | FlowError::Nic(_) => {
                Self::Nic
            }
            _ => Self::Internal,
        }
    }

    /// `reason` of the Warning on the Pod.
    pub(crate) const fn event_reason(self) -> &'static str {
        match self {
            Self::WrongInput => "IPAMWrongInput",
            Self::NoAvailablePool => "NoIPPoolAvailable",
            Self::UsedOut => "IPAddressesUsedOut",
            Self::RetriesExhausted => "IPAMRetriesExhausted",
            Self::MetadataNotReady => "IaaSMetadataNotReady",
            Self::Provider => "IaaSAllocateFailed",
            Self::Nic => "SubENIAttachFailed",
            Self::Internal => "IPAllocationFailed",
        }
    }
}

/// Whether the Pod's user can do something about it: not when the Pod is gone, or nobody waits.
pub(crate) fn is_worth_an_event(error: &FlowError) -> bool {
    !matches!(
        error,
        FlowError::PodMissing(_)
            | FlowError::PodReplaced { .. }
            | FlowError::PodDead(_)
            | FlowError::Ended(Ended::CallerGone(_))
    )
}

fn of_allocation(error: &AllocationError) -> Category {
    match error {
        AllocationError::Select(error) if error.code() == CniCode::Config => Category::WrongInput,
        AllocationError::Select(_) => Category::NoAvailablePool,
        AllocationError::Annotation(_) | AllocationError::NotIpv4(_) => Category::WrongInput,
        AllocationError::Families(failures) => of_families(failures),
        AllocationError::Provider { .. } => Category::Provider,
        _ => Category::Internal,
    }
}

/// What stands in the way of the whole: time before addresses, addresses before pools.
fn of_families(failures: &[FamilyFailure]) -> Category {
    let tried = || failures.iter().flat_map(|failure| &failure.tried);
    let kinds: Vec<Category> = tried().map(|(_, error)| of_write(error)).collect();
    let order = [
        Category::RetriesExhausted,
        Category::Internal,
        Category::UsedOut,
        Category::MetadataNotReady,
    ];
    let first = order.into_iter().find(|kind| kinds.contains(kind));
    first.unwrap_or(Category::NoAvailablePool)
}

fn of_write(error: &WriteError) -> Category {
    match error {
        WriteError::Conflicts(_) => Category::RetriesExhausted,
        WriteError::Pick(error) if error.is_used_out() => Category::UsedOut,
        WriteError::Pick(PickError::NotReady(_)) => Category::MetadataNotReady,
        error if error.is_this_pool_only() => Category::NoAvailablePool,
        _ => Category::Internal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spiderpool_ipam::range::Family;

    fn families(errors: &[WriteError]) -> Category {
        let tried = errors.iter().map(|error| ("p".to_owned(), error.clone()));
        of_families(&[FamilyFailure {
            nic: "net1".into(),
            family: Family::V4,
            tried: tried.collect(),
            refusals: Vec::new(),
        }])
    }

    #[test]
    fn of_several_pools_the_worst_decides() {
        let full = WriteError::Pick(PickError::RecordCap {
            pool: "p".into(),
            cap: 1,
        });
        let closed = WriteError::Pick(PickError::Closed {
            pool: "p".into(),
            word: "disabled",
        });
        let (conflict, late) = (
            WriteError::Conflicts("p".into()),
            WriteError::Deadline("p".into()),
        );
        for (errors, want) in [
            (vec![], Category::NoAvailablePool),
            (vec![closed.clone()], Category::NoAvailablePool),
            (
                vec![WriteError::NoPool("p".into())],
                Category::NoAvailablePool,
            ),
            (vec![closed, full.clone()], Category::UsedOut),
            (vec![full.clone(), late], Category::Internal),
            (vec![full, conflict], Category::RetriesExhausted),
        ] {
            assert_eq!(families(&errors), want, "{errors:?}");
        }
    }
}
