//! What an ADD or DEL does, as data: decisions, ordered steps with their undo classes, results
//! (spec ipam 1.3-1.7, design section 3). The step order lives only here.

mod add;
mod allocation;
mod del;

pub use add::{
    AddError, AddPlan, EndpointWrite, Held, Intent, PlannedStep, Step, Undo, claimant,
    endpoint_after, plan_add, undo_of_claim,
};
pub use allocation::{
    AllocatedIp, Allocation, Claim, ResultError, assemble, attach_routes, from_endpoint,
    to_endpoint,
};
pub use del::{DelFacts, DelPlan, NothingToFree, ReleaseFrom, plan_del};

#[cfg(test)]
mod tests;
