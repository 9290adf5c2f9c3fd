//! Batch DEL: a plugin whose probes failed gives all addresses of its Pod back (spec ipam 1.7, last
//! paragraph). Unlike DEL it means a Pod that lives.

use spiderpool_api::endpoint::EndpointStatus;

use super::add::{Held, held_by};
use crate::sticky::Sticky;

/// Facts of a batch DEL, read uncached.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BatchDelFacts {
    /// `namespace/name` of the Pod.
    pub pod: String,
    /// `podUID` of the call, else of the Pod object; `None` when there is neither.
    pub uid: Option<String>,
    /// `isReleaseConflictIPs`: the addresses conflict, they are not merely unreachable.
    pub conflict: bool,
    /// `SPIDERPOOL_ENABLED_RELEASE_CONFLICT_IPS`, on by default.
    pub conflict_release_enabled: bool,
    /// What outlives the Pod, by its owner.
    pub identity: Option<Sticky>,
    /// Endpoint of the Pod, or of its machine.
    pub endpoint: Option<EndpointStatus>,
}

/// What a batch DEL does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BatchDelPlan {
    /// Nobody says which Pod it was.
    Nothing,
    /// Empties `current.ips` of the endpoint, then frees these addresses, the provider first.
    Release {
        /// The UID each record must carry.
        uid: String,
        /// The addresses.
        held: Vec<Held>,
    },
}

/// Why a batch DEL is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BatchDelError {
    /// Switched off.
    #[error(
        "conflicting addresses of Pod {0} are not released: SPIDERPOOL_ENABLED_RELEASE_CONFLICT_IPS is false"
    )]
    StatelessForbidden(String),
    /// The identity keeps its addresses, whoever else uses them.
    #[error(
        "conflicting addresses of Pod {0} are not released: it is of a StatefulSet or a virtual machine, which keeps its addresses; end whoever else uses them"
    )]
    StatefulForbidden(String),
    /// It should have been there.
    #[error("there is no SpiderEndpoint of Pod {0}: nothing says which addresses it has")]
    NoEndpoint(String),
    /// It is another Pod's.
    #[error("the SpiderEndpoint of Pod {pod} is of UID {found}, not {wanted}: nothing is released")]
    OtherPod {
        /// `namespace/name`.
        pod: String,
        /// In the endpoint.
        found: String,
        /// Asked for.
        wanted: String,
    },
}

impl BatchDelError {
    /// HTTP status of the answer.
    #[must_use]
    pub const fn status(&self) -> u16 {
        match self {
            Self::StatelessForbidden(_) => 521,
            Self::StatefulForbidden(_) => 522,
            Self::NoEndpoint(_) | Self::OtherPod { .. } => 500,
        }
    }
}

/// Decides a batch DEL.
///
/// # Errors
/// [`BatchDelError`]; nothing is freed then.
pub fn plan_batch_del(facts: &BatchDelFacts) -> Result<BatchDelPlan, BatchDelError> {
    let Some(uid) = facts.uid.as_deref().filter(|uid| !uid.is_empty()) else {
        return Ok(BatchDelPlan::Nothing);
    };
    let pod = facts.pod.clone();
    if facts.conflict && !facts.conflict_release_enabled {
        return Err(BatchDelError::StatelessForbidden(pod));
    }
    if facts.conflict && facts.identity.is_some() {
        return Err(BatchDelError::StatefulForbidden(pod));
    }
    let Some(endpoint) = &facts.endpoint else {
        return Err(BatchDelError::NoEndpoint(pod));
    };
    let current = &endpoint.current;
    if current.uid != uid {
        return Err(BatchDelError::OtherPod {
            pod,
            found: current.uid.clone(),
            wanted: uid.to_owned(),
        });
    }
    Ok(BatchDelPlan::Release {
        uid: uid.to_owned(),
        held: held_by(current),
    })
}
