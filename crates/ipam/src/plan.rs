//! What an ADD or DEL does, as data: decisions, ordered steps with their undo classes, results
//! (spec ipam 1.3-1.7, design section 3). The step order lives only here.

mod add;
mod allocation;
mod del;
mod steps;

pub use add::{
    AddError, AddPlan, EndpointWrite, Held, Intent, claimant, endpoint_after, plan_add, plan_check,
};
pub use allocation::{
    AllocatedIp, Allocation, Claim, ResultError, assemble, attach_routes, from_endpoint,
    to_endpoint,
};
pub use del::{DelFacts, DelPlan, NothingToFree, ReleaseFrom, plan_del};
pub use steps::{PlannedStep, Step, Undo, undo_of_claim};

#[cfg(test)]
mod tests;
