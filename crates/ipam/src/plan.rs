//! What an ADD or DEL does, as data: decisions, ordered steps with their undo classes, results
//! (spec ipam 1.3-1.7, design section 3). The step order lives only here.

mod add;
mod allocation;
mod batch_del;
mod del;
mod steps;
mod sticky;

pub use add::{
    AddError, AddPlan, EndpointWrite, Held, Intent, claimant, endpoint_after, held_by, plan_add,
    plan_check, sub_enis_of, to_claim,
};
pub use allocation::{
    AllocatedIp, Allocation, Claim, ResultError, assemble, attach_routes, from_endpoint,
    to_endpoint,
};
pub use batch_del::{BatchDelError, BatchDelFacts, BatchDelPlan, plan_batch_del};
pub use del::{DelFacts, DelPlan, Identity, NothingToFree, ReleaseFrom, plan_del};
pub use steps::{DelStep, PlannedStep, Step, Undo, undo_of_claim};
pub use sticky::{Adoption, Exchange, Freed, Take, endpoint_adopted, give_up, pool_change};

#[cfg(test)]
mod tests;
